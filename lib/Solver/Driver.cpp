//===- Driver.cpp - The order in which the algorithms run -----------------===//
//
// 1. Reductions. What is left of a model with equal layers is often a few hundred
//    variables, whatever its depth.
// 2. A dive for a first answer, then branch and bound below it: this ends most problems.
//    Below a guess it ends sooner, and what it says is as true.
// 3. Neighbourhood search: all but a connected piece keeps its choices, the piece is
//    solved exactly.
//
//===----------------------------------------------------------------------===//
#include "Driver.h"

#include "Alike.h"
#include "Blocks.h"
#include "Clash.h"
#include "Construct.h"
#include "Kernel.h"
#include "Retract.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <thread>
#include <utility>

using namespace partita;
using namespace partita::solver;

Driver::Driver(const Problem &problem, const SolveOptions &options, Budget budget,
               Question question)
    : problem(problem), options(options), question(std::move(question)),
      start(Budget::Clock::now()), budget(budget), cut{this->question.upper} {}

/// Cores of fewer table entries go to branch and bound first.
static constexpr int64_t mostQuick = 500'000;

/// A dive into a core of more table entries is bound by memory.
static constexpr int64_t mostTogether = 5'000'000;

/// Whether most pairs of neighbours have many choices: twenty each, say.
static bool isWide(const Core &core) {
  static constexpr int64_t leastPairs = 400;
  const int64_t entries = core.tableEntries();
  auto edges = std::count_if(core.edges.begin(), core.edges.end(),
                             [](const CoreEdge &e) { return e.alive; });
  return entries > mostTogether || (entries > mostQuick && entries >= leastPairs * edges);
}

void Driver::report() {
  if (!options.progress)
    return;
  std::chrono::duration<double> seconds = Budget::Clock::now() - start;
  Progress progress{seconds.count(), work() / 1024, std::nullopt, std::max(0.0, bound)};
  if (!isInfinite(cut.upper))
    progress.cost = cut.upper;
  options.progress(progress);
}

Outcome Driver::infeasible() {
  Outcome outcome;
  outcome.complete = true;
  if (question.explain)
    outcome.reason = "infeasible: " + whyInfeasible();
  return outcome;
}

Outcome Driver::finish(const Core &root, bool complete) {
  Outcome outcome;
  outcome.complete = complete;
  outcome.bound = bound;
  outcome.multipliers = std::move(multipliers);
  if (best) {
    std::vector<int> full = root.expand(*best);
    full.resize(problem.variables.size());
    outcome.choices.emplace(full.begin(), full.end());
  } else if (!complete) {
    outcome.reason = noAnswerInTime;
  }
  return outcome;
}

/// Whether the limits are reached, or an answer is as good as was asked for.
bool Driver::isDone() {
  if (budget.exhausted())
    return true;
  if (!options.enough || !best)
    return false;
  auto isWithin = [&](double gap, int64_t least) {
    return work() / 1024 >= least && cut.upper - bound <= gap * cut.upper;
  };
  return isWithin(options.enough->gap, options.enough->work) ||
         isWithin(options.enough->nearly, options.enough->nearlyWork);
}

/// Whether this share of what is left is so many times what was used so far.
bool Driver::hasTimeFor(double share, double times) const {
  if (budget.deadline) {
    Budget::Clock::time_point now = Budget::Clock::now();
    return (*budget.deadline - now) * share >= (now - start) * times;
  }
  return static_cast<double>(budget.workLimit - budget.work) * share >=
         static_cast<double>(budget.work) * times;
}

/// Whether nothing better than the best answer is left.
bool Driver::isProved(const Core &root) const {
  return best && bound > cut.value(root.noise);
}

/// Whether there is none of the answers that were asked for.
bool Driver::isRefuted() const { return !best && isBeyond(bound, question.upper); }

/// Keeps a better answer of the root, at the price that the problem itself gives it. A
/// search that claimed another price has lost precision: its answer may be kept, its
/// proof may not. False then.
bool Driver::take(const Core &root, std::vector<int> choices, double claimed) {
  std::vector<int> full = root.expand(choices);
  full.resize(problem.variables.size());
  Expected<Price> price =
      verifyWithoutClasses(problem, std::vector<uint32_t>(full.begin(), full.end()));
  if (!price)
    return false;
  double cost = static_cast<double>(price->cost);
  if (cost < cut.upper) {
    best = std::move(choices);
    cut.upper = cost;
  }
  return std::abs(cost - claimed) < 0.5 + 1e-12 * cost;
}

