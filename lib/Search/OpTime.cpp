//===- OpTime.cpp - How long one op takes on one rank ---------------------===//
#include "partita/Search/Timing.h"

#include "partita/Cost/Local.h"
#include "partita/Cost/Winograd.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Runtime/WinogradShape.h"
#include "partita/Search/Memory.h"

#include <algorithm>
#include <utility>

using namespace partita;
using namespace partita::search;

static bool has(const TensorFactors &tensor, size_t factor) {
  return std::any_of(tensor.begin(), tensor.end(), [&](const auto &dim) {
    return std::find(dim.begin(), dim.end(), static_cast<int32_t>(factor)) != dim.end();
  });
}

/// A loop that both operands have and that is summed over.
static bool isContracted(const FlowOp &op, size_t factor) {
  const loop::Reduction *sum = op.rule.factors[factor].reduction();
  return sum && sum->reduce == ReduceKind::Sum && sum->index < 0 &&
         has(op.rule.operands[0], factor) && has(op.rule.operands[1], factor);
}

bool search::isMatmul(const FlowOp &op) {
  if (op.kind != FlowKind::Compute || op.operands.size() < 2 || op.flops == 0)
    return false;
  for (size_t f = 0; f < op.rule.factors.size(); ++f)
    if (isContracted(op, f))
      return true;
  return false;
}

/// Summands of 8 bits in whose time a block's sum is converted, its zero point taken off
/// and it is scaled: six instructions (addByteBlocks of lib/Runtime/Gemm/BlockTiles.h),
/// each of which could have been four products.
static constexpr int64_t stepsOfBlock = 24;

/// Loops of both operands and the result are batch, of the first and the result rows, of
/// the second and the result columns. What is left is summed over: the taps of a
/// convolution too, which are no loop, so that their number follows from the operations.
Picos Timing::matmul(const FlowOp &op, const Strategy &strategy) const {
  MatmulShape local;
  double points = 2, split = 1;
  for (size_t f = 0; f < op.rule.factors.size(); ++f) {
    bool left = has(op.rule.operands[0], f), right = has(op.rule.operands[1], f);
    const DimLayout &dim = strategy.factors[f];
    if (!has(op.rule.results[0], f)) {
      split *= static_cast<double>(dim.size()) / static_cast<double>(dim.local());
      continue;
    }
    points *= static_cast<double>(op.rule.factors[f].size);
    (left && right ? local.batch : right ? local.n : local.m) *= dim.local();
  }
  double summed = std::max(1.0, static_cast<double>(op.flops) / points / split);
  local.k = static_cast<int64_t>(summed + 0.5);
  DType type = graph.values[static_cast<size_t>(op.operands[0])].type;
  auto bytesOf = [&](int32_t value, const Layout &layout) {
    return static_cast<double>(layout.localElements() *
                               graph.values[static_cast<size_t>(value)].elementBytes);
  };
  double far = 0, kept = 0;
  for (size_t o = 0; o < 2; ++o) {
    double bytes = bytesOf(op.operands[o], operandLayout(op.rule, strategy, o));
    far += isFar(op.operands[o]) ? bytes : 0;
    kept += streamed[static_cast<size_t>(op.operands[o])] ? bytes : 0;
  }
  if (streamed[static_cast<size_t>(op.results[0])])
    kept += bytesOf(op.results[0], resultLayout(op.rule, strategy, 0));
  // A weight of fewer bits has its own bytes, and those of its scales and zero points.
  auto widthOf = [&](size_t o) {
    return graph.values[static_cast<size_t>(op.operands[o])].elementBytes;
  };
  if (widthOf(0) != widthOf(1)) {
    kept += static_cast<double>(local.batch * local.k * local.n * widthOf(0)) -
            bytesOf(op.operands[1], operandLayout(op.rule, strategy, 1));
    for (size_t o = 2; o < op.operands.size(); ++o) {
      double bytes = bytesOf(op.operands[o], operandLayout(op.rule, strategy, o));
      kept -= bytes;
      far += isFar(op.operands[o]) ? bytes : 0;
    }
  }
  const Device &device = placement.topology().device;
  const auto products = op.facts.roundsRows ? std::optional(DType::I8) : std::nullopt;
  if (products) {
    // Sums of a block become numbers and are scaled: its scales are [blocks, n].
    const int64_t blocks = operandLayout(op.rule, strategy, 2).dims[0].local();
    const int64_t more = blocks * stepsOfBlock;
    kept += static_cast<double>(local.batch * (local.m + local.n) * more * widthOf(0));
    local.k += more; // which moves no bytes
  }
  double seconds = matmulSeconds(device, type, local, far, kept, products);
  if (streamed[static_cast<size_t>(op.operands[0])] ||
      streamed[static_cast<size_t>(op.operands[1])])
    seconds -= device.launch;
  return picosOf(std::max(0.0, seconds));
}

