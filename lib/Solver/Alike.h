//===- Alike.h - Variables with equal surroundings --------------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_ALIKE_H
#define PARTITA_LIB_SOLVER_ALIKE_H

#include "Core.h"

namespace partita::solver {

/// Ties the variables that look alike: with equal costs, equal bytes (at whatever time)
/// and, for so many steps along edges with shared tables, equal neighbours (colour
/// refinement: Weisfeiler and Leman, 1968). In a model these are the equal layers inside
/// a stretch of them. An answer that takes equal choices for them is not the best one,
/// but it has no borders between layers that were planned in different ways, which no
/// search of a small neighbourhood can move.
Ties tiesOfAlike(const Problem &problem, int steps);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_ALIKE_H
