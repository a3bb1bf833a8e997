//===- Entries.cpp - One bundle for several input shapes ------------------===//
#include "passes/Pipelines/Entries.h"

#include "partita/Base/Bundle/Evaluation.h"
#include "passes/Pipelines/CompileStages.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <set>

using namespace partita;

Expected<std::vector<EntryShapes>>
partita::entriesOf(const std::vector<onnx_model::ShapeBinding> &shapes) {
  // By name, in the order in which names come.
  std::vector<std::pair<std::string, std::vector<onnx_model::ShapeBinding>>> given;
  for (const onnx_model::ShapeBinding &binding : shapes) {
    auto known =
        std::ranges::find_if(given, [&](auto &g) { return g.first == binding.name; });
    if (known == given.end())
      known = given.insert(given.end(), {binding.name, {}});
    known->second.push_back(binding);
  }
  size_t count = 1;
  std::string counted;
  for (const auto &[name, bindings] : given) {
    if (bindings.size() == 1)
      continue;
    if (count != 1 && bindings.size() != count)
      return makeError("--shape is given " + std::to_string(count) + " times for '" +
                       counted + "' and " + std::to_string(bindings.size()) +
                       " times for '" + name +
                       "': each entry needs one of each, or one is for all");
    count = bindings.size();
    counted = name;
  }
  std::vector<EntryShapes> entries(count);
  std::set<std::string> names;
  for (size_t k = 0; k < count; ++k) {
    for (const auto &[name, bindings] : given) {
      entries[k].shapes.push_back(bindings[bindings.size() == 1 ? 0 : k]);
      if (bindings.size() > 1)
        entries[k].name += (entries[k].name.empty() ? "" : " ") + bindings[k].str();
    }
    if (count == 1)
      entries[k].name = "main";
    if (!names.insert(entries[k].name).second)
      return makeError("--shape: two entries are for " + entries[k].name);
    if (isEvaluation(entries[k].name))
      return makeError("--shape: an entry named '" + entries[k].name +
                       "' would be one that evaluates; give the size another name");
  }
  return entries;
}

static bool evaluates(const PlanEntry &entry) { return isEvaluation(entry.name); }

Expected<void> partita::takeEntry(Request &request, const EntryShapes &entry) {
  if (!request.plan || request.plan->entries.size() == 1)
    return {};
  auto &all = request.plan->entries;
  std::vector<PlanEntry> beside;
  std::ranges::copy_if(all, std::back_inserter(beside), evaluates);
  std::erase_if(all, evaluates);
  std::vector<std::string> shapes;
  for (const onnx_model::ShapeBinding &binding : entry.shapes)
    shapes.push_back(binding.str());
  auto own = std::ranges::find(all, shapes, &PlanEntry::shapes);
  if (own != all.end()) {
    all = {PlanEntry(*own)};
  } else {
    auto found = request.plan->of(entry.name);
    if (!found)
      return tl::unexpected(found.error());
    request.plan = std::move(*found);
  }
  std::ranges::move(beside, std::back_inserter(request.plan->entries));
  return {};
}

/// What one entry's compile did, beside the others'.
static std::string summaryOf(const std::string &name, const CompileReport &report) {
  PlanCommunication all = communicationOf(report.collectives);
  return "entry " + name + ": " + std::to_string(report.numOps) + " ops, " +
         std::to_string(all.collectives) + " collectives, " +
         std::to_string(all.receivedBytes) + " B received per rank";
}

/// The evaluation beside the entry of a step, as a job of its own: by the plan of the
/// entry that evaluates beside it, or by the only one that a plan has. `made`: what the
/// compile of the step found.
static Job evaluationOf(const Job &step, const std::string &name, const Feedback &made) {
  Job job(step.request, step.progress, step.stop);
  Request &request = job.request;
  request.evaluates = true;
  request.told = {};
  if (!request.levels.dump.empty())
    request.levels.dump += std::string("/") + evaluationEntry;
  job.feedback.microBatches = step.feedback.microBatches;
  job.feedback.states = made.states;
  if (!made.groups.empty()) {
    request.cut = {};
    job.feedback.microBatches = made.microBatches;
    request.train->spec.choosesAccumulation = made.microBatches.has_value();
    job.feedback.stages = made.stages;
    job.feedback.groups = made.groups;
    job.feedback.meshes = made.meshes;
  }
  if (!request.plan)
    return job;
  auto &known = request.plan->entries;
  std::erase_if(known, std::not_fn(evaluates));
  if (known.size() > 1)
    std::erase_if(known, [&](const PlanEntry &it) { return it.name != name; });
  if (known.empty())
    request.plan.reset();
  return job;
}

