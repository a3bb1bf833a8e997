//===- Rows.h - What a program does with rows of its inputs -----*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_ROWS_H
#define PARTITA_RULE_SHARDING_ROWS_H

#include "partita/Rule/Sharding/Flow.h"

namespace partita {

/// The first op on the way to what `sink` takes that does not work row by row, where rows
/// are those of the first dims of all arguments: it reduces or orders them, looks
/// something up among them, or its result does not have them. The sink itself, where rows
/// are not its first dim. −1: there is none, and rows of the arguments can be run one
/// behind the other. What a loop carries from row to row joins them. Constants may have
/// rows of their own, which this does not look at.
int32_t joinsRows(const FlowGraph &graph, int32_t sink);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_ROWS_H
