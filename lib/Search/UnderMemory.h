//===- UnderMemory.h - Problems under a memory limit ------------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_UNDERMEMORY_H
#define PARTITA_LIB_SEARCH_UNDERMEMORY_H

#include "Collapse.h"
#include "partita/Search/Model.h"
#include "partita/Solver/Solve.h"

#include <functional>

namespace partita::search {

/// Per variable whether a plan needs all bytes that its usages have: where a value or a
/// source has users in several ops it may need fewer, as a choice does not say who reads
/// which copy.
std::vector<char> ownBytes(const Model &model);

/// Solves a problem in rounds. Tied variables become one, so that it is as large as one
/// layer. The first round knows nothing of memory; each later one has the memory of the
/// moments at which earlier answers did not fit. An answer that fits ends it, and has the
/// round's bound: what is left out of a round only makes answers cheaper. Two or three
/// moments are what most programs come to, of thousands.
///
/// Once an answer fits, later rounds look for cheaper ones only. Where none was found in
/// time, answers are looked for that pay for memory, at a price that is moved until they
/// just fit.
class MemoryRounds {
public:
  /// The most bytes that choices have in use, where that is known better than the
  /// problem's usages say.
  using PeakOf = std::function<int64_t(const std::vector<uint32_t> &)>;

  /// The problem must outlive it; its usages are such `rows`. `isOwn`: per variable
  /// whether `peakOf` counts its usages in full; where these alone are too many `peakOf`,
  /// which looks at the whole program, is not asked. So many bytes are in use beside
  /// those of the problem.
  MemoryRounds(const solver::Problem &problem, const solver::SolveOptions &options,
               PeakOf peakOf, const std::vector<char> &isOwn, int64_t beside,
               Rows rows = Rows::Most);

  /// Begins from choices of the problem, if they fit: only what is cheaper is looked for,
  /// in their neighbourhood too. False if they do not, or treat equal layers differently.
  Expected<bool> offer(const std::vector<uint32_t> &choices);
  /// The first round alone. Its bound is `lowerBound` from then on.
  Expected<void> relax();
  solver::Wide lowerBound() const { return best.lowerBound; }
  /// True if there is an answer this close to the bound, as a fraction.
  bool isWithin(double gap) const {
    return hasAnswer() && static_cast<double>(best.cost - best.lowerBound) <=
                              gap * static_cast<double>(best.cost);
  }
  /// Whether answers were found that do not fit.
  bool isLimitFelt() const { return !moments.empty(); }

  /// All rounds, in so many seconds, or in so much work if that is given. The solution is
  /// as solver::solve's, choices of the whole problem. Only answers that cost less than
  /// `upper` are looked for. Unless it is the last, another call may go on where this one
  /// stopped.
  Expected<solver::Solution> run(double timeLimit, std::optional<int64_t> workLimit,
                                 std::optional<int64_t> upper, bool isLast);

private:
  /// Solves for the moments so far; keeps the bound, and the answer if it fits. Else the
  /// moment at which it does not is added.
  Expected<void> round();
  /// Looks for an answer that fits, at several prices of memory.
  Expected<void> seed();
  /// Keeps choices of the collapsed problem if they fit and are the cheapest so far; if
  /// they do not fit, `moment` is where they need most.
  Expected<bool> keepIfItFits(std::vector<uint32_t> choices, int64_t &moment);
  /// True if choices fit by `peakOf`.
  bool fitsByItself(const std::vector<uint32_t> &choices) const;
  bool hasAnswer() const {
    return !best.choices.empty() && (!options.upper || best.cost < *options.upper);
  }
  /// Says how much memory is missing.
  solver::Solution infeasible(bool isLast);
  Expected<solver::Solution> finish(bool isLast);
  solver::SolveOptions limits(double share) const;
  bool isLate() const;

  const solver::Problem &problem;
  solver::SolveOptions options;
  PeakOf peakOf;
  int64_t beside;
  Rows rows;
  Collapsed collapsed;
  /// The collapsed problem with no usages but those that `peakOf` counts in full.
  solver::Problem own;
  std::vector<int64_t> moments; ///< time steps of the collapsed problem
  std::vector<int64_t> latest;  ///< of these the last ones that were added
  /// Of the collapsed problem; its lowerBound holds also before there is an answer.
  solver::Solution best;
  solver::Solution last; ///< of the last round
  bool isOpen = true;    ///< whether another round may lead on
  int rounds = 0;
  int64_t workBefore = 0; ///< of earlier calls of `run`
  bool isSeeded = false;
  bool isOffered = false;     ///< `best` came from outside, or of such an answer
  bool isBestByUsages = true; ///< or only by `peakOf`
  solver::Wide relaxed = 0;   ///< the bound without memory
  bool isExploring = true;    ///< whether the moments that decide may be others yet
};

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_UNDERMEMORY_H
