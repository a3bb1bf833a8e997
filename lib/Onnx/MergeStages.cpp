//===- MergeStages.cpp - The files of a pipeline's ranks ------------------===//
#include "partita/Onnx/MergeStages.h"

#include "Crossings.h"
#include "partita/Onnx/MergeRanks.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>

using namespace partita;
using namespace partita::onnx_model;

std::string StagePlace::text() const {
  return rankText(rank, ranks) + (isGroup ? " of group " : " of stage ") +
         std::to_string(stage) + " of " + std::to_string(stages);
}

std::optional<StagePlace> StagePlace::parse(const std::string &text) {
  long long rank = 0, ranks = 0, stage = 0, stages = 0;
  for (bool isGroup : {false, true}) {
    const char *format = isGroup ? "rank %lld of %lld of group %lld of %lld"
                                 : "rank %lld of %lld of stage %lld of %lld";
    if (std::sscanf(text.c_str(), format, &rank, &ranks, &stage, &stages) != 4)
      continue;
    StagePlace place{rank, ranks, stage, stages, isGroup};
    if (place.text() == text)
      return place;
  }
  return std::nullopt;
}

std::vector<std::string> onnx_model::linesOf(const Model &model, std::string_view key) {
  std::vector<std::string> lines;
  auto found = model.metadata.find(std::string(key));
  std::string_view rest;
  if (found != model.metadata.end())
    rest = found->second;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (end > 0)
      lines.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines;
}

//===-- Places ------------------------------------------------------------===//

/// Puts each file in its place, by stage and rank.
static Expected<std::vector<std::vector<Model>>>
sortFiles(std::vector<Model> files, const std::vector<Mesh> &meshes) {
  std::vector<std::pair<int64_t, int64_t>> places;
  for (size_t s = 0; s < meshes.size(); ++s)
    for (int64_t r = 0; r < meshes[s].numRanks(); ++r)
      places.emplace_back(s, r);
  if (files.size() != places.size())
    return makeError("there are files of " + std::to_string(files.size()) +
                     " ranks for " + std::to_string(meshes.size()) + " stages of " +
                     std::to_string(places.size()) + " ranks");
  std::vector<std::vector<Model>> sorted(meshes.size());
  for (size_t s = 0; s < meshes.size(); ++s)
    sorted[s].resize(static_cast<size_t>(meshes[s].numRanks()));
  std::map<std::pair<int64_t, int64_t>, std::string> paths;
  for (size_t i = 0; i < files.size(); ++i) {
    std::pair<int64_t, int64_t> place = places[i];
    if (auto said = StagePlace::parse(files[i].graph.name)) {
      if (said->isGroup)
        return makeError("'" + files[i].path + "' is the file of " + said->text() +
                         " of a training step, whose files are one program: --mesh is "
                         "that of one group, and nothing says stages");
      place = {said->stage, said->rank};
      if (said->stages != static_cast<int64_t>(meshes.size()) || said->stage < 0 ||
          said->stage >= said->stages || said->rank < 0 || said->rank >= said->ranks ||
          meshes[static_cast<size_t>(said->stage)].numRanks() != said->ranks)
        return makeError("'" + files[i].path + "' is the file of " + said->text() +
                         ", which the " + std::to_string(meshes.size()) +
                         " stages and their meshes do not have");
    }
    if (auto [other, isNew] = paths.emplace(place, files[i].path); !isNew)
      return makeError("'" + other->second + "' and '" + files[i].path +
                       "' are both for rank " + std::to_string(place.second) +
                       " of stage " + std::to_string(place.first));
    // The place of the file is known now: a stage's ranks are merged as those of a
    // program.
    files[i].graph.name =
        rankText(place.second, meshes[static_cast<size_t>(place.first)].numRanks());
    sorted[static_cast<size_t>(place.first)][static_cast<size_t>(place.second)] =
        std::move(files[i]);
  }
  return sorted;
}

//===-- Ends --------------------------------------------------------------===//

namespace {
/// Makes inputs and outputs of what nodes of one stage receive and send.
class StageEnds {
public:
  StageEnds(std::vector<Model> &stages, const std::vector<std::vector<int64_t>> &ranks)
      : stages(stages), ranks(ranks) {
    for (const Model &model : stages) {
      const std::set<std::string> crossing = ownNames(model);
      for (const Node &node : model.graph.nodes)
        std::ranges::copy_if(
            node.outputs, std::inserter(taken, taken.end()),
            [&](const std::string &name) { return !crossing.contains(name); });
      for (const ValueInfo &input : model.graph.inputs)
        taken.insert(input.name);
      for (const Tensor &tensor : model.graph.initializers)
        taken.insert(tensor.name);
    }
  }

  Expected<std::vector<StagedModels::Crossing>> run() {
    for (size_t s = 0; s < stages.size(); ++s) {
      renameInitializers(stages[s]);
      auto ok = convert(stages[s], static_cast<int32_t>(s));
      if (!ok)
        return tl::unexpected(ok.error());
    }
    for (const auto &[value, sent] : sends)
      if (auto ok = checkSent(value, sent); !ok)
        return tl::unexpected(ok.error());
    return std::move(crossings);
  }

private:
  struct Sent {
    Node node;
    size_t crossing;
  };

  Expected<void> checkSent(const std::string &value, const Sent &sent) const {
    const StagedModels::Crossing &crossing = crossings[sent.crossing];
    const Model &model = stages[static_cast<size_t>(crossing.from)];
    if (crossing.to.empty())
      return tl::unexpected(
          errorAt(model, sent.node, "sends '" + value + "', which nobody receives"));
    std::vector<int64_t> to;
    for (int32_t stage : crossing.to)
      std::ranges::copy(ranks[static_cast<size_t>(stage)], std::back_inserter(to));
    return checkOtherEnd(model, sent.node, std::move(to), "receive");
  }

