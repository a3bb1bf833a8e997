//===- Memory.h - Places of a program's storages ----------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_MEMORY_H
#define PARTITA_PASSES_CODEGEN_COMMON_MEMORY_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Cost/Memory.h"
#include "partita/Kernels/Launches.h"
#include "passes/Codegen/Common/BufferPlan.h"
#include "passes/Codegen/Common/Program.h"

namespace partita::codegen {

struct Memory {
  std::vector<uint64_t> offsets; ///< per storage, in its space
  uint64_t arenaBytes = 0, weightBytes = 0;
  uint64_t stateBytes = 0, ioBytes = 0, hostBytes = 0;
  /// The most arena bytes needed at one time.
  uint64_t arenaLowerBound = 0;
};

/// Weights lie one after the other; a storage of the arena is alive from the first task
/// that touches it to the last. Inputs are written before every request, so they are
/// reused after their last reader; outputs stay to the end.
Memory placeStorages(const Program &program);

/// From the first task that touches a storage to the last; what the runtime fills or
/// reads is alive before or behind all of them. What is touched in a loop and outside of
/// it is needed in every trip. Without bytes; of what no task touches last < first.
std::vector<Interval> livesOf(const Program &program);

/// What lies in the arena, and when.
struct ArenaValue {
  std::string node; ///< whose task makes it
  LiveValue live;   ///< moments are numbers of tasks, and one more
  uint64_t offset = 0;
};
/// By storage; those that no task touches are left out.
std::vector<ArenaValue> arenaValues(const Program &program, const Memory &memory);

/// What a rank's memory holds when the values of the arena take most: every byte of
/// arena, weights, states and regions by its kind, and the `shares` classes of values of
/// the arena that take most.
PlanPeak peakOf(const Program &program, const Memory &memory, const PlanMemory &resident,
                size_t shares = 8);

/// The values of the arena as JSON, for those who look into it (`--dump-dir`).
std::string arenaJson(const Program &program, const Memory &memory);

/// Bytes that a request writes into the states of a rank: what its tasks store there,
/// counted task by task. Of a collective, what it receives.
int64_t stateBytesWritten(const Program &program);
/// Bytes of windows that roll which the runtime moves to the front of their places, on
/// average over many such requests.
int64_t stateBytesMoved(const Program &program);

/// Kernels, calls and copies of a request of one rank, loops counted by their trips.
kernels::Launches launchesOf(const Program &program);

/// Vector instructions that a run of a kernel takes (getKernelSteps of its ops).
double stepsOf(const KernelSpec &kernel);

/// Nodes that are slow, and in words why: engine calls that are plain loops, kernels that
/// have a loop without vector code (by number, see TargetModel::StageCode), loops whose
/// trips follow one another. Of these, what has a share of at least 2% of the operations
/// or of the bytes of a request, and at least a million of them, or of its time as a core
/// of the preset "cpu-core" is priced, and at least 10 µs.
std::vector<std::pair<std::string, std::string>>
slowNodes(const Program &program, const std::vector<bool> &isScalar);

/// What the runtime will have in memory. `tensors` have their files and offsets.
PlanMemory residentMemory(const Program &program, const Memory &memory);

/// The task table of the program. `tensors` have their files and offsets.
std::string buildTable(const Program &program, const Memory &memory);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_MEMORY_H