/// Branch and bound below the best answer, from where it stopped before; keeps its answer
/// and the least bound of its open nodes. True when the search was complete.
bool Driver::exactPhase(const Core &root, int64_t workShare) {
  if (!search) {
    search = std::make_unique<Search>(searchBudget, cut);
    search->setRounding(isSecond);
    search->begin(root.pack(searched));
  }
  search->setCut(cut);
  Search::Result result;
  // In parts, so that the bound is seen rising.
  static constexpr int parts = 12;
  for (int i = 0; i < parts && !isDone(); ++i) {
    searchBudget = budget.part(workShare / parts);
    result = search->resume();
    budget.work = searchBudget.work;
    bool isBetter = search->upper() < cut.upper;
    if (isBetter) {
      std::vector<int> choices(root.vars.size());
      for (size_t v = 0; v < searched.size(); ++v)
        choices[searched[v]] = (*result.choices)[v];
      if (!take(root, std::move(choices), search->upper())) {
        search.reset();
        return false;
      }
    }
    bound = std::max(bound, std::min(result.open, cut.upper));
    report();
    if (isInfinite(result.open))
      return true;
  }
  return false;
}

/// Shrinks a core to answers below the cut, as long as that takes much off it. False:
/// there are none.
static bool shrink(Core &core, Cut cut, Budget &budget, double &bound) {
  static constexpr int mostRounds = 8;
  bool left = true;
  for (int round = 0; round < mostRounds && left && !budget.exhausted(); ++round) {
    const int64_t before = core.tableEntries();
    Dual dual(core, cut, &budget);
    left = dual.run(100, 2e-6) && dual.settleInCore() && core.reduce();
    bound = std::max(bound, std::min(dual.bound(), cut.upper));
    budget.work += std::exchange(core.work, 0);
    if (core.tableEntries() > before * 4 / 5)
      break;
  }
  return left;
}

/// Branch and bound below a guess, in a core that is shrunk to answers below it. `ids`
/// are the root's variables in it as it came.
Driver::GuessFate Driver::tryGuess(const Core &root, Core &core,
                                   const std::vector<int> &ids, double guess,
                                   int64_t share) {
  // Where the core stays large the guess was far too high: the bound is all it is good
  // for.
  static constexpr int64_t leastShrunk = 4;
  // Exact minima of large tables would take all of the work for the first few nodes.
  static constexpr int64_t treeEntries = 1'000'000;
  if (!shrink(core, Cut{guess}, budget, bound)) {
    bound = std::max(bound, guess);
    return GuessFate::Refuted;
  }
  if (budget.exhausted() || core.tableEntries() > root.tableEntries() / leastShrunk)
    return GuessFate::Open;
  Budget part = budget.part(share + 100 * core.tableEntries());
  Search below(part, Cut{guess});
  below.setRounding(isSecond);
  below.setTreeEntries(treeEntries);
  Search::Result result = below.solve(core);
  budget.work = part.work;
  bound = std::max(bound, std::min(result.open, below.upper()));
  const bool isEnd = isInfinite(result.open);
  if (below.upper() >= guess)
    return isEnd ? GuessFate::Refuted : GuessFate::Open;
  std::vector<int> choices(root.vars.size());
  for (size_t v = 0; v < ids.size(); ++v)
    choices[ids[v]] = (*result.choices)[v];
  const bool isBelieved = take(root, std::move(choices), below.upper());
  return isEnd && isBelieved ? GuessFate::Proved : GuessFate::Open;
}

