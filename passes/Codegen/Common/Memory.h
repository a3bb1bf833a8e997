//===- Memory.h - Places of a program's storages ----------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_MEMORY_H
#define PARTITA_PASSES_CODEGEN_COMMON_MEMORY_H

#include "partita/Base/Bundle/Plan.h"
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

/// What the runtime will have in memory. `tensors` have their files and offsets.
PlanMemory residentMemory(const Program &program, const Memory &memory);

/// The task table of the program. `tensors` have their files and offsets.
std::string buildTable(const Program &program, const Memory &memory);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_MEMORY_H
