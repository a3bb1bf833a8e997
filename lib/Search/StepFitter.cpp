//===- StepFitter.cpp - The fastest form of a step that fits --------------===//
#include "partita/Search/StepFitter.h"

#include "partita/Base/Units.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace partita;
using namespace partita::search;

std::vector<int64_t> search::divisorsOf(int64_t rows) {
  std::vector<int64_t> result;
  for (int64_t k = 1; k <= rows; ++k)
    if (rows % k == 0)
      result.push_back(k);
  return result;
}

std::string search::textOf(const RecomputeChoice &choice, double seconds) {
  const size_t nodes = choice.nodes.size();
  const double more = static_cast<double>(choice.time()) * 1e-12;
  return std::to_string(nodes) + (nodes == 1 ? " node is" : " nodes are") +
         " computed again, which takes " + durationText(more) +
         formatted(" (%.1f%% of a step)", seconds > 0 ? 100 * more / seconds : 0.0);
}

std::string search::textOf(int64_t microBatches, int64_t rows) {
  const int64_t part = rows / microBatches;
  return "accumulation: " + std::to_string(microBatches) +
         (microBatches == 1 ? " micro-batch of " : " micro-batches of ") +
         std::to_string(part) + (part == 1 ? " row" : " rows");
}

static std::vector<std::string> namesOf(const RecomputeChoice &choice) {
  std::vector<std::string> names;
  for (const RecomputeChoice::Node &node : choice.nodes)
    names.push_back(node.name);
  return names;
}

static double secondsOf(const Bound &bound) {
  return static_cast<double>(bound.time) * 1e-12;
}

double StepFitter::fastest() const {
  double seconds = known.value_or(std::numeric_limits<double>::infinity());
  return best ? std::min(seconds, best->seconds) : seconds;
}

bool StepFitter::isLate() const {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  return wanted.enough.isRaised() || spent.count() > wanted.timeLimit;
}

bool StepFitter::isGoodEnough(double seconds) const {
  return fastest() <= (1 + goodEnough) * seconds;
}

bool StepFitter::isBehind(int64_t count) const {
  return std::ranges::any_of(freeSecondsOf, [&](const auto &tried) {
    return count % tried.first == 0 && isGoodEnough(tried.second);
  });
}

Expected<FormedStep> StepFitter::plan(const StepForm &form, double expected) {
  auto step = source.formed(form);
  if (!wanted.log)
    return step;
  std::string text = std::to_string(form.microBatches) +
                     (form.microBatches == 1 ? " micro-batch, " : " micro-batches, ") +
                     std::to_string(form.recompute.nodes.size()) +
                     " nodes computed again: ";
  if (!step)
    text += step.error().message;
  else
    text += bytesText(step->bytes) + " of " + bytesText(wanted.limit) +
            (step->seconds ? ", " + durationText(*step->seconds) : "");
  if (expected > 0)
    text += ", " + durationText(expected) + " expected";
  if (step && step->bytes > wanted.limit)
    text += ": does not fit";
  else if (step && step->seconds)
    text += *step->seconds < fastest() ? ": the fastest so far" : ": no faster";
  wanted.log(text);
  return step;
}

void StepFitter::keep(Outcome outcome) {
  if (!tightest || outcome.step.bytes < tightest->step.bytes)
    tightest = outcome;
  if (outcome.step.bytes <= wanted.limit && (!best || outcome.seconds < best->seconds))
    best = std::move(outcome);
}

