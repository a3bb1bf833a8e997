//===- Plan.cpp - Everything that was decided, as a file ------------------===//
#include "partita/Base/Bundle/Plan.h"

#include "partita/Base/Files/Json.h"
#include "partita/Base/Files/JsonWriter.h"
#include "partita/Base/Units.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>

using namespace partita;

static constexpr std::pair<const char *, int64_t PlanMemory::*> memoryFields[] = {
    {"arena", &PlanMemory::arena},
    {"weights", &PlanMemory::weights},
    {"packed", &PlanMemory::packed},
    {"inputs", &PlanMemory::inputs},
    {"outputs", &PlanMemory::outputs},
    {"rank", &PlanMemory::rank},
    {"process", &PlanMemory::process},
    {"transport", &PlanMemory::transport},
    {"states", &PlanMemory::states},
    {"regions", &PlanMemory::regions},
    {"state_writes", &PlanMemory::stateWrites},
    {"state_moves", &PlanMemory::stateMoves},
};
/// Newer than the others.
static bool mayLack(int64_t PlanMemory::*field) {
  return field == &PlanMemory::transport || field == &PlanMemory::states ||
         field == &PlanMemory::regions || field == &PlanMemory::stateWrites ||
         field == &PlanMemory::stateMoves;
}

std::string partita::layerClass(const std::string &name) {
  auto isDigit = [](unsigned char c) { return std::isdigit(c) != 0; };
  auto begin = std::find_if(name.begin(), name.end(), isDigit);
  auto end = std::find_if_not(begin, name.end(), isDigit);
  return begin == end
             ? name
             : std::string(name.begin(), begin) + "*" + std::string(end, name.end());
}

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
    if (!tensor.state.empty())
      out.member("state", std::string_view(tensor.state));
    if (!tensor.sizes.empty())
      out.member("sizes", std::span<const std::string>(tensor.sizes));
    out.endObject();
  }
  out.endArray();
}

/// An op, and which one of those with its name and kind it is.
using Occurrence = std::pair<const std::string *, int64_t>;

static void writeNodes(JsonWriter &out, const std::vector<PlanNode> &nodes) {
  std::map<std::tuple<std::string_view, std::string_view, std::vector<std::string>>,
           size_t>
      numbers;
  std::map<std::pair<std::string_view, std::string_view>, int64_t> seen;
  std::vector<std::pair<const PlanNode *, std::vector<Occurrence>>> groups;
  for (const PlanNode &node : nodes) {
    auto [it, added] =
        numbers.try_emplace({node.op, node.strategy, node.served}, groups.size());
    if (added)
      groups.push_back({&node, {}});
    groups[it->second].second.push_back({&node.name, ++seen[{node.name, node.op}]});
  }
  out.key("nodes");
  out.beginArray();
  for (const auto &[node, names] : groups) {
    out.beginObject();
    out.member("op", std::string_view(node->op));
    out.member("strategy", std::string_view(node->strategy));
    if (!node->served.empty())
      out.member("served", std::span(node->served));
    out.key("names");
    out.beginArray();
    for (auto [name, occurrence] : names) {
      if (occurrence > 1)
        out.beginArray();
      out.value(std::string_view(*name));
      if (occurrence > 1) {
        out.value(occurrence);
        out.endArray();
      }
    }
    out.endArray();
    out.endObject();
  }
  out.endArray();
}

PlanCommunication
partita::communicationOf(const std::vector<PlanCollective> &collectives) {
  PlanCommunication all;
  for (const PlanCollective &c : collectives) {
    all.collectives += c.times;
    all.receivedBytes += c.bytes * c.times;
  }
  return all;
}