namespace {
/// The tensors of a convolution or of one of its gradients; operand 0 has the images that
/// windows move over.
struct ConvTensors {
  const TensorFactors *filter, *pixels;
  bool isTransposed; ///< the filter has the channels of the images first

  explicit ConvTensors(const ShardingRule &rule)
      : filter(&rule.operands[1]), pixels(&rule.results[0]) {
    // The gradient of a filter: what came of the images is operand 1.
    if ((*pixels)[0] != rule.operands[0][0])
      std::swap(filter, pixels);
    isTransposed = (*filter)[0] == rule.operands[0][1];
  }
  /// Tells if the filter's channels are those of the others: there are no groups.
  bool hasAllChannels(const ShardingRule &rule) const {
    auto isOf = [&](size_t dim, const TensorFactors &tensor) {
      return (*filter)[dim].size() == 1 && tensor[1] == (*filter)[dim];
    };
    return isOf(isTransposed ? 1 : 0, *pixels) &&
           isOf(isTransposed ? 0 : 1, rule.operands[0]);
  }
};
} // namespace

bool Timing::transformsFilter(const FlowOp &op) const {
  const int32_t producer = graph.values[static_cast<size_t>(op.operands[1])].producer;
  return producer < 0 ||
         graph.ops[static_cast<size_t>(producer)].kind != FlowKind::Source;
}

bool Timing::mayBeWinograd(int32_t number) const {
  const FlowOp &op = graph.ops[static_cast<size_t>(number)];
  const ShardingRule &rule = op.rule;
  if (placement.topology().device.matmul.winograd <= 0 || !isMatmul(op) ||
      rule.operands[0].size() != 4 || rule.operands[1].size() != 4 ||
      rule.results[0].size() != 4)
    return false;
  if (graph.values[static_cast<size_t>(op.operands[1])].type != DType::F32)
    return false;
  const ConvTensors conv(rule);
  for (size_t d : {2, 3}) {
    const std::vector<int32_t> &of = rule.operands[0][d], &taps = (*conv.filter)[d];
    if (of.size() != 1 || taps.size() != 1)
      return false;
    const auto &factor = rule.factors[static_cast<size_t>(of[0])];
    const auto *window = std::get_if<loop::Window>(&factor.what);
    int64_t count = rule.factors[static_cast<size_t>(taps[0])].size;
    // The window's extent is that of three taps, so they are next to each other.
    if (!window || window->operand != 0 || window->kernelExtent != count ||
        !winograd::isWindow(count, window->stride, 1))
      return false;
  }
  return conv.hasAllChannels(rule) && (!conv.isTransposed || transformsFilter(op));
}

Picos Timing::winograd(const FlowOp &op, const Strategy &strategy) const {
  auto local = [&](const TensorFactors &tensor, size_t dim) {
    int64_t size = 1;
    for (int32_t factor : tensor[dim])
      size *= strategy.factors[static_cast<size_t>(factor)].local();
    return size;
  };
  const TensorFactors &pixels = *ConvTensors(op.rule).pixels;
  WinogradShape shape{local(pixels, 0), local(pixels, 2),
                      local(pixels, 3), local(op.rule.operands[0], 1),
                      local(pixels, 1), transformsFilter(op)};
  return picosOf(convSeconds(placement.topology().device, shape, isFar(op.operands[1])));
}

/// Products of an attention of 16 bits on a device whose units multiply these; elsewhere
/// its kernel computes in vectors of f32, as those of streamsAttention do.
static bool hasProducts(const FlowGraph &graph, const FlowOp &op, const Device &device) {
  if (op.facts.kind != kernels::OpKind::Attention || device.matmul.streamsAttention)
    return false;
  const DType type = graph.values[static_cast<size_t>(op.operands[0])].type;
  return type == DType::BF16 || type == DType::F16;
}

namespace {
/// Sizes of an attention on one rank, or of the whole op: q is [outer…, queries, depth],
/// k [outer…, keys, depth], v [outer…, keys, width] (Graph/Ops/Attention.td).
struct AttentionSizes {
  int64_t batch = 1, queries = 1, keys = 1, depth = 1, width = 1;

