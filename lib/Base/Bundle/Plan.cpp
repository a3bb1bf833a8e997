//===- Plan.cpp - Everything that was decided, as a file ------------------===//
#include "partita/Base/Bundle/Plan.h"

#include "partita/Base/Bundle/PlanRecord.h"
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

std::string partita::layerOf(const std::string &name) {
  auto isDigit = [](unsigned char c) { return std::isdigit(c) != 0; };
  size_t numbered = std::string::npos, last = std::string::npos;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find_first_of("./", begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && std::ranges::all_of(part, isDigit))
      return name.substr(0, end);
    if (numbered == std::string::npos && !part.empty() && isDigit(part.back()))
      numbered = end;
    last = end < name.size() ? end : last;
    begin = end + 1;
  }
  return name.substr(0, numbered != std::string::npos ? numbered : last);
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

std::string partita::nameOf(const PlanEntry &entry) {
  std::string name = entry.stages.empty() ? "" : entry.stages[0].name;
  for (const PlanStage &stage : entry.stages)
    if (stage.name != name)
      name.clear();
  if (entry.stages.size() < 2)
    return name;
  return "PP" + std::to_string(entry.stages.size()) + (name.empty() ? "" : "·" + name);
}

void PlanCertificate::setBound(Bound of) {
  bound = std::move(of);
  gap = stepSeconds <= bound.seconds ? 0 : 1 - bound.seconds / stepSeconds;
  proved = stepSeconds == bound.seconds;
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

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

namespace partita {
namespace {
/// A node's name, and which one of those of its name and kind it is: "h.0.fc" of the
/// first, else ["h.0.fc", 2].
struct Occurrence {
  std::string name;
  int64_t number = 1;
};

/// Ops that are planned alike.
struct NodeGroup {
  std::string op, strategy;
  Phase phase = Phase::Forward;
  bool isRepeated = false;
  std::vector<Occurrence> names;
};

/// Values that are served alike.
struct ValueGroup {
  std::string served;
  std::vector<Occurrence> names;
};

struct CollectiveGroup {
  std::string op, axes;
  int64_t bytes = 0, times = 1;
  std::vector<std::string> nodes;
};

/// An object that has a number by name.
struct Kinds {
  std::vector<std::pair<std::string, int64_t>> bytes;
};
} // namespace

static void writeJson(JsonWriter &out, const Occurrence &it) {
  if (it.number == 1)
    return out.value(std::string_view(it.name));
  out.beginArray();
  out.value(std::string_view(it.name));
  out.value(it.number);
  out.endArray();
}

static Expected<void> readJson(const JsonValue &value, Occurrence &it) {
  auto parts = value.isArray() ? value.elements() : std::vector<JsonValue>{value};
  if (!parts)
    return tl::unexpected(parts.error());
  // Anything but a pair is no name: the error says where in the file.
  bool isPair = value.isArray() && parts->size() == 2;
  auto name = (isPair ? parts->front() : value).asString();
  if (!name)
    return tl::unexpected(name.error());
  it.name = std::move(*name);
  if (!isPair)
    return {};
  auto number = parts->back().asInteger(1, std::numeric_limits<int32_t>::max());
  return number.map([&](int64_t counted) { it.number = counted; });
}

static void writeJson(JsonWriter &out, const Kinds &kinds) {
  out.beginObject();
  for (const auto &[kind, bytes] : kinds.bytes)
    out.member(kind, bytes);
  out.endObject();
}

static Expected<void> readJson(const JsonValue &value, Kinds &kinds) {
  auto members = value.members();
  if (!members)
    return tl::unexpected(members.error());
  for (const auto &[kind, entry] : *members) {
    auto bytes = entry.asInteger();
    if (!bytes)
      return tl::unexpected(bytes.error());
    kinds.bytes.emplace_back(kind, *bytes);
  }
  return {};
}

static std::vector<NodeGroup> grouped(const std::vector<PlanNode> &nodes) {
  std::map<std::tuple<std::string_view, std::string_view, Phase, bool>, size_t> numbers;
  std::map<std::pair<std::string_view, std::string_view>, int64_t> seen;
  std::vector<NodeGroup> groups;
  for (const PlanNode &node : nodes) {
    auto [it, added] = numbers.try_emplace(
        {node.op, node.strategy, node.phase, node.isRepeated}, groups.size());
    if (added)
      groups.push_back({node.op, node.strategy, node.phase, node.isRepeated, {}});
    groups[it->second].names.push_back({node.name, ++seen[{node.name, node.op}]});
  }
  return groups;
}

/// Nodes by occurrence: those of one name and op are in the order of the program.
static std::vector<PlanNode> ungrouped(const std::vector<NodeGroup> &groups) {
  std::map<int64_t, std::vector<PlanNode>> found;
  for (const NodeGroup &group : groups)
    for (const Occurrence &it : group.names)
      found[it.number].push_back(
          {it.name, group.op, group.strategy, group.phase, group.isRepeated});
  std::vector<PlanNode> result;
  for (auto &[number, nodes] : found)
    std::move(nodes.begin(), nodes.end(), std::back_inserter(result));
  return result;
}

static std::vector<ValueGroup> grouped(const std::vector<PlanValue> &values) {
  std::map<std::string_view, size_t> numbers;
  std::vector<ValueGroup> groups;
  for (const PlanValue &value : values) {
    auto [it, added] = numbers.try_emplace(value.served, groups.size());
    if (added)
      groups.push_back({value.served, {}});
    groups[it->second].names.push_back({value.name, value.number});
  }
  return groups;
}

static std::vector<PlanValue> ungrouped(const std::vector<ValueGroup> &groups) {
  std::vector<PlanValue> result;
  for (const ValueGroup &group : groups)
    for (const Occurrence &it : group.names)
      result.push_back({it.name, it.number, group.served});
  return result;
}

static std::vector<CollectiveGroup>
grouped(const std::vector<PlanCollective> &collectives) {
  std::map<std::tuple<std::string_view, std::string_view, int64_t, int64_t>, size_t>
      numbers;
  std::vector<CollectiveGroup> groups;
  for (const PlanCollective &c : collectives) {
    auto [it, added] =
        numbers.try_emplace({c.op, c.axes, c.bytes, c.times}, groups.size());
    if (added)
      groups.push_back({c.op, c.axes, c.bytes, c.times, {}});
    groups[it->second].nodes.push_back(c.node);
  }
  return groups;
}

static std::vector<PlanCollective> ungrouped(const std::vector<CollectiveGroup> &groups) {
  std::vector<PlanCollective> result;
  for (const CollectiveGroup &group : groups)
    for (const std::string &node : group.nodes)
      result.push_back({group.op, group.axes, node, group.bytes, group.times});
  return result;
}

/// A list that the file has in groups.
template <typename Group, typename Io, typename T>
static void memberInGroups(Io &io, std::string_view key, T &list) {
  std::vector<Group> groups;
  if constexpr (!Io::reads)
    groups = grouped(list);
  io.member(key, groups);
  if constexpr (Io::reads)
    list = ungrouped(groups);
}

template <typename Io> static void visit(Io &io, As<Io, PlanTensor> &it) {
  io.member("name", it.name);
  io.member("layout", it.layout);
  io.optional("state", it.state);
  io.optional("sizes", it.sizes);
}

/// An op of the forward pass says nothing.
template <typename Io> static void visitPhase(Io &io, As<Io, Phase> &phase) {
  std::string text;
  if constexpr (!Io::reads)
    text = name(phase);
  io.optional("phase", text, std::string(name(Phase::Forward)));
  if constexpr (Io::reads) {
    auto known = phaseFromName(text);
    phase = known.value_or(Phase::Forward);
    if (!known)
      io.refuse("phase",
                "\"" + text + "\" is no phase; known: forward, backward, weight, update");
  }
}

template <typename Io> static void visit(Io &io, As<Io, NodeGroup> &it) {
  io.member("op", it.op);
  io.member("strategy", it.strategy);
  visitPhase(io, it.phase);
  io.optional("recompute", it.isRepeated);
  io.member("names", it.names);
}

template <typename Io> static void visit(Io &io, As<Io, ValueGroup> &it) {
  io.member("served", it.served);
  io.member("names", it.names);
}

template <typename Io> static void visit(Io &io, As<Io, CollectiveGroup> &it) {
  io.member("op", it.op);
  io.member("axes", it.axes);
  io.member("bytes", it.bytes);
  io.optional("times", it.times, int64_t(1));
  io.member("nodes", it.nodes);
}

template <typename Io> static void visit(Io &io, As<Io, PlanWork::Axis> &it) {
  io.member("name", it.name);
  io.member("unused", it.unused);
  io.member("only_padding", it.onlyPadding);
}

template <typename Io> static void visit(Io &io, As<Io, PlanWork> &it) {
  io.member("operations", it.total);
  io.member("most_per_rank", it.mostPerRank);
  io.member("mean_per_rank", it.meanPerRank);
  io.member("duplicated", it.duplicated);
  io.member("axes", it.axes);
}

template <typename Io> static void visit(Io &io, As<Io, PlanPeak::Value> &it) {
  io.member("node", it.node);
  io.member("kind", it.kind);
  io.member("bytes", it.bytes);
  io.member("count", it.count);
}

template <typename Io> static void visit(Io &io, As<Io, PlanPeak> &it) {
  io.member("node", it.node);
  Kinds kinds;
  if constexpr (!Io::reads)
    kinds.bytes = it.kinds;
  io.member("kinds", kinds);
  if constexpr (Io::reads)
    it.kinds = std::move(kinds.bytes);
  io.member("largest", it.largest);
}

template <typename Io> static void visit(Io &io, As<Io, PlanMemory> &it) {
  for (const auto &[name, field] : memoryFields)
    if (io.isThere(name, true) || !mayLack(field))
      io.member(name, it.*field);
  if (io.isThere("peak", !it.peak.kinds.empty()))
    io.member("peak", it.peak);
}

template <typename Io> static void visit(Io &io, As<Io, PlanFunction> &it) {
  io.member("name", it.name);
  io.member("arguments", it.arguments);
  io.member("results", it.results);
}

template <typename Io> static void visit(Io &io, As<Io, PlanStage> &it) {
  io.member("mesh", it.mesh);
  io.optional("name", it.name);
  io.optional("ranks", it.ranks);
  io.member("arguments", it.arguments);
  io.member("results", it.results);
  if (io.isThere("functions", !it.functions.empty()))
    io.member("functions", it.functions);
  memberInGroups<NodeGroup>(io, "nodes", it.nodes);
  if (io.isThere("values", !it.values.empty()))
    memberInGroups<ValueGroup>(io, "values", it.values);
  memberInGroups<CollectiveGroup>(io, "collectives", it.collectives);
  io.optional("work", it.work);
  io.optional("memory", it.memory);
}

template <typename Io> static void visit(Io &io, As<Io, PlanEntry> &it) {
  io.optional("name", it.name, std::string("main"));
  io.member("shapes", it.shapes);
  visit(io, static_cast<As<Io, PlanFacts> &>(it));
  io.optional("micro_batches", it.microBatches, int64_t(1));
  io.optional("round", it.round, int64_t(1));
  io.optional("schedule", it.schedule, std::string());
  io.member("stages", it.stages);
  io.optional("certificate", it.certificate);
}

template <typename Io> static void visit(Io &io, As<Io, Plan> &it) {
  int64_t format = planFormat;
  io.member("format", format);
  io.member("model", it.model);
  io.optional("model_relative", it.modelRelative);
  io.optional("other_ranks", it.others);
  io.member("constants", it.constants);
  io.optional("states", it.states);
  io.optional("train", it.train);
  // Format 2 was of one entry, whose members were the plan's.
  if constexpr (Io::reads) {
    it.entries.clear();
    if (format == 2)
      return visit(io, it.entries.emplace_back());
  }
  io.member("entries", it.entries);
}
} // namespace partita

void partita::writeMemory(JsonWriter &out, const PlanMemory &memory) {
  JsonRecordWriter(out).member("memory", memory);
}

void partita::writeRates(JsonWriter &out, const PlanCertificate::Rates &rates) {
  JsonRecordWriter io(out);
  visit(io, rates);
}

std::string Plan::json() const {
  JsonWriter out(JsonWriter::Style::Lines);
  JsonRecordWriter(out).record(*this);
  return out.take() + "\n";
}

Expected<Plan> partita::readAnyPlan(const std::string &path) {
  auto root = readJsonFile(path);
  if (!root)
    return tl::unexpected(root.error());
  auto format = root->at("format").and_then(
      [](const JsonValue &value) { return value.asInteger(); });
  if (!format)
    return tl::unexpected(format.error());
  if (*format != planFormat && *format != 2)
    return makeError("'" + path + "' has plan format " + std::to_string(*format) +
                     "; this version of Partita reads format " +
                     std::to_string(planFormat));
  Plan plan;
  plan.file = path;
  JsonRecordReader reader(*root);
  reader.record(plan);
  if (!reader.first.message.empty())
    return tl::unexpected(reader.first);
  if (plan.entries.empty())
    return makeError("'" + path + "' has no entry");
  for (const PlanEntry &entry : plan.entries)
    if (entry.stages.empty())
      return makeError("'" + path + "' has no stage");
  return plan;
}

Expected<Plan> partita::readPlan(const std::string &path) {
  auto root = readJsonFile(path);
  if (root && root->has("format"))
    if (auto format = root->at("format")->asInteger(); format && *format == 2)
      return makeError("'" + path +
                       "' has plan format 2, which `partita report` alone reads; "
                       "compile the model again");
  return readAnyPlan(path);
}

Expected<Plan> Plan::of(const std::string &name) const {
  auto found = std::ranges::find(entries, name, &PlanEntry::name);
  if (name.empty() || entries.size() == 1)
    found = entries.begin();
  if (found == entries.end()) {
    std::string names;
    for (const PlanEntry &it : entries)
      names += (names.empty() ? "'" : ", '") + it.name + "'";
    return makeError("'" + file + "' has no entry '" + name + "'; it has " + names);
  }
  Plan plan = *this;
  plan.entries = {*found};
  return plan;
}