static void writeCollectives(JsonWriter &out,
                             const std::vector<PlanCollective> &collectives) {
  std::map<std::tuple<std::string_view, std::string_view, int64_t, int64_t>, size_t>
      numbers;
  std::vector<std::pair<const PlanCollective *, std::vector<std::string>>> groups;
  for (const PlanCollective &c : collectives) {
    auto [it, added] =
        numbers.try_emplace({c.op, c.axes, c.bytes, c.times}, groups.size());
    if (added)
      groups.push_back({&c, {}});
    groups[it->second].second.push_back(c.node);
  }
  out.key("collectives");
  out.beginArray();
  for (const auto &[c, nodes] : groups) {
    out.beginObject();
    out.member("op", std::string_view(c->op));
    out.member("axes", std::string_view(c->axes));
    out.member("bytes", c->bytes);
    if (c->times != 1)
      out.member("times", c->times);
    out.member("nodes", std::span(nodes));
    out.endObject();
  }
  out.endArray();
}

static void writeWork(JsonWriter &out, const PlanWork &work) {
  out.key("work");
  out.beginObject();
  out.member("operations", work.total);
  out.member("most_per_rank", work.mostPerRank);
  out.member("mean_per_rank", work.meanPerRank);
  out.member("duplicated", work.duplicated);
  out.key("axes");
  out.beginArray();
  for (const PlanWork::Axis &axis : work.axes) {
    out.beginObject();
    out.member("name", std::string_view(axis.name));
    out.member("unused", axis.unused);
    out.member("only_padding", axis.onlyPadding);
    out.endObject();
  }
  out.endArray();
  out.endObject();
}

static void writePeak(JsonWriter &out, const PlanPeak &peak) {
  if (peak.kinds.empty())
    return;
  out.key("peak");
  out.beginObject();
  out.member("node", std::string_view(peak.node));
  out.key("kinds");
  out.beginObject();
  for (const auto &[kind, bytes] : peak.kinds)
    out.member(kind, bytes);
  out.endObject();
  out.key("largest");
  out.beginArray();
  for (const PlanPeak::Value &value : peak.largest) {
    out.beginObject();
    out.member("node", std::string_view(value.node));
    out.member("kind", std::string_view(value.kind));
    out.member("bytes", value.bytes);
    out.member("count", value.count);
    out.endObject();
  }
  out.endArray();
  out.endObject();
}

void partita::writeMemory(JsonWriter &out, const PlanMemory &memory) {
  out.key("memory");
  out.beginObject();
  for (const auto &[name, field] : memoryFields)
    out.member(name, memory.*field);
  writePeak(out, memory.peak);
  out.endObject();
}

static void writeFunctions(JsonWriter &out, const std::vector<PlanFunction> &functions) {
  if (functions.empty())
    return;
  out.key("functions");
  out.beginArray();
  for (const PlanFunction &function : functions) {
    out.beginObject();
    out.member("name", std::string_view(function.name));
    out.member("arguments", std::span<const std::string>(function.arguments));
    out.member("results", std::span<const std::string>(function.results));
    out.endObject();
  }
  out.endArray();
}

static void writeStage(JsonWriter &out, const PlanStage &stage) {
  out.beginObject();
  out.member("mesh", std::string_view(stage.mesh));
  if (!stage.name.empty())
    out.member("name", std::string_view(stage.name));
  if (!stage.ranks.empty())
    out.member("ranks", std::span(stage.ranks));
  writeTensors(out, "arguments", stage.arguments);
  writeTensors(out, "results", stage.results);
  writeFunctions(out, stage.functions);
  writeNodes(out, stage.nodes);
  writeCollectives(out, stage.collectives);
  if (stage.work)
    writeWork(out, *stage.work);
  if (stage.memory)
    writeMemory(out, *stage.memory);
  out.endObject();
}

std::string partita::nameOf(const Plan &plan) {
  std::string name = plan.stages.empty() ? "" : plan.stages[0].name;
  for (const PlanStage &stage : plan.stages)
    if (stage.name != name)
      name.clear();
  if (plan.stages.size() < 2)
    return name;
  return "PP" + std::to_string(plan.stages.size()) + (name.empty() ? "" : "·" + name);
}

