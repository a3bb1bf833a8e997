//===- Recompute.cpp - Training steps that fit into memory ----------------===//
#include "passes/Pipelines/Recompute.h"

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Units.h"
#include "partita/Train/Spec.h"
#include "passes/Shard/SearchPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <limits>
#include <map>

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
RecomputeChoices::create(const CompileOptions &given, const Progress &progress) {
  auto made = std::make_unique<RecomputeChoices>();
  made->options = given;
  made->options.memory = "1048576GiB"; // of a cluster's devices, too
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

namespace {
/// What one choice comes to.
struct Outcome {
  RecomputeChoice choice;
  ProgramNeeds needs;
  int64_t needed() const { return needs.bytes; }
};

class Fitter {
public:
  Fitter(const CompileOptions &options, int64_t limit, const Progress &progress)
      : options(options), limit(limit), progress(progress) {}

  /// What the program takes with a choice, or without.
  Expected<ProgramNeeds> measure(const RecomputeChoice *choice) {
    CompileOptions now = options;
    now.to = Level::L4;
    now.dumpDir = now.hintsOutput = now.explain = "";
    if (choice)
      now.recompute = PlanRecompute{choice->nodes, 0, 0};
    auto made = straightCompiler(now, progress);
    if (auto ok = made->run(); !ok)
      return tl::unexpected(ok.error());
    return measureProgram(made->compiler(), now);
  }

  /// The cheapest choice that fits; absent: none does, and `tightest` is what needs
  /// least.
  /// A step without recompute was expected to need `offset` bytes more than it does.
  Expected<std::optional<Outcome>> run(const RecomputeChoices &choices, int64_t offset) {
    // Choices for `fits` fit, those for `exceeds` do not.
    constexpr int64_t unknown = std::numeric_limits<int64_t>::max();
    int64_t room = limit + offset, exceeds = unknown, fits = 0;
    for (int measured = 0, tries = 0; measured < mostMeasured && tries < mostTries;
         ++tries) {
      auto choice = choices.choose(room);
      if (!choice && !best) // what was expected to need more may need less
        choice = choices.choose(room = choices.least());
      if (!choice)
        break;
      auto [known, added] = excessOf.try_emplace(choice->nodes, 0);
      if (added) {
        ++measured;
        progress("trying " + recomputeText(*choice, choices.seconds));
        known->second = excess(*choice);
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
    return best;
  }

  std::optional<Outcome> tightest;
  std::string lastError;

private:
  /// Bytes that the program with a choice needs beyond the limit.
  int64_t excess(const RecomputeChoice &choice) {
    auto needs = measure(&choice);
    if (!needs) { // no plan of the search fits
      lastError = needs.error().message;
      return std::max<int64_t>(1, limit / 32);
    }
    Outcome outcome{choice, *needs};
    if (!tightest || outcome.needed() < tightest->needed())
      tightest = outcome;
    bool isBetter = !best || choice.time < best->choice.time;
    if (outcome.needed() <= limit && isBetter)
      best = outcome;
    return outcome.needed() - limit;
  }

  std::optional<Outcome> best;
  /// Of what was measured.
  std::map<std::vector<std::vector<std::string>>, int64_t> excessOf;
  const CompileOptions &options;
  int64_t limit;
  const Progress &progress;
};
} // namespace

/// What is needed, what there is, what takes most, and what would do.
static Error tooLarge(const Fitter &fitter, int64_t limit, int64_t without) {
  if (!fitter.tightest)
    return {fitter.lastError};
  const Outcome &least = *fitter.tightest;
  std::string text = "the training step needs " + std::to_string(least.needed()) +
                     " bytes with the most recompute that was found" +
                     (without > 0 ? ", " + std::to_string(without) + " without" : "") +
                     "; the limit is " + std::to_string(limit) + "; when '" +
                     least.needs.peak.node + "' runs there are ";
  std::string list;
  for (const auto &[kind, bytes] : least.needs.peak.kinds)
    if (bytes != 0)
      list += (list.empty() ? "" : ", ") + bytesText(bytes) + " of " + kind;
  text += list + "; largest in the arena: ";
  list.clear();
  for (const PlanPeak::Value &value : least.needs.peak.largest)
    list += (list.empty() ? "'" : ", '") + value.node + "' " + bytesText(value.bytes) +
            (value.count > 1 ? " in " + std::to_string(value.count) : "");
  return {text + list + "; a memory of " + std::to_string(least.needed()) +
          " bytes would do"};
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
  Fitter fitter(options, limit, progress);
  auto plain = fitter.measure(nullptr);
  int64_t without = plain ? plain->bytes : 0;
  if (plain && without <= limit)
    return {};
  progress("choosing what is computed again");
  auto choices = RecomputeChoices::create(options, progress);
  if (!choices) // what is wrong with the step is said without a limit, too
    return tl::unexpected(choices.error());
  auto best = fitter.run(**choices, plain ? (*choices)->before() - without : 0);
  if (!best)
    return tl::unexpected(best.error());
  if (!*best)
    return tl::unexpected(tooLarge(fitter, limit, without));
  const Outcome &found = **best;
  options.recompute = PlanRecompute{
      found.choice.nodes, static_cast<double>(found.choice.time) * 1e-12,
      without > 0 ? without - found.needed() : (*choices)->before() - found.choice.peak};
  options.lowerBoundSeconds = (*choices)->lowerBoundSeconds;
  notes.push_back(recomputeText(found.choice, (*choices)->seconds) + "; a rank needs " +
                  std::to_string(found.needed()) + " bytes" +
                  (without > 0 ? " instead of " + std::to_string(without) : "") +
                  ", the limit is " + std::to_string(limit));
  return {};
}
