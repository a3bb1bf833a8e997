//===- Blocks.h - Solving repeated parts once -------------------*- C++ -*-===//
//
// A part of a core that meets the rest in at most two variables, and whose memory rows
// nobody else uses, is a table between these two: the least that the part costs for each
// pair of their choices. Making the table means solving the part for every pair, which is
// only worth it where many parts are equal, as the layers of a model are.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SOLVER_BLOCKS_H
#define PARTITA_LIB_SOLVER_BLOCKS_H

#include "Core.h"

namespace partita::solver {

/// Replaces parts that occur more than once by their tables, each kind solved once, and
/// then the single ones beside them. Costs must still be whole numbers.
void foldBlocks(Core &core, Budget &budget);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_BLOCKS_H
