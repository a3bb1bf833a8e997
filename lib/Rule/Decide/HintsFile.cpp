//===- HintsFile.cpp - Reading the hints file -----------------------------===//
#include "partita/Rule/Decide/Hints.h"

#include <algorithm>

using namespace partita;

static constexpr std::string_view modeNames[] = {"auto", "data-parallel", "semi-auto",
                                                 "manual"};

std::string_view partita::name(ShardMode mode) {
  return modeNames[static_cast<int>(mode)];
}

std::optional<ShardMode> partita::shardModeFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(modeNames); ++i)
    if (modeNames[i] == name)
      return static_cast<ShardMode>(i);
  return std::nullopt;
}

static Expected<DimHint> parseGivenBlocks(const JsonValue &json) {
  DimHint hint;
  hint.open = false;
  if (auto ok = json.allowOnly({"blocks", "axes"}); !ok)
    return tl::unexpected(ok.error());
  auto blocks = json.at("blocks")->asIntegers();
  auto axes = json.at("axes");
  auto names = axes ? axes->asStrings() : tl::unexpected(axes.error());
  if (!blocks || !names)
    return tl::unexpected(!blocks ? blocks.error() : names.error());
  if (blocks->empty())
    return json.error("expected one block per shard");
  hint.blocks = *blocks;
  hint.axes = *names;
  return hint;
}

static Expected<DimHint> parseWrittenFactors(const JsonValue &json) {
  DimHint hint;
  hint.open = false;
  if (auto ok = json.allowOnly({"factors", "axes"}); !ok)
    return tl::unexpected(ok.error());
  auto factors = json.at("factors");
  auto axes = json.at("axes");
  if (!factors || !axes)
    return tl::unexpected(!factors ? factors.error() : axes.error());
  auto sizes = factors->asIntegers();
  if (!sizes)
    return tl::unexpected(sizes.error());
  auto lists = axes->elements();
  if (!lists)
    return tl::unexpected(lists.error());
  if (lists->size() != sizes->size() || sizes->empty())
    return json.error("expected one list of axes per factor");
  for (int64_t size : *sizes)
    if (size < 1)
      return factors->error("expected positive factors");
  hint.factors = *sizes;
  for (const JsonValue &list : *lists) {
    auto names = list.asStrings();
    if (!names)
      return tl::unexpected(names.error());
    hint.factorAxes.push_back(*names);
  }
  return hint;
}

static Expected<DimHint> parseDim(const JsonValue &json) {
  DimHint hint;
  hint.open = false;
  if (json.isNull())
    return DimHint{};
  if (json.isObject())
    return json.has("blocks") ? parseGivenBlocks(json) : parseWrittenFactors(json);
  if (json.isString()) {
    hint.axes = {*json.asString()};
    return hint;
  }
  if (json.isArray()) {
    auto names = json.asStrings();
    if (!names)
      return tl::unexpected(names.error());
    hint.axes = *names;
    return hint;
  }
  auto count = json.asInteger(1, int64_t(1) << 31);
  if (!count)
    return tl::unexpected(count.error());
  hint.count = *count == 1 ? 0 : *count;
  return hint;
}

static Expected<TensorHint> parseTensor(const JsonValue &json) {
  if (json.isNull())
    return TensorHint{};
  auto dims = json.elements();
  if (!dims)
    return tl::unexpected(dims.error());
  std::vector<DimHint> result;
  for (const JsonValue &dim : *dims) {
    auto hint = parseDim(dim);
    if (!hint)
      return tl::unexpected(hint.error());
    result.push_back(std::move(*hint));
  }
  return TensorHint(std::move(result));
}

static Expected<std::vector<TensorHint>> parseTensors(const JsonValue &json) {
  auto elements = json.elements();
  if (!elements)
    return tl::unexpected(elements.error());
  std::vector<TensorHint> result;
  for (const JsonValue &element : *elements) {
    auto tensor = parseTensor(element);
    if (!tensor)
      return tl::unexpected(tensor.error());
    result.push_back(std::move(*tensor));
  }
  return result;
}

static Expected<NodeHint> parseNode(const std::string &glob, const JsonValue &json) {
  NodeHint hint{glob, {}, {}, 0};
  if (auto ok = json.allowOnly({"in", "out", "priority"}); !ok)
    return tl::unexpected(ok.error());
  for (auto [key, into] : {std::pair("in", &hint.in), std::pair("out", &hint.out)}) {
    if (!json.has(key) || json.at(key)->isNull())
      continue;
    auto tensors = parseTensors(*json.at(key));
    if (!tensors)
      return tl::unexpected(tensors.error());
    *into = std::move(*tensors);
  }
  if (json.has("priority")) {
    auto priority = json.at("priority")->asInteger(0, NodeHint::lastPriority);
    if (!priority)
      return tl::unexpected(priority.error());
    hint.priority = static_cast<int>(*priority);
  }
  return hint;
}

