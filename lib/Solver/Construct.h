//===- Construct.h - The quickest answer ------------------------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_CONSTRUCT_H
#define PARTITA_LIB_SOLVER_CONSTRUCT_H

#include "Core.h"

#include <optional>

namespace partita::solver {

class Dual;

/// Every variable in order takes the choice that is cheapest by the dual's costs with
/// what was chosen before it, where pairs and memory leave room for the rest. Memory that
/// had no room for what a variable wanted costs more at the next try, and the cheapest
/// answer of a few tries is returned. Nothing where no try ends with an answer, or when
/// the budget, to which the work is added, is used up.
std::optional<std::vector<int>> construct(const Core &core, Dual &dual, Budget &budget);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_CONSTRUCT_H