std::string partita::ratesText(const PlanCertificate::Rates &rates) {
  if (rates.flopsPerDevice <= 0)
    return "";
  std::string text =
      formatted("%.3g TFLOP/s per device, %.1f%% of its peak (MFU, by model FLOPs)",
                rates.flopsPerDevice * 1e-12, 100 * rates.utilization);
  if (rates.tokens > 0)
    text += formatted(", %.4g tokens/s", rates.tokens);
  else if (rates.samples > 0)
    text += formatted(", %.4g samples/s", rates.samples);
  return text;
}

void partita::writeRates(JsonWriter &out, const PlanCertificate::Rates &rates) {
  for (auto [name, rate] :
       {std::pair("flops_per_second_per_device", rates.flopsPerDevice),
        std::pair("model_flops_utilization", rates.utilization),
        std::pair("samples_per_second", rates.samples),
        std::pair("tokens_per_second", rates.tokens)})
    if (rate > 0)
      out.member(name, rate);
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
  if (const auto &reserve = certificate.memoryReserve) {
    out.key("memory_reserve");
    out.beginObject();
    out.member("context", reserve->context);
    out.member("communicators", reserve->communicators);
    out.member("fragmentation", reserve->fragmentation);
    out.endObject();
  }
  out.member("communication_bytes", certificate.communicationBytes);
  writeRates(out, certificate.rates);
  if (certificate.overlapped) {
    out.member("overlapped_seconds", certificate.overlapped->seconds);
    out.member("overlapped_lower_bound_seconds",
               certificate.overlapped->lowerBoundSeconds);
  }
  if (certificate.searchSeconds)
    out.member("search_seconds", *certificate.searchSeconds);
  out.endObject();
}

static void writeRecompute(JsonWriter &out, const PlanRecompute &recompute) {
  out.key("recompute");
  out.beginObject();
  out.key("nodes");
  out.beginArray();
  for (const std::vector<std::string> &stretch : recompute.nodes) {
    out.beginArray();
    for (const std::string &name : stretch)
      out.value(std::string_view(name));
    out.endArray();
  }
  out.endArray();
  if (recompute.exactly)
    out.member("exactly", true);
  out.member("seconds", recompute.seconds);
  out.member("saved_bytes", recompute.savedBytes);
  out.endObject();
}

std::string Plan::json() const {
  JsonWriter out(JsonWriter::Style::Lines);
  out.beginObject();
  out.member("format", planFormat);
  out.member("model", std::string_view(model));
  if (!modelRelative.empty())
    out.member("model_relative", std::string_view(modelRelative));
  out.member("shapes", std::span(shapes));
  out.member("constants", std::span(constants));
  if (!states.empty())
    out.member("states", std::span(states));
  if (!train.empty())
    out.member("train", std::string_view(train));
  out.member("mode", std::string_view(mode));
  if (!hints.empty())
    out.member("hints", std::string_view(hints));
  out.member("notes", std::span(notes));
  if (microBatches != 1)
    out.member("micro_batches", microBatches);
  if (round != 1)
    out.member("round", round);
  out.key("stages");
  out.beginArray();
  for (const PlanStage &stage : stages)
    writeStage(out, stage);
  out.endArray();
  if (certificate)
    writeCertificate(out, *certificate);
  if (recompute)
    writeRecompute(out, *recompute);
  if (accumulation)
    out.member("accumulation", *accumulation);
  out.endObject();
  return out.take() + "\n";
}