  template <typename Size> static AttentionSizes of(const FlowOp &op, Size sizeOf) {
    auto size = [&](const std::vector<int32_t> &dim) {
      int64_t all = 1;
      for (int32_t factor : dim)
        all *= sizeOf(static_cast<size_t>(factor));
      return all;
    };
    const TensorFactors &q = op.rule.operands[0];
    const size_t outer = q.size() - 2;
    AttentionSizes it{1, size(q[outer]), size(op.rule.operands[1][outer]),
                      size(q[outer + 1]), size(op.rule.operands[2][outer + 1])};
    for (size_t d = 0; d < outer; ++d)
      it.batch *= size(q[d]);
    return it;
  }

  /// Products of the op: an attention has three results, the gradient by queries one,
  /// that by keys and values two. `sharesWeights`: both gradients are one kernel, in
  /// which that of the keys has weights and their cotangents.
  std::vector<MatmulShape> products(size_t results, bool sharesWeights) const {
    const MatmulShape scores{batch, queries, keys, depth},
        weightCotangents{batch, queries, keys, width};
    if (results == 3)
      return {scores, {batch, queries, width, keys}};
    if (results == 2)
      return {scores,
              weightCotangents,
              {batch, keys, depth, queries},
              {batch, keys, width, queries}};
    const MatmulShape gradient{batch, queries, depth, keys};
    if (sharesWeights)
      return {gradient};
    return {scores, weightCotangents, gradient};
  }
};
} // namespace

static double flopsOf(const std::vector<MatmulShape> &products) {
  double flops = 0;
  for (const MatmulShape &product : products)
    flops += product.flops();
  return flops;
}

/// The share of the products that the op's operations are: masks by positions hide the
/// others. A rank that has some of the queries or keys may have those that see all.
static double seenShare(const FlowOp &op, const AttentionSizes &local) {
  const auto whole =
      AttentionSizes::of(op, [&](size_t factor) { return op.rule.factors[factor].size; });
  if (whole.queries != local.queries || whole.keys != local.keys)
    return 1;
  return std::min(1.0, static_cast<double>(op.flops) /
                           flopsOf(whole.products(op.results.size(), false)));
}

/// Seconds of the products of an attention or of a gradient of one. FlashAttention-2
/// reaches 50 to 73% of an A100's peak (Dao 2023, abstract); by this formula 53% at a
/// depth of 64 and 65% at 128, forward.
static double productSeconds(const FlowGraph &graph, const FlowOp &op,
                             const Topology &topology, const Strategy &strategy) {
  const auto local = AttentionSizes::of(
      op, [&](size_t factor) { return strategy.factors[factor].local(); });
  const Stack &stack = topology.stack;
  const auto products = local.products(op.results.size(), stack.flashAttention);
  const DType type = graph.values[static_cast<size_t>(op.operands[0])].type;
  double seconds = 0;
  if (stack.attentionEfficiency > 0)
    seconds =
        flopsOf(products) / (topology.device.peakOf(type) * stack.attentionEfficiency);
  else
    for (const MatmulShape &product : products)
      seconds += matmulArithmetic(topology.device, type, product);
  return seconds * seenShare(op, local);
}

double Timing::operations(int32_t number, const Strategy &strategy) const {
  const FlowOp &op = graph.ops[static_cast<size_t>(number)];
  double shards = 1;
  for (size_t f = 0; f < op.rule.factors.size(); ++f)
    shards *= static_cast<double>(strategy.factors[f].size()) /
              static_cast<double>(strategy.factors[f].local());
  // A device that says no rate has that of the arithmetic as it is written.
  const bool hasRate = placement.topology().device.pointwise > 0;
  return static_cast<double>(hasRate ? op.steps : op.flops) / shards;
}