/// Branch and bound as if an answer were known that leaves a quarter of the gap open. It
/// needs a small part of the nodes of an honest one, and what it ends in is true all the
/// same: it finds an answer below the guess, and the best one then, or there is none, and
/// the guess is a bound. Where it does not end the next guess is lower, in what this one
/// left of the core. True: the best answer is proved.
bool Driver::guessPhase(const Core &root) {
  static constexpr double firstPart = 0.25, leastRise = 0.1;
  static constexpr int mostTries = 24, mostIdle = 4;
  std::vector<int> ids;
  Core core = root.pack(ids);
  double high = cut.upper, part = firstPart;
  int64_t share = 300'000'000;
  for (int tries = 0, idle = 0; tries < mostTries && idle < mostIdle && !isDone();
       ++tries) {
    const double low = bound,
                 guess = std::min(high, std::ceil(low + part * (high - low)));
    const int64_t entries = core.tableEntries();
    Core guessed = core;
    GuessFate fate = tryGuess(root, guessed, ids, guess, share);
    report();
    if (fate == GuessFate::Proved || bound >= cut.upper)
      return true;
    if (fate == GuessFate::Open) {
      idle += bound - low < leastRise * (guess - low) &&
              guessed.tableEntries() > entries * 3 / 4;
      high = std::min(guess, cut.upper);
      core = std::move(guessed);
      share += share / 2;
      part = firstPart;
    } else if (guess < high) {
      part = std::min(1.0, 2 * part);
    } else {
      // What was left open below this has been closed since.
      high = cut.upper;
      core = root.pack(ids);
      part = firstPart;
    }
  }
  return false;
}

/// The quickest answer from where a dual is.
void Driver::constructPhase(Core &core, Dual &dual) {
  budget.work += std::exchange(core.work, 0);
  if (auto choices = construct(core, dual, budget))
    take(core, std::move(*choices), 0);
}

/// What all variables can give up together. False: no answer is left.
bool Driver::retractPhase(Core &core) {
  // Many times what it takes where variables are alike and few of their choices are left,
  // which is where it is worth most.
  static constexpr int64_t workPerEntry = 16;
  const int64_t entries = core.tableEntries();
  if (entries < mostQuick)
    return true;
  Budget part = budget.fraction(0.1).part(workPerEntry * entries);
  const bool isLess = retract(core, part);
  budget.work = part.work;
  return !isLess || core.reduce();
}

/// Reductions, a few sweeps, and the quickest answer there is: on the largest problems
/// all else may come too late.
bool Driver::firstPhase(Core &core) {
  Budget part = budget.fraction(0.25);
  core.limit = &part;
  bool left = core.reduce();
  if (left && !part.exhausted(core.work))
    left = retractPhase(core);
  if (left && !part.exhausted(core.work)) {
    size_t before = core.trail.size();
    Budget folding = budget.fraction(0.2);
    foldBlocks(core, folding);
    budget.work = folding.work;
    left = core.trail.size() == before || core.reduce();
  }
  core.limit = &budget;
  budget.work += core.work;
  core.work = 0;
  if (!left || core.aliveVars() == 0)
    return left;
  part = budget.fraction(0.15);
  Dual dual(core, Cut(), &part);
  left = dual.run(6, 0);
  bound = std::max(bound, dual.bound());
  constructPhase(core, dual);
  // Where there is time for more, a fresh start ends higher than these first steps.
  if (core.tableEntries() > Dual::mostBaked)
    left = left && dual.keep();
  budget.work += core.work;
  core.work = 0;
  report();
  return left;
}

/// Keeps an answer of the problem, if it is better and has no choice that reductions have
/// forbidden since.
void Driver::takeKnown(const Root &root, const std::vector<uint32_t> &choices) {
  if (auto left = root.core.projectIfLeft(root.complete(choices), 0))
    take(root.core, *std::move(left), 0);
}

/// Per variable of the problem the choices that its core has left; empty where it has no
/// such variable any more.
static std::vector<std::vector<int>> choicesLeft(const Core &core,
                                                 const Problem &problem) {
  std::vector<std::vector<int>> left(problem.variables.size());
  for (size_t v = 0; v < left.size(); ++v)
    if (core.vars[v].alive) {
      left[v].resize(problem.variables[v].costs.size());
      std::iota(left[v].begin(), left[v].end(), 0);
    }
  for (const TrailRecord &record : core.trail) {
    if (record.kind != TrailRecord::Renumbered || left[record.var].empty())
      continue;
    std::vector<int> now;
    for (uint32_t choice : record.choices())
      now.push_back(left[record.var][choice]);
    left[record.var] = std::move(now);
  }
  return left;
}