/// Compiles what evaluates beside the entry of a step that has come as far as it is to.
static Expected<std::unique_ptr<EntryCompiler>> compileEvaluation(const Job &job,
                                                                  const std::string &name,
                                                                  const Feedback &step,
                                                                  bool isStaged) {
  Job own = evaluationOf(job, name, step);
  own.progress("entry " + name);
  auto made = isStaged ? stageCompiler(own) : straightCompiler(own);
  if (auto ok = made->run(); !ok)
    return makeError("entry " + name + ": " + ok.error().message);
  return made;
}

/// Adds to the notes of a bundle what the compile of an entry of it did.
static void addNotes(std::vector<std::string> &notes, const std::string &name,
                     const CompileReport &report) {
  notes.push_back(summaryOf(name, report));
  for (const std::string &note : report.notes)
    notes.push_back("entry " + name + ": " + note);
}

Expected<void> partita::addEvaluation(const Job &job, Compiler &step, bool isStaged) {
  auto made = compileEvaluation(job, evaluationEntry, step.next, isStaged);
  if (!made)
    return tl::unexpected(made.error());
  Compiler &product = (*made)->compiler();
  if (job.request.levels.to == Level::L5) {
    job.progress("generating code");
    auto start = std::chrono::steady_clock::now();
    auto ok = emitEntries({{"main", &step}, {evaluationEntry, &product}}, job.request);
    if (!ok)
      return ok;
    // States and weights are those of both, whichever entry has the larger arena.
    CompileReport &report = step.report;
    report.neededBytes =
        report.arenaBytes + report.weightBytesPerRank + report.stateBytes;
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    step.report.stages.emplace_back("code", took.count());
  }
  addNotes(step.report.notes, evaluationEntry, product.report);
  return {};
}

namespace {
/// The entries of one bundle, compiled one after the other.
class Entries {
public:
  explicit Entries(Job job)
      : job(std::move(job)), dump(this->job.request.levels.dump),
        plan(this->job.request.plan),
        evaluates(this->job.request.train && this->job.request.train->spec.evaluates) {}

  Expected<CompileReport> compile(const std::vector<EntryShapes> &entries) {
    auto begin = std::chrono::steady_clock::now();
    auto staged = wantsStages(job.request);
    if (!staged)
      return tl::unexpected(staged.error());
    for (const EntryShapes &entry : entries)
      if (auto ok = add(entry, *staged); !ok)
        return tl::unexpected(ok.error());
    // Steps come first: an evaluation is none of them by its place either.
    std::ranges::move(beside, std::back_inserter(products));
    std::vector<std::string> notes;
    for (const auto &[name, product] : products)
      addNotes(notes, name, product->report);
    job.request.levels.dump = dump;
    if (job.request.levels.to >= Level::L5) {
      job.progress("generating code");
      if (auto ok = emitEntries(products, job.request); !ok)
        return tl::unexpected(ok.error());
    }
    CompileReport &report = products.front().second->report;
    report.notes = std::move(notes);
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(report);
  }

private:
  Expected<void> add(const EntryShapes &entry, bool isStaged) {
    job.request.model.shapes = entry.shapes;
    job.request.plan = plan;
    if (auto ok = takeEntry(job.request, entry); !ok)
      return ok;
    if (!dump.empty())
      job.request.levels.dump = dump + "/entry" + std::to_string(products.size());
    job.beginSources();
    made.push_back(isStaged ? stageCompiler(job) : straightCompiler(job));
    if (auto ok = made.back()->run(); !ok)
      return makeError("entry " + entry.name + ": " + ok.error().message);
    Compiler &product = made.back()->compiler();
    job.feedback.states.insert(product.next.states.begin(), product.next.states.end());
    if (job.feedback.stages.empty())
      job.feedback.stages = product.next.stages;
    products.emplace_back(entry.name, &product);
    return evaluates ? addBeside(entry.name, product.next, isStaged) : Expected<void>();
  }

  Expected<void> addBeside(const std::string &step, const Feedback &found,
                           bool isStaged) {
    const std::string name = evaluationName(step);
    return compileEvaluation(job, name, found, isStaged).map([&](auto own) {
      made.push_back(std::move(own));
      beside.emplace_back(name, &made.back()->compiler());
    });
  }

  Job job;
  const std::string dump;
  const std::optional<Plan> plan;
  const bool evaluates;
  std::vector<std::unique_ptr<EntryCompiler>> made;
  std::vector<NamedCompiler> products;
  std::vector<NamedCompiler> beside; ///< evaluations
};
} // namespace

Expected<CompileReport> partita::compileEntries(const std::vector<EntryShapes> &entries,
                                                Job job) {
  if (job.request.levels.from > Level::L0)
    return makeError("--from and several entries do not go together: begin with one of "
                     "them");
  return Entries(std::move(job)).compile(entries);
}