Expected<bool> StepFitter::tryPlain(int64_t count) {
  auto plain = plan({count}, 0);
  const bool fits = plain && plain->bytes <= wanted.limit;
  const std::string errorBefore = lastError;
  if (plain)
    without[count] = plain->bytes;
  else
    lastError = plain.error().message;
  if (count == 1 && fits)
    plainSeconds = plain->seconds;
  if (count == 1 && fits && !plain->seconds) { // layouts are given
    keep({{}, *plain, 0});
    return false;
  }
  if (count == 1 && fits && plain->freeBound &&
      *plain->seconds <= (1 + goodEnough) * secondsOf(*plain->freeBound)) {
    bound = plain->freeBound;
    keep({{}, *plain, *plain->seconds});
    return false;
  }
  wanted.progress("choosing what makes the step fit");
  auto free = source.unlimited(count);
  if (!free) {
    // An error of one micro-batch is one of the step.
    if (count == 1)
      return tl::unexpected(free.error());
    if (refused.empty())
      refused =
          std::to_string(count) + " micro-batches cannot be: " + free.error().message;
    lastError = errorBefore; // a number that cannot be says nothing of what is needed
    return true;
  }
  freeSecondsOf[count] = free->seconds;
  withoutLimit[count] = free->bytes;
  if (count == 1) {
    freeSeconds = free->seconds;
    rows = free->rows;
    bound = free->bound;
  } else if (bound && free->bound) {
    bound = leastOf(*bound, *free->bound);
  }
  if (plain)
    keep({{count}, *plain, plain->seconds.value_or(free->seconds)});
  return !isGoodEnough(freeSeconds);
}

int64_t StepFitter::excess(int64_t count, const RecomputeChoice &choice) {
  auto [known, added] = excessOf.try_emplace({count, namesOf(choice)}, 0);
  int64_t &bytes = known->second;
  if (!added)
    return bytes;
  ++measured;
  wanted.progress("trying recompute: " + textOf(choice, freeSeconds));
  const int64_t little = std::max<int64_t>(1, wanted.limit / 32);
  const double expected =
      freeSecondsOf.at(count) + static_cast<double>(choice.time()) * 1e-12;
  auto step = plan({count, choice}, expected);
  if (!step) { // no plan of the search fits
    lastError = step.error().message;
    return bytes = little;
  }
  keep({{count, choice}, *step, step->seconds.value_or(expected)});
  bytes = step->bytes - wanted.limit;
  // A search with a little too little recompute makes the step fit by slower layouts.
  const double least = step->freeBound ? secondsOf(*step->freeBound) : expected;
  const bool isSlow = step->seconds && *step->seconds > (1 + goodEnough) * least;
  return bytes = bytes <= 0 && isSlow ? little : bytes;
}

Expected<void> StepFitter::tryProposals(int64_t count) {
  using Of = ProposalSpace::Of;
  // Spaces in which bytes are counted higher, or that are larger, where nothing fits.
  for (auto [repeatsNecks, choosesBirths] :
       {std::pair(false, true), {false, false}, {true, false}})
    for (Of of : {Of::FreePlan, Of::AnyPlan})
      if ((!repeatsNecks && choosesBirths) || !best)
        if (auto ok = tryRecompute(count, {of, repeatsNecks, choosesBirths}); !ok)
          return ok;
  return {};
}

Expected<void> StepFitter::tryFreeing(int64_t count) {
  auto plain = without.find(count);
  if (plain == without.end() || plain->second > wanted.limit)
    return {};
  // Another proposal may take all of the time, and find nothing.
  for (double share : wanted.most.freed) {
    if (wanted.enough.isRaised())
      return {};
    const auto room =
        static_cast<int64_t>((1 - share) * static_cast<double>(wanted.limit));
    auto choice = source.propose(count, room, {ProposalSpace::Of::PlainPlan});
    if (!choice)
      return tl::unexpected(choice.error());
    if (*choice && !(*choice)->nodes.empty())
      excess(count, **choice);
  }
  return {};
}

