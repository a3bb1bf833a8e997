//===- Recompute.cpp - Training steps that fit into memory ----------------===//
#include "passes/Pipelines/Recompute.h"

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Units.h"
#include "partita/Train/Spec.h"
#include "passes/Shard/SearchPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace partita;
using search::RecomputeChoice;

/// A choice, its compile up to L4, and its measure take about a second for GPT-2.
static constexpr int mostMeasured = 10, mostTries = 40;

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

Expected<void> partita::takeRecompute(CompileOptions &options) {
  if (options.plan.empty() || options.train.empty() || options.recompute)
    return {};
  auto plan = readPlan(options.plan);
  if (!plan)
    return tl::unexpected(plan.error());
  options.recompute = plan->recompute;
  return {};
}

bool partita::choosesRecompute(const CompileOptions &options) {
  if (options.train.empty() || !options.plan.empty() || options.recompute ||
      options.from != Level::L0 || options.to < Level::L2 ||
      (options.memory.empty() && options.cluster.empty()))
    return false;
  auto spec = train::readSpec(options.train);
  return spec && spec->choosesRecompute;
}

Expected<std::unique_ptr<RecomputeChoices>>
RecomputeChoices::create(const CompileOptions &given, std::optional<int64_t> memory,
                         const Progress &progress) {
  auto made = std::make_unique<RecomputeChoices>();
  made->options = given;
  // Instead of that of a cluster's devices, too.
  made->options.memory = memory ? std::to_string(*memory) : "1048576GiB";
  made->options.dumpDir = made->options.hintsOutput = made->options.explain = "";
  made->options.to = Level::L2;
  made->compiler = std::make_unique<Compiler>(made->options, progress);
  Compiler &compiler = *made->compiler;
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
  search::Decided plan{std::move(*strategies), std::move(*servings)};
  made->seconds = static_cast<double>(search::evaluate(timing, plan).total()) * 1e-12;
  if (compiler.plan.certificate)
    made->lowerBoundSeconds = compiler.plan.certificate->lowerBoundSeconds;
  made->space = std::make_unique<search::RecomputeSpace>(timing, plan);
  return made;
}

std::string partita::recomputeText(const RecomputeChoice &choice, double seconds) {
  size_t nodes = 0;
  for (const std::vector<std::string> &stretch : choice.nodes)
    nodes += stretch.size();
  double more = static_cast<double>(choice.time) * 1e-12;
  return "recompute: " + std::to_string(nodes) + " nodes in " +
         std::to_string(choice.nodes.size()) +
         (choice.nodes.size() == 1 ? " stretch" : " stretches") +
         " are computed again, which takes " + durationText(more) +
         formatted(" (%.1f%% of a step)", seconds > 0 ? 100 * more / seconds : 0.0) +
         (choice.proved ? "" : ", and less might do");
}

int64_t RecomputeFitter::excess(const RecomputeChoices &base,
                                const RecomputeChoice &choice) {
  auto form = measure(choice);
  if (!form) { // no plan of the search fits
    lastError = form.error().message;
    return std::max<int64_t>(1, limit / 32);
  }
  double expected = base.seconds + static_cast<double>(choice.time) * 1e-12;
  Outcome outcome{choice, *form, form->seconds.value_or(expected)};
  if (!tightest || form->bytes < tightest->form.bytes)
    tightest = outcome;
  if (form->bytes <= limit && (!best || outcome.seconds < best->seconds))
    best = outcome;
  return form->bytes - limit;
}

void RecomputeFitter::tryChoicesOf(const RecomputeChoices &base, int64_t offset) {
  // Choices for `fits` fit, those for `exceeds` do not.
  constexpr int64_t unknown = std::numeric_limits<int64_t>::max();
  int64_t room = limit + offset, exceeds = unknown, fits = 0;
  for (int measured = 0, tries = 0; measured < mostMeasured && tries < mostTries;
       ++tries) {
    auto choice = base.choose(room);
    if (!choice && !best) // what was expected to need more may need less
      choice = base.choose(room = base.least());
    if (!choice)
      break;
    if (choice->nodes.empty()) { // that is the plan without recompute
      room = choice->peak - 1;
      continue;
    }
    auto [known, added] = excessOf.try_emplace(choice->nodes, 0);
    if (added) {
      ++measured;
      progress("trying " + recomputeText(*choice, base.seconds));
      known->second = excess(base, *choice);
    }
    // The next smaller room has another choice.
    if (known->second <= 0)
      fits = std::max(fits, room);
    else
      exceeds = std::min(exceeds, choice->peak);
    if (fits == 0)
      room = std::min(room - known->second, choice->peak - 1);
    else
      room = exceeds == unknown ? room - known->second : fits + (exceeds - fits) / 2;
    if (fits > 0 && exceeds - fits < std::max<int64_t>(limit / 512, 2))
      break;
  }
}