static Expected<DatasetHint> parseDataset(const std::string &glob,
                                          const JsonValue &json) {
  DatasetHint hint{glob};
  if (json.isString()) {
    std::string text = *json.asString();
    if (text != "full_batch" && text != "data_parallel")
      return json.error("expected \"full_batch\", \"data_parallel\" or a list of axes "
                        "per dim, got \"" +
                        text + "\"");
    hint.kind = text == "full_batch" ? DatasetHint::FullBatch : DatasetHint::DataParallel;
    return hint;
  }
  auto tensor = parseTensor(json);
  if (!tensor)
    return tl::unexpected(tensor.error());
  for (const DimHint &dim : tensor->value_or(std::vector<DimHint>())) {
    if (dim.count > 0 || !dim.factors.empty() || !dim.blocks.empty())
      return json.error("expected axes for each dim, or null: where data lie is said by "
                        "axes, not by counts");
    hint.dims.push_back(dim.axes);
  }
  return hint;
}

/// By stage its group of ranks; every number up to the largest is there.
static Expected<std::vector<int64_t>> parseGroups(const JsonValue &json) {
  auto elements = json.elements();
  if (!elements)
    return tl::unexpected(elements.error());
  std::vector<int64_t> groups;
  for (const JsonValue &element : *elements) {
    auto group = element.asInteger(0, 1023);
    if (!group)
      return tl::unexpected(group.error());
    groups.push_back(*group);
  }
  int64_t most = groups.empty() ? -1 : *std::ranges::max_element(groups);
  for (int64_t group = 0; group < most; ++group)
    if (std::ranges::find(groups, group) == groups.end())
      return json.error("no stage is in group " + std::to_string(group) +
                        ", and one is in group " + std::to_string(most));
  return groups;
}

Expected<Hints> Hints::parse(const JsonValue &json) {
  Hints hints;
  hints.file = json.where();
  if (auto ok = json.allowOnly(
          {"nodes", "tensors", "subgraphs", "stages", "groups", "kept", "dataset"});
      !ok)
    return tl::unexpected(ok.error());
  if (json.has("nodes")) {
    auto members = json.at("nodes")->members();
    if (!members)
      return tl::unexpected(members.error());
    for (const auto &[glob, value] : *members) {
      auto node = parseNode(glob, value);
      if (!node)
        return tl::unexpected(node.error());
      hints.nodes.push_back(std::move(*node));
    }
  }
  if (json.has("tensors")) {
    auto members = json.at("tensors")->members();
    if (!members)
      return tl::unexpected(members.error());
    for (const auto &[glob, value] : *members) {
      auto tensor = parseTensor(value);
      if (!tensor)
        return tl::unexpected(tensor.error());
      hints.tensors.push_back({glob, std::move(*tensor), 0});
    }
  }
  if (json.has("subgraphs")) {
    auto members = json.at("subgraphs")->members();
    if (!members)
      return tl::unexpected(members.error());
    for (const auto &[glob, value] : *members) {
      auto text = value.asString();
      if (!text)
        return tl::unexpected(text.error());
      auto mode = shardModeFromName(*text);
      if (!mode || *mode == ShardMode::Auto)
        return value.error("expected \"data-parallel\", \"semi-auto\" or \"manual\", got "
                           "\"" +
                           *text + "\"");
      hints.subgraphs.push_back({glob, *mode});
    }
  }
  if (json.has("stages")) {
    auto members = json.at("stages")->members();
    if (!members)
      return tl::unexpected(members.error());
    for (const auto &[glob, value] : *members) {
      auto stage = value.asInteger(0, 1023);
      if (!stage)
        return tl::unexpected(stage.error());
      hints.stages.push_back({glob, static_cast<int32_t>(*stage)});
    }
  }
  if (json.has("groups")) {
    auto groups = parseGroups(*json.at("groups"));
    if (!groups)
      return tl::unexpected(groups.error());
    hints.groups = std::move(*groups);
  }
  if (json.has("dataset")) {
    auto members = json.at("dataset")->members();
    if (!members)
      return tl::unexpected(members.error());
    for (const auto &[glob, value] : *members) {
      auto hint = parseDataset(glob, value);
      if (!hint)
        return tl::unexpected(hint.error());
      hints.dataset.push_back(std::move(*hint));
    }
  }
  if (json.has("kept")) {
    auto members = json.at("kept")->members();
    if (!members)
      return tl::unexpected(members.error());
    for (const auto &[glob, value] : *members) {
      auto axes = value.isString() ? value.asString().map([](const std::string &axis) {
        return std::vector<std::string>{axis};
      })
                                   : value.asStrings();
      if (!axes)
        return tl::unexpected(axes.error());
      hints.kept.push_back({glob, std::move(*axes)});
    }
  }
  return hints;
}
