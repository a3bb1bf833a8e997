//===- Search.cpp - The fastest plan, with a certificate ------------------===//
#include "partita/Search/Search.h"

#include "Layers.h"
#include "PricedMemory.h"
#include "UnderMemory.h"
#include "partita/Base/Units.h"
#include "partita/Solver/Solve.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

using namespace partita;
using namespace partita::search;

double Found::gap() const {
  return cost.total() <= bound.time ? 0
                                    : static_cast<double>(cost.total() - bound.time) /
                                          static_cast<double>(cost.total());
}

/// Says whether a number is a product of smaller ones.
static bool isComposite(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0)
      return true;
  return false;
}

unsigned search::spaceOf(const FlowGraph &graph, size_t tiedLayers) {
  const bool hasParts = std::ranges::any_of(
      graph.mesh.axes(), [](const Mesh::Axis &axis) { return isComposite(axis.size); });
  return Bound::FewCopies | (hasParts ? Bound::WholeAxes : 0U) |
         (tiedLayers > 0 ? Bound::EqualLayersAlike : 0U);
}

static double secondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

using Result = tl::expected<Found, NotFound>;

static Result fail(NotFound reason) { return tl::unexpected(std::move(reason)); }

namespace {
/// The search of one candidate, in two parts.
class Task {
public:
  Task(const Candidate &candidate, const SearchOptions &options)
      : candidate(candidate), options(options),
        timing(candidate.graph, candidate.placement) {}

  /// Builds the problem and solves it without memory. A result if that is the end.
  std::optional<Result> begin();
  Picos lowerBound() const { return static_cast<Picos>(most.rounds->lowerBound()); }
  std::string mesh() const { return candidate.graph.mesh.str(); }
  /// Plans that take `upper` or longer are left out. The first of several tries is a
  /// short one.
  Result solve(std::optional<Picos> upper, bool isLast);
  /// A plan of little memory.
  std::optional<Found> leastMemory();

private:
  /// A problem of the candidate, and the rounds that solve it.
  struct Space {
    Model model;
    std::optional<MemoryRounds> rounds;
  };
  /// Limits of one try.
  struct Limits {
    double seconds;
    std::optional<int64_t> work;
    std::optional<Picos> upper;
    bool isLast;
  };
  Expected<void> build(Space &space, Rows rows);
  /// Begins from plans that people write; keeps the fastest that fits and that no answer
  /// stands for.
  Expected<void> beginFromKnown();
  Result orOutside(Result result, std::optional<Picos> upper);
  Expected<solver::Solution> run(Space &space, const Limits &limits);
  Result keep(const Space &space, const solver::Solution &answer);
  /// Bound of an answer of the space.
  Bound boundOf(const Space &space, const solver::Solution &answer) const;

  const Candidate &candidate;
  const SearchOptions &options;
  Timing timing;
  /// Plans are looked for by the rows of which an answer that fits is a plan that fits;
  /// what no plan can do is said by the others.
  Space most;
  std::optional<Space> least;
  Found found;
  const KnownPlan *outside = nullptr; ///< of `found.known`
};
} // namespace

Expected<Model> search::modelOf(Timing &timing, const SearchOptions &options, Rows rows,
                                size_t *tiedLayers) {
  ModelOptions space = options.model;
  space.memoryLimit = options.memoryLimit;
  space.pins = options.pins;
  space.stop = options.stop;
  space.rows = rows;
  auto model = buildModel(timing, space);
  if (!model || !options.tieLayers)
    return model;
  size_t layers = tieLayers(timing.graph, *model);
  if (tiedLayers)
    *tiedLayers = layers;
  return model;
}

Expected<void> Task::build(Space &space, Rows rows) {
  SearchOptions pinned = options;
  pinned.pins = candidate.pins;
  auto built = modelOf(timing, pinned, rows, &found.tiedLayers);
  if (!built)
    return tl::unexpected(built.error());
  space.model = std::move(*built);
  if (options.memoryLimit && space.model.fixedBytes >= *options.memoryLimit)
    return makeError("infeasible: small weights that every device holds take " +
                     std::to_string(space.model.fixedBytes) + " bytes, the limit is " +
                     std::to_string(*options.memoryLimit));
  solver::SolveOptions solve;
  solve.timeLimit = options.timeLimit;
  solve.workLimit = options.workLimit;
  solve.threads = options.threads;
  solve.stop = options.stop | options.enough;
  auto peakOf = [this, &space](const std::vector<uint32_t> &choices) {
    return memoryOf(timing, space.model.decide(timing, choices), 0).peak();
  };
  space.rounds.emplace(space.model.problem, solve, peakOf, ownBytes(space.model),
                       space.model.fixedBytes, rows);
  return {};
}

