//===- Report.cpp - A plan for a person to read ---------------------------===//
#include "passes/Pipelines/Report.h"

#include "partita/Base/Bundle/Plan.h"
#include "passes/Pipelines/Compile.h"

#include <filesystem>
#include <map>

using namespace partita;

static std::string cell(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

static std::string memoryText(const PlanMemory &memory) {
  auto line = [](const char *what, int64_t bytes) {
    return "  " + cell(std::to_string(bytes) + " B", 18) + what + "\n";
  };
  return "memory per rank:\n" + line("arena", memory.arena) +
         line("weights as stored", memory.weights) +
         line("weights repacked for engines", memory.packed) +
         (memory.states ? line("states", memory.states) : "") +
         (memory.regions ? line("io and host memory", memory.regions) : "") +
         line("inputs of a request", memory.inputs) +
         line("outputs of a request", memory.outputs) +
         line("in all, a rank that collects the outputs", memory.rank) +
         line("in all, every rank in one process", memory.process);
}

static std::string stageText(const PlanStage &stage, bool inFull) {
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
  text += summaryText(stage.collectives, inFull);
  return stage.memory ? text + memoryText(*stage.memory) : text;
}

Expected<std::string> partita::reportText(const std::string &path, bool inFull) {
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
    text += stageText(stage, inFull);
  return text;
}
