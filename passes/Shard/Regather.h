//===- Regather.h - How long what is gathered stays in memory ---*- C++ -*-===//
//
// A state that lies in parts (a weight at ZeRO's third level) is gathered before it is
// read. One that is read in the forward and in the backward pass would stay gathered from
// the one to the other, and so would all other layers' weights. Instead it is gathered
// again: a reading is given up behind a user, and made anew for the next one, if the
// states that are gathered between the two take more bytes than it does. So a weight and
// its small neighbours, or the last layer's weight at the turn from forward to backward,
// are gathered once, and at any place no more is gathered than twice the largest state.
// What the copy of an op that is computed again reads is not given up before its gradient
// has read it, so that recompute adds no gathering; unless it is asked to (`gather again`
// of #dist.recompute): then the forward pass's reading ends with it, too.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_SHARD_REGATHER_H
#define PARTITA_PASSES_SHARD_REGATHER_H

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Rule/Sharding/ServeUses.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita {

/// Whether the value is made by nothing in the function and converted late, at its first
/// user: a state, or an argument of a function that another op runs, as the body of a
/// loop.
bool isReadLate(mlir::func::FuncOp function, const FlowOp &producer);

/// Adds servings of values that are read late and that `servings` does not have yet, with
/// an epoch per reading.
void regather(mlir::func::FuncOp function, const dist::ProgramFlow &flow,
              const std::vector<Strategy> &strategies, Servings &servings);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_REGATHER_H
