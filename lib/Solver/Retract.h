//===- Retract.h - Choices that all variables give up together --*- C++ -*-===//
//
// Dominance replaces a choice of one variable whatever the others choose. Where choices
// only differ in what they agree with, that finds nothing: splitting a picture by rows is
// as good as by examples as long as the neighbours do the same. But all variables may
// give up rows at once. This looks for a map of choices to choices, f, for every
// variable, so that for all choices s, r of neighbours
//
//   cost(f(s)) ≤ cost(s), bytes(f(s)) ≤ bytes(s), table(f(s), f(r)) ≤ table(s, r)
//
// and f(s) = s for what it keeps. Then no answer gets worse by it, so that the choices it
// keeps are enough. No bound of message passing rises by it, but tables become as small
// as the square of what is left.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SOLVER_RETRACT_H
#define PARTITA_LIB_SOLVER_RETRACT_H

#include "Core.h"

namespace partita::solver {

/// Forbids what such a map gives up. Variables that look alike at first give up the same.
/// The work is added to the budget; nothing is forbidden where that ends it. True: some
/// choices were forbidden, and the core is to be reduced.
bool retract(Core &core, Budget &budget);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_RETRACT_H
