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

/// The devices that the options name.
static Expected<PlanTarget> targetOf(const CompileOptions &options) {
  auto mesh = Mesh::parse(options.mesh);
  if (!mesh)
    return tl::unexpected(mesh.error());
  return planTarget(*mesh, {options.cluster, options.memory, options.firstDevice});
}

Expected<std::optional<int64_t>> partita::memoryLimitOf(const CompileOptions &options) {
  if (options.memory.empty())
    return std::optional<int64_t>();
  auto target = targetOf(options);
  if (!target)
    return tl::unexpected(target.error());
  return target->memoryLimit;
}

Expected<void> partita::takeChoices(CompileOptions &options) {
  if (options.plan.empty() || options.train.empty())
    return {};
  auto plan = readPlan(options.plan);
  if (!plan)
    return tl::unexpected(plan.error());
  if (!options.recompute)
    options.recompute = plan->recompute;
  if (!options.accumulation)
    options.accumulation = plan->accumulation;
  return {};
}

bool partita::choosesRecompute(const CompileOptions &options) {
  if (options.train.empty() || options.recompute)
    return false;
  auto spec = train::readSpec(options.train);
  return spec && spec->choosesRecompute;
}

bool partita::choosesStep(const CompileOptions &options) {
  return options.plan.empty() && options.from == Level::L0 && options.to >= Level::L2 &&
         !(options.memory.empty() && options.cluster.empty()) &&
         (choosesRecompute(options) || choosesAccumulation(options));
}

RecomputeChoices::RecomputeChoices(search::Timing &timing, const search::Decided &plan,
                                   std::optional<int64_t> accumulation)
    : seconds(static_cast<double>(search::evaluate(timing, plan).total()) * 1e-12),
      microBatches(accumulation.value_or(1)), space(timing, plan) {}

