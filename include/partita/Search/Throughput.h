//===- Throughput.h - What a step gets done ---------------------*- C++ -*-===//
#ifndef PARTITA_SEARCH_THROUGHPUT_H
#define PARTITA_SEARCH_THROUGHPUT_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Topology/Topology.h"

#include <optional>
#include <utility>
#include <vector>

namespace partita::search {

/// Work of one run of a program, whatever the plan.
struct ModelWork {
  /// Model FLOPs: those of matrix products and convolutions by type, padding and what is
  /// computed again left out (PaLM, Chowdhery et al., 2022, appendix B).
  std::vector<std::pair<DType, double>> flops;
  /// The batch: the first dim that the inputs share of which it becomes the first dim of
  /// a result; without such inputs, as in a training step, all that have dims. Inputs of
  /// a first dim of 1 beside larger ones (positions for all rows) do not count.
  std::optional<int64_t> samples;
  /// Elements of the largest such input of integers of two dims.
  std::optional<int64_t> tokens;
};
/// The graph is finalized.
ModelWork modelWork(const FlowGraph &graph);

/// Per second; 0: not known.
struct Throughput {
  double flopsPerDevice = 0;
  /// Model FLOPs utilization: the seconds that the products take at the peak of their
  /// type, on all devices together, by those of the step.
  double utilization = 0;
  double samplesPerSecond = 0, tokensPerSecond = 0;
};
Throughput throughputOf(const ModelWork &work, const Device &device, int64_t devices,
                        double seconds);

} // namespace partita::search

#endif // PARTITA_SEARCH_THROUGHPUT_H
