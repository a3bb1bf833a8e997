//===- Plan.cpp - Everything that was decided, as a file ------------------===//
#include "partita/Base/Bundle/Plan.h"

#include "partita/Base/Files/Json.h"
#include "partita/Base/Files/JsonWriter.h"

using namespace partita;

static constexpr std::pair<const char *, int64_t PlanMemory::*> memoryFields[] = {
    {"arena", &PlanMemory::arena},     {"weights", &PlanMemory::weights},
    {"packed", &PlanMemory::packed},   {"inputs", &PlanMemory::inputs},
    {"outputs", &PlanMemory::outputs}, {"rank", &PlanMemory::rank},
    {"process", &PlanMemory::process}, {"transport", &PlanMemory::transport},
};

static void writeTensors(JsonWriter &out, std::string_view key,
                         const std::vector<PlanTensor> &tensors) {
  out.key(key);
  out.beginArray();
  for (const PlanTensor &tensor : tensors) {
    out.beginObject();
    out.member("name", std::string_view(tensor.name));
    out.member("layout", std::string_view(tensor.layout));
    if (!tensor.served.empty())
      out.member("served", std::string_view(tensor.served));
    out.endObject();
  }
  out.endArray();
}

static void writeStage(JsonWriter &out, const PlanStage &stage) {
  out.beginObject();
  out.member("mesh", std::string_view(stage.mesh));
  writeTensors(out, "arguments", stage.arguments);
  writeTensors(out, "results", stage.results);
  out.key("nodes");
  out.beginArray();
  for (const PlanNode &node : stage.nodes) {
    out.beginObject();
    out.member("name", std::string_view(node.name));
    out.member("op", std::string_view(node.op));
    out.member("strategy", std::string_view(node.strategy));
    if (!node.served.empty())
      out.member("served", std::span(node.served));
    out.endObject();
  }
  out.endArray();
  out.key("collectives");
  out.beginArray();
  for (const PlanCollective &c : stage.collectives) {
    out.beginObject();
    out.member("op", std::string_view(c.op));
    out.member("axes", std::string_view(c.axes));
    out.member("node", std::string_view(c.node));
    out.member("bytes", c.bytes);
    out.endObject();
  }
  out.endArray();
  if (stage.memory) {
    out.key("memory");
    out.beginObject();
    for (const auto &[name, field] : memoryFields)
      out.member(name, (*stage.memory).*field);
    out.endObject();
  }
  out.endObject();
}

static void writeCertificate(JsonWriter &out, const PlanCertificate &certificate) {
  out.key("certificate");
  out.beginObject();
  out.member("step_seconds", certificate.stepSeconds);
  out.member("lower_bound_seconds", certificate.lowerBoundSeconds);
  out.member("gap", certificate.gap);
  out.member("proved", certificate.proved);
  out.member("memory_per_device", certificate.memoryPerDevice);
  if (certificate.memoryLimit)
    out.member("memory_limit", *certificate.memoryLimit);
  out.member("communication_bytes", certificate.communicationBytes);
  if (certificate.searchSeconds)
    out.member("search_seconds", *certificate.searchSeconds);
  out.endObject();
}

std::string Plan::json() const {
  JsonWriter out(JsonWriter::Style::Lines);
  out.beginObject();
  out.member("format", planFormat);
  out.member("model", std::string_view(model));
  out.member("shapes", std::span(shapes));
  out.member("constants", std::span(constants));
  out.member("mode", std::string_view(mode));
  out.member("notes", std::span(notes));
  out.key("stages");
  out.beginArray();
  for (const PlanStage &stage : stages)
    writeStage(out, stage);
  out.endArray();
  if (certificate)
    writeCertificate(out, *certificate);
  out.endObject();
  return out.take() + "\n";
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
  double number(const JsonValue &value, std::string_view key) {
    auto member = value.at(key);
    auto result = member ? member->asNumber() : tl::unexpected(member.error());
    if (result)
      return *result;
    keep(result.error());
    return 0;
  }
  bool flag(const JsonValue &value, std::string_view key) {
    auto member = value.at(key);
    auto result = member ? member->asBool() : tl::unexpected(member.error());
    if (result)
      return *result;
    keep(result.error());
    return false;
  }
  PlanCertificate certificate(const JsonValue &value) {
    PlanCertificate result;
    result.stepSeconds = number(value, "step_seconds");
    result.lowerBoundSeconds = number(value, "lower_bound_seconds");
    result.gap = number(value, "gap");
    result.proved = flag(value, "proved");
    result.memoryPerDevice = integer(value, "memory_per_device");
    if (value.has("memory_limit"))
      result.memoryLimit = integer(value, "memory_limit");
    result.communicationBytes = integer(value, "communication_bytes");
    if (value.has("search_seconds"))
      result.searchSeconds = number(value, "search_seconds");
    return result;
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
      result.push_back({text(entry, "name"), text(entry, "layout"),
                        entry.has("served") ? text(entry, "served") : ""});
    return result;
  }

  PlanStage stage(const JsonValue &value) {
    PlanStage result;
    result.mesh = text(value, "mesh");
    result.arguments = tensors(value, "arguments");
    result.results = tensors(value, "results");
    for (const JsonValue &entry : list(value, "nodes"))
      result.nodes.push_back(
          {text(entry, "name"), text(entry, "op"), text(entry, "strategy"),
           entry.has("served") ? texts(entry, "served") : std::vector<std::string>{}});
    for (const JsonValue &entry : list(value, "collectives"))
      result.collectives.push_back({text(entry, "op"), text(entry, "axes"),
                                    text(entry, "node"), integer(entry, "bytes")});
    if (auto memory = value.at("memory")) {
      result.memory.emplace();
      for (const auto &[name, field] : memoryFields)
        if (field != &PlanMemory::transport || memory->at(name)) // newer than the others
          (*result.memory).*field = integer(*memory, name);
    }
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
  plan.constants = reader.texts(*root, "constants");
  plan.mode = reader.text(*root, "mode");
  plan.notes = reader.texts(*root, "notes");
  for (const JsonValue &stage : reader.list(*root, "stages"))
    plan.stages.push_back(reader.stage(stage));
  if (auto certificate = root->at("certificate"))
    plan.certificate = reader.certificate(*certificate);
  if (!reader.first.message.empty())
    return tl::unexpected(reader.first);
  if (plan.stages.empty())
    return makeError("'" + path + "' has no stage");
  return plan;
}
