//===- Solve.h - Solving pairwise choice problems ---------------*- C++ -*-===//
#ifndef PARTITA_SOLVER_SOLVE_H
#define PARTITA_SOLVER_SOLVE_H

#include "partita/Base/Stop.h"
#include "partita/Solver/Problem.h"

#include <functional>

namespace partita::solver {

/// Best answer and bound so far. `cost` is absent before the first answer.
struct Progress {
  double seconds = 0;
  int64_t work = 0;
  std::optional<double> cost;
  double lowerBound = 0;
};

struct SolveOptions {
  /// Stops after this many seconds with the best answer so far. Ignored when a work
  /// limit is given.
  double timeLimit = 60;
  /// Stops after this much work (cost table entries touched, in units of 1024). Two runs
  /// with the same limit and number of threads give the same answer on any machine.
  std::optional<int64_t> workLimit;
  /// After `work` (in the same unit) an answer is good enough whose cost is above the
  /// bound by at most this fraction of it. Absent: only the limits stop a search.
  struct Enough {
    double gap;
    int64_t work;
    /// After `nearlyWork` an answer is good enough that is within this fraction: what is
    /// left to prove is rounding.
    double nearly = 0;
    int64_t nearlyWork = 0;
  };
  std::optional<Enough> enough;
  /// Only answers below it are of interest: others may be left out, and where there are
  /// none the status is Infeasible and the bound this.
  std::optional<int64_t> upper;
  /// An answer to begin from, one choice per variable; empty: none is known. It is not
  /// looked at if it is none of the problem's answers below `upper`, or where classes may
  /// be split into runs.
  std::vector<uint32_t> start = {};
  /// Once it is raised the search ends as at a limit, with the best answer so far.
  StopFlag stop;
  /// Threads to use, at least 1.
  int threads = 1;
  /// Called now and then, always from the calling thread.
  std::function<void(const Progress &)> progress;
};

enum class Status {
  /// An answer with cost = lowerBound.
  Optimal,
  /// An answer; the limit came before a proof.
  Feasible,
  /// Proved that there is no answer (below SolveOptions::upper).
  Infeasible,
  /// No answer within the limit, and no proof that there is none.
  Unknown
};

/// `choices`, `cost` are set for Optimal and Feasible; such an answer has passed
/// `verify`. `lowerBound` holds for every answer of the problem. `reason` is a sentence
/// for Infeasible and Unknown.
struct Solution {
  Status status = Status::Unknown;
  std::vector<uint32_t> choices;
  Wide cost = 0;
  Wide lowerBound = 0;
  std::string reason;
  double seconds = 0;
  int64_t work = 0;
};

/// Solves a problem. An error only for a problem that fails `check`.
Expected<Solution> solve(const Problem &problem, const SolveOptions &options = {});

} // namespace partita::solver

#endif // PARTITA_SOLVER_SOLVE_H
