//===- UnderMemory.h - Problems under a memory limit ------------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_UNDERMEMORY_H
#define PARTITA_LIB_SEARCH_UNDERMEMORY_H

#include "partita/Solver/Solve.h"

namespace partita::search {

/// Solves a problem in rounds. Tied variables become one, so that it is as large as one
/// layer. The first round knows nothing of memory; each later one has the memory of the
/// moments at which earlier answers did not fit. An answer that fits ends it, and has the
/// round's bound: what is left out of a round only makes answers cheaper. Two or three
/// moments are what most programs come to, of thousands.
///
/// The solution is as solver::solve's, choices of the whole problem. `bytesNeeded`, where
/// nothing fits: the least that some moment needs.
Expected<solver::Solution> solveUnderMemory(const solver::Problem &problem,
                                            const solver::SolveOptions &options,
                                            int64_t &bytesNeeded);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_UNDERMEMORY_H
