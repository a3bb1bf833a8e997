//===- Recompute.cpp - Training steps that fit into memory ----------------===//
#include "passes/Pipelines/Recompute.h"

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Units.h"
#include "partita/Train/Spec.h"
#include "passes/Shard/SearchPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <limits>

using namespace mlir;
using namespace partita;
using search::RecomputeChoice;

/// A choice, its compile up to L4, and its measure take about a second for GPT-2.
static constexpr int mostTries = 10;

Expected<std::optional<int64_t>> partita::memoryLimitOf(const CompileOptions &options) {
  if (options.memory.empty())
    return std::optional<int64_t>();
  auto mesh = Mesh::parse(options.mesh);
  if (!mesh)
    return tl::unexpected(mesh.error());
  auto target = planTarget(*mesh, {options.cluster, options.memory, options.firstDevice});
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
  made->options.memory = std::to_string(std::numeric_limits<int64_t>::max() / 4);
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
  Expected<std::optional<Outcome>> run(const RecomputeChoices &choices) {
    std::optional<Outcome> best;
    std::vector<std::vector<std::vector<std::string>>> seen;
    // Choices for `fits` fit, those for `exceeds` do not.
    int64_t room = limit, exceeds = std::numeric_limits<int64_t>::max(), fits = 0;
    for (int tries = 0; tries < mostTries; ++tries) {
      auto choice = choices.choose(room);
      if (!choice && !best) // what was expected to need more may need less
        choice = choices.choose(room = choices.least());
      if (!choice || std::ranges::find(seen, choice->nodes) != seen.end())
        break;
      seen.push_back(choice->nodes);
      progress("trying " + recomputeText(*choice, choices.seconds));
      auto memory = measure(&*choice);
      int64_t excess = 1;
      if (memory) {
        Outcome outcome{std::move(*choice), *memory};
        excess = outcome.needed() - limit;
        if (!tightest || outcome.needed() < tightest->needed())
          tightest = outcome;
        if (excess <= 0 && (!best || outcome.choice.time < best->choice.time))
          best = std::move(outcome);
      } else {
        lastError = memory.error().message;
        excess = std::max<int64_t>(1, room / 32);
      }
      (excess <= 0 ? fits : exceeds) = room;
      room = fits == 0 ? room - excess
             : exceeds == std::numeric_limits<int64_t>::max()
                 ? room - excess
                 : fits + (exceeds - fits) / 2;
      if (fits > 0 && exceeds - fits < limit / 512)
        break;
    }
    return best;
  }

  std::optional<Outcome> tightest;
  std::string lastError;

private:
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
    list += (list.empty() ? "'" : ", '") + value.node + "' " + bytesText(value.bytes);
  return {text + list + "; a memory of " + std::to_string(least.needed()) +
          " bytes would do"};
}

Expected<void> partita::chooseRecompute(CompileOptions &options,
                                        std::vector<std::string> &notes,
                                        const Progress &progress) {
  auto mesh = Mesh::parse(options.mesh);
  if (!mesh)
    return tl::unexpected(mesh.error());
  auto target = planTarget(*mesh, {options.cluster, options.memory, options.firstDevice});
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
    return plain ? tl::unexpected(choices.error()) : tl::unexpected(plain.error());
  auto best = fitter.run(**choices);
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