std::optional<Result> Task::begin() {
  if (options.stop.isRaised())
    return fail({"cancelled", false});
  auto start = std::chrono::steady_clock::now();
  if (auto ok = build(most, Rows::Most); !ok)
    return fail({ok.error().message});
  found.variables = most.model.problem.variables.size();
  found.edges = most.model.problem.edges.size();
  found.buildSeconds = secondsSince(start);
  start = std::chrono::steady_clock::now();
  if (auto ok = most.rounds->relax(); !ok)
    return fail({ok.error().message});
  found.solveSeconds = secondsSince(start);
  found.bound =
      found.freeBound = {lowerBound(), spaceOf(candidate.graph, found.tiedLayers),
                         options.memoryLimit ? Bound::Memory : 0U};
  return std::nullopt;
}

/// Of a candidate that has to wait until the others had their turn: seconds, and about as
/// much work.
static constexpr double quickSeconds = 1;
static constexpr int64_t quickWork = 100'000;

/// What the smaller of two limits is, if there is a limit.
static std::optional<int64_t> within(std::optional<int64_t> limit, int64_t most) {
  return limit ? std::optional(std::min(*limit, most)) : std::nullopt;
}

std::optional<Found> Task::leastMemory() {
  solver::Problem weighed = withPricedMemory(most.model.problem, 0, 1);
  Collapsed collapsed(weighed);
  solver::SolveOptions solve;
  solve.timeLimit = std::min(2 * quickSeconds, options.timeLimit / 4);
  solve.workLimit = within(options.workLimit, 2 * quickWork);
  solve.stop = options.stop | options.enough;
  auto solution = solver::solve(collapsed.problem, solve);
  if (!solution || solution->choices.empty())
    return std::nullopt;
  Found least = found;
  least.plan = most.model.decide(timing, collapsed.expand(solution->choices));
  least.cost = evaluate(timing, least.plan);
  least.memory = memoryOf(timing, least.plan);
  return least;
}

/// Known plans are not looked at for a gain of less than this fraction.
static constexpr double negligible = 1e-5;

Expected<void> Task::beginFromKnown() {
  if (found.known || !candidate.pins.empty() || most.rounds->isWithin(negligible))
    return {};
  found.known = std::make_shared<const std::vector<KnownPlan>>(
      knownPlans(candidate.graph, candidate.placement, candidate.parameters));
  for (const KnownPlan &known : *found.known) {
    if (!known.plan || (options.memoryLimit && known.memory > *options.memoryLimit))
      continue;
    bool isInside = false;
    if (auto answer = most.model.answerOf(timing, *known.plan)) {
      auto fits = most.rounds->offer(*answer);
      if (!fits)
        return tl::unexpected(fits.error());
      isInside = *fits;
    }
    if (!isInside && (!outside || known.time < outside->time))
      outside = &known;
  }
  return {};
}

/// A plan that is outside of the space may be faster than all inside.
Result Task::orOutside(Result result, std::optional<Picos> upper) {
  if (!outside || (upper && outside->time >= *upper) ||
      (result && result->cost.total() <= outside->time))
    return result;
  found.bound = result ? result->bound : result.error().bound;
  found.plan = *outside->plan;
  found.cost = evaluate(timing, found.plan);
  found.memory = memoryOf(timing, found.plan);
  found.proved = false;
  found.isLimitFelt = most.rounds->isLimitFelt();
  return found;
}

Expected<solver::Solution> Task::run(Space &space, const Limits &limits) {
  const auto start = std::chrono::steady_clock::now();
  auto solution =
      space.rounds->run(limits.seconds, limits.work, limits.upper, limits.isLast);
  found.solveSeconds += secondsSince(start);
  return solution;
}

Bound Task::boundOf(const Space &space, const solver::Solution &answer) const {
  const Bound own{static_cast<Picos>(answer.lowerBound),
                  found.freeBound.within | (&space == &most ? Bound::CountedBytes : 0U)};
  return own.time > found.freeBound.time ? own : found.freeBound;
}

Result Task::keep(const Space &space, const solver::Solution &answer) {
  found.plan = space.model.decide(timing, answer.choices);
  found.cost = evaluate(timing, found.plan);
  found.bound = boundOf(space, answer);
  found.proved =
      answer.status == solver::Status::Optimal && found.cost.total() == found.bound.time;
  found.memory = memoryOf(timing, found.plan);
  found.isLimitFelt = most.rounds->isLimitFelt();
  return found;
}

Result Task::solve(std::optional<Picos> upper, bool isLast) {
  Limits limits{isLast ? options.timeLimit : std::min(quickSeconds, options.timeLimit),
                isLast ? options.workLimit : within(options.workLimit, quickWork), upper,
                isLast};
  if (isLast)
    if (auto ok = beginFromKnown(); !ok)
      return fail({ok.error().message});
  auto answer = run(most, limits);
  if (!answer)
    return fail({answer.error().message});
  Space *space = &most;
  // Rows that count too much may be the reason that no answer fits.
  const bool isSlowAnyway = upper && found.freeBound.time >= *upper;
  if (answer->status == solver::Status::Infeasible && most.rounds->isLimitFelt() &&
      !isSlowAnyway) {
    if (!least) {
      least.emplace();
      if (auto ok = build(*least, Rows::Least); !ok)
        return fail({ok.error().message});
    }
    space = &*least;
    answer = run(*least, limits);
    if (!answer)
      return fail({answer.error().message});
  }
  if (!answer->choices.empty() && (!upper || answer->cost < *upper))
    return orOutside(keep(*space, *answer), upper);
  const bool isProved = answer->status == solver::Status::Infeasible,
             isSlower = isProved && upper;
  return orOutside(
      fail({isSlower ? "no plan is faster than the best on another mesh" : answer->reason,
            isProved, boundOf(*space, *answer), isSlower, std::nullopt, found.freeBound}),
      upper);
}

