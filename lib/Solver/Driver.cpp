//===- Driver.cpp - The order in which the algorithms run -----------------===//
//
// 1. Reductions. What is left of a model with equal layers is often a few hundred
//    variables, whatever its depth.
// 2. A dive for a first answer, then branch and bound below it: this ends most problems.
// 3. Neighbourhood search: all but a connected piece keeps its choices, the piece is
//    solved exactly.
//
//===----------------------------------------------------------------------===//
#include "Driver.h"

#include <algorithm>
#include <thread>

using namespace partita;
using namespace partita::solver;

Driver::Driver(const Problem &problem, const SolveOptions &options)
    : problem(problem), options(options), start(Budget::Clock::now()) {
  if (options.workLimit)
    budget.workLimit = std::max<int64_t>(1, *options.workLimit) * 1024;
  else
    budget.deadline = start + std::chrono::duration_cast<Budget::Clock::duration>(
                                  std::chrono::duration<double>(options.timeLimit));
}

double Driver::seconds() const {
  return std::chrono::duration<double>(Budget::Clock::now() - start).count();
}

void Driver::report() {
  if (!options.progress)
    return;
  Progress progress{seconds(), work(), std::nullopt, std::max(0.0, bound)};
  if (!isInfinite(cut.upper))
    progress.cost = cut.upper;
  options.progress(progress);
}

Outcome Driver::infeasible(const std::string &reason) {
  Outcome outcome;
  outcome.complete = true;
  outcome.reason = "infeasible: " + reason;
  return outcome;
}

/// Whether choices are left when only forbidden choices and pairs count.
static bool pairsLeaveAnAnswer(const Core &core) {
  Core copy = core;
  copy.slack.clear();
  copy.lambda.clear();
  for (CoreVar &v : copy.vars)
    v.members.clear();
  return copy.reduce();
}

Outcome Driver::finish(const Core &root, bool complete) {
  Outcome outcome;
  outcome.complete = complete;
  outcome.bound = bound;
  if (best) {
    std::vector<int> full = root.expand(*best);
    full.resize(problem.variables.size());
    outcome.choices.emplace(full.begin(), full.end());
  } else if (!complete) {
    outcome.reason = "no answer found within the limit, and no proof that there is none";
  }
  return outcome;
}

/// Branch and bound on a copy; keeps its answer and bound. True when the search was
/// complete.
bool Driver::exactPhase(const Core &root, int64_t workShare, int64_t nodeLimit) {
  std::vector<int> ids;
  Core core = root.pack(ids);
  Budget part = budget;
  part.workLimit = workShare < budget.workLimit - budget.work ? budget.work + workShare
                                                              : budget.workLimit;
  Search search(part, cut, nodeLimit);
  Search::Result result = search.solve(core);
  budget.work = part.work;
  if (result.choices) {
    best.emplace(root.vars.size());
    for (size_t i = 0; i < ids.size(); ++i)
      (*best)[ids[i]] = (*result.choices)[i];
    cut.upper = search.upper();
  }
  bool complete = isInfinite(result.open);
  bound = std::max(bound, std::min(result.open, cut.upper));
  return complete;
}

Outcome Driver::run() {
  Root root = buildCore(problem);
  if (!root.infeasible.empty())
    return infeasible(root.infeasible);
  Core untouched = root.core;
  if (!root.core.reduce())
    return infeasible(whyInfeasible(untouched));
  untouched = Core();
  Core &core = root.core;
  budget.work += core.work;
  core.work = 0;
  report();
  Search diver(budget, cut);
  if (auto found = diver.dive(core, 0.15)) {
    best = std::move(found);
    cut.upper = diver.upper();
  }
  report();
  if (exactPhase(core, budget.workLimit, INT64_MAX)) {
    if (!best)
      return infeasible(whyInfeasible(buildCore(problem).core));
    return finish(core, true);
  }
  return finish(core, false);
}

std::string Driver::whyInfeasible(const Core &core) const {
  if (!pairsLeaveAnAnswer(core))
    return "the forbidden choices and pairs leave no answer";
  return "no combination of choices that the forbidden pairs leave fits the memory "
         "limit of " +
         std::to_string(*problem.memoryLimit) + " bytes";
}
