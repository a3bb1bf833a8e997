//===- Reduction.cpp - Reductions, pooling, normalization -----------------===//
#include "dialects/Graph/Graph.h"

#include "partita/Reference/Kernels.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::graph;

Expected<ShardingRule> ReduceOp::ruleFor(const std::vector<Shape> &shapes,
                                         Adaptor adaptor) {
  ReduceKind kind = adaptor.getKind();
  auto rule = reduceRule(shapes[0], vec(adaptor.getAxes()), adaptor.getKeepDims(), kind);
  if (rule)
    rule->linear.push_back({kind, {0}});
  return rule;
}

Expected<std::vector<HostTensor>>
ReduceOp::evaluate(ArrayRef<const HostTensor *> operands) {
  std::vector<bool> reduced(operands[0]->shape.size(), false);
  for (int64_t axis : getAxes())
    reduced[*normalizeAxis(axis, reduced.size())] = true;
  return std::vector<HostTensor>{
      reference::reduce(*operands[0], reduced, getKind(), shapeOf(getResult()))};
}

Expected<ShardingRule> SoftmaxOp::ruleFor(const std::vector<Shape> &shapes,
                                          Adaptor adaptor) {
  return rowRule(shapes[0], {static_cast<int64_t>(adaptor.getAxis())});
}

Expected<ShardingRule> LogSoftmaxOp::ruleFor(const std::vector<Shape> &shapes,
                                             Adaptor adaptor) {
  return rowRule(shapes[0], {static_cast<int64_t>(adaptor.getAxis())});
}

/// Subtracts the maximum first, as every stable implementation does; a row of -inf only
/// gives NaN, as in ONNX Runtime.
static double shiftByMax(std::vector<double> &row) {
  double top = -INFINITY, sum = 0;
  for (double v : row)
    top = std::isnan(v) || v > top ? v : top;
  for (double &v : row) {
    v -= top;
    sum += std::exp(v);
  }
  return sum;
}

Expected<std::vector<HostTensor>>
SoftmaxOp::evaluate(ArrayRef<const HostTensor *> operands) {
  int64_t axis = *normalizeAxis(getAxis(), operands[0]->shape.size());
  return std::vector<HostTensor>{
      reference::mapRows(*operands[0], axis, false, [](std::vector<double> &row) {
        double sum = shiftByMax(row);
        for (double &v : row)
          v = std::exp(v) / sum;
      })};
}

Expected<std::vector<HostTensor>>
LogSoftmaxOp::evaluate(ArrayRef<const HostTensor *> operands) {
  int64_t axis = *normalizeAxis(getAxis(), operands[0]->shape.size());
  return std::vector<HostTensor>{
      reference::mapRows(*operands[0], axis, false, [](std::vector<double> &row) {
        double logSum = std::log(shiftByMax(row));
        for (double &v : row)
          v -= logSum;
      })};
}

/// The input's dims from `axis` on are mixed; parameters broadcast to those dims and so
/// share the mixed factors.
static Expected<ShardingRule> normRule(const std::vector<Shape> &shapes, int64_t axis) {
  auto normal = normalizeAxis(axis, shapes[0].size());
  if (!normal)
    return tl::unexpected(normal.error());
  std::vector<int64_t> mixed;
  for (auto d = *normal; d < static_cast<int64_t>(shapes[0].size()); ++d)
    mixed.push_back(d);
  auto rule = rowRule(shapes[0], mixed);
  for (size_t o = 1; rule && o < shapes.size(); ++o) {
    Shape tail(shapes[0].begin() + *normal, shapes[0].end());
    auto fits = broadcastShapes({tail, shapes[o]});
    if (!fits || *fits != tail)
      return makeError("operand " + std::to_string(o) +
                       " does not broadcast to the normalized dims");
    TensorFactors parameter;
    size_t skip = shapes[0].size() - shapes[o].size();
    for (size_t d = 0; d < shapes[o].size(); ++d)
      parameter.push_back(shapes[o][d] == 1 ? std::vector<int32_t>{}
                                            : rule->operands[0][skip + d]);
    rule->operands.push_back(std::move(parameter));
  }
  return rule;
}

