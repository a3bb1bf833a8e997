//===- Runs.cpp - Where classes are split into runs -----------------------===//
#include "Runs.h"

#include <algorithm>
#include <thread>

using namespace partita;
using namespace partita::solver;

/// Whether where the class is split is to be found out.
static bool isOpen(const Class &tied) {
  return tied.runs > 1 && tied.runs < tied.copies.size();
}

bool solver::hasRuns(const Problem &problem) {
  return std::any_of(problem.classes.begin(), problem.classes.end(), isOpen);
}

/// Ties a copy to the first of its run.
static void tie(const Class &tied, size_t first, size_t copy, Ties &ties) {
  for (size_t j = 0; j < tied.copies[copy].size(); ++j)
    ties.emplace_back(tied.copies[first][j], tied.copies[copy][j]);
}

Ties solver::hardTies(const Problem &problem) {
  Ties result;
  for (const Class &tied : problem.classes)
    for (size_t i = 1; i < tied.copies.size() && tied.runs == 1; ++i)
      tie(tied, 0, i, result);
  return result;
}

RunSearch::RunSearch(const Problem &problem, const SolveOptions &options, Budget budget)
    : problem(problem), options(options), start(Budget::Clock::now()), budget(budget) {
  if (options.upper)
    cut.upper = static_cast<double>(*options.upper);
  int64_t entries = 0;
  for (const Edge &e : problem.edges)
    entries += static_cast<int64_t>(e.costs.size());
  firstShare = 5'000'000 + 20 * entries;
}

/// Every answer has its breaks here: one with fewer runs than it may have can be cut into
/// exactly so many, because equal neighbours may be of different runs.
RunSearch::Box RunSearch::everywhere() const {
  Box box;
  for (const Class &tied : problem.classes) {
    std::vector<Range> &ranges = box.breaks.emplace_back();
    int copies = static_cast<int>(tied.copies.size()), runs = static_cast<int>(tied.runs);
    for (int k = 1; k < runs && isOpen(tied); ++k)
      ranges.push_back({k, copies - runs + k});
  }
  return box;
}

RunSearch::Box RunSearch::leaf(const Breaks &breaks) const {
  Box box;
  for (const std::vector<int> &places : breaks) {
    std::vector<Range> &ranges = box.breaks.emplace_back();
    for (int b : places)
      ranges.push_back({b, b});
  }
  return box;
}

/// Breaks follow one another. False when that leaves no place for one.
bool RunSearch::narrow(Box &box) const {
  for (std::vector<Range> &ranges : box.breaks) {
    for (size_t k = 1; k < ranges.size(); ++k)
      ranges[k].low = std::max(ranges[k].low, ranges[k - 1].low + 1);
    for (size_t k = ranges.size(); k-- > 1;)
      ranges[k - 1].high = std::min(ranges[k - 1].high, ranges[k].high - 1);
    for (const Range &r : ranges)
      if (r.low > r.high)
        return false;
  }
  return true;
}

/// The copies of a class that may differ from the one before.
std::vector<bool> RunSearch::openCopies(const Box &box, size_t c) const {
  const Class &tied = problem.classes[c];
  std::vector<bool> result(tied.copies.size(), tied.runs >= tied.copies.size());
  for (const Range &r : box.breaks[c])
    std::fill(result.begin() + r.low, result.begin() + r.high + 1, true);
  return result;
}

/// Whether no answer of the box's plain problem has too many runs.
bool RunSearch::isExact(const Box &box) const {
  for (size_t c = 0; c < box.breaks.size(); ++c) {
    std::vector<bool> isFree = openCopies(box, c);
    if (!box.breaks[c].empty() &&
        std::count(isFree.begin(), isFree.end(), true) >= problem.classes[c].runs)
      return false;
  }
  return true;
}

Ties RunSearch::ties(const Box &box) const {
  Ties result;
  for (size_t c = 0; c < problem.classes.size(); ++c) {
    std::vector<bool> isFree = openCopies(box, c);
    for (size_t i = 1, first = 0; i < isFree.size(); ++i)
      if (isFree[i])
        first = i;
      else
        tie(problem.classes[c], first, i, result);
  }
  return result;
}

