//===- Memory.h - Bytes of a decided plan over its ops ----------*- C++ -*-===//
//
// A value is alive from the op that makes it to the last that reads it, a conversion's
// result from the producer of the value (where conversions stand) to its own last reader;
// sources in each form in which they are read, all the time. What a fused group keeps in
// registers has no bytes, a view those of what it views. The kinds are those of
// Cost/Memory.h, told by phases of ops (docs/training.md). Unlike the rows of the model
// this knows which users read which copy, so it is never more than they say.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_MEMORY_H
#define PARTITA_SEARCH_MEMORY_H

#include "partita/Cost/Memory.h"
#include "partita/Search/Model.h"

namespace partita::search {

struct MemoryShare {
  std::string name; ///< of a value
  bool isWeight = false;
  int64_t bytes = 0;
};

struct MemoryUse {
  int64_t weights = 0, activations = 0; ///< at the peak; all else is the second
  /// Of these what lasts from run to run, in a program that does not train.
  int64_t states = 0;
  int64_t peak() const { return weights + activations; }
  int32_t op = -1;                   ///< that runs at the peak
  int64_t byKind[memoryKinds] = {0}; ///< at the peak
  bool trains = false;               ///< the program is a training step
  /// Largest first: what is alive at the peak.
  std::vector<MemoryShare> largest;
};

/// A value as it was produced, or what it is converted to.
struct ValueLife {
  int32_t value = -1;
  LiveValue live;
  bool isConverted = false;
};
/// Of all values that have bytes.
std::vector<ValueLife> livesOf(Timing &timing, const Decided &plan);

/// The first op of the backward pass; the number of ops if there is none.
int32_t turnOf(const FlowGraph &graph);
/// Whether the op is of the forward pass, given the turn: what is in front of a loop over
/// micro-batches is, too.
bool isForwardOp(const FlowGraph &graph, int32_t op, int32_t turn);
/// Whether the use is by an op of the backward pass.
bool isReadByBackward(const FlowGraph &graph, const FlowUse &use, int32_t turn);
/// At most `shares` entries in `largest`.
MemoryUse memoryOf(Timing &timing, const Decided &plan, size_t shares = 5);

/// Bytes that every plan needs on some of so many devices, whatever it computes again.
struct NecessaryMemory {
  int64_t lasting = 0; ///< weights and states in equal parts
  int64_t working = 0; ///< of what one product reads beside them, in equal parts
  std::string product; ///< which that is
  int64_t bytes() const { return lasting + working; }
};
/// Sums over the program, without any plan. `countsWork`: else products may work on any
/// part of their rows at a time, as where the number of micro-batches is open.
NecessaryMemory necessaryMemory(const Timing &timing, int64_t devices, bool countsWork);
/// The fewest devices of which each has room for that.
int64_t leastDevices(const Timing &timing, int64_t memoryLimit, bool countsWork);
/// An error where these sums say that nothing fits: what each device needs, for what, and
/// how many devices are needed at least. The graph is finalized.
Expected<void> checkNecessary(const FlowGraph &graph, const Placement &placement,
                              int64_t memoryLimit, bool countsWork);

/// "12 B of weights, 3 B of gradients, …" at the peak.
std::string kindsText(const MemoryUse &memory);

/// Bytes in use at every moment, weights included.
std::vector<int64_t> memoryOverTime(Timing &timing, const Decided &plan);

} // namespace partita::search

#endif // PARTITA_SEARCH_MEMORY_H
