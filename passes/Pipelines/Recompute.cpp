//===- Recompute.cpp - Training steps that fit into memory ----------------===//
#include "passes/Pipelines/Recompute.h"

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Units.h"
#include "partita/Train/Spec.h"
#include "passes/Pipelines/Accumulation.h"
#include "passes/Shard/SearchPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace partita;
using search::RecomputeChoice;

/// A choice, its compile up to L4, and its measure take about a second for GPT-2.
static constexpr StepFitter::Most mostMeasured{10, 10};
static constexpr int mostTries = 40;
/// So many proposals of a bound are measured, asked for with so many limits at most, of
/// so many numbers of micro-batches.
static constexpr int mostProposals = 3, mostRooms = 6;
static constexpr size_t mostProposedCounts = 2;
/// Of the solver for each.
static constexpr int64_t mostProposalWork = 4'000'000;

void partita::takeChoices(Job &job) {
  const std::optional<Plan> &plan = job.request.plan;
  if (!plan || !job.request.train)
    return;
  if (!job.feedback.recompute)
    job.feedback.recompute = plan->entry().recompute;
  if (!job.feedback.microBatches)
    job.feedback.microBatches = plan->entry().accumulation;
}

bool partita::choosesRecompute(const Job &job) {
  const std::optional<Training> &train = job.request.train;
  return train && train->spec.choosesRecompute && !job.feedback.recompute;
}

bool partita::choosesStep(const Job &job) {
  const Request &request = job.request;
  return !request.plan && request.levels.from == Level::L0 &&
         request.levels.to >= Level::L2 && request.machine.memory &&
         (choosesRecompute(job) || choosesAccumulation(job));
}

RecomputeChoices::RecomputeChoices(search::Timing &timing, const search::Decided &plan,
                                   std::optional<int64_t> accumulation)
    : seconds(static_cast<double>(search::evaluate(timing, plan).total()) * 1e-12),
      microBatches(accumulation.value_or(1)), space(timing, plan) {}