/// An op that moves through memory what it reads and writes outside its fused group. What
/// computes nothing reads no more than it writes: a slice, a lookup.
Picos Timing::stream(int32_t number, const Strategy &strategy, bool isAgain) const {
  const FlowOp &op = graph.ops[static_cast<size_t>(number)];
  auto isUnmoved = [&](int32_t value) {
    int32_t producer = graph.values[static_cast<size_t>(value)].producer;
    return isFree(value) ||
           (isAgain && producer >= 0 && isForwardOp(graph, producer, turn));
  };
  const Device &device = placement.topology().device;
  auto bytesOf = [&](int32_t value, const Layout &layout) {
    return static_cast<double>(layout.localElements() *
                               graph.values[static_cast<size_t>(value)].elementBytes);
  };
  double written = 0, read = 0, far = 0;
  for (size_t r = 0; r < op.results.size(); ++r)
    written += bytesOf(op.results[r], resultLayout(op.rule, strategy, r));
  for (size_t o = 0; o < op.operands.size(); ++o) {
    if (isUnmoved(op.operands[o]))
      continue;
    double bytes = bytesOf(op.operands[o], operandLayout(op.rule, strategy, o));
    bytes = op.flops == 0 ? std::min(bytes, written) : bytes;
    read += bytes;
    far += isFar(op.operands[o]) ? bytes : 0;
  }
  for (size_t r = 0; r < op.results.size(); ++r)
    if (isUnmoved(op.results[r]))
      written -= bytesOf(op.results[r], resultLayout(op.rule, strategy, r));
  const double bytes = std::max(0.0, read + written);
  double seconds =
      hasProducts(graph, op, device)
          ? std::max(streamSeconds(device, bytes, far),
                     productSeconds(graph, op, placement.topology(), strategy)) +
                device.launch
          : groupSeconds(device, bytes, operations(number, strategy), far);
  if (isAgain || joined[static_cast<size_t>(number)])
    seconds -= device.launch;
  return picosOf(seconds);
}

/// Neutral elements that the op must find in the padding of its operands.
static double paddingBytes(const FlowGraph &graph, const FlowOp &op,
                           const Strategy &strategy) {
  double bytes = 0;
  for (size_t o = 0; o < op.operands.size(); ++o) {
    OperandForm form = operandForm(op.rule, strategy, o);
    for (size_t d = 0; d < form.padding.size(); ++d)
      if (form.padding[d]) {
        const DimLayout &dim = form.layout.dims[d];
        double share =
            1 - static_cast<double>(dim.size()) / static_cast<double>(dim.padded());
        bytes +=
            share * static_cast<double>(
                        form.layout.localElements() *
                        graph.values[static_cast<size_t>(op.operands[o])].elementBytes);
      }
  }
  return bytes;
}

static bool isPadded(const Strategy &strategy) {
  return std::any_of(strategy.factors.begin(), strategy.factors.end(),
                     [](const DimLayout &dim) { return dim.padded() != dim.size(); });
}

Picos Timing::masks(int32_t number, const Strategy &strategy) const {
  if (!isPadded(strategy))
    return 0;
  const FlowOp &op = graph.ops[static_cast<size_t>(number)];
  return picosOf(
      maskSeconds(placement.topology().device, paddingBytes(graph, op, strategy)));
}

/// A constant of one number is memory to an engine, which each run fills; kernels have
/// the number in their code.
Picos Timing::fills(int32_t number, const Strategy &strategy) const {
  const FlowOp &op = graph.ops[static_cast<size_t>(number)];
  double seconds = 0;
  for (size_t o = 0; o < op.operands.size(); ++o) {
    const FlowValue &value = graph.values[static_cast<size_t>(op.operands[o])];
    if (value.producer < 0 || !graph.ops[static_cast<size_t>(value.producer)].isUniform())
      continue;
    const int64_t elements = operandLayout(op.rule, strategy, o).localElements();
    seconds += groupSeconds(placement.topology().device,
                            static_cast<double>(elements * value.elementBytes), 0);
  }
  return picosOf(seconds);
}

Picos Timing::call(int32_t number, const Strategy &strategy) const {
  const FlowOp &op = graph.ops[static_cast<size_t>(number)];
  if (!mayBeWinograd(number) && !isMatmul(op))
    return stream(number, strategy, false);
  return (mayBeWinograd(number) ? winograd(op, strategy) : matmul(op, strategy)) +
         fills(number, strategy);
}

Picos Timing::op(int32_t number, const Strategy &strategy) const {
  return run(number, strategy, false);
}

Picos Timing::again(int32_t number, const Strategy &strategy) const {
  return run(number, strategy, true);
}

Picos Timing::run(int32_t number, const Strategy &strategy, bool isAgain) const {
  const FlowOp &op = graph.ops[static_cast<size_t>(number)];
  if (op.kind != FlowKind::Compute || isView(number))
    return 0;
  const Picos time =
      mayBeWinograd(number) || isMatmul(op)
          ? call(number, strategy) - (isAgain ? fills(number, strategy) : 0)
          : stream(number, strategy, isAgain);
  return repeated(time + masks(number, strategy), op.trips);
}
