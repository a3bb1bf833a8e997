//===- MergeStep.cpp - The files of a training step's ranks ---------------===//
#include "partita/Onnx/MergeStep.h"

#include "Crossings.h"
#include "partita/Onnx/MergeRanks.h"
#include "partita/Onnx/MergeStages.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace partita;
using namespace partita::onnx_model;

bool onnx_model::isOfStep(const Model &model) {
  auto place = StagePlace::parse(model.graph.name);
  return place && place->isGroup;
}

//===-- Groups ------------------------------------------------------------===//

namespace {
/// The program of one group of ranks.
struct Group {
  Model model; ///< for all ranks of the mesh
  Mesh mesh;
  std::vector<int64_t> ranks; ///< of the step, numbered group by group
};
} // namespace

static std::string placeText(int64_t rank, int64_t ranks, int64_t group, int64_t groups) {
  return StagePlace{rank, ranks, group, groups, /*isGroup=*/true}.text();
}

/// The files of each group, in the order of its ranks.
static Expected<std::vector<std::vector<Model>>> sortFiles(std::vector<Model> files) {
  const Model first = files.front();
  const StagePlace one = *StagePlace::parse(first.graph.name);
  std::map<std::pair<int64_t, int64_t>, std::pair<Model, int64_t>> placed;
  for (Model &file : files) {
    auto place = StagePlace::parse(file.graph.name);
    if (!place || !place->isGroup || place->stages != one.stages)
      return makeError("'" + first.path + "' is the file of " + one.text() +
                       ", and the graph of '" + file.path + "' is called '" +
                       file.graph.name + "', which is no rank of that step");
    const std::string path = file.path;
    auto [known, isNew] =
        placed.try_emplace({place->stage, place->rank}, std::move(file), place->ranks);
    if (!isNew)
      return makeError("'" + known->second.first.path + "' and '" + path +
                       "' are both for rank " + std::to_string(place->rank) +
                       " of group " + std::to_string(place->stage));
  }
  std::vector<std::vector<Model>> sorted;
  size_t taken = 0;
  for (int64_t group = 0; group < one.stages; ++group) {
    sorted.emplace_back();
    auto begin = placed.find({group, 0});
    const int64_t ranks = begin == placed.end() ? 1 : begin->second.second;
    for (int64_t rank = 0; rank < ranks; ++rank, ++taken) {
      auto found = placed.find({group, rank});
      if (found == placed.end() || found->second.second != ranks)
        return makeError("there is no file of " +
                         placeText(rank, ranks, group, one.stages) + ", beside '" +
                         first.path + "'");
      sorted.back().push_back(std::move(found->second.first));
      sorted.back().back().graph.name = rankText(rank, ranks);
    }
  }
  if (taken != files.size())
    return makeError("'" + first.path + "' is the file of " + one.text() +
                     ", and there are " + std::to_string(files.size()) + " files for " +
                     std::to_string(taken) + " ranks");
  return sorted;
}

/// The mesh that the files of a group say, whose axes `whole` has, too.
static Expected<Mesh> meshOf(const Model &model, size_t ranks, const Mesh &whole) {
  auto said = model.metadata.find(std::string(meshKey));
  const std::string text = said != model.metadata.end() ? said->second
                           : static_cast<int64_t>(ranks) == whole.numRanks() ? whole.str()
                                                                             : "";
  auto mesh = Mesh::parse(text);
  if (!mesh)
    return makeError("'" + model.path + "': property '" + std::string(meshKey) +
                     "': " + mesh.error().message);
  if (mesh->numRanks() != static_cast<int64_t>(ranks))
    return makeError("'" + model.path + "' is one of the files of " +
                     std::to_string(ranks) + " ranks, which have mesh \"" + text +
                     "\" of " + std::to_string(mesh->numRanks()) + " by property '" +
                     std::string(meshKey) + "'");
  for (const Mesh::Axis &axis : mesh->axes()) {
    const int32_t known = whole.find(axis.name);
    if (axis.size == 1) // no layout names an axis of one rank
      continue;
    if (known < 0 || whole.axes()[static_cast<size_t>(known)].size != axis.size)
      return makeError("'" + model.path + "' is of ranks with mesh \"" + text +
                       "\", of which --mesh \"" + whole.str() + "\" does not have axis " +
                       axis.name + " of " + std::to_string(axis.size));
  }
  return mesh;
}

