//===- Shape.cpp - Ops that move elements without computing ---------------===//
#include "dialects/Graph/Graph.h"

#include "partita/Reference/Kernels.h"

#include <cmath>
#include <cstring>
#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::graph;

/// Row-major number of an index.
static int64_t linear(const Shape &index, const std::vector<int64_t> &strides) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d)
    at += index[d] * strides[d];
  return at;
}

//===-- Reshape, transpose, broadcast -------------------------------------===//

Expected<ShardingRule> ReshapeOp::ruleWithResult() {
  return reshapeRule(shapeOf(getInput()), shapeOf(getResult()));
}

Expected<std::vector<HostTensor>>
ReshapeOp::evaluate(ArrayRef<const HostTensor *> operands) {
  HostTensor result = *operands[0];
  result.shape = shapeOf(getResult());
  return oneResult(std::move(result));
}

Expected<ShardingRule> TransposeOp::ruleFor(const std::vector<Shape> &shapes,
                                            Adaptor adaptor) {
  return transposeRule(shapes[0], vec(adaptor.getPermutation()));
}

Expected<std::vector<HostTensor>>
TransposeOp::evaluate(ArrayRef<const HostTensor *> operands) {
  auto from = reference::strides(operands[0]->shape);
  std::vector<int64_t> permuted;
  Shape shape;
  for (int64_t d : getPermutation()) {
    permuted.push_back(from[d]);
    shape.push_back(operands[0]->shape[d]);
  }
  return oneResult(reference::move(*operands[0], shape,
                                   [&](const Shape &i) { return linear(i, permuted); }));
}

Expected<ShardingRule> BroadcastOp::ruleWithResult() {
  Shape from = shapeOf(getInput()), to = shapeOf(getResult());
  auto stretched = broadcastShapes({from, to});
  if (!stretched || *stretched != to)
    return makeError("the operand does not broadcast to the result's shape");
  auto rule = broadcastRule({from, to});
  rule->operands.pop_back();
  return rule;
}

Expected<std::vector<HostTensor>>
BroadcastOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &from = operands[0]->shape;
  Shape to = shapeOf(getResult());
  auto strides = reference::strides(from);
  size_t skip = to.size() - from.size();
  return oneResult(reference::move(*operands[0], to, [&](const Shape &index) {
    int64_t at = 0;
    for (size_t d = 0; d < from.size(); ++d)
      at += from[d] == 1 ? 0 : index[skip + d] * strides[d];
    return at;
  }));
}

//===-- Slice, concat, pad ------------------------------------------------===//

Expected<ShardingRule> SliceOp::ruleWithResult() {
  return sliceRule(shapeOf(getInput()), shapeOf(getResult()), vec(getStarts()),
                   vec(getSteps()));
}

/// A block of k equal blocks of n stays block c of k; the blocks have shrunk.
Operation *SliceOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                     TypeRange results, const Strategy &) {
  Operation *local = partita::detail::cloneWithTypes(*this, builder, operands, results);
  Shape global = shapeOf(getResult()), now = shapeOf(local->getResult(0));
  std::vector<int64_t> starts = vec(getStarts());
  for (size_t d = 0; d < starts.size(); ++d)
    if (global[d] != now[d])
      starts[d] = starts[d] / global[d] * now[d];
  cast<SliceOp>(local).setStarts(starts);
  return local;
}

Expected<std::vector<HostTensor>>
SliceOp::evaluate(ArrayRef<const HostTensor *> operands) {
  auto strides = reference::strides(operands[0]->shape);
  return oneResult(
      reference::move(*operands[0], shapeOf(getResult()), [&](const Shape &index) {
        int64_t at = 0;
        for (size_t d = 0; d < index.size(); ++d)
          at += (getStarts()[d] + index[d] * getSteps()[d]) * strides[d];
        return at;
      }));
}

