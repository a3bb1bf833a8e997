//===- Throughput.cpp - What a step gets done -----------------------------===//
#include "partita/Search/Throughput.h"

#include "partita/Search/Timing.h"

#include <algorithm>
#include <map>

using namespace partita;
using namespace partita::search;

/// The major-most piece of the first dim of a tensor; -1: it has none.
static int32_t firstPiece(const FlowGraph &graph, size_t op,
                          const TensorFactors &tensor) {
  if (tensor.empty())
    return -1;
  auto pieces = graph.dimAtoms(static_cast<int32_t>(op), tensor[0]);
  return pieces.empty() ? -1 : pieces[0];
}

/// Marks of the pieces that become the first dim of a result.
static std::vector<bool> piecesOfResults(const FlowGraph &graph) {
  std::vector<bool> marks(graph.atoms.size());
  std::vector<int32_t> open;
  auto add = [&](int32_t atom) {
    if (atom < 0 || marks[static_cast<size_t>(atom)])
      return;
    marks[static_cast<size_t>(atom)] = true;
    open.push_back(atom);
  };
  for (size_t o = 0; o < graph.ops.size(); ++o)
    if (graph.ops[o].kind == FlowKind::Sink)
      add(firstPiece(graph, o, graph.ops[o].rule.operands[0]));
  while (!open.empty()) {
    int32_t atom = open.back();
    open.pop_back();
    for (const Atom::Link &link : graph.atoms[static_cast<size_t>(atom)].links)
      if (link.common == 0)
        add(link.atom);
  }
  return marks;
}

/// Inputs of which the first dim is the batch. Where the program says it of none (a
/// training step returns no rows), all that have dims count. A first dim of 1 beside
/// larger ones is broadcast to them.
static std::vector<const FlowValue *> inputsWithBatch(const FlowGraph &graph) {
  std::vector<bool> ofResults = piecesOfResults(graph);
  std::vector<const FlowValue *> all, known;
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const FlowOp &op = graph.ops[o];
    if (op.kind != FlowKind::Argument || op.trips != 1)
      continue;
    const FlowValue &value = graph.values[static_cast<size_t>(op.results[0])];
    if (value.shape.empty())
      continue;
    all.push_back(&value);
    int32_t piece = firstPiece(graph, o, op.rule.results[0]);
    if (op.isBatch || (piece >= 0 && ofResults[static_cast<size_t>(piece)]))
      known.push_back(&value);
  }
  std::vector<const FlowValue *> &inputs = known.empty() ? all : known;
  auto isOne = [](const FlowValue *value) { return value->shape[0] == 1; };
  if (!std::ranges::all_of(inputs, isOne))
    std::erase_if(inputs, isOne);
  return inputs;
}

ModelWork search::modelWork(const FlowGraph &graph) {
  ModelWork work;
  std::map<DType, double> flops;
  for (const FlowOp &op : graph.ops)
    if (isMatmul(op) && op.repeats < 0)
      flops[graph.values[static_cast<size_t>(op.operands[0])].type] +=
          static_cast<double>(op.flops) * static_cast<double>(op.trips);
  bool haveOneBatch = true;
  for (const FlowValue *value : inputsWithBatch(graph)) {
    const std::vector<int64_t> &shape = value->shape;
    haveOneBatch &= work.samples.value_or(shape[0]) == shape[0];
    work.samples = shape[0];
    if (shape.size() == 2 && !isFloat(value->type) && value->type != DType::Bool)
      work.tokens = std::max(work.tokens.value_or(0), shape[0] * shape[1]);
  }
  if (!haveOneBatch)
    work.samples = work.tokens = std::nullopt;
  work.flops.assign(flops.begin(), flops.end());
  return work;
}

Throughput search::throughputOf(const ModelWork &work, const Device &device,
                                int64_t devices, double seconds) {
  Throughput result;
  if (seconds <= 0)
    return result;
  const double spent = seconds * static_cast<double>(devices);
  for (const auto &[type, flops] : work.flops) {
    result.flopsPerDevice += flops / spent;
    if (double peak = device.peakOf(type); peak > 0)
      result.utilization += flops / peak / spent;
  }
  result.samplesPerSecond = static_cast<double>(work.samples.value_or(0)) / seconds;
  result.tokensPerSecond = static_cast<double>(work.tokens.value_or(0)) / seconds;
  return result;
}
