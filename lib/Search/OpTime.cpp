//===- OpTime.cpp - How long one op takes on one rank ---------------------===//
#include "partita/Search/Timing.h"

#include "partita/Cost/Local.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Search/Memory.h"

#include <algorithm>

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
  double far = 0;
  for (size_t o = 0; o < 2; ++o)
    if (isFar(op.operands[o])) {
      int64_t width = graph.values[static_cast<size_t>(op.operands[o])].elementBytes;
      far += static_cast<double>(operandLayout(op.rule, strategy, o).localElements() *
                                 width);
    }
  return picosOf(matmulSeconds(placement.topology().device, type, local, far));
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
  double shards = 1;
  for (size_t f = 0; f < op.rule.factors.size(); ++f)
    shards *= static_cast<double>(strategy.factors[f].size()) /
              static_cast<double>(strategy.factors[f].local());
  double seconds = groupSeconds(device, std::max(0.0, read + written),
                                static_cast<double>(op.flops) / shards, far);
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
  Picos time = isMatmul(op) ? matmul(op, strategy) : stream(number, strategy, isAgain);
  if (isPadded(strategy))
    time += picosOf(
        maskSeconds(placement.topology().device, paddingBytes(graph, op, strategy)));
  return repeated(time, op.trips);
}
