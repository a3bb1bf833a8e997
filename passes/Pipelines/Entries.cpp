//===- Entries.cpp - One bundle for several input shapes ------------------===//
#include "passes/Pipelines/Entries.h"

#include "partita/Onnx/Load.h"
#include "passes/Pipelines/CompileStages.h"

#include <algorithm>
#include <chrono>
#include <set>

using namespace partita;

Expected<std::vector<EntryShapes>>
partita::entriesOf(const std::vector<std::string> &shapes) {
  // By name, in the order in which names come.
  std::vector<std::pair<std::string, std::vector<std::string>>> given;
  for (const std::string &text : shapes) {
    auto binding = onnx_model::parseShapeBinding(text);
    if (!binding)
      return tl::unexpected(binding.error());
    auto known =
        std::ranges::find_if(given, [&](auto &g) { return g.first == binding->name; });
    if (known == given.end())
      known = given.insert(given.end(), {binding->name, {}});
    known->second.push_back(text);
  }
  size_t count = 1;
  std::string counted;
  for (const auto &[name, texts] : given) {
    if (texts.size() == 1)
      continue;
    if (count != 1 && texts.size() != count)
      return makeError("--shape is given " + std::to_string(count) + " times for '" +
                       counted + "' and " + std::to_string(texts.size()) +
                       " times for '" + name +
                       "': each entry needs one of each, or one is for all");
    count = texts.size();
    counted = name;
  }
  std::vector<EntryShapes> entries(count);
  std::set<std::string> names;
  for (size_t k = 0; k < count; ++k) {
    for (const auto &[name, texts] : given) {
      entries[k].shapes.push_back(texts[texts.size() == 1 ? 0 : k]);
      if (texts.size() > 1)
        entries[k].name += (entries[k].name.empty() ? "" : " ") + texts[k];
    }
    if (count == 1)
      entries[k].name = "main";
    if (!names.insert(entries[k].name).second)
      return makeError("--shape: two entries are for " + entries[k].name);
  }
  return entries;
}

/// What one entry's compile did, beside the others'.
static std::string summaryOf(const std::string &name, const CompileReport &report) {
  PlanCommunication all = communicationOf(report.collectives);
  return "entry " + name + ": " + std::to_string(report.numOps) + " ops, " +
         std::to_string(all.collectives) + " collectives, " +
         std::to_string(all.receivedBytes) + " B received per rank";
}

Expected<CompileReport> partita::compileEntries(const std::vector<EntryShapes> &entries,
                                                const CompileOptions &options,
                                                const Progress &progress) {
  if (options.from > Level::L0)
    return makeError("--from and several entries do not go together: begin with one of "
                     "them");
  auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<EntryCompiler>> made;
  std::vector<NamedCompiler> products;
  CompileOptions now = options;
  std::vector<std::string> notes;
  for (const EntryShapes &entry : entries) {
    now.shapes = entry.shapes;
    if (!options.dumpDir.empty())
      now.dumpDir = options.dumpDir + "/entry" + std::to_string(made.size());
    auto staged = wantsStages(now);
    if (!staged)
      return tl::unexpected(staged.error());
    made.push_back(*staged ? stageCompiler(now, progress)
                           : straightCompiler(now, progress));
    if (auto ok = made.back()->run(); !ok)
      return makeError("entry " + entry.name + ": " + ok.error().message);
    Compiler &product = made.back()->compiler();
    now.stateLayouts.insert(product.stateLayouts.begin(), product.stateLayouts.end());
    if (now.stageOfNode.empty())
      now.stageOfNode = product.stageOfNode;
    notes.push_back(summaryOf(entry.name, product.report));
    for (const std::string &note : product.report.notes)
      notes.push_back("entry " + entry.name + ": " + note);
    products.emplace_back(entry.name, &product);
  }
  if (options.to >= Level::L5) {
    progress("generating code");
    if (auto ok = emitEntries(products, options); !ok)
      return tl::unexpected(ok.error());
  }
  CompileReport &report = products.front().second->report;
  report.notes = std::move(notes);
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(report);
}