Expected<ShardingRule> ConcatOp::ruleFor(const std::vector<Shape> &shapes,
                                         Adaptor adaptor) {
  auto rule = concatRule(shapes, adaptor.getAxis());
  if (!rule)
    return rule;
  // All together. Of equal values the maximum is that value, so for max and min any
  // operands will do; one at a time is what programs need.
  auto count = static_cast<int32_t>(shapes.size());
  std::vector<int32_t> all(shapes.size());
  std::iota(all.begin(), all.end(), 0);
  for (ReduceKind kind :
       {ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min})
    rule->linear.push_back({kind, all});
  for (ReduceKind kind : {ReduceKind::Max, ReduceKind::Min})
    for (int32_t o = 0; count > 1 && o < count; ++o)
      rule->linear.push_back({kind, {o}});
  return rule;
}

Expected<std::vector<HostTensor>>
ConcatOp::evaluate(ArrayRef<const HostTensor *> operands) {
  Shape shape = shapeOf(getResult());
  int64_t axis = *normalizeAxis(getAxis(), shape.size());
  HostTensor result = HostTensor::zeros(operands[0]->type, shape);
  int64_t outer = 1, inner = static_cast<int64_t>(byteWidth(result.type));
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
    (d < axis ? outer : d > axis ? inner : axis) *= d == axis ? 1 : shape[d];
  std::byte *to = result.bytes.data();
  for (int64_t o = 0; o < outer; ++o)
    for (const HostTensor *operand : operands) {
      auto bytes = static_cast<size_t>(operand->shape[axis] * inner);
      std::memcpy(to, operand->bytes.data() + o * bytes, bytes);
      to += bytes;
    }
  return oneResult(std::move(result));
}

Expected<ShardingRule> PadOp::ruleFor(const std::vector<Shape> &shapes, Adaptor adaptor) {
  const Shape &input = shapes[0];
  ArrayRef<int64_t> low = adaptor.getLow(), high = adaptor.getHigh();
  if (low.size() != input.size() || high.size() != input.size())
    return makeError("low and high must have the operand's rank " +
                     std::to_string(input.size()));
  if (elementCount(shapes[1]) != 1)
    return makeError("expected a scalar fill value");
  ShardingRule rule;
  TensorFactors in, out;
  for (size_t d = 0; d < input.size(); ++d) {
    in.emplace_back();
    out.emplace_back();
    int64_t size = input[d] + low[d] + high[d];
    if (size < 0)
      return makeError("dim " + std::to_string(d) + " would have size " +
                       std::to_string(size));
    bool same = low[d] == 0 && high[d] == 0;
    loop::Kind kind = loop::Replicate{};
    if (same)
      kind = loop::Parallel{};
    if (input[d] != 1)
      in.back().push_back(rule.addFactor(input[d], kind));
    if (same)
      out.back() = in.back();
    else if (size != 1)
      out.back().push_back(rule.addFactor(size, kind));
  }
  rule.operands = {in, TensorFactors(shapes[1].size())};
  rule.results = {out};
  // Fill and elements are reduced alike; the other modes do not read the fill.
  std::vector<int32_t> both{0};
  if (adaptor.getMode() == PadMode::Constant) {
    both.push_back(1);
    rule.linear = {{ReduceKind::Max, {0}},
                   {ReduceKind::Max, {1}},
                   {ReduceKind::Min, {0}},
                   {ReduceKind::Min, {1}}};
  }
  for (ReduceKind kind :
       {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod})
    rule.linear.push_back({kind, both});
  return rule;
}

Expected<std::vector<HostTensor>> PadOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &input = operands[0]->shape;
  auto strides = reference::strides(input);
  PadMode mode = getMode();
  return oneResult(reference::move(
      *operands[0], shapeOf(getResult()),
      [&](const Shape &index) -> int64_t {
        int64_t at = 0;
        for (size_t d = 0; d < index.size(); ++d) {
          int64_t i = index[d] - getLow()[d], last = input[d] - 1;
          if (mode == PadMode::Edge)
            i = std::clamp<int64_t>(i, 0, last);
          while (mode == PadMode::Reflect && (i < 0 || i > last) && last > 0)
            i = i < 0 ? -i : 2 * last - i;
          if (i < 0 || i > last)
            return -1;
          at += i * strides[d];
        }
        return at;
      },
      operands[1]->bytes.data()));
}

