//===- Throughput.cpp - What a step gets done -----------------------------===//
#include "partita/Search/Throughput.h"

#include "partita/Search/Timing.h"

#include <algorithm>
#include <map>

using namespace partita;
using namespace partita::search;

ModelWork search::modelWork(const FlowGraph &graph) {
  ModelWork work;
  std::map<DType, double> flops;
  bool haveOneBatch = true;
  for (const FlowOp &op : graph.ops) {
    if (isMatmul(op) && op.repeats < 0)
      flops[graph.values[static_cast<size_t>(op.operands[0])].type] +=
          static_cast<double>(op.flops) * static_cast<double>(op.trips);
    if (op.kind != FlowKind::Argument || op.trips != 1)
      continue;
    const FlowValue &value = graph.values[static_cast<size_t>(op.results[0])];
    if (value.shape.empty())
      continue;
    haveOneBatch &= work.samples.value_or(value.shape[0]) == value.shape[0];
    work.samples = value.shape[0];
    if (value.shape.size() == 2 && !isFloat(value.type) && value.type != DType::Bool)
      work.tokens = std::max(work.tokens.value_or(0), value.shape[0] * value.shape[1]);
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