/// Tells whether ranks of the group exchange something by this node.
static bool isExchange(const Node &node) {
  auto isOneOf = [&](std::initializer_list<std::string_view> list) {
    return std::ranges::find(list, node.opType) != list.end();
  };
  if (node.domain == ownDomain)
    return !isAroundPart(node) && !isOneOf({"Send", "Receive", "ToLocal", "ToGlobal"});
  return node.domain == "com.microsoft"
             ? isOneOf({"AllReduce", "AllGather", "AllToAll"})
             : node.domain.empty() && node.opType == "DistCollective";
}

/// A rank's number in a group is another one in a larger mesh, and an axis the same.
static Expected<void> checkTalks(const Group &group, const Mesh &whole) {
  if (group.mesh == whole)
    return {};
  for (const Node &node : group.model.graph.nodes) {
    if (!isExchange(node))
      continue;
    const auto *axes = node.attribute<std::string>("group");
    const bool hasNumbers = std::ranges::any_of(node.attributes, [](const auto &it) {
      return it.first == "groups" || it.first.find("rank") != std::string::npos;
    });
    if (node.domain != ownDomain || !axes || axes->empty() || hasNumbers)
      return tl::unexpected(errorAt(
          group.model, node,
          "names ranks of mesh \"" + group.mesh.str() +
              "\" by other words than axes ('group'), which all ranks of --mesh \"" +
              whole.str() + "\" cannot follow"));
  }
  return {};
}

/// A rank sends and receives once, in the order of its nodes: neither trip by trip, nor
/// if a condition holds.
static Expected<void> checkBodies(const Model &model) {
  std::vector<const Node *> around;
  for (const Node &node : model.graph.nodes) {
    if (isAroundPart(node)) {
      if (!node.opType.ends_with("End"))
        around.push_back(&node);
      else if (!around.empty())
        around.pop_back();
      continue;
    }
    const bool crosses = isCrossing(node, "Send") || isCrossing(node, "Receive");
    if (crosses && !around.empty())
      return tl::unexpected(errorAt(
          model, node,
          "is in a loop or a branch, '" + around.back()->origin +
              "', and what goes from group to group does so once, outside of these"));
  }
  return {};
}

static Expected<std::vector<Group>> readGroups(std::vector<Model> files,
                                               const Mesh &whole) {
  auto sorted = sortFiles(std::move(files));
  if (!sorted)
    return tl::unexpected(sorted.error());
  std::vector<Group> groups;
  int64_t rank = 0;
  for (std::vector<Model> &ranks : *sorted) {
    auto mesh = meshOf(ranks.front(), ranks.size(), whole);
    if (!mesh)
      return tl::unexpected(mesh.error());
    Group &group = groups.emplace_back();
    group.mesh = std::move(*mesh);
    group.ranks.resize(ranks.size());
    std::iota(group.ranks.begin(), group.ranks.end(), rank);
    rank += static_cast<int64_t>(ranks.size());
    auto model = mergeRanks(std::move(ranks), group.mesh);
    if (!model)
      return makeError("group " + std::to_string(groups.size() - 1) + ": " +
                       model.error().message);
    group.model = std::move(*model);
    auto ok = checkTalks(group, whole).and_then([&] { return checkBodies(group.model); });
    if (!ok)
      return tl::unexpected(ok.error());
  }
  return groups;
}

//===-- Values that go from group to group --------------------------------===//

namespace {
struct Sent {
  size_t group = 0;
  const Node *node = nullptr;
  std::map<size_t, const Node *> receivers; ///< by group
};
using SentValues = std::map<std::string, Sent>;
} // namespace

static Expected<void> noteSends(const std::vector<Group> &groups, SentValues &sent) {
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Node &node : groups[g].model.graph.nodes) {
      if (!isCrossing(node, "Send"))
        continue;
      auto value = crossingValue(groups[g].model, node);
      if (!value)
        return tl::unexpected(value.error());
      auto [known, isNew] = sent.try_emplace(*value, Sent{g, &node, {}});
      if (!isNew)
        return tl::unexpected(errorAt(
            groups[g].model, node,
            "sends '" + *value + "', which node '" + known->second.node->name + "' of '" +
                groups[known->second.group].model.path + "' sends already"));
    }
  return {};
}