/// Forbids all other choices.
static void leaveOnly(Core &core, const std::vector<std::vector<int>> &left) {
  for (size_t v = 0; v < left.size(); ++v) {
    if (left[v].empty())
      continue;
    std::vector<double> cost(core.vars[v].cost.size(), infinite);
    for (int choice : left[v])
      cost[choice] = core.vars[v].cost[choice];
    core.vars[v].cost = std::move(cost);
  }
}

/// Answers in which all that look alike take equal choices: where layers are equal, of a
/// problem of a few of them. Looking further ties fewer, and the first answer is one of
/// that problem too. This comes before the bound, which takes longer.
void Driver::alikePhase(const Root &root) {
  const Core &core = root.core;
  // Reductions of the tied problem take longer than those so far did.
  static constexpr double share = 0.2, leastTimes = 2;
  // Pairs that use memory are variables of the core alone.
  if (core.tableEntries() <= mostTogether || !question.ties.empty() ||
      core.vars.size() != problem.variables.size() || !hasTimeFor(share, leastTimes))
    return;
  std::vector<uint32_t> known;
  const std::vector<std::vector<int>> left = choicesLeft(core, problem);
  for (int steps : {4, 8}) {
    Question tied{tiesOfAlike(problem, steps), question.upper, false, {}, known};
    tied.left = left;
    if (isDone() || tied.ties.size() < problem.variables.size() / 2)
      return;
    SolveOptions quiet = options;
    quiet.progress = nullptr;
    Driver driver(problem, quiet, budget.fraction(share), std::move(tied));
    Outcome outcome = driver.run();
    budget.work = driver.work();
    const double before = cut.upper;
    if (outcome.choices)
      takeKnown(root, known = *std::move(outcome.choices));
    report();
    if (cut.upper >= before)
      return;
  }
}

/// Rows that became one share its multiplier: so it fits where they are apart again.
void Driver::keepMultipliers(const Core &core) {
  std::fill(multipliers.begin(), multipliers.end(), 0);
  for (size_t r = 0; r < core.lambda.size(); ++r)
    for (int row : core.origin[r])
      multipliers[row] += core.lambda[r] / static_cast<double>(core.origin[r].size());
}

/// Raises the bound of the root and keeps the moved costs: everything after starts from
/// them. Without a cut, so that the best answer never loses a choice.
bool Driver::boundPhase(Core &core) {
  Budget part = budget.fraction(0.3);
  Dual dual(core, Cut(), &part);
  // Good multipliers are not to be thrown about by the first steps.
  if (!question.multipliers.empty())
    dual.setStep(0.2);
  dual.setGoal(question.upper);
  dual.setEnough(question.upper);
  if (!dual.run(600, 2e-6))
    return false;
  bound = std::max(bound, dual.bound());
  constructPhase(core, dual);
  size_t from = core.trail.size();
  bool left = dual.settleInCore();
  keepMultipliers(core);
  left = left && core.reduce();
  if (left && best)
    best = core.project(std::move(*best), from);
  budget.work += core.work;
  core.work = 0;
  report();
  return left;
}

/// Shrinks the root by what the best answer's cost excludes. The answer itself stays: the
/// cut is one above it.
bool Driver::tightenPhase(Core &core, int sweeps) {
  Budget part = budget.fraction(0.3);
  Dual dual(core, Cut{cut.upper + 1}, &part);
  bool left = dual.run(sweeps, 2e-6) && dual.settleInCore();
  bound = std::max(bound, std::min(dual.bound(), cut.upper));
  size_t from = core.trail.size();
  left = left && core.reduce();
  budget.work += core.work;
  core.work = 0;
  if (left)
    best = core.project(std::move(*best), from);
  report();
  return left;
}

/// Pieces in a row that bring nothing, after which one of many answers is left as it is,
/// and the shares of the time that is left that its pieces may take: of the best answer,
/// of one of several dives at once, of the only dive.
static constexpr size_t mostIdle = 200;
static constexpr double bestShare = 0.08, oneOfManyShare = 0.08, onlyShare = 0.1;

