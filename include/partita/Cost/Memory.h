//===- Memory.h - Bytes alive over a step -----------------------*- C++ -*-===//
//
// A step is a row of moments (ops in their order). A value is alive from the moment that
// makes it to the last that reads it, both included; weights, gradients that accumulate
// and optimizer states all the time. At every moment the bytes alive are a lower bound of
// what an arena needs; the most of them is what a plan is priced with, and the arena's
// own size is reported beside it.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_MEMORY_H
#define PARTITA_COST_MEMORY_H

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace partita {

enum class MemoryKind : uint8_t {
  Weights,       ///< parameters and what does not train, whole or in parts
  Gradients,     ///< of parameters, until the update; their sums over micro-batches
  Optimizer,     ///< what an optimizer keeps from step to step
  Activations,   ///< made in the forward pass and kept for the backward pass
  Temporaries,   ///< made and read for the last time in one pass: cotangents too
  Workspace,     ///< scratch of one kernel or engine call
  Communication, ///< what collectives have made of something else: gathered weights too
  Other,         ///< inputs, outputs, states of no training
};
inline constexpr int memoryKinds = 8;
/// "weights", "gradients", …
std::string_view memoryKindName(MemoryKind kind);

struct LiveValue {
  MemoryKind kind = MemoryKind::Activations;
  int64_t bytes = 0;
  int64_t first = 0, last = 0; ///< moments, first ≤ last
};

struct MemoryPeak {
  int64_t bytes = 0;
  int64_t moment = 0;                ///< the earliest with that many
  int64_t byKind[memoryKinds] = {0}; ///< at that moment
};

/// The most bytes alive at once. Every value occupies a multiple of `alignment` bytes.
MemoryPeak memoryPeak(std::span<const LiveValue> values, int64_t alignment = 1);

/// Bytes alive at each of the moments 0 … moments-1.
std::vector<int64_t> memoryOverTime(std::span<const LiveValue> values, int64_t moments,
                                    int64_t alignment = 1);

} // namespace partita

#endif // PARTITA_COST_MEMORY_H