Expected<ShardingRule> LayerNormOp::ruleFor(const std::vector<Shape> &shapes,
                                            Adaptor adaptor) {
  return normRule(shapes, adaptor.getAxis());
}

Expected<ShardingRule> RmsNormOp::ruleFor(const std::vector<Shape> &shapes,
                                          Adaptor adaptor) {
  return normRule(shapes, adaptor.getAxis());
}

/// Expands a parameter to one value per element of the normalized dims.
static std::vector<double> expandParameter(const HostTensor &parameter,
                                           const Shape &input, int64_t axis) {
  Shape tail(input.begin() + axis, input.end());
  std::vector<double> all = reference::values<double>(parameter), result;
  auto strides = reference::strides(parameter.shape);
  size_t skip = tail.size() - parameter.shape.size();
  reference::forEachIndex(tail, [&](const Shape &index) {
    int64_t at = 0;
    for (size_t d = 0; d < strides.size(); ++d)
      at += parameter.shape[d] == 1 ? 0 : index[skip + d] * strides[d];
    result.push_back(all[at]);
  });
  return result;
}

Expected<std::vector<HostTensor>>
LayerNormOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &shape = operands[0]->shape;
  int64_t axis = *normalizeAxis(getAxis(), shape.size());
  std::vector<double> scale = expandParameter(*operands[1], shape, axis);
  std::vector<double> bias = expandParameter(*operands[2], shape, axis);
  double epsilon = getEpsilon().convertToDouble();
  return std::vector<HostTensor>{
      reference::mapRows(*operands[0], axis, true, [&](std::vector<double> &row) {
        double mean = 0, variance = 0;
        for (double v : row)
          mean += v / static_cast<double>(row.size());
        for (double v : row)
          variance += (v - mean) * (v - mean) / static_cast<double>(row.size());
        double inverse = 1 / std::sqrt(variance + epsilon);
        for (size_t i = 0; i < row.size(); ++i)
          row[i] = (row[i] - mean) * inverse * scale[i] + bias[i];
      })};
}

Expected<std::vector<HostTensor>>
RmsNormOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &shape = operands[0]->shape;
  int64_t axis = *normalizeAxis(getAxis(), shape.size());
  std::vector<double> scale = expandParameter(*operands[1], shape, axis);
  double epsilon = getEpsilon().convertToDouble();
  return std::vector<HostTensor>{
      reference::mapRows(*operands[0], axis, true, [&](std::vector<double> &row) {
        double square = 0;
        for (double v : row)
          square += v * v / static_cast<double>(row.size());
        double inverse = 1 / std::sqrt(square + epsilon);
        for (size_t i = 0; i < row.size(); ++i)
          row[i] = row[i] * inverse * scale[i];
      })};
}

/// Of an op that reads windows of one operand; `outside` is what stands around it.
template <typename Adaptor>
static Expected<ShardingRule> poolRule(const Shape &input, Adaptor adaptor,
                                       ReduceKind outside) {
  size_t spatial = adaptor.getWindow().size();
  if (input.size() != spatial + 2 || adaptor.getStrides().size() != spatial ||
      adaptor.getDilations().size() != spatial || adaptor.getPads().size() != 2 * spatial)
    return makeError("window, strides, dilations and pads do not fit an input of rank " +
                     std::to_string(input.size()));
  ShardingRule rule;
  TensorFactors in, out;
  for (size_t d = 0; d < 2; ++d) {
    in.emplace_back();
    if (input[d] != 1)
      in.back().push_back(rule.addFactor(input[d]));
    out.push_back(in.back());
  }
  for (size_t d = 0; d < spatial; ++d) {
    int64_t extent = input[2 + d] + adaptor.getPads()[d] + adaptor.getPads()[spatial + d];
    int64_t kernel = (adaptor.getWindow()[d] - 1) * adaptor.getDilations()[d] + 1;
    if (adaptor.getStrides()[d] < 1 || extent < kernel)
      return makeError("spatial dim " + std::to_string(d) + " of padded size " +
                       std::to_string(extent) + " is smaller than the window's " +
                       std::to_string(kernel));
    int64_t result = (extent - kernel) / adaptor.getStrides()[d] + 1;
    in.emplace_back();
    out.emplace_back();
    addSpatialDim(rule,
                  {input[2 + d], result, adaptor.getWindow()[d], adaptor.getStrides()[d],
                   adaptor.getDilations()[d], adaptor.getPads()[d]},
                  outside, in.back(), out.back());
  }
  rule.operands = {in};
  rule.results = {out};
  return rule;
}

