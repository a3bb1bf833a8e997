//===- Budget.h - When to stop ----------------------------------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_BUDGET_H
#define PARTITA_LIB_SOLVER_BUDGET_H

#include "partita/Base/Stop.h"

#include <chrono>
#include <cstdint>
#include <optional>

namespace partita::solver {

/// Work is counted in table entries touched, so that a run limited by work alone does
/// the same on every machine.
struct Budget {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> deadline;
  int64_t workLimit = INT64_MAX;
  int64_t work = 0;
  StopFlag stop;

  /// Whether to stop, counting work that has not been added yet.
  bool exhausted(int64_t pending = 0) const {
    return stop.isRaised() || work >= workLimit - pending ||
           (deadline && Clock::now() >= *deadline);
  }
  /// A part that ends when the given share of what is left is used.
  Budget fraction(double share) const {
    Budget result = *this;
    if (deadline) {
      Clock::time_point now = Clock::now();
      result.deadline =
          now + std::chrono::duration_cast<Clock::duration>((*deadline - now) * share);
    }
    if (workLimit != INT64_MAX)
      result.workLimit =
          work + static_cast<int64_t>(static_cast<double>(workLimit - work) * share);
    return result;
  }
  /// A part with at most `share` of work of its own, starting from what is used.
  Budget part(int64_t share) const {
    Budget result = *this;
    if (share < workLimit - work)
      result.workLimit = work + share;
    return result;
  }
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_BUDGET_H