static std::string timeText(Picos time) {
  return durationText(static_cast<double>(time) * 1e-12);
}

/// Says what became of a candidate.
static std::string outcomeText(const Result &result) {
  if (!result)
    return result.error().message + ", at least " + timeText(result.error().bound.time);
  return "a plan of " + timeText(result->cost.total()) + " in " +
         bytesText(result->memory.peak()) + ", at least " + timeText(result->bound.time);
}

namespace {
/// All candidates, on several threads.
class Candidates {
public:
  Candidates(const std::vector<Candidate> &candidates, const SearchOptions &options)
      : options(options),
        results(candidates.size(), fail({"no plan was found in time", false})) {
    // The threads are for the candidates, if there are several.
    if (candidates.size() > 1)
      this->options.threads = 1;
    threads = std::min(static_cast<size_t>(options.threads), candidates.size());
    for (const Candidate &candidate : candidates)
      tasks.push_back(std::make_unique<Task>(candidate, this->options));
  }

  std::vector<Result> run() {
    std::vector<size_t> order(tasks.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::vector<char> ended(tasks.size(), false);
    onThreads(order, [&](size_t i) {
      const auto start = std::chrono::steady_clock::now();
      if (auto result = tasks[i]->begin()) {
        results[i] = std::move(*result);
        ended[i] = true;
        log(i, results[i].error().message);
      } else {
        log(i, "at least " + timeText(tasks[i]->lowerBound()) + " with any memory" +
                   formatted(" after %.2f s", secondsSince(start)));
      }
    });
    auto byBound = [&] {
      std::erase_if(order, [&](size_t i) { return ended[i]; });
      std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return std::pair(tasks[a]->lowerBound(), a) <
               std::pair(tasks[b]->lowerBound(), b);
      });
    };
    byBound();
    if (order.size() > 1) {
      onThreads(order, [&](size_t i) {
        solve(i, false);
        const Result &result = results[i];
        ended[i] = result ? result->proved : result.error().proved;
      });
      byBound();
    }
    onThreads(order, [&](size_t i) { solve(i, true); });
    if (fastest == none)
      explainMemory();
    return std::move(results);
  }

private:
  static constexpr Picos none = std::numeric_limits<Picos>::max();

  void solve(size_t i, bool isLast) {
    if (options.stop.isRaised() || (options.enough.isRaised() && fastest != none))
      return;
    std::optional<Picos> upper;
    if (Picos now = fastest; now != none)
      upper = now + 1;
    const auto start = std::chrono::steady_clock::now();
    Result result = tasks[i]->solve(upper, isLast);
    log(i, outcomeText(result) + formatted(" after %.2f s", secondsSince(start)));
    // A plan that is not the fastest is still worth telling.
    bool isWorse = results[i] && !result;
    if (isWorse) {
      results[i]->bound = largerOf(results[i]->bound, result.error().bound);
      return;
    }
    results[i] = std::move(result);
    if (!results[i])
      return;
    Picos now = fastest, mine = results[i]->cost.total();
    while (mine < now && !fastest.compare_exchange_weak(now, mine))
      ;
  }

  void log(size_t i, const std::string &text) {
    if (!options.log)
      return;
    const std::lock_guard lock(logging);
    options.log("mesh " + tasks[i]->mesh() + ": " + text);
  }

  /// The plan of least memory says what is missing. It may fit: usages are never less
  /// than a plan's own memory.
  void explainMemory() {
    for (size_t i = 0; options.memoryLimit && i < tasks.size(); ++i) {
      auto least = tasks[i]->leastMemory();
      if (least && least->memory.peak() <= *options.memoryLimit)
        results[i] = std::move(*least);
      else if (least)
        results[i].error().least = std::move(least->memory);
    }
  }

  template <typename Fn> void onThreads(const std::vector<size_t> &order, Fn fn) {
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t i; (i = next++) < order.size();)
        fn(order[i]);
    };
    std::vector<std::thread> others;
    for (size_t t = 1; t < threads; ++t)
      others.emplace_back(work);
    work();
    for (std::thread &other : others)
      other.join();
  }

  SearchOptions options;
  size_t threads = 1;
  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<Result> results;
  std::atomic<Picos> fastest{none};
  std::mutex logging;
};
} // namespace

std::vector<Result> search::searchAll(const std::vector<Candidate> &candidates,
                                      const SearchOptions &options) {
  return Candidates(candidates, options).run();
}

Result search::search(const FlowGraph &graph, const Placement &placement,
                      const SearchOptions &options,
                      std::vector<ParameterOps> parameters) {
  std::vector<Result> results =
      searchAll({{graph, placement, options.pins, std::move(parameters)}}, options);
  return std::move(results[0]);
}
