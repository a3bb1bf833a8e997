//===- UnderMemory.h - Large problems under a memory limit ------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_UNDERMEMORY_H
#define PARTITA_LIB_SEARCH_UNDERMEMORY_H

#include "partita/Solver/Solve.h"

namespace partita::search {

/// Solves a problem, if it has a memory limit by a price on it: without its rows a
/// problem of equal layers is solved in a moment, with a price on the bytes of one moment
/// as well. The price is moved until the answer fits; what an answer costs with the
/// price, less the price of all memory there is, is a bound of every answer that fits
/// (Everett 1963). What is left open between the two is the whole solver's, where the
/// problem is small.
///
/// The solution is as solver::solve's. `bytesNeeded`, where nothing fits: the least that
/// some moment needs.
Expected<solver::Solution> solveUnderMemory(const solver::Problem &problem,
                                            const solver::SolveOptions &options,
                                            int64_t &bytesNeeded);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_UNDERMEMORY_H
