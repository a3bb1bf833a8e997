//===- Contraction.cpp - Sums of products ---------------------------------===//
#include "dialects/Graph/Graph.h"

#include "partita/Reference/Kernels.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

Expected<ShardingRule> ContractOp::ruleFor(const std::vector<Shape> &shapes,
                                           Adaptor adaptor) {
  return adaptor.getEquation().rule(shapes);
}

/// Operands of one type, or of 8-bit integers whose products are summed in another one.
template <typename Op> static LogicalResult verifySums(Op op, Value first, Value second) {
  Type lhs = getElementTypeOrSelf(first), rhs = getElementTypeOrSelf(second);
  if (!op.getSums())
    return lhs == rhs ? success()
                      : op.emitOpError("multiplies ")
                            << lhs << " by " << rhs << ", and says no type of sums";
  for (Type type : {lhs, rhs})
    if (!type.isInteger(8))
      return op.emitOpError("sums products of 8-bit integers in ")
             << *op.getSums() << ", and has an operand of " << type;
  return success();
}

LogicalResult ContractOp::verify() { return verifySums(*this, getLhs(), getRhs()); }

LogicalResult ConvOp::verify() {
  if (getSums() && getBias())
    return emitOpError("sums products of 8-bit integers, and has a bias");
  return verifySums(*this, getInput(), getFilter());
}

Expected<std::vector<HostTensor>>
ContractOp::evaluate(ArrayRef<const HostTensor *> operands) {
  auto rule = getEquation().rule({operands[0]->shape, operands[1]->shape});
  if (!rule)
    return tl::unexpected(rule.error());
  DType type = getSums() ? *dtypeOf(*getSums()) : operands[0]->type;
  return std::vector<HostTensor>{
      reference::contract(*rule, *operands[0], *operands[1], type)};
}

/// The factors of a dim that is cut into groups.
static std::vector<int32_t> joined(std::vector<int32_t> major,
                                   const std::vector<int32_t> &minor) {
  major.insert(major.end(), minor.begin(), minor.end());
  return major;
}

/// The loops of convolution and its transpose, which differ in the channel dim of the
/// filter that the group splits, and in what a spatial dim reads: a position of a
/// transposed convolution has every stride-th tap only, from where depends on the
/// position modulo the stride.
static Expected<ShardingRule> convRule(const std::vector<Shape> &shapes,
                                       const reference::Window &window,
                                       const Shape &spatialResult, bool transposed) {
  const Shape &input = shapes[0], &filter = shapes[1];
  int64_t group = window.group;
  int64_t inPerGroup = input[1] / group;
  int64_t outPerGroup = transposed ? filter[1] : filter[0] / group;
  ShardingRule rule;
  auto n = rule.addLoop(input[0], loop::Parallel{});
  auto g = rule.addLoop(group, loop::Parallel{});
  auto c = rule.addLoop(inPerGroup, loop::Reduction{});
  auto o = rule.addLoop(outPerGroup, loop::Parallel{});
  TensorFactors in{n, joined(g, c)}, out{n, joined(g, o)};
  TensorFactors weights =
      transposed ? TensorFactors{joined(g, c), o} : TensorFactors{joined(g, o), c};
  for (size_t d = 0; d < spatialResult.size(); ++d) {
    in.emplace_back();
    out.emplace_back();
    SpatialDim dim{input[2 + d],      spatialResult[d],    filter[2 + d],
                   window.strides[d], window.dilations[d], window.pads[d]};
    if (transposed)
      addTransposedDim(rule, dim, in.back(), out.back());
    else
      addSpatialDim(rule, dim, ReduceKind::Sum, in.back(), out.back());
    weights.push_back(rule.addLoop(filter[2 + d], loop::Replicate{}));
  }
  rule.operands = {in, weights};
  if (shapes.size() > 2)
    rule.operands.push_back({joined(g, o)});
  rule.results = {out};
  // A bias is added once, so it must be partial with whatever makes the sum partial.
  std::vector<int32_t> left{0}, right{1};
  if (shapes.size() > 2) {
    for (int32_t f : c)
      rule.factors[f].reduction()->addends = {2};
    left.push_back(2);
    right.push_back(2);
  }
  rule.linear = {{ReduceKind::Sum, left},
                 {ReduceKind::Sum, right},
                 {ReduceKind::Max, {2}},
                 {ReduceKind::Min, {2}}};
  return rule;
}

template <typename Adaptor> static reference::Window windowOf(Adaptor adaptor) {
  return {vec(adaptor.getStrides()), vec(adaptor.getDilations()), vec(adaptor.getPads()),
          static_cast<int64_t>(adaptor.getGroup())};
}