/// Adds receivers to the values that they receive. `lone`: words on the nodes that
/// receive values that nobody sends.
static Expected<void> noteReceives(const std::vector<Group> &groups, SentValues &sent,
                                   std::vector<std::string> &lone) {
  for (size_t g = 0; g < groups.size(); ++g) {
    const Model &model = groups[g].model;
    for (const Node &node : model.graph.nodes) {
      if (!isCrossing(node, "Receive"))
        continue;
      auto value = crossingValue(model, node);
      if (!value)
        return tl::unexpected(value.error());
      if (auto type = receivedType(model, node); !type)
        return tl::unexpected(type.error());
      auto from = sent.find(*value);
      if (from == sent.end() || from->second.group == g) {
        lone.push_back(
            errorAt(model, node, "receives '" + *value + "', which no other group sends")
                .message);
        continue;
      }
      auto [known, isNew] = from->second.receivers.try_emplace(g, &node);
      if (!isNew)
        return tl::unexpected(errorAt(model, node,
                                      "receives '" + *value + "', which node '" +
                                          known->second->name + "' has already"));
      if (auto ok = checkOtherEnd(model, node, groups[from->second.group].ranks, "send");
          !ok)
        return ok;
    }
  }
  return {};
}

/// Both ends of all that goes from group to group.
static Expected<SentValues> matchEnds(const std::vector<Group> &groups) {
  SentValues sent;
  std::vector<std::string> lone;
  auto ok =
      noteSends(groups, sent).and_then([&] { return noteReceives(groups, sent, lone); });
  if (!ok)
    return tl::unexpected(ok.error());
  for (const auto &[value, it] : sent) {
    const Model &model = groups[it.group].model;
    if (it.receivers.empty()) {
      lone.push_back(
          errorAt(model, *it.node, "sends '" + value + "', which nobody receives")
              .message);
      continue;
    }
    std::vector<int64_t> ranks;
    for (const auto &[group, node] : it.receivers)
      ranks.insert(ranks.end(), groups[group].ranks.begin(), groups[group].ranks.end());
    if (ok = checkOtherEnd(model, *it.node, std::move(ranks), "receive"); !ok)
      return tl::unexpected(ok.error());
  }
  std::string all;
  for (const std::string &each : lone)
    all += (all.empty() ? "" : "; ") + each;
  if (!all.empty())
    return makeError(all);
  return sent;
}

//===-- One program -------------------------------------------------------===//

namespace {
class Joiner {
public:
  Joiner(std::vector<Group> &groups, const SentValues &sent)
      : groups(groups), sent(sent), names(groups.size()), begins(groups.size()) {}

  Expected<Model> run() {
    joined.path = groups[0].model.path;
    joined.producer = groups[0].model.producer;
    joined.irVersion = groups[0].model.irVersion;
    joined.keepsLoops = groups[0].model.keepsLoops;
    joined.graph.name = groups[0].model.graph.name;
    for (const Group &group : groups)
      if (auto ok = joinEnds(group.model); !ok)
        return tl::unexpected(ok.error());
    if (auto ok = checkEnds(); !ok)
      return tl::unexpected(ok.error());
    sortEnds();
    for (size_t g = 0; g < groups.size(); ++g)
      nameValues(g);
    if (auto ok = joinNodes(); !ok)
      return tl::unexpected(ok.error());
    return std::move(joined);
  }

private:
  static bool isSent(const Model &model, const std::string &output) {
    return std::ranges::any_of(model.graph.nodes, [&](const Node &node) {
      return isCrossing(node, "Send") && node.outputs[0] == output;
    });
  }

  Expected<void> joinEnds(const Model &model) {
    for (const ValueInfo &input : model.graph.inputs) {
      auto [known, isNew] = inputs.try_emplace(input.name, &model, &input);
      const ValueInfo &first = *known->second.second;
      if (isNew) {
        joined.graph.inputs.push_back(input);
        joined.inputNames.push_back(input.name);
      } else if (first.type != input.type || first.shape != input.shape) {
        return makeError("'" + model.path + "': input '" + input.name + "' is " +
                         typeText(input.type, input.shape) + ", and in '" +
                         known->second.first->path + "' " +
                         typeText(first.type, first.shape));
      }
    }
    for (size_t i = 0; i < model.graph.outputs.size(); ++i) {
      const std::string &output = model.graph.outputs[i];
      if (isSent(model, output))
        continue;
      auto [known, isNew] = outputs.try_emplace(output, &model);
      if (!isNew)
        return makeError("'" + model.path + "': output '" + output + "' is one of '" +
                         known->second->path + "', too");
      joined.graph.outputs.push_back(output);
      if (i < model.graph.outputTypes.size())
        joined.graph.outputTypes.push_back(model.graph.outputTypes[i]);
    }
    for (const auto &[domain, version] : model.opsets)
      joined.opsets[domain] = std::max(joined.opsets[domain], version);
    joined.dims.insert(model.dims.begin(), model.dims.end());
    for (const std::string &line : linesOf(model, statesKey))
      joined.metadata[std::string(statesKey)] += line + "\n";
    return {};
  }