/// The answer of a dive, also where a better one is known. It does not see that one: what
/// only ends below it is often not found at all.
std::optional<std::vector<int>> Driver::divePhase(const Core &core, double fraction) {
  // With an answer at hand, something is left for its improvement.
  bool large = best && core.tableEntries() > mostTogether;
  Budget part = large ? budget.fraction(0.6) : budget;
  Search diver(part, Cut());
  auto found = diver.dive(core, fraction);
  if (found)
    take(core, *found, diver.upper());
  budget.work = part.work;
  report();
  return found;
}

/// Rounds of a neighbourhood search until `pieces` in a row brought nothing, or this
/// share of the time that is left is gone; as much again while it closes much of the gap.
/// Now and then `visit` is called, which says whether to go on.
template <typename Fn>
void Driver::searchAround(Neighbourhood &search, size_t pieces, double share,
                          bool isLarge, Fn visit) {
  static constexpr double muchOfGap = 0.1;
  auto next = [&] { return share < 1 ? budget.fraction(share) : budget; };
  Budget part = next();
  double before = search.answerCost();
  int improved = 0;
  for (size_t last = 0; search.tried() - last < pieces && !budget.exhausted();) {
    if (search.round(part, options.threads)) {
      last = search.tried();
      // Pricing the whole problem takes longer than a round does.
      if (++improved % 16 == 0 && !visit())
        break;
    }
    budget.work = part.work;
    if (!part.exhausted())
      continue;
    if (!isLarge || before - search.answerCost() < muchOfGap * (before - bound))
      break;
    before = search.answerCost();
    part = next();
  }
  budget.work = part.work;
}

/// Neighbourhood search from an answer. Where it ends elsewhere than the best answer, the
/// best of both is taken.
void Driver::improvePhase(const Core &core, const std::vector<int> &from, size_t pieces,
                          double share) {
  Neighbourhood search(core, from, ++searches);
  searchAround(search, pieces, share, isWide(core), [&] {
    bool isBelieved = take(core, search.answer(), search.answerCost());
    report();
    return isBelieved;
  });
  if (best && from != *best && !budget.exhausted())
    search.merge(*best, budget);
  take(core, search.answer(), search.answerCost());
}

/// Searches the neighbourhood of the best answer in its kernel: pieces that can be
/// searched to the end are many times larger where choices are few.
void Driver::kernelPhase(Core &core, size_t most) {
  Kernel kernel(core, *best, most);
  Core &inner = kernel.core();
  budget.work += std::exchange(core.work, 0) + std::exchange(inner.work, 0);
  inner.limit = &budget;
  Dual dual(inner, Cut{cut.upper + 1}, &budget);
  bool left = dual.run(20, 2e-6) && dual.settleInCore() && inner.reduce();
  budget.work += std::exchange(inner.work, 0);
  if (!left || dual.bound() >= cut.upper || budget.exhausted())
    return;
  Neighbourhood search(inner, kernel.answer(), ++searches);
  auto adopt = [&] {
    take(core, kernel.expand(search.answer()), search.answerCost());
    report();
    return true;
  };
  searchAround(search, mostIdle, oneOfManyShare, true, adopt);
  adopt();
}

/// Dives side by side, each followed by a search of its neighbourhood on the same thread.
/// What they end in is taken in order, so the outcome does not depend on which is ready
/// first.
void Driver::diveTogether(const Core &core, std::span<const double> fractions) {
  struct Start {
    double fraction;
    uint64_t seed;
    Budget budget;
    std::optional<Neighbourhood> search{};
  };
  std::vector<Start> starts;
  for (double fraction : fractions)
    starts.push_back({fraction, ++searches, budget});
  auto run = [&](Start &start) {
    Search diver(start.budget, Cut());
    auto found = diver.dive(core, start.fraction);
    if (!found || start.budget.exhausted())
      return;
    Neighbourhood &search = start.search.emplace(core, *std::move(found), start.seed);
    Budget part = start.budget.fraction(oneOfManyShare);
    for (size_t last = 0; search.tried() - last < mostIdle && !part.exhausted();)
      if (search.round(part, 1))
        last = search.tried();
    start.budget.work = part.work;
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < starts.size(); ++i)
    others.emplace_back([&, i] { run(starts[i]); });
  run(starts[0]);
  for (std::thread &t : others)
    t.join();
  const int64_t before = budget.work;
  for (Start &start : starts)
    budget.work += start.budget.work - before;
  for (Start &start : starts)
    if (start.search) {
      if (best)
        start.search->merge(*best, budget);
      take(core, start.search->answer(), start.search->answerCost());
    }
  report();
}

