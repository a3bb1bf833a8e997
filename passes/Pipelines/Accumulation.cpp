//===- Accumulation.cpp - How many micro-batches a step may have ----------===//
#include "passes/Pipelines/Accumulation.h"

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Rule/Sharding/Rows.h"

using namespace mlir;
using namespace partita;

/// Calls `visit` with the name and the first dim of every input that has dims.
static Expected<void>
eachInput(func::FuncOp function,
          const std::function<Expected<void>(const std::string &, int64_t)> &visit) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto type = cast<RankedTensorType>(function.getArgumentTypes()[i]);
    if (dist::argumentState(function, i) || type.getRank() == 0)
      continue;
    auto name = function.getArgAttrOfType<StringAttr>(i, "graph.name");
    if (auto ok = visit(name ? name.getValue().str() : "", type.getDimSize(0)); !ok)
      return ok;
  }
  return {};
}

Expected<int64_t> partita::rowsOf(func::FuncOp main) {
  std::optional<std::pair<std::string, int64_t>> first;
  auto ok = eachInput(main, [&](const std::string &name, int64_t rows) -> Expected<void> {
    if (!first)
      first.emplace(name, rows);
    if (first->second != rows)
      return makeError("\"accumulation\" is \"auto\", but input '" + first->first +
                       "' has " + std::to_string(first->second) + " rows and '" + name +
                       "' " + std::to_string(rows) +
                       ": the first dim of every input must be one batch");
    return {};
  });
  if (!ok)
    return tl::unexpected(ok.error());
  if (!first)
    return makeError(
        "\"accumulation\" is \"auto\", but the model has no input with dims");
  return first->second;
}

Expected<void> partita::checkRows(func::FuncOp step, int64_t rows) {
  return eachInput(step, [&](const std::string &name, int64_t given) -> Expected<void> {
    if (given == rows)
      return {};
    return makeError("\"accumulation\" is \"auto\", but input '" + name + "' has " +
                     std::to_string(given) + " rows where the batch has " +
                     std::to_string(rows));
  });
}

Expected<void> partita::checkApart(func::FuncOp main, const train::Spec &spec) {
  auto flow = dist::buildFlow(main, Mesh(), dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  FlowGraph &graph = (*flow)->graph;
  graph.finalize();
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    const dist::FlowEnd &end = (*flow)->ends[op];
    if (end.kind != dist::FlowEnd::Result || end.op != main)
      continue;
    auto name = main.getResultAttrOfType<StringAttr>(end.number, "graph.name");
    if (!name || name.getValue() != spec.loss.of)
      continue;
    int32_t joined = joinsRows(graph, static_cast<int32_t>(op));
    if (joined < 0)
      return {};
    if (joined == static_cast<int32_t>(op))
      return makeError("\"accumulation\" is \"auto\", but the first dim of output '" +
                       spec.loss.of + "' is not the batch");
    return makeError(
        "\"accumulation\" is \"auto\", but a step would not be the same in smaller "
        "parts: in '" +
        graph.ops[static_cast<size_t>(joined)].name +
        "' rows of the batch meet (a BatchNormalization's do not with \"batch_norm\": "
        "\"running\")");
  }
  return {}; // an output that is missing is the loss's error
}

Expected<BatchInterface> partita::keepLossOnly(func::FuncOp main,
                                               const train::Spec &spec) {
  BatchInterface batch;
  for (unsigned i = 0; i < main.getNumArguments(); ++i)
    if (!dist::argumentState(main, i) &&
        cast<RankedTensorType>(main.getArgumentTypes()[i]).getRank() > 0)
      batch.arguments.push_back(i);
  Operation *end = main.front().getTerminator();
  llvm::BitVector gone(main.getNumResults());
  for (unsigned i = 0; i < main.getNumResults(); ++i) {
    auto name = main.getResultAttrOfType<StringAttr>(i, "graph.name");
    if (name && name.getValue() == spec.loss.of)
      batch.results.push_back(i - gone.count());
    else if (!dist::resultState(main, i))
      gone.set(i);
  }
  end->eraseOperands(gone);
  if (failed(main.eraseResults(gone)))
    return makeError("the outputs that are no loss cannot be left out");
  return batch;
}

bool partita::choosesAccumulation(const Job &job) {
  const Request &request = job.request;
  return request.train && request.train->spec.choosesAccumulation && !request.plan &&
         request.levels.from == Level::L0 && !job.feedback.microBatches;
}