  /// Names of ends are those of all groups, and so are lists of the step's ends.
  Expected<void> checkEnds() const {
    const Model &first = groups[0].model;
    for (const Group &group : groups)
      for (std::string_view key : {inputsKey, outputsKey})
        if (linesOf(group.model, key) != linesOf(first, key))
          return makeError("'" + group.model.path + "' and '" + first.path +
                           "' are not of one step: property '" + std::string(key) +
                           "' differs");
    for (const auto &[name, input] : inputs)
      if (auto other = outputs.find(name);
          other != outputs.end() && other->second != input.first)
        return makeError("'" + input.first->path + "': input '" + name +
                         "' is an output of '" + other->second->path +
                         "'; what goes from group to group is said by Send and Receive");
    return {};
  }

  /// Numbers of names, in an order of them; those that it does not have come last.
  static std::vector<size_t> sorted(const std::vector<std::string> &list,
                                    const std::vector<std::string> &order) {
    std::vector<std::pair<std::ptrdiff_t, size_t>> places;
    for (size_t i = 0; i < list.size(); ++i)
      places.emplace_back(std::ranges::find(order, list[i]) - order.begin(), i);
    std::ranges::sort(places);
    std::vector<size_t> numbers;
    for (const auto &[place, number] : places)
      numbers.push_back(number);
    return numbers;
  }

  /// Ends come in the model's order, which each file says.
  void sortEnds() {
    Graph &graph = joined.graph;
    const Graph given = graph;
    const std::vector<std::string> names = joined.inputNames;
    graph.inputs.clear();
    joined.inputNames.clear();
    for (size_t i : sorted(names, linesOf(groups[0].model, inputsKey))) {
      graph.inputs.push_back(given.inputs[i]);
      joined.inputNames.push_back(names[i]);
    }
    graph.outputs.clear();
    graph.outputTypes.clear();
    for (size_t i : sorted(given.outputs, linesOf(groups[0].model, outputsKey))) {
      graph.outputs.push_back(given.outputs[i]);
      if (given.outputTypes.size() == given.outputs.size())
        graph.outputTypes.push_back(given.outputTypes[i]);
    }
  }

  /// Says how values of a group are called in the whole. Ends keep their names.
  void nameValues(size_t g) {
    const Graph &graph = groups[g].model.graph;
    std::map<std::string, std::string> &own = names[g];
    auto isEnd = [&](const std::string &name) {
      return inputs.contains(name) || outputs.contains(name);
    };
    std::set<std::string> ends(graph.outputs.begin(), graph.outputs.end());
    for (const ValueInfo &input : graph.inputs)
      ends.insert(input.name);
    auto add = [&](const std::string &name) {
      if (!(isEnd(name) && ends.contains(name)))
        own[name] = fresh(name, values, isEnd);
    };
    for (const Tensor &tensor : graph.initializers) {
      auto known = initializers.find(tensor.name);
      if (known != initializers.end() && isEqual(*known->second.first, tensor)) {
        own[tensor.name] = known->second.second;
        continue;
      }
      add(tensor.name);
      initializers.try_emplace(tensor.name, &tensor, nameOf(g, tensor.name));
      joined.graph.initializers.push_back(tensor);
      joined.graph.initializers.back().name = nameOf(g, tensor.name);
    }
    for (const Node &node : graph.nodes)
      if (!isCrossing(node, "Send"))
        for (const std::string &output : node.outputs)
          if (!output.empty())
            add(output);
  }

  const std::string &nameOf(size_t g, const std::string &name) const {
    auto known = names[g].find(name);
    return known == names[g].end() ? name : known->second;
  }