/// Ranks and attribute lengths, checked before anything indexes them.
static Expected<void> checkWindow(const std::vector<Shape> &shapes,
                                  const reference::Window &window, bool transposed) {
  const Shape &input = shapes[0], &filter = shapes[1];
  if (input.size() < 3 || filter.size() != input.size())
    return makeError("expected input and filter of equal rank ≥ 3, got ranks " +
                     std::to_string(input.size()) + " and " +
                     std::to_string(filter.size()));
  size_t spatial = input.size() - 2;
  if (window.strides.size() != spatial || window.dilations.size() != spatial ||
      window.pads.size() != 2 * spatial)
    return makeError("strides, dilations and pads must have " + std::to_string(spatial) +
                     ", " + std::to_string(spatial) + " and " +
                     std::to_string(2 * spatial) + " entries");
  int64_t group = window.group;
  if (group < 1 || input[1] % group != 0 ||
      (transposed ? filter[0] : filter[1] * group) != input[1])
    return makeError("the filter's channels do not fit " + std::to_string(input[1]) +
                     " input channels in " + std::to_string(group) + " groups");
  if (!transposed && filter[0] % group != 0)
    return makeError(std::to_string(filter[0]) +
                     " output channels are not divisible by " + std::to_string(group) +
                     " groups");
  int64_t outChannels = transposed ? filter[1] * group : filter[0];
  if (shapes.size() > 2 && shapes[2] != Shape{outChannels})
    return makeError("expected a bias of " + std::to_string(outChannels) + " elements");
  for (size_t d = 0; d < spatial; ++d)
    if (window.strides[d] < 1 || window.dilations[d] < 1)
      return makeError("strides and dilations must be positive");
  return {};
}

/// The spatial extents of a convolution's result.
static Expected<Shape> convPositions(const Shape &input, const Shape &filter,
                                     const reference::Window &window) {
  Shape positions;
  for (size_t d = 0, n = input.size() - 2; d < n; ++d) {
    int64_t extent = input[2 + d] + window.pads[d] + window.pads[n + d];
    int64_t kernel = (filter[2 + d] - 1) * window.dilations[d] + 1;
    if (extent < kernel)
      return makeError("spatial dim " + std::to_string(d) + " of padded size " +
                       std::to_string(extent) + " is smaller than the kernel's " +
                       std::to_string(kernel));
    positions.push_back((extent - kernel) / window.strides[d] + 1);
  }
  return positions;
}

Expected<ShardingRule> ConvOp::ruleFor(const std::vector<Shape> &shapes,
                                       Adaptor adaptor) {
  reference::Window window = windowOf(adaptor);
  if (auto ok = checkWindow(shapes, window, false); !ok)
    return tl::unexpected(ok.error());
  auto positions = convPositions(shapes[0], shapes[1], window);
  if (!positions)
    return tl::unexpected(positions.error());
  return convRule(shapes, window, *positions, false);
}

Expected<ShardingRule> ConvTransposeOp::ruleFor(const std::vector<Shape> &shapes,
                                                Adaptor adaptor) {
  reference::Window window = windowOf(adaptor);
  if (auto ok = checkWindow(shapes, window, true); !ok)
    return tl::unexpected(ok.error());
  size_t n = shapes[0].size() - 2;
  if (adaptor.getOutputPadding().size() != n)
    return makeError("output_padding must have " + std::to_string(n) + " entries");
  Shape spatial;
  for (size_t d = 0; d < n; ++d)
    spatial.push_back((shapes[0][2 + d] - 1) * window.strides[d] +
                      adaptor.getOutputPadding()[d] +
                      (shapes[1][2 + d] - 1) * window.dilations[d] + 1 - window.pads[d] -
                      window.pads[n + d]);
  return convRule(shapes, window, spatial, true);
}

/// Its loops are those of the convolution, of which batch and positions are summed.
Expected<ShardingRule> ConvBackwardFilterOp::ruleWithResult() {
  Shape input = shapeOf(getInput()), cotangent = shapeOf(getCotangent());
  Shape filter = shapeOf(getResult());
  reference::Window window = windowOf(*this);
  if (auto ok = checkWindow({input, filter}, window, false); !ok)
    return tl::unexpected(ok.error());
  auto positions = convPositions(input, filter, window);
  if (!positions)
    return tl::unexpected(positions.error());
  Shape expected{input[0], filter[0]};
  expected.insert(expected.end(), positions->begin(), positions->end());
  if (cotangent.size() != expected.size())
    return makeError("expected a cotangent of rank " + std::to_string(expected.size()) +
                     ", got " + std::to_string(cotangent.size()));
  for (size_t d = 0; d < expected.size(); ++d)
    if (cotangent[d] != expected[d])
      return makeError("dim " + std::to_string(d) + " of the cotangent has size " +
                       std::to_string(cotangent[d]) +
                       ", that of the convolution's result " +
                       std::to_string(expected[d]));
  ShardingRule rule;
  auto n = rule.addLoop(input[0], loop::Reduction{});
  auto g = rule.addLoop(window.group, loop::Parallel{});
  auto c = rule.addLoop(filter[1], loop::Parallel{});
  auto o = rule.addLoop(filter[0] / window.group, loop::Parallel{});
  TensorFactors in{n, joined(g, c)}, out{n, joined(g, o)}, weights{joined(g, o), c};
  for (size_t d = 0; d < positions->size(); ++d) {
    SpatialDim dim{input[2 + d],      (*positions)[d],     filter[2 + d],
                   window.strides[d], window.dilations[d], window.pads[d]};
    in.push_back(addSummedPositions(rule, dim, 0));
    out.push_back(in.back());
    weights.push_back(rule.addLoop(filter[2 + d], loop::Replicate{}));
  }
  rule.operands = {std::move(in), std::move(out)};
  rule.results = {std::move(weights)};
  return rule;
}

