//===- Clash.h - Which variables leave no answer ----------------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_CLASH_H
#define PARTITA_LIB_SOLVER_CLASH_H

#include "Core.h"

namespace partita::solver {

/// A small set of variables whose forbidden choices and pairs alone leave no answer,
/// whatever memory there is; no variable can be left out of it unless the budget ended
/// the search for one. Empty when pairs and choices leave an answer, or none was
/// disproved.
std::vector<int> findClash(const Core &core, Budget budget);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_CLASH_H