Expected<ShardingRule> PoolOp::ruleFor(const std::vector<Shape> &shapes,
                                       Adaptor adaptor) {
  bool isMax = adaptor.getKind() == PoolKind::Max;
  ReduceKind kind = isMax ? ReduceKind::Max : ReduceKind::Sum;
  auto rule = poolRule(shapes[0], adaptor, kind);
  if (rule)
    rule->linear = {{kind, {0}}};
  return rule;
}

Operation *PoolOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                    TypeRange results, const Strategy &strategy) {
  Operation *local = partita::detail::cloneWithTypes(*this, builder, operands, results);
  cast<PoolOp>(local).setPads(
      graph::detail::localPads(*inferShardingRule(), strategy, getPads()));
  return local;
}

/// By what an average over all taps must be multiplied, per position of spatial dim `d`,
/// to be the average over the taps inside the image. Empty: by nothing.
static std::vector<double> insideScale(PoolOp op, size_t d) {
  int64_t input = shapeOf(op.getInput())[d + 2], taps = op.getWindow()[d];
  std::vector<double> scale;
  bool plain = true;
  for (int64_t i = 0; i < shapeOf(op.getResult())[d + 2]; ++i) {
    int64_t inside = 0;
    for (int64_t k = 0; k < taps; ++k) {
      int64_t at = i * op.getStrides()[d] - op.getPads()[d] + k * op.getDilations()[d];
      inside += at >= 0 && at < input;
    }
    plain &= inside == taps;
    scale.push_back(static_cast<double>(taps) / static_cast<double>(inside));
  }
  return plain ? std::vector<double>{} : scale;
}

/// A window buffer has its pads as elements, so that an average which does not count pads
/// would count them. It becomes the average that counts them, scaled per position.
Value PoolOp::rewriteForSplit(OpBuilder &builder, const Strategy &strategy) {
  ShardingRule rule = *inferShardingRule();
  if (getKind() == PoolKind::Max || getCountPadding() || !operandHalo(rule, strategy, 0))
    return {};
  builder.setInsertionPointAfter(*this);
  DType dtype = *dtypeOf(getElementTypeOrSelf(getResult().getType()));
  size_t rank = getWindow().size() + 2;
  Value result = getResult();
  for (size_t d = 2; d < rank; ++d) {
    std::vector<double> scale = insideScale(*this, d - 2);
    if (scale.empty())
      continue;
    Shape shape(rank, 1);
    shape[d] = static_cast<int64_t>(scale.size());
    Value factor =
        ConstantOp::create(builder, getLoc(),
                           toAttribute(builder.getContext(),
                                       reference::tensor<double>(dtype, shape, scale)));
    result = MulOp::create(builder, getLoc(), result.getType(), result, factor);
  }
  if (result == getResult())
    return {};
  setCountPadding(true);
  return result;
}

Expected<std::vector<HostTensor>>
PoolOp::evaluate(ArrayRef<const HostTensor *> operands) {
  reference::Window window{vec(getStrides()), vec(getDilations()), vec(getPads()), 1};
  return std::vector<HostTensor>{
      reference::pool(*operands[0], vec(getWindow()), window, getKind() == PoolKind::Max,
                      getCountPadding(), shapeOf(getResult()))};
}

int64_t PoolOp::getFlops() {
  int64_t taps = 1;
  for (int64_t extent : getWindow())
    taps *= extent;
  return elementCount(shapeOf(getResult())) * taps;
}

//===-- Maximum with its place --------------------------------------------===//