/// The copies of a class that differ from the one before.
std::vector<int> RunSearch::changes(size_t c,
                                    const std::vector<uint32_t> &choices) const {
  const auto &copies = problem.classes[c].copies;
  std::vector<int> result;
  for (size_t i = 1; i < copies.size(); ++i)
    for (size_t j = 0; j < copies[i].size(); ++j)
      if (choices[copies[i][j]] != choices[copies[i - 1][j]]) {
        result.push_back(static_cast<int>(i));
        break;
      }
  return result;
}

/// Breaks that leave runs as alike as can be: of the places where the choices change,
/// those with the most variables that change, spread evenly where there are too few.
RunSearch::Breaks RunSearch::breaksNear(const std::vector<uint32_t> &choices) const {
  Breaks result;
  for (size_t c = 0; c < problem.classes.size(); ++c) {
    const Class &tied = problem.classes[c];
    std::vector<int> &breaks = result.emplace_back();
    if (!isOpen(tied))
      continue;
    std::vector<std::pair<int, int>> places;
    for (int i : changes(c, choices)) {
      int changed = 0;
      for (size_t j = 0; j < tied.copies[i].size(); ++j)
        changed += choices[tied.copies[i][j]] != choices[tied.copies[i - 1][j]];
      places.emplace_back(-changed, i);
    }
    std::sort(places.begin(), places.end());
    std::set<int> chosen;
    for (const auto &[changed, i] : places)
      if (chosen.size() + 1 < tied.runs)
        chosen.insert(i);
    int copies = static_cast<int>(tied.copies.size());
    for (int parts = static_cast<int>(tied.runs); chosen.size() + 1 < tied.runs; ++parts)
      for (int k = 1; k < parts && chosen.size() + 1 < tied.runs; ++k)
        chosen.insert(std::clamp(copies * k / parts, 1, copies - 1));
    breaks.assign(chosen.begin(), chosen.end());
  }
  return result;
}

/// Solves the plain problems of a few boxes below the best answer so far, side by side.
/// What comes of each depends on no other.
std::vector<RunSearch::Evaluation> RunSearch::evaluate(const std::vector<Box> &boxes,
                                                       Budget limit, bool explain) {
  limit.work = budget.work;
  std::vector<Evaluation> result(boxes.size());
  SolveOptions inner;
  inner.threads =
      std::max(1, options.threads / static_cast<int>(std::max<size_t>(1, boxes.size())));
  auto solveOne = [&](size_t i) {
    Budget part = limit.part(boxes[i].share);
    part.workLimit -= part.work;
    part.work = 0;
    Question question{ties(boxes[i]), cut.upper, explain, {}};
    if (boxes[i].multipliers)
      question.multipliers = *boxes[i].multipliers;
    Driver driver(problem, inner, part, std::move(question));
    result[i].outcome = driver.run();
    result[i].work = driver.work();
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < boxes.size(); ++i)
    others.emplace_back(solveOne, i);
  if (!boxes.empty())
    solveOne(0);
  for (std::thread &t : others)
    t.join();
  for (const Evaluation &e : result)
    budget.work += e.work;
  return result;
}

/// Keeps an answer that keeps to the classes and is the best so far. False when it does
/// not keep to them.
bool RunSearch::take(const Outcome &outcome) {
  if (!outcome.choices)
    return false;
  Expected<Price> price = verify(problem, *outcome.choices);
  if (!price)
    return false;
  double cost = static_cast<double>(price->cost);
  if (cost < cut.upper) {
    best = outcome.choices;
    cut.upper = cost;
  }
  return true;
}

void RunSearch::add(Box box, double least) {
  if (!narrow(box) || least > cut.value(0))
    return;
  box.bound = std::max(box.bound, least);
  box.serial = ++serials;
  open.insert(std::move(box));
}