Expected<void> StepFitter::tryRecompute(int64_t count, ProposalSpace space) {
  constexpr int64_t unknown = std::numeric_limits<int64_t>::max();
  const int64_t step = std::max<int64_t>(1, wanted.limit / 16);
  int64_t room = wanted.limit, over = unknown, fits = 0, least = 0;
  std::optional<Tried> fitting, exceeding;
  auto plain = without.find(count);
  const bool fitsPlain = plain != without.end() && plain->second <= wanted.limit;
  measured = 0;
  for (int rooms = 0; rooms < wanted.most.rooms && measured < wanted.most.proposals &&
                      room > 0 && (fits == 0 || over - fits > step / 16) && !isLate();
       ++rooms) {
    auto choice = source.propose(count, room, space);
    if (!choice)
      return tl::unexpected(choice.error());
    if (!*choice) { // no step is expected to have so few bytes
      if (best)
        break;
      // Bytes are expected a little too high: the least may still fit.
      least = room;
      const int64_t most = over == unknown ? withoutLimit.at(count) : over;
      room += (most - room) / 2;
      if (over != unknown && over - least <= step / 16)
        break;
      continue;
    }
    const bool isPlain = (*choice)->nodes.empty();
    if (isPlain && fitsPlain) // nothing that is computed again pays
      break;
    const int64_t bytes =
        isPlain ? std::max<int64_t>(1, withoutLimit.at(count) - wanted.limit)
                : excess(count, **choice);
    if (bytes <= 0) {
      fits = room;
      fitting = {std::move(**choice), bytes};
    } else if (room < over) {
      over = room;
      exceeding = {std::move(**choice), bytes};
    }
    if (over == unknown)
      room -= std::min(bytes, -step / 4); // there may be room for more
    else if (fits > 0 || least > 0)
      room = std::max(fits, least) + (over - std::max(fits, least)) / 2;
    else
      room -= isPlain ? step : std::max(bytes, step / 4);
  }
  if (fitting)
    tryBetween(count, *fitting,
               exceeding.value_or(Tried{{}, withoutLimit.at(count) - wanted.limit}));
  return {};
}

void StepFitter::tryBetween(int64_t count, const Tried &fits, const Tried &exceeds) {
  int32_t layers = 0;
  for (const RecomputeChoice *choice : {&fits.choice, &exceeds.choice})
    for (const RecomputeChoice::Node &node : choice->nodes)
      layers = std::max(layers, node.layer + 1);
  auto upTo = [&](int32_t k) {
    RecomputeChoice both;
    for (const RecomputeChoice::Node &node : fits.choice.nodes)
      if (node.layer < k)
        both.nodes.push_back(node);
    for (const RecomputeChoice::Node &node : exceeds.choice.nodes)
      if (node.layer >= k)
        both.nodes.push_back(node);
    return both;
  };
  measured = 0;
  int32_t low = 0, high = layers; // the least k fits that is known to, and no lower one
  double above = static_cast<double>(exceeds.excess),
         below = static_cast<double>(-fits.excess);
  while (high - low > 1 && above > 0 && measured < wanted.most.between && !isLate()) {
    // Bytes are about linear in the number of layers.
    const double share = above / (above + std::max(below, 1.0));
    const int32_t k = std::clamp(
        low + static_cast<int32_t>(std::ceil(share * static_cast<double>(high - low))),
        low + 1, high - 1);
    const int64_t bytes = excess(count, upTo(k));
    (bytes <= 0 ? high : low) = k;
    (bytes <= 0 ? below : above) = std::abs(static_cast<double>(bytes));
  }
}

Expected<void> StepFitter::run(std::optional<double> given) {
  known = given;
  auto more = tryPlain(1);
  if (!more)
    return tl::unexpected(more.error());
  if (!*more)
    return {};
  if (wanted.choosesMicroBatches && rows)
    for (int64_t count : divisorsOf(*rows))
      if (count > 1 && !isBehind(count) && !isLate())
        if (auto ok = tryPlain(count); !ok)
          return tl::unexpected(ok.error());
  if (!wanted.choosesRecompute)
    return {};
  std::vector<std::pair<double, int64_t>> counts;
  for (auto [count, seconds] : freeSecondsOf)
    counts.emplace_back(seconds, count);
  std::ranges::sort(counts);
  int tried = 0;
  for (auto [seconds, count] : counts) {
    if (seconds >= fastest() || (best && tried >= wanted.most.counts) || isLate())
      break;
    ++tried;
    if (auto ok = tryFreeing(count); !ok)
      return ok;
    if (auto ok = tryProposals(count); !ok)
      return ok;
  }
  return {};
}
