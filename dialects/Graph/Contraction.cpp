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

Expected<std::vector<HostTensor>>
ContractOp::evaluate(ArrayRef<const HostTensor *> operands) {
  auto rule = getEquation().rule({operands[0]->shape, operands[1]->shape});
  if (!rule)
    return tl::unexpected(rule.error());
  return std::vector<HostTensor>{reference::contract(*rule, *operands[0], *operands[1])};
}

/// The loops of convolution and its transpose, which differ in the channel dim of the
/// filter that the group splits. A position of a transposed convolution reads every
/// stride-th tap only, from where depends on the position, so that a window buffer does
/// not say what a local op should compute: its spatial dims stay whole, but where the
/// filter is no larger than the stride and every element makes places of its own.
static Expected<ShardingRule> convRule(const std::vector<Shape> &shapes,
                                       const reference::Window &window,
                                       const Shape &spatialResult, bool transposed) {
  const Shape &input = shapes[0], &filter = shapes[1];
  int64_t group = window.group;
  int64_t inPerGroup = input[1] / group;
  int64_t outPerGroup = transposed ? filter[1] : filter[0] / group;
  ShardingRule rule;
  auto factor = [&](int64_t size, loop::Kind kind) -> std::vector<int32_t> {
    if (size == 1)
      return {};
    return {rule.addFactor(size, kind)};
  };
  auto join = [](std::vector<int32_t> a, const std::vector<int32_t> &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  auto n = factor(input[0], loop::Parallel{});
  auto g = factor(group, loop::Parallel{});
  auto c = factor(inPerGroup, loop::Reduction{});
  auto o = factor(outPerGroup, loop::Parallel{});
  TensorFactors in{n, join(g, c)}, out{n, join(g, o)};
  TensorFactors weights =
      transposed ? TensorFactors{join(g, c), o} : TensorFactors{join(g, o), c};
  for (size_t d = 0; d < spatialResult.size(); ++d) {
    in.emplace_back();
    out.emplace_back();
    SpatialDim dim{input[2 + d],      spatialResult[d],    filter[2 + d],
                   window.strides[d], window.dilations[d], window.pads[d]};
    if (!transposed || dim.pointwise()) {
      addSpatialDim(rule, dim, ReduceKind::Sum, in.back(), out.back());
    } else if (dim.low == 0 && dim.kernelExtent() <= dim.stride &&
               dim.output == dim.input * dim.stride) {
      addStretchedDim(rule, dim.input, dim.stride, in.back(), out.back());
    } else {
      in.back() = factor(dim.input, loop::Replicate{});
      out.back() = factor(dim.output, loop::Replicate{});
    }
    weights.push_back(factor(filter[2 + d], loop::Replicate{}));
  }
  rule.operands = {in, weights};
  if (shapes.size() > 2)
    rule.operands.push_back({join(g, o)});
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

Expected<ShardingRule> ConvOp::ruleFor(const std::vector<Shape> &shapes,
                                       Adaptor adaptor) {
  reference::Window window = windowOf(adaptor);
  if (auto ok = checkWindow(shapes, window, false); !ok)
    return tl::unexpected(ok.error());
  Shape spatial;
  for (size_t d = 0, n = shapes[0].size() - 2; d < n; ++d) {
    int64_t extent = shapes[0][2 + d] + window.pads[d] + window.pads[n + d];
    int64_t kernel = (shapes[1][2 + d] - 1) * window.dilations[d] + 1;
    if (extent < kernel)
      return makeError("spatial dim " + std::to_string(d) + " of padded size " +
                       std::to_string(extent) + " is smaller than the kernel's " +
                       std::to_string(kernel));
    spatial.push_back((extent - kernel) / window.strides[d] + 1);
  }
  return convRule(shapes, window, spatial, false);
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

Expected<std::vector<HostTensor>>
ConvOp::evaluate(ArrayRef<const HostTensor *> operands) {
  return std::vector<HostTensor>{reference::conv(
      *operands[0], *operands[1], operands.size() > 2 ? operands[2] : nullptr,
      windowOf(*this), shapeOf(getResult()))};
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

Operation *ConvTransposeOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                             TypeRange results, const Strategy &) {
  // Output channels, because the input channels of a group may be split as well.
  bool grouped = getGroup() != 1;
  Shape local = cast<RankedTensorType>(results[0]).getShape().vec();
  return convLocal(*this, builder, operands, results, grouped ? local[1] : 1,
                   grouped ? shapeOf(operands[1])[1] : 1);
}