/// Divides the range that an answer of the plain problem breaks most often, between its
/// breaks; without one, the widest in the middle.
void RunSearch::split(const Box &box,
                      const std::optional<std::vector<uint32_t>> &relaxed) {
  std::pair<size_t, int> most{0, 0};
  size_t atClass = 0, atBreak = 0;
  int middle = -1;
  for (size_t c = 0; c < box.breaks.size(); ++c) {
    std::vector<int> changed = relaxed ? changes(c, *relaxed) : std::vector<int>();
    for (size_t k = 0; k < box.breaks[c].size(); ++k) {
      Range r = box.breaks[c][k];
      std::vector<int> inside;
      std::copy_if(changed.begin(), changed.end(), std::back_inserter(inside),
                   [&](int i) { return r.low <= i && i <= r.high; });
      size_t n = inside.size() < 2 ? 0 : inside.size();
      if (r.low == r.high || std::pair(n, r.high - r.low) <= most)
        continue;
      most = {n, r.high - r.low};
      atClass = c;
      atBreak = k;
      middle = n == 0 ? r.low + (r.high - r.low) / 2
                      : (inside[n / 2 - 1] + inside[n / 2] - 1) / 2;
    }
  }
  for (bool isLow : {false, true}) {
    Box part = box;
    Range &r = part.breaks[atClass][atBreak];
    (isLow ? r.high : r.low) = isLow ? middle : middle + 1;
    part.share = firstShare;
    add(std::move(part), box.bound);
  }
}

/// Puts what is left of a box back: nothing, a better bound, or its halves.
void RunSearch::settle(Box box, const Evaluation &found) {
  const Outcome &outcome = found.outcome;
  bool isAnswer = take(outcome);
  if (outcome.complete && (!outcome.choices || isAnswer)) {
    return;
  }
  if (outcome.bound > box.bound || !box.multipliers)
    box.multipliers = std::make_shared<const Multipliers>(outcome.multipliers);
  box.bound = std::max(box.bound, outcome.bound);
  if (box.bound > cut.value(0))
    return;
  if (!isExact(box)) {
    split(box, outcome.choices);
    return;
  }
  box.share *= 4;
  add(std::move(box), box.bound);
}

/// Solves problems with given breaks. True when one gave a better answer.
bool RunSearch::tryLeaves(const std::vector<Breaks> &all, const Budget &limit) {
  double before = cut.upper;
  std::vector<Box> batch;
  for (size_t i = 0; i < all.size(); ++i) {
    if (tried.insert(all[i]).second) {
      batch.push_back(leaf(all[i]));
      batch.back().share = firstShare;
      batch.back().multipliers = rootMultipliers;
    }
    bool isFull = batch.size() == static_cast<size_t>(options.threads);
    if (!isFull && i + 1 < all.size())
      continue;
    if (limit.exhausted(budget.work - limit.work))
      break;
    for (const Evaluation &e : evaluate(batch, limit)) {
      take(e.outcome);
      // The first problem is a small one: its multipliers settle quickly.
      if (!rootMultipliers)
        rootMultipliers = std::make_shared<const Multipliers>(e.outcome.multipliers);
    }
    batch.clear();
  }
  report();
  return cut.upper < before;
}

/// Every break moved by so many copies either way, one at a time.
std::vector<RunSearch::Breaks> RunSearch::movedBy(const Breaks &breaks, int step) const {
  std::vector<Breaks> result;
  for (size_t c = 0; c < breaks.size(); ++c)
    for (size_t k = 0; k < breaks[c].size(); ++k)
      for (int by : {-step, step}) {
        int low = k == 0 ? 1 : breaks[c][k - 1] + 1;
        int high = k + 1 < breaks[c].size()
                       ? breaks[c][k + 1] - 1
                       : static_cast<int>(problem.classes[c].copies.size()) - 1;
        auto moved = breaks;
        moved[c][k] = std::clamp(breaks[c][k] + by, low, high);
        result.push_back(std::move(moved));
      }
  return result;
}