  template <typename IsTaken>
  static std::string fresh(const std::string &wanted, std::set<std::string> &taken,
                           const IsTaken &isTaken) {
    std::string name = wanted;
    for (int number = 2; isTaken(name) || !taken.insert(name).second; ++number)
      name = wanted + "_" + std::to_string(number);
    return name;
  }

  /// Each group goes as far as it can, which is as far as it ever gets: a value that was
  /// sent stays so.
  Expected<void> joinNodes() {
    std::vector<size_t> at(groups.size());
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t g = 0; g < groups.size(); ++g)
        for (std::vector<Node> &nodes = groups[g].model.graph.nodes;
             at[g] < nodes.size() && join(g, nodes[at[g]]); ++at[g])
          moves = true;
    }
    return checkDone(at);
  }

  /// Appends a node; false: it waits for a value that is not sent yet.
  bool join(size_t g, const Node &node) {
    if (isCrossing(node, "Send")) {
      const std::string &name = nameOf(g, node.inputs[0]);
      names[g][node.outputs[0]] = name;
      ready[*node.attribute<std::string>("value")] = name;
      return true;
    }
    Node made = node;
    if (isCrossing(node, "Receive")) {
      const std::string &value = *node.attribute<std::string>("value");
      auto known = ready.find(value);
      if (known == ready.end())
        return false;
      const Sent &from = sent.at(value);
      made.inputs = {known->second};
      made.attributes["sender"] = "node '" + from.node->name + "' (Send) of '" +
                                  groups[from.group].model.path + "'";
    } else {
      for (std::string &input : made.inputs)
        input = nameOf(g, input);
    }
    for (std::string &output : made.outputs)
      output = nameOf(g, output);
    made.name = fresh(node.name, nodeNames, [](const std::string &) { return false; });
    if (node.origin == node.name)
      made.origin = made.name;
    if (isAroundPart(node))
      nameAround(g, node, made);
    joined.graph.nodes.push_back(std::move(made));
    return true;
  }

  /// The end of a loop or a branch names its beginning, which another group may have,
  /// too.
  void nameAround(size_t g, const Node &node, Node &made) {
    begins[g][node.name] = made.name;
    if (const auto *begin = node.attribute<std::string>("begin"))
      if (auto known = begins[g].find(*begin); known != begins[g].end())
        made.attributes["begin"] = known->second;
  }

  Expected<void> checkDone(const std::vector<size_t> &at) const {
    std::string waiting;
    for (size_t g = 0; g < groups.size(); ++g) {
      const Model &model = groups[g].model;
      if (at[g] == model.graph.nodes.size())
        continue;
      const Node &node = model.graph.nodes[at[g]];
      const Sent &from = sent.at(*node.attribute<std::string>("value"));
      const Model &sender = groups[from.group].model;
      waiting += (waiting.empty() ? "" : "; ") + ("node '" + node.name) +
                 "' (Receive) of '" + model.path + "' waits for node '" +
                 from.node->name + "' (Send) of '" + sender.path +
                 "', which comes behind node '" +
                 sender.graph.nodes[at[from.group]].name + "' (Receive) there";
    }
    if (waiting.empty())
      return {};
    return makeError("the groups of ranks wait for each other for ever: " + waiting);
  }

  std::vector<Group> &groups;
  const SentValues &sent;
  Model joined;
  std::map<std::string, std::pair<const Model *, const ValueInfo *>> inputs;
  std::map<std::string, const Model *> outputs;
  /// The first of each name, and its name in the whole.
  std::map<std::string, std::pair<const Tensor *, std::string>> initializers;
  /// Names of each group's values in the whole, where they are other ones.
  std::vector<std::map<std::string, std::string>> names;
  /// Names of each group's nodes around loops and branches in the whole.
  std::vector<std::map<std::string, std::string>> begins;
  std::set<std::string> values, nodeNames;
  std::map<std::string, std::string> ready; ///< names of sent values
};
} // namespace

Expected<Model> onnx_model::mergeStep(std::vector<Model> files, const Mesh &mesh) {
  auto groups = readGroups(std::move(files), mesh);
  if (!groups)
    return tl::unexpected(groups.error());
  auto sent = matchEnds(*groups);
  if (!sent)
    return tl::unexpected(sent.error());
  return Joiner(*groups, *sent).run();
}