//===-- Cumulative sum, resize --------------------------------------------===//

Expected<ShardingRule> CumSumOp::ruleFor(const std::vector<Shape> &shapes,
                                         Adaptor adaptor) {
  return rowRule(shapes[0], {static_cast<int64_t>(adaptor.getAxis())});
}
Expected<ShardingRule> CumProdOp::ruleFor(const std::vector<Shape> &shapes,
                                          Adaptor adaptor) {
  return rowRule(shapes[0], {static_cast<int64_t>(adaptor.getAxis())});
}

/// Integers wrap: they are combined as unsigned ones.
template <typename T, typename Wide, typename Op, typename Combine>
static HostTensor cumulative(Op op, const HostTensor &operand, Wide initial,
                             Combine combine) {
  std::vector<T> values = reference::values<T>(operand);
  int64_t axis = *normalizeAxis(op.getAxis(), operand.shape.size());
  int64_t extent = operand.shape[axis], stride = reference::strides(operand.shape)[axis];
  for (int64_t start = 0, n = operand.size(); start < n; ++start) {
    if (start / stride % extent != 0)
      continue;
    Wide sum = initial;
    for (int64_t i = 0; i < extent; ++i) {
      T &v = values[start + (op.getReverse() ? extent - 1 - i : i) * stride];
      Wide before = sum;
      sum = combine(sum, static_cast<Wide>(v));
      v = static_cast<T>(op.getExclusive() ? before : sum);
    }
  }
  return reference::tensor<T>(operand.type, operand.shape, values);
}

template <typename Op, typename Combine>
static std::vector<HostTensor> evaluateCumulative(Op op, const HostTensor &operand,
                                                  int initial, Combine combine) {
  return oneResult(isFloat(operand.type)
                       ? cumulative<double, double>(op, operand, initial, combine)
                       : cumulative<int64_t, uint64_t>(
                             op, operand, static_cast<uint64_t>(initial), combine));
}

Expected<std::vector<HostTensor>>
CumSumOp::evaluate(ArrayRef<const HostTensor *> operands) {
  return evaluateCumulative(*this, *operands[0], 0, std::plus<>());
}
Expected<std::vector<HostTensor>>
CumProdOp::evaluate(ArrayRef<const HostTensor *> operands) {
  return evaluateCumulative(*this, *operands[0], 1, std::multiplies<>());
}

/// Where result element `i` of a dim falls in the operand's coordinates: in f32, as code
/// has it, for rounding decides what of two elements is the nearest to a place between.
static double sourceCoordinate(Coordinates coordinates, int64_t i, double factor,
                               int64_t from, int64_t to) {
  auto x = static_cast<float>(i), scale = static_cast<float>(factor);
  if (coordinates == Coordinates::Asymmetric)
    return x / scale;
  if (coordinates == Coordinates::AlignCorners)
    return to == 1 ? 0 : x * static_cast<float>(from - 1) / static_cast<float>(to - 1);
  if (coordinates == Coordinates::PytorchHalfPixel && to == 1)
    return 0;
  return (x + 0.5F) / scale - 0.5F;
}

static int64_t roundNearest(Rounding rounding, double x) {
  if (rounding == Rounding::Floor)
    return static_cast<int64_t>(std::floor(x));
  if (rounding == Rounding::Ceil)
    return static_cast<int64_t>(std::ceil(x));
  if (rounding == Rounding::PreferCeil)
    return static_cast<int64_t>(std::floor(x + 0.5));
  return static_cast<int64_t>(std::ceil(x - 0.5));
}

