//===- PricedMemory.h - Memory as a cost ------------------------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_PRICEDMEMORY_H
#define PARTITA_LIB_SEARCH_PRICEDMEMORY_H

#include "partita/Solver/Problem.h"

namespace partita::search {

/// A problem without memory, for which choices pay: the cost of one is `share` times its
/// cost, plus `price` times the bytes that it has in use, times the moments. Moments
/// count up to 64: what lies there always comes first, but does not hide what activations
/// need.
solver::Problem withPricedMemory(const solver::Problem &problem, double share,
                                 double price);

/// What choices pay at a price of 1.
double pricedBytes(const solver::Problem &problem, const std::vector<uint32_t> &choices);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_PRICEDMEMORY_H