/// Breaks of one or two places each class all over its copies, the other classes as
/// given: which kind of copy comes first is not found by small steps.
std::vector<RunSearch::Breaks> RunSearch::grid(const Breaks &breaks) const {
  std::vector<Breaks> result;
  for (size_t c = 0; c < breaks.size(); ++c) {
    int copies = static_cast<int>(problem.classes[c].copies.size());
    int parts = std::min(copies, breaks[c].size() == 1 ? 8 : 6);
    for (int i = 1; i < parts && breaks[c].size() == 1; ++i) {
      result.push_back(breaks);
      result.back()[c] = {copies * i / parts};
    }
    for (int i = 1; i < parts && breaks[c].size() == 2; ++i)
      for (int j = i + 1; j < parts; ++j) {
        result.push_back(breaks);
        result.back()[c] = {copies * i / parts, copies * j / parts};
      }
  }
  return result;
}

/// Moves breaks by steps that become smaller while that helps. A good answer early makes
/// most boxes end at their first bound.
void RunSearch::improve(Breaks breaks) {
  Budget limit = budget.fraction(0.3);
  size_t copies = 0;
  for (size_t c = 0; c < breaks.size(); ++c)
    if (!breaks[c].empty())
      copies = std::max(copies, problem.classes[c].copies.size());
  tryLeaves({breaks}, limit);
  tryLeaves(grid(breaks), limit);
  for (int step = static_cast<int>(copies) / 4; step > 0;) {
    auto moved = best ? movedBy(breaksNear(*best), step) : movedBy(breaks, step);
    if (limit.exhausted(budget.work - limit.work))
      return;
    if (!tryLeaves(moved, limit))
      step /= 2;
  }
}

void RunSearch::report() {
  if (!options.progress)
    return;
  Progress progress{std::chrono::duration<double>(Budget::Clock::now() - start).count(),
                    work() / 1024, std::nullopt, bound};
  if (best)
    progress.cost = cut.upper;
  options.progress(progress);
}

Outcome RunSearch::finish() {
  Outcome outcome;
  outcome.choices = best;
  outcome.complete = open.empty();
  outcome.bound = bound = openBound();
  if (!best && !outcome.complete)
    outcome.reason = noAnswerInTime;
  else if (!best)
    outcome.reason =
        "infeasible: no split of the classes into runs leaves an answer" +
        (problem.memoryLimit ? " that fits the memory limit of " +
                                   std::to_string(*problem.memoryLimit) + " bytes"
                             : "");
  return outcome;
}

/// No answer costs less; never falls.
double RunSearch::openBound() const {
  double least = open.empty() ? cut.upper : std::min(open.begin()->bound, cut.upper);
  return isInfinite(least) ? bound : std::max(bound, least);
}

/// The boxes to look at next: those of the least bounds, or before there is an answer the
/// ones made last, which are the narrowest.
std::vector<RunSearch::Box> RunSearch::next() {
  std::vector<Box> batch;
  while (!open.empty() && batch.size() < static_cast<size_t>(options.threads)) {
    auto at =
        best ? open.begin()
             : std::max_element(open.begin(), open.end(), [](const Box &a, const Box &b) {
                 return a.serial < b.serial;
               });
    if (at->bound <= cut.value(0))
      batch.push_back(*at);
    open.erase(at);
  }
  return batch;
}

Outcome RunSearch::run() {
  Box root = everywhere();
  root.share = firstShare;
  // The smallest problem of all is the likeliest to give an answer in time.
  auto even = breaksNear(std::vector<uint32_t>(problem.variables.size()));
  tryLeaves({even}, budget.fraction(0.3));
  root.multipliers = rootMultipliers;
  Evaluation first = evaluate({root}, budget, !options.upper)[0];
  if (first.outcome.complete && !first.outcome.choices && !best)
    return first.outcome;
  rootMultipliers = std::make_shared<const Multipliers>(first.outcome.multipliers);
  settle(root, first);
  bound = openBound();
  report();
  if (!open.empty())
    improve(first.outcome.choices ? breaksNear(*first.outcome.choices) : even);
  while (!open.empty() && !budget.exhausted()) {
    std::vector<Box> batch = next();
    std::vector<Evaluation> found = evaluate(batch, budget);
    for (size_t i = 0; i < batch.size(); ++i)
      settle(std::move(batch[i]), found[i]);
    bound = openBound();
    report();
  }
  return finish();
}