void RecomputeFitter::run(const std::vector<std::unique_ptr<RecomputeChoices>> &bases,
                          int64_t offset, std::optional<double> seconds) {
  std::vector<std::pair<double, size_t>> promising;
  for (size_t i = 0; i < bases.size(); ++i) {
    auto choice = bases[i]->choose(limit + offset);
    promising.emplace_back(choice ? bases[i]->seconds +
                                        static_cast<double>(choice->time) * 1e-12
                                  : std::numeric_limits<double>::infinity(),
                           i);
  }
  std::ranges::sort(promising);
  for (auto [expected, base] : promising) {
    double known = best ? best->seconds : std::numeric_limits<double>::infinity();
    if (seconds)
      known = std::min(known, *seconds);
    if (expected < known || std::isinf(known))
      tryChoicesOf(*bases[base], offset);
  }
}

Expected<std::vector<std::unique_ptr<RecomputeChoices>>>
partita::recomputeBases(const CompileOptions &options, int64_t limit,
                        const Progress &progress) {
  std::vector<std::unique_ptr<RecomputeChoices>> bases;
  auto free = RecomputeChoices::create(options, std::nullopt, progress);
  if (!free) // what is wrong with the step is said without a limit, too
    return tl::unexpected(free.error());
  int64_t needed = (*free)->before();
  bases.push_back(std::move(*free));
  auto mesh = Mesh::parse(options.mesh);
  if (options.mode != "auto" || !mesh || mesh->numRanks() == 1 || needed <= limit)
    return bases;
  auto between =
      RecomputeChoices::create(options, limit + (needed - limit) / 2, progress);
  if (between)
    bases.push_back(std::move(*between));
  return bases;
}

/// What is needed, what there is, what takes most, and what would do.
static Error tooLarge(const RecomputeFitter &fitter, int64_t limit, int64_t without) {
  if (!fitter.tightest)
    return {fitter.lastError};
  const RecomputeFitter::Outcome &least = *fitter.tightest;
  const int64_t needed = least.form.bytes;
  std::string text = "the training step needs " + std::to_string(needed) +
                     " bytes with the most recompute that was found" +
                     (without > 0 ? ", " + std::to_string(without) + " without" : "") +
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
  return {text + list + "; a memory of " + std::to_string(needed) + " bytes would do"};
}

/// The program at L4, with what it needs.
static Expected<RecomputeForm> formed(CompileOptions options, const Progress &progress) {
  options.to = Level::L4;
  options.dumpDir = options.hintsOutput = options.explain = "";
  auto made = straightCompiler(options, progress);
  if (auto ok = made->run(); !ok)
    return tl::unexpected(ok.error());
  auto needs = measureProgram(made->compiler(), options);
  if (!needs)
    return tl::unexpected(needs.error());
  RecomputeForm form{needs->bytes, std::nullopt, std::move(needs->peak)};
  if (const auto &certificate = made->compiler().plan.certificate)
    form.seconds = certificate->stepSeconds;
  return form;
}

Expected<void> partita::chooseRecompute(CompileOptions &options,
                                        std::vector<std::string> &notes,
                                        const Progress &progress) {
  auto target = targetOf(options);
  if (!target)
    return tl::unexpected(target.error());
  if (!target->memoryLimit)
    return {};
  const int64_t limit = *target->memoryLimit;
  auto plain = formed(options, progress);
  const int64_t without = plain ? plain->bytes : 0;
  const bool fits = plain && without <= limit;
  if (fits && !plain->seconds) // layouts are given
    return {};
  progress("choosing what is computed again");
  auto bases = recomputeBases(options, limit, progress);
  if (!bases)
    return tl::unexpected(bases.error());
  const RecomputeChoices &free = *bases->front();
  if (fits && *plain->seconds <= (1 + goodEnough) * free.seconds)
    return {};
  auto measure = [&](const RecomputeChoice &choice) {
    CompileOptions now = options;
    now.recompute = PlanRecompute{choice.nodes, 0, 0};
    return formed(std::move(now), progress);
  };
  RecomputeFitter fitter(limit, mostMeasured, measure, progress);
  fitter.run(*bases, plain ? free.before() - without : 0,
             fits ? plain->seconds : std::nullopt);
  if (fits && (!fitter.best || *plain->seconds <= fitter.best->seconds))
    return {};
  if (!fitter.best)
    return tl::unexpected(tooLarge(fitter, limit, without));
  const RecomputeFitter::Outcome &found = *fitter.best;
  options.recompute = PlanRecompute{
      found.choice.nodes, static_cast<double>(found.choice.time) * 1e-12,
      without > limit ? without - found.form.bytes : free.before() - found.choice.peak};
  options.lowerBoundSeconds = free.lowerBoundSeconds;
  notes.push_back(
      recomputeText(found.choice, free.seconds) + "; a rank needs " +
      std::to_string(found.form.bytes) + " bytes" +
      (without > 0 ? " instead of " + std::to_string(without) : "") + ", the limit is " +
      std::to_string(limit) +
      (fits ? "; without recompute a step would take " + durationText(*plain->seconds)
            : ""));
  return {};
}