namespace {
/// Reads one record after the other; the first error stays.
class Reader {
public:
  std::string text(const JsonValue &value, std::string_view key) {
    return member<std::string>(value, key, &JsonValue::asString);
  }
  int64_t integer(const JsonValue &value, std::string_view key) {
    return member<int64_t>(value, key, &JsonValue::asInteger);
  }
  double number(const JsonValue &value, std::string_view key) {
    return member<double>(value, key, &JsonValue::asNumber);
  }
  bool flag(const JsonValue &value, std::string_view key) {
    return member<bool>(value, key, &JsonValue::asBool);
  }
  std::vector<std::string> texts(const JsonValue &value, std::string_view key) {
    return member<std::vector<std::string>>(value, key, &JsonValue::asStrings);
  }
  std::vector<JsonValue> list(const JsonValue &value, std::string_view key) {
    return member<std::vector<JsonValue>>(value, key, &JsonValue::elements);
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
    if (auto reserve = value.at("memory_reserve"))
      result.memoryReserve = {integer(*reserve, "context"),
                              integer(*reserve, "communicators"),
                              integer(*reserve, "fragmentation")};
    for (auto [name, rate] :
         {std::pair("flops_per_second_per_device", &result.rates.flopsPerDevice),
          std::pair("model_flops_utilization", &result.rates.utilization),
          std::pair("samples_per_second", &result.rates.samples),
          std::pair("tokens_per_second", &result.rates.tokens)})
      if (value.has(name))
        *rate = number(value, name);
    result.communicationBytes = integer(value, "communication_bytes");
    if (value.has("overlapped_seconds"))
      result.overlapped = {number(value, "overlapped_seconds"),
                           number(value, "overlapped_lower_bound_seconds")};
    if (value.has("search_seconds"))
      result.searchSeconds = number(value, "search_seconds");
    return result;
  }
  std::vector<PlanTensor> tensors(const JsonValue &value, std::string_view key) {
    std::vector<PlanTensor> result;
    for (const JsonValue &entry : list(value, key))
      result.push_back(
          {text(entry, "name"), text(entry, "layout"),
           entry.has("served") ? text(entry, "served") : "",
           entry.has("state") ? text(entry, "state") : "",
           entry.has("sizes") ? texts(entry, "sizes") : std::vector<std::string>()});
    return result;
  }

  /// "h.0.fc", or ["h.0.fc", 2]: the second of this name.
  std::pair<std::string, int64_t> occurrence(const JsonValue &value) {
    if (!value.isArray()) {
      auto name = value.asString();
      if (name)
        return {*name, 1};
      keep(name.error());
      return {};
    }
    auto parts = value.elements();
    if (!parts || parts->size() != 2) {
      auto name = value.asString(); // says where in the file
      keep(parts ? name.error() : parts.error());
      return {};
    }
    auto name = (*parts)[0].asString();
    auto number = (*parts)[1].asInteger(1, std::numeric_limits<int32_t>::max());
    if (!name || !number) {
      keep(name ? number.error() : name.error());
      return {};
    }
    return {*name, *number};
  }

  std::vector<PlanNode> nodes(const JsonValue &value) {
    // By occurrence, so that those of one name and op are in the order of the program.
    std::map<int64_t, std::vector<PlanNode>> found;
    for (const JsonValue &entry : list(value, "nodes")) {
      PlanNode node{{},
                    text(entry, "op"),
                    text(entry, "strategy"),
                    entry.has("served") ? texts(entry, "served")
                                        : std::vector<std::string>{}};
      for (const JsonValue &name : list(entry, "names")) {
        auto [text, number] = occurrence(name);
        node.name = text;
        found[number].push_back(node);
      }
    }
    std::vector<PlanNode> result;
    for (auto &[number, nodes] : found)
      std::move(nodes.begin(), nodes.end(), std::back_inserter(result));
    return result;
  }

  PlanWork work(const JsonValue &value) {
    PlanWork result{number(value, "operations"),
                    number(value, "most_per_rank"),
                    number(value, "mean_per_rank"),
                    number(value, "duplicated"),
                    {}};
    for (const JsonValue &axis : list(value, "axes"))
      result.axes.push_back(
          {text(axis, "name"), number(axis, "unused"), number(axis, "only_padding")});
    return result;
  }

