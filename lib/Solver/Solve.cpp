//===- Solve.cpp - From a problem to a verified answer --------------------===//
#include "partita/Solver/Solve.h"

#include "Runs.h"

#include <cmath>

using namespace partita;
using namespace partita::solver;

/// The least integer that a cost can have when it is at least `bound` up to rounding.
static Wide roundUp(double bound) {
  if (bound <= 0)
    return 0;
  double safe = bound - 1e-6 - bound * 1e-11;
  return safe <= 0 ? 0 : static_cast<Wide>(std::ceil(safe));
}

Expected<Solution> solver::solve(const Problem &problem, const SolveOptions &options) {
  if (auto ok = check(problem); !ok)
    return tl::unexpected(ok.error());
  auto start = Budget::Clock::now();
  Budget budget;
  budget.stop = options.stop;
  if (options.workLimit)
    budget.workLimit = std::max<int64_t>(1, *options.workLimit) * 1024;
  else
    budget.deadline = start + std::chrono::duration_cast<Budget::Clock::duration>(
                                  std::chrono::duration<double>(options.timeLimit));
  auto run = [&](auto &&search) {
    Outcome outcome = search.run();
    return std::pair(std::move(outcome), search.work());
  };
  double upper = options.upper ? static_cast<double>(*options.upper) : infinite;
  Question question{hardTies(problem), upper, !options.upper, {}};
  if (options.start.size() == problem.variables.size())
    if (auto price = verify(problem, options.start))
      if (static_cast<double>(price->cost) < upper)
        question.start = options.start;
  auto [outcome, work] = hasRuns(problem)
                             ? run(RunSearch(problem, options, budget))
                             : run(Driver(problem, options, budget, std::move(question)));
  Solution solution;
  solution.seconds = std::chrono::duration<double>(Budget::Clock::now() - start).count();
  solution.work = work / 1024;
  solution.reason = std::move(outcome.reason);
  solution.lowerBound = roundUp(outcome.bound);
  if (!outcome.choices) {
    solution.status = outcome.complete ? Status::Infeasible : Status::Unknown;
    if (outcome.complete && options.upper) {
      solution.lowerBound = *options.upper;
      solution.reason = "no answer costs less than " + std::to_string(*options.upper);
    }
    return solution;
  }
  solution.choices = std::move(*outcome.choices);
  Expected<Price> price = verify(problem, solution.choices);
  if (!price) {
    // A defect in a reduction: never hand out what the evaluator refuses.
    solution.status = Status::Unknown;
    solution.reason = "the solver's answer failed its check: " + price.error().message;
    solution.choices.clear();
    return solution;
  }
  solution.cost = price->cost;
  if (outcome.complete || solution.lowerBound >= solution.cost)
    solution.lowerBound = solution.cost;
  solution.status =
      solution.lowerBound == solution.cost ? Status::Optimal : Status::Feasible;
  return solution;
}