Expected<ShardingRule> MaxPoolOp::ruleFor(const std::vector<Shape> &shapes,
                                          Adaptor adaptor) {
  auto rule = poolRule(shapes[0], adaptor, ReduceKind::Max);
  if (rule)
    rule->results.push_back(rule->results[0]);
  return rule;
}

Operation *MaxPoolOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                       TypeRange results, const Strategy &strategy) {
  Operation *local = partita::detail::cloneWithTypes(*this, builder, operands, results);
  cast<MaxPoolOp>(local).setPads(
      graph::detail::localPads(*inferShardingRule(), strategy, getPads()));
  return local;
}

int64_t MaxPoolOp::getFlops() {
  return 2 * elementCount(shapeOf(getLargest())) * elementCount(vec(getWindow()));
}

template <typename T>
static std::vector<HostTensor> largestTaps(MaxPoolOp op, const HostTensor &input) {
  std::vector<T> all = reference::values<T>(input), largest;
  std::vector<int64_t> taps, strides = reference::strides(input.shape);
  Shape out = shapeOf(op.getLargest());
  HostTensor outside = HostTensor::zeros(input.type, {});
  fillNeutral(outside, ReduceKind::Max);
  const T least = reference::values<T>(outside)[0];
  reference::forEachIndex(out, [&](const Shape &position) {
    T best = least;
    int64_t bestTap = 0, tap = 0;
    reference::forEachIndex(vec(op.getWindow()), [&](const Shape &offset) {
      int64_t at = position[0] * strides[0] + position[1] * strides[1];
      bool isInside = true;
      for (size_t d = 0; d < offset.size(); ++d) {
        int64_t place = position[2 + d] * op.getStrides()[d] - op.getPads()[d] +
                        offset[d] * op.getDilations()[d];
        isInside &= place >= 0 && place < input.shape[2 + d];
        at += place * strides[2 + d];
      }
      T element = isInside ? all[static_cast<size_t>(at)] : least;
      if (element > best || element != element)
        best = element, bestTap = tap;
      ++tap;
    });
    largest.push_back(best);
    taps.push_back(bestTap);
  });
  std::vector<HostTensor> results;
  results.push_back(reference::tensor<T>(input.type, out, largest));
  const DType type = *dtypeOf(getElementTypeOrSelf(op.getTaps()));
  results.push_back(reference::tensor<int64_t>(type, out, taps));
  return results;
}

Expected<std::vector<HostTensor>>
MaxPoolOp::evaluate(ArrayRef<const HostTensor *> operands) {
  return isFloat(operands[0]->type) ? largestTaps<double>(*this, *operands[0])
                                    : largestTaps<int64_t>(*this, *operands[0]);
}

Type graph::detail::tapType(MLIRContext *context, ArrayRef<int64_t> window) {
  return IntegerType::get(context, elementCount(vec(window)) <= 128 ? 8 : 32);
}

bool graph::detail::areFewTaps(ArrayRef<int64_t> window) {
  return elementCount(vec(window)) <= 32;
}

//===-- Gradient of a maximum ---------------------------------------------===//

int64_t graph::detail::windowsPerElement(int64_t taps, int64_t stride, int64_t dilation) {
  return (taps - 1) * dilation / stride + 1;
}

LogicalResult MaxPoolBackwardOp::verify() {
  Type type = detail::tapType(getContext(), getWindow());
  if (getElementTypeOrSelf(getTaps()) != type)
    return emitOpError("has taps of ")
           << getElementTypeOrSelf(getTaps()) << ", those of its windows are " << type;
  return success();
}

/// Ranks, attribute lengths and dims, checked before anything indexes them.
static Expected<void> checkWindows(MaxPoolBackwardOp op) {
  Shape made = shapeOf(op.getResult()), cotangent = shapeOf(op.getCotangent());
  const size_t spatial = op.getWindow().size();
  if (made.size() != spatial + 2 || op.getStrides().size() != spatial ||
      op.getDilations().size() != spatial || op.getPads().size() != 2 * spatial)
    return makeError("window, strides, dilations and pads do not fit a result of rank " +
                     std::to_string(made.size()));
  for (size_t d = 0; d < spatial; ++d)
    if (op.getWindow()[d] < 1 || op.getStrides()[d] < 1 || op.getDilations()[d] < 1)
      return makeError("spatial dim " + std::to_string(d) +
                       " has a window, stride or dilation below 1");
  if (shapeOf(op.getTaps()) != cotangent || cotangent.size() != made.size())
    return makeError("a cotangent of rank " + std::to_string(cotangent.size()) +
                     " needs taps of its shape, and a result of its rank");
  for (size_t d = 0; d < 2; ++d)
    if (cotangent[d] != made[d])
      return makeError("dim " + std::to_string(d) + " of the cotangent has size " +
                       std::to_string(cotangent[d]) + ", that of the result " +
                       std::to_string(made[d]));
  return {};
}

