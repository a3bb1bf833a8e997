//===- Rows.h - What a program does with rows of its inputs -----*- C++ -*-===//
//
// A program works row by row of a batch where the first dim of what carries the batch
// goes through every op as loops that nobody reduces or orders. Then one part of the rows
// after the other can be run, and each part's program is the whole one with smaller
// loops: which loops, and by which pieces, is what is found here. Types, reshapes'
// shapes, slices' ends and constants of the part follow from the rules of the ops
// (docs/micro-batches.md).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_ROWS_H
#define PARTITA_RULE_SHARDING_ROWS_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// The first op on the way to what `sink` takes that does not work row by row, where rows
/// are those of the first dims of all arguments: it reduces or orders them, looks
/// something up among them, or its result does not have them. The sink itself, where rows
/// are not its first dim. −1: there is none, and rows of the arguments can be run one
/// behind the other. What a loop carries from row to row joins them. Constants may have
/// rows of their own, which this does not look at.
int32_t joinsRows(const FlowGraph &graph, int32_t sink);

/// Where the batch comes in and goes out: arguments and states, and sinks; it is the
/// first dim of each. A state and its sink are both there or both not.
struct BatchEnds {
  std::vector<int32_t> carriers, sinks;
};

struct RowParts {
  /// As joinsRows, on the way to any of the sinks. Only rows that are in different parts
  /// must not meet. Where it is not −1 there are no strategies.
  int32_t joined = -1;
  /// Per op, on the graph's mesh.
  std::vector<Strategy> strategies;
};

/// The program with the rows of a batch in equal parts, as many as the graph's mesh has
/// ranks, as strategies: a rank's program is that of one part. All ops lead to the sinks.
/// An error where the parts do not divide the first dim of a carrier.
Expected<RowParts> partsOfRows(const FlowGraph &graph, const BatchEnds &ends);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_ROWS_H
