//===- Driver.h - The order in which the algorithms run ---------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_DRIVER_H
#define PARTITA_LIB_SOLVER_DRIVER_H

#include "Neighbourhood.h"
#include "Search.h"
#include "SplitBound.h"

#include "partita/Solver/Solve.h"

#include <random>

namespace partita::solver {

/// What the algorithms found, before the answer is priced.
struct Outcome {
  std::optional<std::vector<uint32_t>> choices;
  double bound = 0;
  /// Nothing better exists than `choices`, or nothing at all without them.
  bool complete = false;
  std::string reason;
  /// The multipliers of the root's bound, for every time step at which memory changes.
  std::vector<double> multipliers;
};

inline constexpr const char *noAnswerInTime =
    "no answer found within the limit, and no proof that there is none";

/// What is asked of a problem.
struct Question {
  /// Variables that take equal choices; the problem's classes are not looked at.
  Ties ties;
  /// Only answers that cost less are wanted.
  double upper = infinite;
  /// Whether to find out why there is no answer.
  bool explain = true;
  /// Multipliers to start from, from a question about the same problem; may be empty.
  std::vector<double> multipliers;
  /// An answer that is known; may be empty.
  std::vector<uint32_t> start{};
  /// Per variable the choices that answers are looked for in; empty for all.
  std::vector<std::vector<int>> left{};
};

/// Runs reductions, dives, exact search and neighbourhood search on one problem.
class Driver {
public:
  Driver(const Problem &problem, const SolveOptions &options, Budget budget,
         Question question);
  Outcome run();
  /// Work so far, in table entries.
  int64_t work() const { return budget.work; }

private:
  bool isDone();
  bool isProved(const Core &root) const;
  bool isRefuted() const;
  bool hasTimeFor(double share, double times) const;
  Outcome infeasible();
  std::string whyInfeasible() const;
  bool exactPhase(const Core &root, int64_t workShare);
  enum class GuessFate { Refuted, Open, Proved };
  GuessFate tryGuess(const Core &root, Core &core, const std::vector<int> &ids,
                     double guess, int64_t share);
  bool guessPhase(const Core &root);
  void constructPhase(Core &core, Dual &dual);
  bool retractPhase(Core &core);
  bool firstPhase(Core &core);
  void takeKnown(const Root &root, const std::vector<uint32_t> &choices);
  void alikePhase(const Root &root);
  bool boundPhase(Core &core);
  bool tightenPhase(Core &core, int sweeps);
  std::optional<std::vector<int>> divePhase(const Core &core, double fraction);
  void improvePhase(const Core &core, const std::vector<int> &from, size_t pieces,
                    double share = 1);
  template <typename Fn>
  void searchAround(Neighbourhood &search, size_t pieces, double share, bool isLarge,
                    Fn visit);
  void diveTogether(const Core &core, std::span<const double> fractions);
  void startsPhase(Core &core);
  bool shrinkPhase(Core &core);
  void kernelPhase(Core &core, size_t most);
  void splitPhase(const Core &core);
  void raise(SplitBound &split, Budget &part);
  bool take(const Core &root, std::vector<int> choices, double claimed);
  void report();
  Outcome finish(const Core &root, bool complete);
  void keepMultipliers(const Core &core);

  const Problem &problem;
  const SolveOptions &options;
  Question question;
  Budget::Clock::time_point start;
  Budget budget;
  Cut cut;
  double bound = 0;
  std::vector<double> multipliers;
  /// Branch and bound over the root as it is now, with its variables in the root. It ends
  /// where the root changes.
  std::unique_ptr<Search> search;
  std::vector<int> searched;
  Budget searchBudget;
  /// Most problems end in the first search; what takes longer is for those that do not.
  bool isSecond = false;
  bool isSplit = false;
  /// A search ended that had an answer.
  bool isComplete = false;
  /// Neighbourhood searches so far: each looks at other pieces.
  uint64_t searches = 0;
  /// The best answer, as choices of the reduced root core.
  std::optional<std::vector<int>> best;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_DRIVER_H