/// Dives of different steps end in different places; each is improved by itself. A core
/// that a better answer has shrunk leaves the next dive less room to go wrong.
void Driver::startsPhase(Core &core) {
  static constexpr double fractions[] = {0.15, 0.08, 0.25, 0.04};
  size_t next = 0;
  for (int round = 0; round < 4; ++round) {
    improvePhase(core, *best, mostIdle, bestShare);
    if (!tightenPhase(core, 100) || isDone() || core.tableEntries() <= 2 * mostQuick)
      return;
    splitPhase(core);
    if (isProved(core))
      return;
    if (core.tableEntries() <= mostTogether) {
      const double before = cut.upper - bound;
      isComplete = guessPhase(core);
      if (isComplete || (cut.upper - bound < before && !tightenPhase(core, 100)))
        return;
    }
    for (size_t most : {8, 16})
      if (isWide(core) && !isDone())
        kernelPhase(core, most);
    // Dives of large cores side by side wait for the same memory.
    if (options.threads == 1 || core.tableEntries() > mostTogether) {
      auto found = divePhase(core, fractions[next++ % std::size(fractions)]);
      if (found && !budget.exhausted())
        improvePhase(core, *found, mostIdle, onlyShare);
      continue;
    }
    std::vector<double> now;
    for (int t = 0; t < options.threads; ++t)
      now.push_back(fractions[next++ % std::size(fractions)]);
    diveTogether(core, now);
  }
}

/// Passes over split variables until they no longer close much of the gap.
void Driver::raise(SplitBound &split, Budget &part) {
  // Each pass moves costs and prices by a little: what twenty of them gain says more.
  static constexpr int passesOfRound = 20;
  static constexpr double leastOfRound = 0.02;
  double before = split.bound();
  for (int passes = 1; split.step(cut.upper) && split.pass(part); ++passes) {
    bound = std::max(bound, std::min(split.bound(), cut.upper));
    if (bound >= cut.upper)
      return;
    if (passes % passesOfRound != 0)
      continue;
    if (split.bound() - before < leastOfRound * (cut.upper - split.bound()))
      return;
    before = split.bound();
  }
}

/// Where message passing leaves a gap that branching does not close, tables of more
/// variables raise the bound: as large ones as a first pass has time for and as raise it
/// further, then many passes, if it is cycles or rows of few variables that the gap comes
/// from.
void Driver::splitPhase(const Core &core) {
  static constexpr double leastGap = 0.02, leastGain = 0.1;
  auto gap = [&] { return cut.upper - bound; };
  if (isSplit || !best || gap() <= leastGap * cut.upper)
    return;
  isSplit = true;
  const double before = gap();
  Budget part = budget.fraction(0.5);
  std::unique_ptr<SplitBound> highest;
  bool isRising = true;
  for (double entries : {3e4, 3e5, 1e6}) {
    if (!isRising)
      break;
    auto split = std::make_unique<SplitBound>(core, entries, options.threads);
    Budget first = part.fraction(0.15);
    bool isDone = split->fits() && split->pass(first);
    part.work = first.work;
    if (!isDone)
      break;
    bound = std::max(bound, std::min(split->bound(), cut.upper));
    isRising = !highest || split->bound() > highest->bound() + leastGain * gap();
    if (!highest || split->bound() > highest->bound())
      highest = std::move(split);
  }
  if (gap() < (1 - leastGain) * before)
    raise(*highest, part);
  budget.work = part.work;
  report();
}

/// Better answers until the root is small enough for branch and bound, which would copy
/// what does not fit twice. False: there is no time left.
bool Driver::shrinkPhase(Core &core) {
  if (!best || core.tableEntries() <= Dual::mostBaked)
    return true;
  while (!budget.exhausted() && core.tableEntries() > Dual::mostBaked) {
    improvePhase(core, *best, 400);
    if (!tightenPhase(core, 100))
      break;
  }
  return !budget.exhausted();
}

