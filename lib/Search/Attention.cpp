//===- Attention.cpp - A softmax between two products ---------------------===//
//
// A group of ops that code generation makes one kernel (lib/Kernels/Attention.cpp), seen
// in a flow graph: a product; arithmetic and views; an op that makes rows of rows with a
// function for every element, as softmax does; views; a product that sums over the rows.
// Nobody else reads what is between the products. The softmax does not split its rows, so
// where the scores come with their keys split a conversion stands between, and what it
// costs to break the kernel is a cost of that edge, as it is of others.
//
//===----------------------------------------------------------------------===//
#include "partita/Search/Timing.h"

#include "partita/Kernels/Target.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

/// The target whose kernels stream attention, where a device is said to have such kernels
/// (MatmulModel::streamsAttention).
static constexpr const kernels::Target &streaming = kernels::cpu;
static_assert(streaming.streamsAttention);
/// Steps of an element, at least, with which an op is taken for a softmax.
static constexpr int64_t functionSteps = 16;

static bool isHalfOrSingle(DType type) {
  return type == DType::F32 || type == DType::F16 || type == DType::BF16;
}

/// Loops of more than one step that the result lacks.
static size_t summedLoops(const ShardingRule &rule) {
  size_t count = 0;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    bool isKept = false;
    for (const auto &dim : rule.results[0])
      isKept |= std::ranges::count(dim, static_cast<int32_t>(f)) != 0;
    count += !isKept && rule.factors[f].size != 1;
  }
  return count;
}

/// A product of matrices of one summed loop: no convolution.
static bool isContraction(const FlowOp &op) {
  return isMatmul(op) && op.operands.size() == 2 && summedLoops(op.rule) == 1 &&
         std::ranges::none_of(op.rule.factors,
                              [](const Factor &factor) { return factor.window(); });
}

/// The one op that reads the value, −1 if there are none or several.
static int32_t onlyUser(const FlowGraph &graph, int32_t value) {
  const auto &uses = graph.values[static_cast<size_t>(value)].uses;
  return uses.size() == 1 &&
                 graph.ops[static_cast<size_t>(uses[0].op)].kind == FlowKind::Compute
             ? uses[0].op
             : -1;
}

static bool isSoftmax(const FlowGraph &graph, const FlowOp &op) {
  if (op.priority == 0 || op.operands.size() != 1 || op.results.size() != 1)
    return false;
  const FlowValue &in = graph.values[static_cast<size_t>(op.operands[0])];
  const FlowValue &out = graph.values[static_cast<size_t>(op.results[0])];
  const TensorFactors &rows = op.rule.results[0];
  return in.shape == out.shape && in.shape.size() >= 2 &&
         op.steps >= functionSteps * elementCount(in.shape) && rows.back().size() == 1 &&
         op.rule.factors[static_cast<size_t>(rows.back()[0])].kind() ==
             FactorKind::Replicate &&
         in.shape.back() >= streaming.fewestKeys &&
         in.shape[in.shape.size() - 2] >= streaming.fewestQueries &&
         isHalfOrSingle(in.type);
}

/// Values from the product's result to the operand of the second product, nothing if it
/// is none of an attention.
static std::vector<int32_t> betweenProducts(const FlowGraph &graph, const Timing &timing,
                                            int32_t scores) {
  std::vector<int32_t> values{graph.ops[static_cast<size_t>(scores)].results[0]};
  auto sizeOf = [&](int32_t value) {
    return elementCount(graph.values[static_cast<size_t>(value)].shape);
  };
  bool isBehind = false;
  for (int32_t user; (user = onlyUser(graph, values.back())) >= 0;) {
    const FlowOp &op = graph.ops[static_cast<size_t>(user)];
    if (isMatmul(op))
      return isBehind && isContraction(op) && op.operands[0] != op.operands[1]
                 ? values
                 : std::vector<int32_t>();
    bool isFirst = !isBehind && isSoftmax(graph, op);
    // Behind the softmax only what computes nothing.
    bool isPassed = op.priority == 0 && op.results.size() == 1 &&
                    sizeOf(op.results[0]) == sizeOf(values.front()) &&
                    (!isBehind || op.steps == 0 || timing.isView(user));
    if (!isFirst && !isPassed)
      return {};
    isBehind |= isFirst;
    values.push_back(op.results[0]);
  }
  return {};
}

void Timing::findAttention() {
  streamed.assign(graph.values.size(), false);
  // Of a training step whose backward pass reads nothing of it there is one as well, but
  // what is computed again is chosen elsewhere, by a bound that does not know of it.
  if (!placement.topology().device.matmul.streamsAttention ||
      !std::ranges::all_of(graph.ops, &FlowOp::isForward))
    return;
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    auto number = static_cast<int32_t>(o);
    if (graph.ops[o].kind != FlowKind::Compute || !isContraction(graph.ops[o]))
      continue;
    std::vector<int32_t> values = betweenProducts(graph, *this, number);
    if (values.empty())
      continue;
    int32_t last = onlyUser(graph, values.back());
    for (int32_t value : values) {
      auto v = static_cast<size_t>(value);
      internal[v] = noBytes[v] = true;
      kernelEnd[static_cast<size_t>(graph.values[v].producer)] = last;
      joined[static_cast<size_t>(graph.values[v].uses[0].op)] = true;
    }
    streamed[static_cast<size_t>(values.front())] = true;
    streamed[static_cast<size_t>(values.back())] = true;
  }
}
