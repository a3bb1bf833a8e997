//===- ExplainValue.h - Where a value lies, and who reads it so -*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_EXPLAINVALUE_H
#define PARTITA_PASSES_SHARD_EXPLAINVALUE_H

#include "dialects/Dist/ProgramFlow.h"

namespace partita {

/// What becomes of a value of a planned program, in one sentence: the layout in which it
/// is made, every conversion with its steps and bytes received, who shares each form, and
/// which reader is the last, after which the form is gone:
///
///   the value of 'fc1' is made as [{8}, {6}] partial sum {tp}, which no op reads; as
///   [{8: tp}, {6}] (reduce-scatter, 96 B received) it is read by 'relu' and 'add', last
///   by 'add'
std::string explainValue(const dist::ProgramFlow &flow,
                         const std::vector<Strategy> &strategies, int32_t value,
                         mlir::Value now);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_EXPLAINVALUE_H