Outcome Driver::run() {
  Root root = buildCore(problem, question.ties);
  if (!root.infeasible.empty())
    return infeasible();
  Core &core = root.core;
  multipliers.assign(core.slack.size(), 0);
  leaveOnly(core, question.left);
  if (question.multipliers.size() == core.lambda.size())
    core.lambda = question.multipliers;
  if (!firstPhase(core) || isRefuted())
    return infeasible();
  if (!question.start.empty())
    takeKnown(root, question.start);
  alikePhase(root);
  if (!boundPhase(core) || isRefuted())
    return infeasible();
  if (isDone())
    return finish(core, false);
  divePhase(core, 0.15);
  // Small cores end in the first exact phase. Larger ones get better answers first,
  // which shrink the core, which makes the next exact phase more likely to end.
  int64_t share = 150'000'000 + 20 * core.tableEntries();
  if (best && core.tableEntries() > mostQuick) {
    startsPhase(core);
    if (isComplete || isProved(core))
      return finish(core, true);
    share = 300'000'000;
  }
  if (!shrinkPhase(core))
    return finish(core, false);
  double gap = cut.upper - bound;
  for (size_t pieces = 200; !exactPhase(core, share); pieces *= 2) {
    if (isDone())
      return finish(core, false);
    const bool isClosing = cut.upper - bound < 0.9 * gap;
    splitPhase(core);
    if (isProved(core))
      return finish(core, true);
    double before = cut.upper;
    if (best && isClosing && guessPhase(core))
      return finish(core, true);
    const int64_t from = budget.work;
    if (best)
      improvePhase(core, *best, pieces);
    else
      divePhase(core, 0.02);
    // As much for the proof as for better answers, where it gets on.
    share = std::max(share * 3 / 2, isClosing ? budget.work - from : 0);
    gap = cut.upper - bound;
    if (cut.upper >= before && isSecond)
      continue;
    // What the better answer takes off the root is worth more than the open nodes.
    search.reset();
    isSecond = true;
    if (best)
      tightenPhase(core, 100);
  }
  return best ? finish(core, true) : infeasible();
}

/// "variable 3", "variables 3 and 5", "variables 3, 5, 8 and 20 more".
static std::string list(const std::vector<int> &variables) {
  static constexpr size_t mostNamed = 8;
  std::string text = variables.size() == 1 ? "variable " : "variables ";
  size_t named = std::min(variables.size(), mostNamed);
  bool all = named == variables.size();
  for (size_t i = 0; i < named; ++i)
    text += (i == 0                  ? ""
             : all && i + 1 == named ? " and "
                                     : ", ") +
            std::to_string(variables[i]);
  return all ? text : text + " and " + std::to_string(variables.size() - named) + " more";
}

std::string Driver::whyInfeasible() const {
  Root root = buildCore(problem, question.ties);
  if (!root.infeasible.empty())
    return root.infeasible;
  // Bounded by work and by time of its own: the proof is there, only its reason is not.
  Budget part;
  part.workLimit = 200'000'000;
  if (budget.deadline)
    part.deadline = Budget::Clock::now() + std::chrono::seconds(2);
  std::vector<int> clash = findClash(root.core, part);
  bool single = clash.size() == 1;
  std::string tied = question.ties.empty() ? "" : " where the classes tie copies";
  // Variables of the core beyond the problem's stand for pairs.
  std::erase_if(clash,
                [&](int v) { return v >= static_cast<int>(problem.variables.size()); });
  if (single && clash.size() == 1)
    return "all choices of " + list(clash) + " are forbidden";
  if (!clash.empty())
    return "the forbidden choices and pairs of " + list(clash) + " leave no answer" +
           tied;
  if (!problem.memoryLimit)
    return "the forbidden choices and pairs leave no answer" + tied;
  return "no combination of choices that the forbidden pairs" +
         std::string(tied.empty() ? "" : " and the classes") +
         " leave fits the memory "
         "limit of " +
         std::to_string(*problem.memoryLimit) + " bytes";
}