/// Whether every element of a dim is repeated `to` / `from` times, so that the elements
/// of a block depend on no other block and on no extent of the whole.
static bool repeats(ResizeOp op, size_t d, int64_t from, int64_t to) {
  double scale = op.getScales()[d];
  if (op.getMode() != ResizeMode::Nearest ||
      op.getCoordinates() == Coordinates::AlignCorners || from == 0 || to % from != 0 ||
      scale != static_cast<double>(to / from))
    return false;
  // The same for every element, so one is enough to look at.
  int64_t times = to / from;
  for (int64_t i = 0; i < times; ++i)
    if (roundNearest(op.getRounding(), sourceCoordinate(op.getCoordinates(), times + i,
                                                        scale, from, to)) != 1)
      return false;
  return true;
}

Expected<ShardingRule> ResizeOp::ruleWithResult() {
  Shape from = shapeOf(getInput()), to = shapeOf(getResult());
  if (from.size() != to.size() || getScales().size() != from.size())
    return makeError("operand, result and scales must have one rank");
  ShardingRule rule;
  TensorFactors in, out;
  for (size_t d = 0; d < from.size(); ++d) {
    in.emplace_back();
    out.emplace_back();
    if (getScales()[d] == 1 && from[d] == to[d]) {
      addStretchedDim(rule, from[d], 1, in.back(), out.back());
    } else if (repeats(*this, d, from[d], to[d])) {
      addStretchedDim(rule, from[d], to[d] / from[d], in.back(), out.back());
    } else {
      if (from[d] != 1)
        in.back().push_back(rule.addFactor(from[d], loop::Replicate{}));
      if (to[d] != 1)
        out.back().push_back(rule.addFactor(to[d], loop::Replicate{}));
    }
  }
  rule.operands = {in};
  rule.results = {out};
  // Nearest moves whole elements; weights are linear, but for rounding to integers.
  if (getMode() == ResizeMode::Nearest)
    rule.linear = {{ReduceKind::Sum, {0}},
                   {ReduceKind::Max, {0}},
                   {ReduceKind::Min, {0}},
                   {ReduceKind::Prod, {0}}};
  else if (isa<FloatType>(getElementTypeOrSelf(getResult().getType())))
    rule.linear = {{ReduceKind::Sum, {0}}};
  return rule;
}

Expected<std::vector<HostTensor>>
ResizeOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &from = operands[0]->shape;
  Shape to = shapeOf(getResult());
  auto strides = reference::strides(from);
  auto coordinate = [&](size_t d, int64_t i) {
    return sourceCoordinate(getCoordinates(), i, getScales()[d], from[d], to[d]);
  };
  if (getMode() == ResizeMode::Nearest)
    return oneResult(reference::move(*operands[0], to, [&](const Shape &index) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) {
        int64_t i = getScales()[d] == 1
                        ? index[d]
                        : roundNearest(getRounding(), coordinate(d, index[d]));
        at += std::clamp<int64_t>(i, 0, from[d] - 1) * strides[d];
      }
      return at;
    }));
  std::vector<double> x = reference::values<double>(*operands[0]), y;
  reference::forEachIndex(to, [&](const Shape &index) {
    // Corners of the surrounding cell, each with the product of its weights.
    std::vector<std::pair<int64_t, double>> corners{{0, 1.0}};
    for (size_t d = 0; d < index.size(); ++d) {
      double c =
          getScales()[d] == 1 ? static_cast<double>(index[d]) : coordinate(d, index[d]);
      c = std::clamp(c, 0.0, static_cast<double>(from[d] - 1));
      auto low = static_cast<int64_t>(std::floor(c));
      double part = c - static_cast<double>(low);
      std::vector<std::pair<int64_t, double>> next;
      for (auto [at, weight] : corners) {
        next.emplace_back(at + low * strides[d], weight * (1 - part));
        if (part != 0)
          next.emplace_back(at + (low + 1) * strides[d], weight * part);
      }
      corners = std::move(next);
    }
    double sum = 0;
    for (auto [at, weight] : corners)
      sum += x[at] * weight;
    y.push_back(sum);
  });
  return oneResult(reference::tensor<double>(operands[0]->type, to, y));
}