Expected<std::vector<HostTensor>>
ConvBackwardFilterOp::evaluate(ArrayRef<const HostTensor *> operands) {
  return std::vector<HostTensor>{reference::convBackwardFilter(
      *operands[0], *operands[1], windowOf(*this), shapeOf(getResult()))};
}

Expected<std::vector<HostTensor>>
ConvOp::evaluate(ArrayRef<const HostTensor *> operands) {
  return std::vector<HostTensor>{reference::conv(
      *operands[0], *operands[1], operands.size() > 2 ? operands[2] : nullptr,
      windowOf(*this), shapeOf(getResult()),
      getSums() ? *dtypeOf(*getSums()) : operands[0]->type)};
}

Expected<std::vector<HostTensor>>
ConvTransposeOp::evaluate(ArrayRef<const HostTensor *> operands) {
  return std::vector<HostTensor>{reference::convTranspose(
      *operands[0], *operands[1], operands.size() > 2 ? operands[2] : nullptr,
      windowOf(*this), shapeOf(getResult()))};
}

/// Multiply-adds per result element are the filter's elements per output channel.
int64_t ConvOp::getFlops() {
  Shape filter = shapeOf(getFilter());
  return 2 * elementCount(shapeOf(getResult())) * (elementCount(filter) / filter[0]);
}

int64_t ConvTransposeOp::getFlops() {
  Shape filter = shapeOf(getFilter());
  return 2 * elementCount(shapeOf(getInput())) * (elementCount(filter) / filter[0]);
}

int64_t ConvBackwardFilterOp::getFlops() {
  Shape filter = shapeOf(getResult());
  return 2 * elementCount(shapeOf(getCotangent())) * (elementCount(filter) / filter[0]);
}

/// Splitting the group factor leaves fewer groups on each rank.
template <typename Op>
static Operation *convLocal(Op op, OpBuilder &builder, ValueRange operands,
                            TypeRange results, int64_t channels,
                            int64_t channelsPerGroup) {
  Operation *local = partita::detail::cloneWithTypes(op, builder, operands, results);
  cast<Op>(local).setGroup(channels / channelsPerGroup);
  return local;
}

Operation *ConvOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                    TypeRange results, const Strategy &strategy) {
  bool grouped = getGroup() != 1;
  Operation *local =
      convLocal(*this, builder, operands, results, grouped ? shapeOf(operands[0])[1] : 1,
                grouped ? shapeOf(operands[1])[1] : 1);
  cast<ConvOp>(local).setPads(
      graph::detail::localPads(*inferShardingRule(), strategy, getPads()));
  return local;
}

Operation *ConvBackwardFilterOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                                  TypeRange results,
                                                  const Strategy &strategy) {
  bool grouped = getGroup() != 1;
  Operation *local =
      convLocal(*this, builder, operands, results, grouped ? shapeOf(operands[0])[1] : 1,
                grouped ? cast<RankedTensorType>(results[0]).getShape()[1] : 1);
  cast<ConvBackwardFilterOp>(local).setPads(
      graph::detail::localPads(*inferShardingRule(), strategy, getPads()));
  return local;
}

Operation *ConvTransposeOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                             TypeRange results,
                                             const Strategy &strategy) {
  // Output channels, because the input channels of a group may be split as well.
  bool grouped = getGroup() != 1;
  Shape local = cast<RankedTensorType>(results[0]).getShape().vec();
  auto op = cast<ConvTransposeOp>(convLocal(*this, builder, operands, results,
                                            grouped ? local[1] : 1,
                                            grouped ? shapeOf(operands[1])[1] : 1));
  auto halo = operandHalo(*inferShardingRule(), strategy, 0);
  if (!halo)
    return op;
  // The first element of the buffer lies `low` groups of positions before the block.
  SmallVector<int64_t> pads(getPads()), more(getOutputPadding());
  for (const HaloWindow &window : halo->windows) {
    auto d = static_cast<size_t>(window.dim) - 2, n = more.size();
    int64_t stride = getStrides()[d];
    pads[d] += window.low * stride;
    int64_t reach = (shapeOf(operands[1])[2 + d] - 1) * getDilations()[d] + 1;
    int64_t behind =
        (shapeOf(operands[0])[2 + d] - 1) * stride + reach - pads[d] - local[2 + d];
    pads[n + d] = std::max<int64_t>(behind, 0);
    more[d] = std::max<int64_t>(-behind, 0);
  }
  op.setPads(pads);
  op.setOutputPadding(more);
  return op;
}