  /// Values that a model itself calls as the stages do.
  static std::set<std::string> ownNames(const Model &model) {
    std::set<std::string> names;
    for (const Node &node : model.graph.nodes)
      if (const auto *value = node.attribute<std::string>("value"))
        if ((isCrossing(node, "Send") && node.inputs == std::vector{*value}) ||
            (isCrossing(node, "Receive") && node.outputs == std::vector{*value}))
          names.insert(*value);
    return names;
  }

  /// Weights of all stages are in one table.
  void renameInitializers(Model &model) {
    std::map<std::string, std::string> others;
    for (Tensor &tensor : model.graph.initializers) {
      auto [known, isNew] = initializers.emplace(tensor.name, tensor);
      if (isNew || isEqual(known->second, tensor))
        continue;
      const std::string other = fresh(tensor.name);
      others[tensor.name] = other;
      tensor.name = other;
      initializers.emplace(other, tensor);
    }
    auto rename = [&](std::string &name) {
      if (auto other = others.find(name); other != others.end())
        name = other->second;
    };
    for (Node &node : model.graph.nodes)
      std::ranges::for_each(node.inputs, rename);
  }

  Expected<void> convert(Model &model, int32_t stage) {
    Graph &graph = model.graph;
    std::vector<Node> nodes;
    for (Node &node : graph.nodes) {
      if (!isCrossing(node, "Send") && !isCrossing(node, "Receive")) {
        nodes.push_back(std::move(node));
        continue;
      }
      auto value = crossingValue(model, node);
      if (!value)
        return tl::unexpected(value.error());
      auto made = isCrossing(node, "Send") ? send(model, node, *value, stage)
                                           : receive(model, node, *value, stage);
      if (!made)
        return tl::unexpected(made.error());
      if (made->inputs != made->outputs) // the value is called so already
        nodes.push_back(std::move(*made));
      if (isCrossing(node, "Send")) // readers of its result read what is sent
        nodes.push_back(identity(node, node.inputs[0], node.outputs[0]));
    }
    graph.nodes = std::move(nodes);
    return {};
  }

  static Node identity(const Node &of, std::string from, std::string to) {
    Node made;
    made.name = of.name + "/" + to;
    made.origin = of.origin;
    made.opType = "Identity";
    made.inputs = {std::move(from)};
    made.outputs = {std::move(to)};
    return made;
  }

  Expected<Node> send(Model &model, const Node &node, const std::string &value,
                      int32_t stage) {
    if (sends.contains(value))
      return tl::unexpected(
          errorAt(model, node, "sends '" + value + "', which is sent already"));
    auto output = std::ranges::find(model.graph.outputs, node.outputs[0]);
    if (output == model.graph.outputs.end())
      return tl::unexpected(errorAt(model, node, "has a result that is no output"));
    sends.emplace(value, Sent{node, crossings.size()});
    crossings.push_back({fresh(value), stage, {}});
    const std::string &name = crossings.back().name;
    *output = name;
    return identity(node, node.inputs[0], name);
  }

  Expected<Node> receive(Model &model, const Node &node, const std::string &value,
                         int32_t stage) {
    auto type = receivedType(model, node);
    if (!type)
      return tl::unexpected(type.error());
    auto sent = sends.find(value);
    if (sent == sends.end() || crossings[sent->second.crossing].from == stage)
      return tl::unexpected(
          errorAt(model, node, "receives '" + value + "', which no earlier stage sends"));
    StagedModels::Crossing &crossing = crossings[sent->second.crossing];
    if (std::ranges::find(crossing.to, stage) != crossing.to.end())
      return tl::unexpected(
          errorAt(model, node, "receives '" + value + "', which it has already"));
    if (auto ok =
            checkOtherEnd(model, node, ranks[static_cast<size_t>(crossing.from)], "send");
        !ok)
      return tl::unexpected(ok.error());
    crossing.to.push_back(stage);
    model.graph.inputs.push_back({crossing.name, type->type, type->shape});
    return identity(node, crossing.name, node.outputs[0]);
  }

  std::string fresh(const std::string &wanted) {
    std::string name = wanted;
    for (int number = 2; !taken.insert(name).second; ++number)
      name = wanted + "_" + std::to_string(number);
    return name;
  }

  std::vector<Model> &stages;
  const std::vector<std::vector<int64_t>> &ranks;
  std::set<std::string> taken;
  std::map<std::string, Tensor> initializers;
  std::map<std::string, Sent> sends;
  std::vector<StagedModels::Crossing> crossings;
};
} // namespace

Expected<StagedModels>
onnx_model::mergeStages(std::vector<Model> files, const std::vector<Mesh> &meshes,
                        const std::vector<std::vector<int64_t>> &ranks) {
  auto sorted = sortFiles(std::move(files), meshes);
  if (!sorted)
    return tl::unexpected(sorted.error());
  StagedModels merged;
  for (size_t s = 0; s < meshes.size(); ++s) {
    auto stage = mergeRanks(std::move((*sorted)[s]), meshes[s]);
    if (!stage)
      return makeError("stage " + std::to_string(s) + ": " + stage.error().message);
    merged.stages.push_back(std::move(*stage));
  }
  auto crossings = StageEnds(merged.stages, ranks).run();
  if (!crossings)
    return tl::unexpected(crossings.error());
  merged.crossings = std::move(*crossings);
  return merged;
}
