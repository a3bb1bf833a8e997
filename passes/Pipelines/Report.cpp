//===- Report.cpp - A plan for a person to read ---------------------------===//
#include "passes/Pipelines/Report.h"

#include "partita/Base/Bundle.h"
#include "partita/Base/Plan.h"
#include "passes/Pipelines/Compile.h"

#include <filesystem>
#include <map>

using namespace partita;

static std::string cell(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

static std::string stageText(const PlanStage &stage) {
  std::string text = "mesh " + (stage.mesh.empty() ? "of one rank" : stage.mesh) + "\n";
  for (const PlanTensor &tensor : stage.arguments)
    text += "  input  " + cell(tensor.name, 28) + tensor.layout + "\n";
  for (const PlanTensor &tensor : stage.results)
    text += "  output " + cell(tensor.name, 28) + tensor.layout + "\n";
  // Repeated layers say the same: one line per op and strategy, with its first node.
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, std::string>> groups;
  for (const PlanNode &node : stage.nodes) {
    auto &[count, first] = groups[{node.op, node.strategy}];
    if (count++ == 0)
      first = node.name;
  }
  text += "strategies (one entry per factor):\n";
  for (const auto &[key, group] : groups)
    text += "  " + cell(std::to_string(group.first) + " ×", 7) + cell(key.first, 18) +
            cell(key.second, 44) + "first '" + group.second + "'\n";
  return text + summaryText(stage.collectives);
}

static std::string memoryText(const Bundle &bundle) {
  std::string text;
  for (const BundleEntry &entry : bundle.entries)
    for (const BundleStage &stage : entry.stages)
      text += "memory per rank: " + std::to_string(stage.weightBytes) +
              " B of weights, " + std::to_string(stage.packedBytes) + " B repacked, " +
              std::to_string(stage.arenaBytes) + " B of arena\n";
  return text;
}

Expected<std::string> partita::reportText(const std::string &path) {
  bool isBundle = std::filesystem::is_directory(path);
  if (!isBundle && path.ends_with(".onnx"))
    return makeError("'" + path + "' is a model; expected a bundle or its plan.json (" +
                     "`partita inspect` shows models)");
  auto plan = readPlan(isBundle ? path + "/plan.json" : path);
  if (!plan)
    return tl::unexpected(plan.error());
  std::string text = "model " + plan->model + ", mode " + plan->mode + "\n";
  for (const std::string &note : plan->notes)
    text += "note: " + note + "\n";
  for (const PlanStage &stage : plan->stages)
    text += stageText(stage);
  if (!isBundle)
    return text;
  auto bundle = readBundle(path);
  if (!bundle)
    return tl::unexpected(bundle.error());
  return text + memoryText(*bundle);
}