/// The loops of a transposed convolution without its sums, of which both operands are
/// read through the same windows.
Expected<ShardingRule> MaxPoolBackwardOp::ruleWithResult() {
  if (auto ok = checkWindows(*this); !ok)
    return tl::unexpected(ok.error());
  Shape cotangent = shapeOf(getCotangent()), made = shapeOf(getResult());
  ShardingRule rule;
  TensorFactors in, out;
  for (size_t d = 0; d < 2; ++d) {
    in.push_back(rule.addLoop(made[d], loop::Parallel{}));
    out.push_back(in.back());
  }
  for (size_t d = 0; d < getWindow().size(); ++d) {
    in.emplace_back();
    out.emplace_back();
    addTransposedDim(rule,
                     {cotangent[2 + d], made[2 + d], getWindow()[d], getStrides()[d],
                      getDilations()[d], getPads()[d]},
                     in.back(), out.back());
    for (int32_t f : in.back())
      if (loop::Window *window = rule.factors[static_cast<size_t>(f)].window())
        window->operands = 2;
  }
  rule.operands = {in, in};
  rule.results = {out};
  return rule;
}

Operation *MaxPoolBackwardOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                               TypeRange results,
                                               const Strategy &strategy) {
  Operation *local = partita::detail::cloneWithTypes(*this, builder, operands, results);
  auto halo = operandHalo(*inferShardingRule(), strategy, 0);
  if (!halo)
    return local;
  // The first element of the buffer lies `low` groups of places before the block.
  SmallVector<int64_t> pads(getPads());
  for (const HaloWindow &window : halo->windows) {
    auto d = static_cast<size_t>(window.dim) - 2;
    pads[d] += window.low * getStrides()[d];
  }
  cast<MaxPoolBackwardOp>(local).setPads(pads);
  return local;
}

int64_t MaxPoolBackwardOp::getFlops() {
  int64_t windows = 1;
  for (auto [taps, stride, dilation] :
       llvm::zip_equal(getWindow(), getStrides(), getDilations()))
    windows *= detail::windowsPerElement(taps, stride, dilation);
  return windows * elementCount(shapeOf(getResult()));
}

Expected<std::vector<HostTensor>>
MaxPoolBackwardOp::evaluate(ArrayRef<const HostTensor *> operands) {
  Shape made = shapeOf(getResult());
  std::vector<int64_t> strides = reference::strides(made);
  auto given = reference::values<double>(*operands[0]);
  auto taps = reference::values<int64_t>(*operands[1]);
  std::vector<double> sums(static_cast<size_t>(elementCount(made)), 0);
  size_t number = 0;
  reference::forEachIndex(operands[0]->shape, [&](const Shape &position) {
    int64_t tap = taps[number], at = position[0] * strides[0] + position[1] * strides[1];
    bool isInside = tap >= 0 && tap < elementCount(vec(getWindow()));
    for (size_t d = getWindow().size(); d-- > 0; tap /= getWindow()[d]) {
      int64_t place = position[2 + d] * getStrides()[d] - getPads()[d] +
                      tap % getWindow()[d] * getDilations()[d];
      isInside &= place >= 0 && place < made[2 + d];
      at += place * strides[2 + d];
    }
    if (isInside)
      sums[static_cast<size_t>(at)] += given[number];
    ++number;
  });
  std::vector<HostTensor> results;
  results.push_back(reference::tensor<double>(operands[0]->type, made, sums));
  return results;
}
