//===- KeptStates.h - States whose layouts are decided already --*- C++ -*-===//
//
// A state argument that has a dist.layout before strategies are decided keeps it: another
// entry of the bundle has the state too, and lies in the same memory.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_SHARD_KEPTSTATES_H
#define PARTITA_PASSES_SHARD_KEPTSTATES_H

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Search/Strategies.h"

namespace partita {

/// By op of the flow graph (State) the layout that it keeps.
using KeptStates = std::map<int32_t, Layout>;
KeptStates keptStates(mlir::FunctionOpInterface function, const dist::ProgramFlow &flow);

/// What a search is to hold for them, as far as axes go.
search::Pins pinsFor(const FlowGraph &graph, const KeptStates &kept);

/// Gives the states, and the sinks that they leave by, these layouts, and prices the
/// decision anew. Users that were decided for another one are served by conversions.
void keepStates(const FlowGraph &graph, const KeptStates &kept, Decision &decision);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_KEPTSTATES_H
