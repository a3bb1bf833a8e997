//===- BufferPlan.h - Places of buffers in one arena ------------*- C++ -*-===//
//
// Given how large each buffer is and from which task to which it is needed, finds places
// so that buffers needed at the same time do not overlap.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_BUFFERPLAN_H
#define PARTITA_PASSES_CODEGEN_COMMON_BUFFERPLAN_H

#include <cstdint>
#include <vector>

namespace partita::codegen {

/// A buffer of `bytes` that holds something from task `first` to task `last`, both
/// included.
struct Interval {
  uint64_t bytes = 0;
  int64_t first = 0, last = 0;
};

struct BufferPlan {
  std::vector<uint64_t> offsets; ///< per interval, multiples of the alignment
  uint64_t total = 0;            ///< bytes of the arena
};

/// Largest first, each into the tightest gap between those it overlaps in time (the
/// lowest of equal ones), else behind them. Equal input gives equal output.
BufferPlan planBuffers(const std::vector<Interval> &intervals, uint64_t alignment);

/// The most bytes needed at one time: no plan has a smaller total.
uint64_t lowerBound(const std::vector<Interval> &intervals, uint64_t alignment);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_BUFFERPLAN_H
