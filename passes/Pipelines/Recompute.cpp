//===- Recompute.cpp - Forms of a training step that is compiled ----------===//
#include "passes/Pipelines/Recompute.h"

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Units.h"
#include "partita/Train/Spec.h"
#include "passes/Pipelines/Accumulation.h"
#include "passes/Shard/SearchPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

using namespace mlir;
using namespace partita;
using search::FormedStep, search::FreeStep, search::RecomputeChoice, search::StepFitter,
    search::StepForm;

/// A form, its compile up to L4, and its measure take about a second for GPT-2.
static constexpr search::FitterLimits mostTried{
    .proposals = 8, .between = 4, .rooms = 24, .counts = 2};
/// Work of the solver for each proposal.
static constexpr int64_t mostProposalWork = 400'000;

void partita::takeChoices(Job &job) {
  const std::optional<Plan> &plan = job.request.plan;
  if (!job.request.train)
    return;
  if (plan && !job.feedback.recompute)
    job.feedback.recompute = plan->entry().recompute;
  if (plan && !job.feedback.microBatches)
    job.feedback.microBatches = plan->entry().accumulation;
  if (job.request.evaluates && job.request.cut.microBatches > 1)
    job.feedback.microBatches = job.request.cut.microBatches;
  // An evaluation has the batch of a micro-batch, also where an option cut the step's.
  if (job.request.evaluates && job.feedback.microBatches)
    job.request.train->spec.choosesAccumulation = true;
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

std::optional<PlanRecompute> partita::planRecompute(const RecomputeChoice &choice) {
  if (choice.nodes.empty())
    return std::nullopt;
  PlanRecompute result{{{}}, true, static_cast<double>(choice.time()) * 1e-12, 0};
  for (const RecomputeChoice::Node &node : choice.nodes)
    result.nodes[0].push_back(node.name);
  return result;
}

namespace {
/// A program, and where it is to run.
struct PlannedFlow {
  std::unique_ptr<dist::ProgramFlow> flow;
  std::unique_ptr<const Topology> topology;
  Placement placement; ///< of the two
};

/// Forms of a job's step.
class CompiledForms : public search::FormSource {
public:
  explicit CompiledForms(const Job &job) : job(job), counts(choosesAccumulation(job)) {}

  Expected<FormedStep> formed(const StepForm &form) override;
  Expected<FreeStep> unlimited(int64_t microBatches) override;
  Expected<std::optional<RecomputeChoice>> propose(int64_t microBatches, int64_t bytes,
                                                   search::ProposalSpace space) override;

private:
  /// A program without a limit, and its strategies.
  struct Free {
    PlannedFlow program;
    std::vector<Strategy> strategies;
  };
  Job jobOf(const StepForm &form) const;
  bool isSearched() const {
    return job.request.mode == ShardMode::Auto && job.request.mesh().numRanks() > 1;
  }

  const Job &job;
  const bool counts;
  std::map<int64_t, Free> free; ///< by number of micro-batches
};
} // namespace

Job CompiledForms::jobOf(const StepForm &form) const {
  Job now = job;
  if (counts)
    now.feedback.microBatches = form.microBatches;
  if (auto again = planRecompute(form.recompute))
    now.feedback.recompute = std::move(again);
  return now;
}

Expected<FormedStep> CompiledForms::formed(const StepForm &form) {
  const Job now = jobOf(form).upTo(Level::L4);
  auto made = straightCompiler(now);
  if (auto ok = made->run(); !ok)
    return tl::unexpected(ok.error());
  auto needs = measureProgram(made->compiler(), now.request);
  if (!needs)
    return tl::unexpected(needs.error());
  FormedStep step{needs->bytes, std::nullopt, std::move(needs->memory.peak)};
  if (const auto &certificate = made->compiler().plan.entry().certificate)
    step.seconds = certificate->stepSeconds;
  return step;
}

static Expected<PlannedFlow> flowOf(Compiler &compiler, const Request &request) {
  const Mesh mesh = request.mesh();
  auto target = planTarget(mesh, request.machine);
  if (!target)
    return tl::unexpected(target.error());
  auto topology = std::make_unique<const Topology>(std::move(target->topology));
  auto flow = dist::buildFlow(compiler.module->lookupSymbol<func::FuncOp>("main"), mesh,
                              dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  (*flow)->graph.finalize();
  auto placement = Placement::create((*flow)->graph.mesh, *topology);
  if (!placement)
    return tl::unexpected(placement.error());
  return PlannedFlow{std::move(*flow), std::move(topology), std::move(*placement)};
}

Expected<FreeStep> CompiledForms::unlimited(int64_t microBatches) {
  Job now = jobOf({microBatches}).upTo(Level::L2);
  // Instead of that of a cluster's devices, too.
  now.request.machine = now.request.machine.limitedTo(std::nullopt);
  Compiler compiler(now);
  auto ok = compiler.import().and_then([&] { return compiler.decide(); }).and_then([&] {
    return compiler.recordPlan();
  });
  if (!ok)
    return tl::unexpected(ok.error());
  auto program = flowOf(compiler, now.request);
  if (!program)
    return tl::unexpected(program.error());
  auto function = compiler.module->lookupSymbol<func::FuncOp>("main");
  auto strategies = dist::readStrategies(function, *program->flow);
  if (failed(strategies))
    return makeError("the program has an op without a strategy");
  auto servings = dist::readServings(function, *program->flow, *strategies);
  if (failed(servings))
    return makeError("the plan serves a value in a way that is not known");
  search::Timing timing(program->flow->graph, program->placement);
  const search::Decided plan{std::move(*strategies), std::move(*servings)};
  FreeStep step{search::memoryOf(timing, plan).peak(),
                static_cast<double>(search::evaluate(timing, plan).total()) * 1e-12,
                std::nullopt, compiler.rows};
  if (const auto &certificate = compiler.plan.entry().certificate)
    step.bound = search::boundOf(search::picosOf(certificate->bound.seconds),
                                 certificate->bound.within, certificate->bound.ignores);
  if (step.bound) {
    step.bound->ignores |= search::Bound::Memory;
    step.bound->within |= choosesRecompute(job) ? search::Bound::SameRecompute : 0U;
  }
  free.insert_or_assign(microBatches, Free{std::move(*program), plan.strategies});
  return step;
}

Expected<std::optional<RecomputeChoice>>
CompiledForms::propose(int64_t microBatches, int64_t bytes, search::ProposalSpace space) {
  search::SearchOptions search;
  search.memoryLimit = bytes;
  search.workLimit = mostProposalWork;
  const Free &step = free.at(microBatches);
  search.model.repeatsNecks = space.repeatsNecks;
  search.model.choosesBirths = space.choosesBirths;
  using Of = search::ProposalSpace::Of;
  if (space.of == Of::FreePlan)
    search.model.given = &step.strategies;
  else if (space.of == Of::PlainPlan || !isSearched()) // layouts are given
    return std::nullopt;
  return search::proposeRecompute(step.program.flow->graph, step.program.placement,
                                  search);
}

/// What is needed, what there is, what takes most, and what would do.
static Error tooLarge(const StepFitter &fitter, int64_t limit, bool repeats) {
  if (!fitter.tightest)
    return {fitter.lastError + (fitter.refused.empty() ? "" : "; " + fitter.refused)};
  const StepFitter::Outcome &least = *fitter.tightest;
  const int64_t needed = least.step.bytes;
  auto plain = fitter.without.find(1);
  std::string text =
      "the training step needs " + std::to_string(needed) + " bytes" +
      (fitter.rows && least.form.microBatches > 1
           ? " in " + std::to_string(least.form.microBatches) + " micro-batches"
           : "") +
      (repeats ? " with the most recompute that was found" : "") +
      (plain != fitter.without.end() && (repeats || least.form.microBatches > 1)
           ? ", " + std::to_string(plain->second) + " without"
           : "") +
      "; the limit is " + std::to_string(limit) + "; when '" + least.step.peak.node +
      "' runs there are ";
  std::string list;
  for (const auto &[kind, bytes] : least.step.peak.kinds)
    if (bytes != 0)
      list += (list.empty() ? "" : ", ") + bytesText(bytes) + " of " + kind;
  text += list + "; largest in the arena: ";
  list.clear();
  for (const PlanPeak::Value &value : least.step.peak.largest)
    list += (list.empty() ? "'" : ", '") + value.node + "' " + bytesText(value.bytes) +
            (value.count > 1 ? " in " + std::to_string(value.count) : "");
  return {text + list + "; a memory of " + std::to_string(needed) + " bytes would do" +
          (fitter.refused.empty() ? "" : "; " + fitter.refused)};
}

/// What is to be said of a choice.
static std::string noteOf(const StepFitter &fitter, int64_t limit) {
  const StepFitter::Outcome &found = *fitter.best;
  const RecomputeChoice &again = found.form.recompute;
  std::string text;
  if (fitter.rows)
    text = search::textOf(found.form.microBatches, *fitter.rows) + "; " +
           (fitter.refused.empty() ? "" : fitter.refused + "; ");
  if (!again.nodes.empty())
    text += "recompute: " + textOf(again, fitter.freeSeconds) + "; ";
  text += "a rank needs " + std::to_string(found.step.bytes) + " bytes";
  auto plain = fitter.without.find(found.form.microBatches);
  if (plain != fitter.without.end() && !again.nodes.empty())
    text += " instead of " + std::to_string(plain->second);
  return text + ", the limit is " + std::to_string(limit);
}

/// An error where sums over the program say that nothing fits.
static Expected<void> checkNecessary(const Job &job, int64_t limit) {
  Compiler compiler(job);
  return compiler.import()
      .and_then([&] { return flowOf(compiler, job.request); })
      .and_then([&](const PlannedFlow &it) {
        return search::checkNecessary(it.flow->graph, it.placement, limit,
                                      !choosesAccumulation(job));
      });
}

Expected<void> partita::chooseStep(Job &job, std::vector<std::string> &notes) {
  const int64_t limit = *job.request.machine.memory;
  job.sources->keepsSteps = true;
  const Job given = job;
  if (auto ok = checkNecessary(given, limit); !ok)
    return ok;
  CompiledForms forms(given);
  StepFitter::Wanted wanted{choosesAccumulation(given), choosesRecompute(given), limit};
  wanted.progress = given.progress;
  wanted.most = mostTried;
  StepFitter fitter(forms, wanted);
  if (auto ok = fitter.run(std::nullopt); !ok)
    return tl::unexpected(ok.error());
  if (!fitter.best)
    return tl::unexpected(tooLarge(fitter, limit, wanted.choosesRecompute));
  const StepFitter::Outcome &found = *fitter.best;
  const int64_t count = found.form.microBatches;
  const bool repeats = !found.form.recompute.nodes.empty();
  if (!repeats && !fitter.rows)
    return {};
  if (fitter.bound)
    job.feedback.bound = planBound(*fitter.bound);
  if (fitter.rows)
    job.feedback.microBatches = count;
  if (repeats) {
    auto plain = fitter.without.find(count);
    job.feedback.recompute = planRecompute(found.form.recompute);
    job.feedback.recompute->savedBytes =
        (plain != fitter.without.end() && plain->second > limit
             ? plain->second
             : fitter.withoutLimit.at(count)) -
        found.step.bytes;
  }
  if (count == 1 && !repeats && fitter.refused.empty())
    return {};
  notes.push_back(noteOf(fitter, limit) + (fitter.plainSeconds
                                               ? "; without it a step would take " +
                                                     durationText(*fitter.plainSeconds)
                                               : ""));
  return {};
}
