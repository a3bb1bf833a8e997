//===- KeptLayouts.h - Ends of a program that are decided already *- C++ -*-===//
//
// Some arguments and results have their layout before strategies are decided: a state
// that another entry of the bundle has too, what an earlier stage on the same ranks has
// in memory, and inputs and outputs that a user declares, because their data are spread
// so where they come from or go to (`dataset` in a hints file).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_SHARD_KEPTLAYOUTS_H
#define PARTITA_PASSES_SHARD_KEPTLAYOUTS_H

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Search/Strategies.h"

namespace partita {

/// By op of the flow graph (Argument, State, Sink) the layout that it keeps.
using KeptLayouts = std::map<int32_t, Layout>;

/// Of arguments with a dist.layout, and of what the hints declare. An error names a
/// declaration that fits no input or output, or not its shape or the mesh.
Expected<KeptLayouts> keptLayouts(mlir::FunctionOpInterface function,
                                  const dist::ProgramFlow &flow, const Hints &hints);

/// What a search is to hold for them, as far as axes go.
search::Pins pinsFor(const FlowGraph &graph, const KeptLayouts &kept);

/// Gives the ends these layouts, the sinks of states with them, and prices the decision
/// anew. Users that were decided for another one are served by conversions.
void keepLayouts(const FlowGraph &graph, const KeptLayouts &kept, Decision &decision);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_KEPTLAYOUTS_H