Expected<std::unique_ptr<RecomputeChoices>>
RecomputeChoices::create(const CompileOptions &given, std::optional<int64_t> memory,
                         const Progress &progress) {
  CompileOptions options = given;
  // Instead of that of a cluster's devices, too.
  options.memory = memory ? std::to_string(*memory) : "1048576GiB";
  options.dumpDir = options.hintsOutput = options.explain = "";
  options.to = Level::L2;
  Compiler compiler(options, progress);
  if (auto ok = compiler.import().and_then([&] { return compiler.decide(); }); !ok)
    return tl::unexpected(ok.error());
  compiler.recordPlan();
  auto function = compiler.module->lookupSymbol<func::FuncOp>("main");
  auto mesh = Mesh::parse(given.mesh);
  if (!mesh)
    return tl::unexpected(mesh.error());
  auto flow = dist::buildFlow(function, *mesh, dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  (*flow)->graph.finalize();
  auto strategies = dist::readStrategies(function, **flow);
  if (failed(strategies))
    return makeError("the program has an op without a strategy");
  auto servings = dist::readServings(function, **flow, *strategies);
  if (failed(servings))
    return makeError("the plan serves a value in a way that is not known");
  auto target = planTarget(*mesh, {given.cluster, "", given.firstDevice});
  if (!target)
    return tl::unexpected(target.error());
  auto placement = Placement::create(*mesh, target->topology);
  if (!placement)
    return tl::unexpected(placement.error());
  search::Timing timing((*flow)->graph, *placement);
  auto made = std::make_unique<RecomputeChoices>(
      timing, search::Decided{std::move(*strategies), std::move(*servings)},
      given.accumulation);
  made->rows = compiler.rows;
  if (compiler.plan.certificate)
    made->lowerBoundSeconds = compiler.plan.certificate->lowerBoundSeconds;
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

StepFitter::StepFitter(const CompileOptions &given, int64_t limit, Most most, Means means,
                       const Progress &progress)
    : options(given), counts(choosesAccumulation(given)),
      repeats(choosesRecompute(given)), limit(limit), most(most), means(std::move(means)),
      progress(progress) {}

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
  auto mesh = Mesh::parse(options.mesh);
  if (options.mode != "auto" || !mesh || mesh->numRanks() == 1 || needed <= limit)
    return plans;
  if (auto between = means.basesOf(accumulation, limit + (needed - limit) / 2))
    plans.push_back(std::move(*between));
  return plans;
}

Expected<bool> StepFitter::tryPlain(int64_t count) {
  const std::optional<int64_t> accumulation =
      counts ? std::optional(count) : options.accumulation;
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
  progress("choosing what makes the step fit");
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
      progress("trying " + recomputeText(*choice, choices.seconds));
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
    auto choice = means.propose(counts ? accumulation : options.accumulation, room);
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
    progress("trying " + recomputeText(**choice, freeSeconds));
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
static Expected<StepForm> formed(CompileOptions options, const Progress &progress) {
  options.to = Level::L4;
  options.dumpDir = options.hintsOutput = options.explain = "";
  auto made = straightCompiler(options, progress);
  if (auto ok = made->run(); !ok)
    return tl::unexpected(ok.error());
  auto needs = measureProgram(made->compiler(), options);
  if (!needs)
    return tl::unexpected(needs.error());
  StepForm form{needs->bytes, std::nullopt, std::move(needs->memory.peak)};
  if (const auto &certificate = made->compiler().plan.certificate)
    form.seconds = certificate->stepSeconds;
  return form;
}

/// What a bound of the step proposes with so many bytes.
static Expected<std::optional<RecomputeChoice>>
proposed(CompileOptions options, int64_t memory, const Progress &progress) {
  if (options.mode != "auto")
    return std::optional<RecomputeChoice>();
  options.dumpDir = options.hintsOutput = options.explain = "";
  options.to = Level::L2;
  auto mesh = Mesh::parse(options.mesh);
  if (!mesh)
    return tl::unexpected(mesh.error());
  auto target = planTarget(*mesh, {options.cluster, "", options.firstDevice});
  if (!target)
    return tl::unexpected(target.error());
  auto placement = Placement::create(*mesh, target->topology);
  if (!placement)
    return tl::unexpected(placement.error());
  Compiler compiler(options, progress);
  if (auto ok = compiler.import(); !ok)
    return tl::unexpected(ok.error());
  auto flow = dist::buildFlow(compiler.module->lookupSymbol<func::FuncOp>("main"), *mesh,
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

Expected<void> partita::chooseStep(CompileOptions &options,
                                   std::vector<std::string> &notes,
                                   const Progress &progress) {
  auto target = targetOf(options);
  if (!target)
    return tl::unexpected(target.error());
  if (!target->memoryLimit)
    return {};
  const int64_t limit = *target->memoryLimit;
  std::optional<double> plainSeconds; // of a plan that fits without any choice
  auto measure = [&](std::optional<int64_t> accumulation, const RecomputeChoice &choice) {
    CompileOptions now = options;
    now.accumulation = accumulation;
    if (!choice.nodes.empty())
      now.recompute = planRecompute(choice);
    auto form = formed(std::move(now), progress);
    if (form && form->bytes <= limit && choice.nodes.empty() &&
        accumulation.value_or(1) == 1)
      plainSeconds = form->seconds;
    return form;
  };
  auto basesOf = [&](std::optional<int64_t> accumulation, std::optional<int64_t> memory) {
    CompileOptions now = options;
    now.accumulation = accumulation;
    return RecomputeChoices::create(now, memory, progress);
  };
  auto propose = [&](std::optional<int64_t> accumulation, int64_t memory) {
    CompileOptions now = options;
    now.accumulation = accumulation;
    return proposed(now, memory, progress);
  };
  StepFitter fitter(options, limit, mostMeasured, {measure, basesOf, propose}, progress);
  if (auto ok = fitter.run(std::nullopt); !ok)
    return tl::unexpected(ok.error());
  if (!fitter.best)
    return tl::unexpected(tooLarge(fitter, limit, choosesRecompute(options)));
  const StepFitter::Outcome &found = *fitter.best;
  if (found.choice.nodes.empty() && !fitter.rows)
    return {};
  options.lowerBoundSeconds = fitter.lowerBoundSeconds;
  if (fitter.rows)
    options.accumulation = found.accumulation;
  if (!found.choice.nodes.empty()) {
    auto plain = fitter.without.find(found.accumulation);
    options.recompute = planRecompute(found.choice);
    options.recompute->savedBytes =
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
