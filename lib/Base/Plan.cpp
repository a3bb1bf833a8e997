//===- Plan.cpp - Everything that was decided, as a file ------------------===//
#include "partita/Base/Plan.h"

#include "partita/Base/Json.h"

#include <nlohmann/json.hpp>

using namespace partita;
using nlohmann::ordered_json;

static ordered_json tensorsJson(const std::vector<PlanTensor> &tensors) {
  ordered_json list = ordered_json::array();
  for (const PlanTensor &tensor : tensors)
    list.push_back({{"name", tensor.name}, {"layout", tensor.layout}});
  return list;
}

std::string Plan::json() const {
  ordered_json stageList = ordered_json::array();
  for (const PlanStage &stage : stages) {
    ordered_json nodes = ordered_json::array(), collectives = ordered_json::array();
    for (const PlanNode &node : stage.nodes)
      nodes.push_back(
          {{"name", node.name}, {"op", node.op}, {"strategy", node.strategy}});
    for (const PlanCollective &c : stage.collectives)
      collectives.push_back(
          {{"op", c.op}, {"axes", c.axes}, {"node", c.node}, {"bytes", c.bytes}});
    stageList.push_back({{"mesh", stage.mesh},
                         {"arguments", tensorsJson(stage.arguments)},
                         {"results", tensorsJson(stage.results)},
                         {"nodes", nodes},
                         {"collectives", collectives}});
  }
  ordered_json root = {{"format", planFormat}, {"model", model}, {"shapes", shapes},
                       {"mode", mode},         {"notes", notes}, {"stages", stageList}};
  // Node names come from the model and may be no UTF-8.
  return root.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

namespace {
/// Reads one record after the other; the first error stays.
class Reader {
public:
  std::string text(const JsonValue &value, std::string_view key) {
    auto member = value.at(key);
    auto result = member ? member->asString() : tl::unexpected(member.error());
    if (result)
      return *result;
    keep(result.error());
    return {};
  }
  int64_t integer(const JsonValue &value, std::string_view key) {
    auto member = value.at(key);
    auto result = member ? member->asInteger() : tl::unexpected(member.error());
    if (result)
      return *result;
    keep(result.error());
    return 0;
  }
  std::vector<std::string> texts(const JsonValue &value, std::string_view key) {
    auto member = value.at(key);
    auto result = member ? member->asStrings() : tl::unexpected(member.error());
    if (result)
      return *result;
    keep(result.error());
    return {};
  }
  std::vector<JsonValue> list(const JsonValue &value, std::string_view key) {
    auto member = value.at(key);
    auto result = member ? member->elements() : tl::unexpected(member.error());
    if (result)
      return *result;
    keep(result.error());
    return {};
  }

  std::vector<PlanTensor> tensors(const JsonValue &value, std::string_view key) {
    std::vector<PlanTensor> result;
    for (const JsonValue &entry : list(value, key))
      result.push_back({text(entry, "name"), text(entry, "layout")});
    return result;
  }

  PlanStage stage(const JsonValue &value) {
    PlanStage result;
    result.mesh = text(value, "mesh");
    result.arguments = tensors(value, "arguments");
    result.results = tensors(value, "results");
    for (const JsonValue &entry : list(value, "nodes"))
      result.nodes.push_back(
          {text(entry, "name"), text(entry, "op"), text(entry, "strategy")});
    for (const JsonValue &entry : list(value, "collectives"))
      result.collectives.push_back({text(entry, "op"), text(entry, "axes"),
                                    text(entry, "node"), integer(entry, "bytes")});
    return result;
  }

  void keep(const Error &error) {
    if (first.message.empty())
      first = error;
  }
  Error first;
};
} // namespace

Expected<Plan> partita::readPlan(const std::string &path) {
  auto root = readJsonFile(path);
  if (!root)
    return tl::unexpected(root.error());
  Reader reader;
  int64_t format = reader.integer(*root, "format");
  if (reader.first.message.empty() && format != planFormat)
    return makeError("'" + path + "' has plan format " + std::to_string(format) +
                     "; this version of Partita reads format " +
                     std::to_string(planFormat));
  Plan plan;
  plan.model = reader.text(*root, "model");
  plan.shapes = reader.texts(*root, "shapes");
  plan.mode = reader.text(*root, "mode");
  plan.notes = reader.texts(*root, "notes");
  for (const JsonValue &stage : reader.list(*root, "stages"))
    plan.stages.push_back(reader.stage(stage));
  if (!reader.first.message.empty())
    return tl::unexpected(reader.first);
  if (plan.stages.empty())
    return makeError("'" + path + "' has no stage");
  return plan;
}
