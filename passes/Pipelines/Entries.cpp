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
  }
  return entries;
}

static bool isEvaluation(const PlanEntry &entry) { return entry.name == evaluationEntry; }

Expected<void> partita::takeEntry(Request &request, const EntryShapes &entry) {
  if (!request.plan || request.plan->entries.size() == 1)
    return {};
  auto &all = request.plan->entries;
  std::vector<PlanEntry> beside;
  std::ranges::copy_if(all, std::back_inserter(beside), isEvaluation);
  std::erase_if(all, isEvaluation);
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

Expected<void> partita::checkEvaluation(const Request &request, size_t entries,
                                        bool isStaged) {
  if (!request.train || !request.train->spec.evaluates)
    return {};
  const std::string asked = "\"evaluate\" of '" + request.train->file + "': ";
  if (isStaged)
    return makeError(asked + "a training step of several stages has no evaluation; leave "
                             "the member out, or compile without stages");
  if (entries > 1)
    return makeError(asked + "a training step of several shapes (--shape makes " +
                     std::to_string(entries) +
                     " entries) has no evaluation; leave the member out, or give each "
                     "name once");
  return {};
}

/// The evaluation beside a step, as a job of its own.
static Job evaluationOf(const Job &step) {
  Job job(step.request, step.progress, step.stop);
  Request &request = job.request;
  request.evaluates = true;
  request.told = {};
  if (!request.levels.dump.empty())
    request.levels.dump += std::string("/") + evaluationEntry;
  job.feedback.microBatches = step.feedback.microBatches;
  if (!request.plan)
    return job;
  std::erase_if(request.plan->entries, std::not_fn(isEvaluation));
  if (request.plan->entries.empty())
    request.plan.reset();
  return job;
}

Expected<void> partita::addEvaluation(const Job &job, Compiler &step) {
  Job own = evaluationOf(job);
  own.feedback.states = step.next.states;
  own.progress("entry " + std::string(evaluationEntry));
  auto made = straightCompiler(own);
  if (auto ok = made->run(); !ok)
    return makeError("entry " + std::string(evaluationEntry) + ": " + ok.error().message);
  Compiler &product = made->compiler();
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
  step.report.notes.push_back(summaryOf(evaluationEntry, product.report));
  for (const std::string &note : product.report.notes)
    step.report.notes.push_back("entry " + std::string(evaluationEntry) + ": " + note);
  return {};
}

Expected<CompileReport> partita::compileEntries(const std::vector<EntryShapes> &entries,
                                                Job job) {
  if (job.request.levels.from > Level::L0)
    return makeError("--from and several entries do not go together: begin with one of "
                     "them");
  auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<EntryCompiler>> made;
  std::vector<NamedCompiler> products;
  auto staged = wantsStages(job.request);
  if (!staged)
    return tl::unexpected(staged.error());
  const std::string dump = job.request.levels.dump;
  const std::optional<Plan> plan = job.request.plan;
  std::vector<std::string> notes;
  for (const EntryShapes &entry : entries) {
    job.request.model.shapes = entry.shapes;
    job.request.plan = plan;
    if (auto ok = takeEntry(job.request, entry); !ok)
      return tl::unexpected(ok.error());
    if (!dump.empty())
      job.request.levels.dump = dump + "/entry" + std::to_string(made.size());
    job.beginSources();
    made.push_back(*staged ? stageCompiler(job) : straightCompiler(job));
    if (auto ok = made.back()->run(); !ok)
      return makeError("entry " + entry.name + ": " + ok.error().message);
    Compiler &product = made.back()->compiler();
    job.feedback.states.insert(product.next.states.begin(), product.next.states.end());
    if (job.feedback.stages.empty())
      job.feedback.stages = product.next.stages;
    notes.push_back(summaryOf(entry.name, product.report));
    for (const std::string &note : product.report.notes)
      notes.push_back("entry " + entry.name + ": " + note);
    products.emplace_back(entry.name, &product);
  }
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