Expected<std::unique_ptr<RecomputeChoices>>
RecomputeChoices::create(const Job &given, std::optional<int64_t> memory) {
  Job job = given.upTo(Level::L2);
  // Instead of that of a cluster's devices, too.
  job.request.machine = job.request.machine.limitedTo(memory);
  Compiler compiler(job);
  if (auto ok = compiler.import().and_then([&] { return compiler.decide(); }); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = compiler.recordPlan(); !ok)
    return tl::unexpected(ok.error());
  auto function = compiler.module->lookupSymbol<func::FuncOp>("main");
  const Mesh mesh = job.request.mesh();
  auto flow = dist::buildFlow(function, mesh, dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  (*flow)->graph.finalize();
  auto strategies = dist::readStrategies(function, **flow);
  if (failed(strategies))
    return makeError("the program has an op without a strategy");
  auto servings = dist::readServings(function, **flow, *strategies);
  if (failed(servings))
    return makeError("the plan serves a value in a way that is not known");
  auto target = planTarget(mesh, job.request.machine);
  if (!target)
    return tl::unexpected(target.error());
  auto placement = Placement::create(mesh, target->topology);
  if (!placement)
    return tl::unexpected(placement.error());
  search::Timing timing((*flow)->graph, *placement);
  auto made = std::make_unique<RecomputeChoices>(
      timing, search::Decided{std::move(*strategies), std::move(*servings)},
      job.feedback.microBatches);
  made->rows = compiler.rows;
  if (const auto &certificate = compiler.plan.entry().certificate)
    made->lowerBoundSeconds = certificate->lowerBoundSeconds;
  return made;
}

PlanRecompute partita::planRecompute(const RecomputeChoice &choice) {
  return {choice.nodes, choice.exactly, static_cast<double>(choice.time) * 1e-12,
          choice.before - choice.peak};
}

Expected<std::optional<RecomputeChoice>>
partita::proposedBy(const Expected<std::optional<search::AnyRecompute>> &any) {
  if (!any)
    return tl::unexpected(any.error());
  if (!*any || (*any)->nodes.empty())
    return std::optional<RecomputeChoice>();
  RecomputeChoice choice;
  choice.nodes.push_back((*any)->nodes);
  choice.exactly = choice.proved = true;
  choice.time = (*any)->repeatedTime;
  return choice;
}

std::string partita::recomputeText(const RecomputeChoice &choice, double seconds) {
  size_t nodes = 0;
  for (const std::vector<std::string> &stretch : choice.nodes)
    nodes += stretch.size();
  double more = static_cast<double>(choice.time) * 1e-12;
  return "recompute: " + std::to_string(nodes) + (nodes == 1 ? " node" : " nodes") +
         (choice.exactly ? ""
                         : " in " + std::to_string(choice.nodes.size()) +
                               (choice.nodes.size() == 1 ? " stretch" : " stretches")) +
         (nodes == 1 && choice.exactly ? " is" : " are") +
         " computed again, which takes " + durationText(more) +
         formatted(" (%.1f%% of a step)", seconds > 0 ? 100 * more / seconds : 0.0) +
         (choice.proved ? "" : ", and less might do");
}

StepFitter::StepFitter(const Job &job, int64_t limit, Most most, Means means)
    : job(job), counts(choosesAccumulation(job)), repeats(choosesRecompute(job)),
      limit(limit), most(most), means(std::move(means)) {}

double StepFitter::fastest() const {
  double seconds = known.value_or(std::numeric_limits<double>::infinity());
  return best ? std::min(seconds, best->seconds) : seconds;
}

bool StepFitter::isGoodEnough(double seconds) const {
  return fastest() <= (1 + goodEnough) * seconds;
}

bool StepFitter::isBehind(int64_t count) const {
  return std::ranges::any_of(freeSecondsOf, [&](const auto &tried) {
    return count % tried.first == 0 && isGoodEnough(tried.second);
  });
}

void StepFitter::keep(Outcome outcome) {
  if (!tightest || outcome.form.bytes < tightest->form.bytes)
    tightest = outcome;
  if (outcome.form.bytes <= limit && (!best || outcome.seconds < best->seconds))
    best = std::move(outcome);
}

Expected<std::vector<std::unique_ptr<RecomputeChoices>>>
StepFitter::plansOf(std::optional<int64_t> accumulation) const {
  std::vector<std::unique_ptr<RecomputeChoices>> plans;
  auto free = means.basesOf(accumulation, std::nullopt);
  if (!free) // what is wrong with the step is said without a limit, too
    return tl::unexpected(free.error());
  int64_t needed = (*free)->before();
  plans.push_back(std::move(*free));
  if (job.request.mode != ShardMode::Auto || job.request.mesh().numRanks() == 1 ||
      needed <= limit)
    return plans;
  if (auto between = means.basesOf(accumulation, limit + (needed - limit) / 2))
    plans.push_back(std::move(*between));
  return plans;
}

Expected<bool> StepFitter::tryPlain(int64_t count) {
  const std::optional<int64_t> accumulation =
      counts ? std::optional(count) : job.feedback.microBatches;
  auto plain = means.measure(accumulation, {});
  const bool fits = plain && plain->bytes <= limit;
  const std::string errorBefore = lastError;
  if (plain)
    without[count] = plain->bytes;
  else
    lastError = plain.error().message;
  if (count == 1 && fits && !plain->seconds) { // layouts are given
    keep({count, {}, *plain, 0});
    return false;
  }
  if (count == 1 && fits && plain->leastSeconds &&
      *plain->seconds <= (1 + goodEnough) * *plain->leastSeconds) {
    lowerBoundSeconds = plain->leastSeconds;
    keep({count, {}, *plain, *plain->seconds});
    return false;
  }
  job.progress("choosing what makes the step fit");
  auto made = plansOf(accumulation);
  if (!made) {
    if (count == 1)
      return tl::unexpected(made.error());
    if (refused.empty())
      refused =
          std::to_string(count) + " micro-batches cannot be: " + made.error().message;
    lastError = errorBefore; // a number that cannot be says nothing of what is needed
    return true;
  }
  const RecomputeChoices &free = *made->front();
  freeSecondsOf[count] = free.seconds;
  withoutLimit[count] = free.before();
  if (count == 1) {
    freeSeconds = free.seconds;
    rows = free.rows;
    lowerBoundSeconds = free.lowerBoundSeconds;
  } else if (lowerBoundSeconds && free.lowerBoundSeconds) {
    lowerBoundSeconds = std::min(*lowerBoundSeconds, *free.lowerBoundSeconds);
  }
  if (plain)
    keep({count, {}, *plain, plain->seconds.value_or(free.seconds)});
  if (repeats)
    for (auto &choices : *made)
      bases.push_back(
          {std::move(choices), plain ? withoutLimit[count] - plain->bytes : 0});
  return !isGoodEnough(freeSeconds);
}

int64_t StepFitter::excess(int64_t count, const RecomputeChoice &choice,
                           double expected) {
  auto form = means.measure(counts ? std::optional(count) : std::nullopt, choice);
  if (!form) { // no plan of the search fits
    lastError = form.error().message;
    return std::max<int64_t>(1, limit / 32);
  }
  RecomputeChoice kept = choice;
  if (choice.exactly) { // it is not known of what plan
    kept.before = withoutLimit.at(count);
    kept.peak = form->bytes;
  }
  keep({count, std::move(kept), *form, form->seconds.value_or(expected)});
  // With a little too little recompute a search makes the step fit by slower layouts.
  if (form->bytes <= limit && form->seconds &&
      *form->seconds > (1 + goodEnough) * expected)
    return std::max<int64_t>(1, limit / 32);
  return form->bytes - limit;
}

void StepFitter::tryChoicesOf(const Base &base) {
  // Choices for `fits` fit, those for `exceeds` do not.
  constexpr int64_t unknown = std::numeric_limits<int64_t>::max();
  const RecomputeChoices &choices = *base.choices;
  int64_t room = limit + base.offset, exceeds = unknown, fits = 0;
  const int mostMeasured =
      best && best->choice.exactly ? most.besideProposals : most.ofPlan;
  for (int measured = 0, tries = 0; measured < mostMeasured && tries < mostTries;
       ++tries) {
    auto choice = choices.choose(room);
    if (!choice && !best) // what was expected to need more may need less
      choice = choices.choose(room = choices.least());
    if (!choice)
      break;
    if (choice->nodes.empty()) { // that is the plan without recompute
      room = choice->peak - 1;
      continue;
    }
    auto [entry, added] =
        excessOf.try_emplace({choices.accumulation(), false, choice->nodes}, 0);
    if (added) {
      ++measured;
      ++measuredInAll;
      job.progress("trying " + recomputeText(*choice, choices.seconds));
      entry->second = excess(choices.accumulation(), *choice,
                             choices.seconds + static_cast<double>(choice->time) * 1e-12);
    }
    // The next smaller room has another choice.
    if (entry->second <= 0)
      fits = std::max(fits, room);
    else
      exceeds = std::min(exceeds, choice->peak);
    if (fits == 0)
      room = std::min(room - entry->second, choice->peak - 1);
    else
      room = exceeds == unknown ? room - entry->second : fits + (exceeds - fits) / 2;
    if (fits > 0 && exceeds - fits < std::max<int64_t>(limit / 512, 2))
      break;
  }
}

Expected<void> StepFitter::tryProposals(int64_t count) {
  int64_t room = limit;
  const std::optional<int64_t> accumulation =
      counts ? std::optional(count) : std::nullopt;
  for (int measured = 0, tries = 0;
       measured < mostProposals && tries < mostRooms && room > 0; ++tries) {
    auto choice = means.propose(counts ? accumulation : job.feedback.microBatches, room);
    if (!choice)
      return tl::unexpected(choice.error());
    if (!*choice) { // a bound does not count all bytes
      room -= limit / 8;
      continue;
    }
    auto [entry, added] = excessOf.try_emplace({count, true, (*choice)->nodes}, 0);
    if (!added) {
      room -= std::max<int64_t>(1, limit / 32);
      continue;
    }
    ++measured;
    ++measuredInAll;
    job.progress("trying " + recomputeText(**choice, freeSeconds));
    const double before = fastest();
    entry->second =
        excess(count, **choice,
               freeSecondsOf.at(count) + static_cast<double>((*choice)->time) * 1e-12);
    if (best && !(fastest() * (1 + goodEnough) < before))
      return {};
    room -= std::max(entry->second, limit / 32);
  }
  return {};
}

void StepFitter::tryStretches() {
  std::vector<std::pair<double, size_t>> promising;
  for (size_t i = 0; i < bases.size(); ++i) {
    const RecomputeChoices &choices = *bases[i].choices;
    auto choice = choices.choose(limit + bases[i].offset);
    promising.emplace_back(choice ? choices.seconds +
                                        static_cast<double>(choice->time) * 1e-12
                                  : std::numeric_limits<double>::infinity(),
                           i);
  }
  std::ranges::sort(promising);
  for (auto [expected, base] : promising) {
    // Of many numbers of micro-batches the promising ones are enough.
    if (best && measuredInAll >= 2 * most.ofPlan)
      break;
    if (expected < fastest() || std::isinf(fastest()))
      tryChoicesOf(bases[base]);
  }
}

Expected<void> StepFitter::run(std::optional<double> given) {
  known = given;
  auto more = tryPlain(1);
  if (!more)
    return tl::unexpected(more.error());
  if (!*more)
    return {};
  if (counts && rows)
    for (int64_t count : accumulationsOf(*rows))
      if (count > 1 && !isBehind(count))
        if (auto ok = tryPlain(count); !ok)
          return tl::unexpected(ok.error());
  if (repeats) {
    std::vector<std::pair<double, int64_t>> counted;
    for (auto [count, seconds] : freeSecondsOf)
      counted.emplace_back(seconds, count);
    std::ranges::sort(counted);
    counted.resize(std::min(counted.size(), mostProposedCounts));
    for (auto [seconds, count] : counted)
      if (seconds < fastest())
        if (auto ok = tryProposals(count); !ok)
          return ok;
  }
  tryStretches();
  return {};
}

/// What is needed, what there is, what takes most, and what would do.
static Error tooLarge(const StepFitter &fitter, int64_t limit, bool repeats) {
  if (!fitter.tightest)
    return {fitter.lastError + (fitter.refused.empty() ? "" : "; " + fitter.refused)};
  const StepFitter::Outcome &least = *fitter.tightest;
  const int64_t needed = least.form.bytes;
  auto plain = fitter.without.find(1);
  std::string text = "the training step needs " + std::to_string(needed) + " bytes" +
                     (fitter.rows && least.accumulation > 1
                          ? " in " + std::to_string(least.accumulation) + " micro-batches"
                          : "") +
                     (repeats ? " with the most recompute that was found" : "") +
                     (plain != fitter.without.end() && (repeats || least.accumulation > 1)
                          ? ", " + std::to_string(plain->second) + " without"
                          : "") +
                     "; the limit is " + std::to_string(limit) + "; when '" +
                     least.form.peak.node + "' runs there are ";
  std::string list;
  for (const auto &[kind, bytes] : least.form.peak.kinds)
    if (bytes != 0)
      list += (list.empty() ? "" : ", ") + bytesText(bytes) + " of " + kind;
  text += list + "; largest in the arena: ";
  list.clear();
  for (const PlanPeak::Value &value : least.form.peak.largest)
    list += (list.empty() ? "'" : ", '") + value.node + "' " + bytesText(value.bytes) +
            (value.count > 1 ? " in " + std::to_string(value.count) : "");
  return {text + list + "; a memory of " + std::to_string(needed) + " bytes would do" +
          (fitter.refused.empty() ? "" : "; " + fitter.refused)};
}

/// The program at L4, with what it needs.
static Expected<StepForm> formed(const Job &job) {
  auto made = straightCompiler(job.upTo(Level::L4));
  if (auto ok = made->run(); !ok)
    return tl::unexpected(ok.error());
  auto needs = measureProgram(made->compiler(), job.request);
  if (!needs)
    return tl::unexpected(needs.error());
  StepForm form{needs->bytes, std::nullopt, std::move(needs->memory.peak)};
  if (const auto &certificate = made->compiler().plan.entry().certificate)
    form.seconds = certificate->stepSeconds;
  return form;
}

/// What a bound of the step proposes with so many bytes.
static Expected<std::optional<RecomputeChoice>> proposed(const Job &given,
                                                         int64_t memory) {
  if (given.request.mode != ShardMode::Auto)
    return std::optional<RecomputeChoice>();
  const Job job = given.upTo(Level::L2);
  const Mesh mesh = job.request.mesh();
  auto target = planTarget(mesh, job.request.machine);
  if (!target)
    return tl::unexpected(target.error());
  auto placement = Placement::create(mesh, target->topology);
  if (!placement)
    return tl::unexpected(placement.error());
  Compiler compiler(job);
  if (auto ok = compiler.import(); !ok)
    return tl::unexpected(ok.error());
  auto flow = dist::buildFlow(compiler.module->lookupSymbol<func::FuncOp>("main"), mesh,
                              dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  (*flow)->graph.finalize();
  search::SearchOptions search;
  search.memoryLimit = memory;
  search.workLimit = mostProposalWork;
  return proposedBy(search::anyRecompute((*flow)->graph, *placement, search));
}

/// What is to be said of a choice.
static std::string noteOf(const StepFitter &fitter, int64_t limit) {
  const StepFitter::Outcome &found = *fitter.best;
  std::string text;
  if (fitter.rows)
    text = accumulationText(found.accumulation, *fitter.rows) + "; " +
           (fitter.refused.empty() ? "" : fitter.refused + "; ");
  if (!found.choice.nodes.empty())
    text += recomputeText(found.choice, fitter.freeSeconds) + "; ";
  text += "a rank needs " + std::to_string(found.form.bytes) + " bytes";
  auto plain = fitter.without.find(found.accumulation);
  if (plain != fitter.without.end() && !found.choice.nodes.empty())
    text += " instead of " + std::to_string(plain->second);
  return text + ", the limit is " + std::to_string(limit);
}

Expected<void> partita::chooseStep(Job &job, std::vector<std::string> &notes) {
  const int64_t limit = *job.request.machine.memory;
  job.sources->keepsSteps = true;
  std::optional<double> plainSeconds; // of a plan that fits without any choice
  auto measure = [&](std::optional<int64_t> accumulation, const RecomputeChoice &choice) {
    Job now = job;
    now.feedback.microBatches = accumulation;
    if (!choice.nodes.empty())
      now.feedback.recompute = planRecompute(choice);
    auto form = formed(now);
    if (form && form->bytes <= limit && choice.nodes.empty() &&
        accumulation.value_or(1) == 1)
      plainSeconds = form->seconds;
    return form;
  };
  auto basesOf = [&](std::optional<int64_t> accumulation, std::optional<int64_t> memory) {
    Job now = job;
    now.feedback.microBatches = accumulation;
    return RecomputeChoices::create(now, memory);
  };
  auto propose = [&](std::optional<int64_t> accumulation, int64_t memory) {
    Job now = job;
    now.feedback.microBatches = accumulation;
    return proposed(now, memory);
  };
  StepFitter fitter(job, limit, mostMeasured, {measure, basesOf, propose});
  if (auto ok = fitter.run(std::nullopt); !ok)
    return tl::unexpected(ok.error());
  if (!fitter.best)
    return tl::unexpected(tooLarge(fitter, limit, choosesRecompute(job)));
  const StepFitter::Outcome &found = *fitter.best;
  if (found.choice.nodes.empty() && !fitter.rows)
    return {};
  job.feedback.lowerBoundSeconds = fitter.lowerBoundSeconds;
  if (fitter.rows)
    job.feedback.microBatches = found.accumulation;
  if (!found.choice.nodes.empty()) {
    auto plain = fitter.without.find(found.accumulation);
    job.feedback.recompute = planRecompute(found.choice);
    job.feedback.recompute->savedBytes =
        plain != fitter.without.end() && plain->second > limit
            ? plain->second - found.form.bytes
            : fitter.withoutLimit.at(found.accumulation) - found.choice.peak;
  }
  if (found.accumulation == 1 && found.choice.nodes.empty() && fitter.refused.empty())
    return {};
  notes.push_back(noteOf(fitter, limit) +
                  (plainSeconds
                       ? "; without it a step would take " + durationText(*plainSeconds)
                       : ""));
  return {};
}