  PlanRecompute recompute(const JsonValue &value) {
    PlanRecompute result{
        {}, false, number(value, "seconds"), integer(value, "saved_bytes")};
    if (value.has("exactly"))
      result.exactly = flag(value, "exactly");
    for (const JsonValue &stretch : list(value, "nodes")) {
      auto names = stretch.asStrings();
      if (!names) {
        keep(names.error());
        return result;
      }
      result.nodes.push_back(std::move(*names));
    }
    return result;
  }

  PlanPeak peak(const JsonValue &value) {
    PlanPeak result;
    result.node = text(value, "node");
    auto kinds = value.at("kinds");
    auto members = kinds ? kinds->members() : tl::unexpected(kinds.error());
    if (!members) {
      keep(members.error());
      return result;
    }
    for (const auto &[kind, bytes] : *members)
      result.kinds.emplace_back(kind, integer(*kinds, kind));
    for (const JsonValue &entry : list(value, "largest"))
      result.largest.push_back({text(entry, "node"), text(entry, "kind"),
                                integer(entry, "bytes"), integer(entry, "count")});
    return result;
  }

  PlanStage stage(const JsonValue &value) {
    PlanStage result;
    result.mesh = text(value, "mesh");
    if (value.has("name"))
      result.name = text(value, "name");
    if (value.has("ranks"))
      result.ranks = member<std::vector<int64_t>>(value, "ranks", &JsonValue::asIntegers);
    result.arguments = tensors(value, "arguments");
    result.results = tensors(value, "results");
    if (value.has("functions"))
      for (const JsonValue &entry : list(value, "functions"))
        result.functions.push_back(
            {text(entry, "name"), texts(entry, "arguments"), texts(entry, "results")});
    result.nodes = nodes(value);
    for (const JsonValue &entry : list(value, "collectives"))
      for (const std::string &node : texts(entry, "nodes"))
        result.collectives.push_back({text(entry, "op"), text(entry, "axes"), node,
                                      integer(entry, "bytes"),
                                      entry.has("times") ? integer(entry, "times") : 1});
    if (auto work = value.at("work"))
      result.work = this->work(*work);
    if (auto memory = value.at("memory")) {
      result.memory.emplace();
      for (const auto &[name, field] : memoryFields)
        if (!mayLack(field) || memory->at(name))
          (*result.memory).*field = integer(*memory, name);
      if (auto peak = memory->at("peak"))
        result.memory->peak = this->peak(*peak);
    }
    return result;
  }

  /// A member of an object; of one that is absent or of another type, the error is kept.
  template <typename T>
  T member(const JsonValue &value, std::string_view key,
           Expected<T> (JsonValue::*read)() const) {
    auto found = value.at(key);
    auto result = found ? ((*found).*read)() : tl::unexpected(found.error());
    if (result)
      return *result;
    keep(result.error());
    return {};
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
  if (root->has("model_relative"))
    plan.modelRelative = reader.text(*root, "model_relative");
  plan.shapes = reader.texts(*root, "shapes");
  plan.constants = reader.texts(*root, "constants");
  if (root->has("states"))
    plan.states = reader.texts(*root, "states");
  if (root->has("train"))
    plan.train = reader.text(*root, "train");
  plan.mode = reader.text(*root, "mode");
  if (root->has("hints"))
    plan.hints = reader.text(*root, "hints");
  plan.notes = reader.texts(*root, "notes");
  if (root->has("micro_batches"))
    plan.microBatches = reader.integer(*root, "micro_batches");
  if (root->has("round"))
    plan.round = reader.integer(*root, "round");
  for (const JsonValue &stage : reader.list(*root, "stages"))
    plan.stages.push_back(reader.stage(stage));
  if (auto certificate = root->at("certificate"))
    plan.certificate = reader.certificate(*certificate);
  if (auto recompute = root->at("recompute"))
    plan.recompute = reader.recompute(*recompute);
  if (root->has("accumulation"))
    plan.accumulation = reader.integer(*root, "accumulation");
  if (!reader.first.message.empty())
    return tl::unexpected(reader.first);
  if (plan.stages.empty())
    return makeError("'" + path + "' has no stage");
  return plan;
}
