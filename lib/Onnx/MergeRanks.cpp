//===- MergeRanks.cpp - The files of all ranks as one program -------------===//
#include "partita/Onnx/MergeRanks.h"

#include "Crossings.h"
#include "partita/Base/Layout/Layout.h"
#include "partita/Onnx/MergeStages.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

using namespace partita;
using namespace partita::onnx_model;

//===-- What is equal -----------------------------------------------------===//

static bool isEqual(const Attribute &a, const Attribute &b) {
  if (a.index() != b.index())
    return false;
  return std::visit(
      [&](const auto &value) {
        using T = std::decay_t<decltype(value)>;
        const T &other = std::get<T>(b);
        if constexpr (std::is_same_v<T, Tensor>)
          return isEqual(value, other);
        else if constexpr (std::is_same_v<T, OpaqueAttribute>)
          return false; // a graph, of which nothing is known
        else
          return value == other;
      },
      a);
}

static bool isExchange(const Node &node) {
  return node.domain == ownDomain &&
         (node.opType == "NeighborExchange" || node.opType == "NeighborExchangeV2");
}

/// The attribute that says which rank is the root, if the node has one; else "".
static std::string_view rootName(const Node &node) {
  if (node.opType == "DistCollective")
    return "root";
  return node.domain == ownDomain && node.opType == "Broadcast" ? "root_rank" : "";
}

/// Lists of numbers of an exchange that are the rank's own.
static constexpr std::string_view exchangeLists[] = {"send_rank_ids", "recv_rank_ids",
                                                     "send_lens", "recv_lens"};

/// Attributes that say what a rank is in its group, and who its neighbours are.
static bool isOfRank(const Node &node, std::string_view attribute) {
  if (node.attribute<int64_t>(attribute))
    return attribute == rootName(node);
  if (!node.attribute<std::vector<int64_t>>(attribute))
    return false;
  return node.opType == "DistCollective"
             ? attribute == "groups"
             : isExchange(node) &&
                   std::ranges::find(exchangeLists, attribute) != std::end(exchangeLists);
}

/// Tells which attribute makes the nodes differ; "" if none does.
static std::string differingAttribute(const Node &a, const Node &b) {
  for (const auto &[name, value] : a.attributes) {
    auto other = b.attributes.find(name);
    if (other == b.attributes.end())
      return name;
    if (!(isOfRank(a, name) && isOfRank(b, name)) && !isEqual(value, other->second))
      return name;
  }
  for (const auto &[name, value] : b.attributes)
    if (!a.attributes.contains(name))
      return name;
  return "";
}

/// Tells in words what makes the nodes differ; "" if nothing does.
static std::string differenceOf(const Node &a, const Node &b) {
  if (a.opType != b.opType || a.domain != b.domain)
    return "the operators differ";
  if (a.inputs != b.inputs)
    return "the inputs differ";
  if (a.outputs != b.outputs)
    return "the outputs differ";
  const std::string attribute = differingAttribute(a, b);
  if (attribute.empty())
    return "";
  auto found = a.attributes.find(attribute);
  const auto *opaque = found == a.attributes.end()
                           ? nullptr
                           : std::get_if<OpaqueAttribute>(&found->second);
  return opaque ? "attribute '" + attribute + "' is " + opaque->kind +
                      ", which files per rank cannot have"
                : "attribute '" + attribute + "' differs";
}

std::string onnx_model::typeText(DType type, const std::vector<int64_t> &shape) {
  std::string text = std::string(name(type)) + "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

static std::string nodeText(const Graph &graph, size_t i) {
  if (i >= graph.nodes.size())
    return "no node";
  return "node '" + graph.nodes[i].name + "' (" + graph.nodes[i].opType + ")";
}

static tl::unexpected<Error> differ(const Model &a, const Model &b,
                                    const std::string &how) {
  return makeError("'" + a.path + "' and '" + b.path + "' are not one program: " + how);
}

static Expected<void> compareEnds(const Model &a, const Model &b) {
  const Graph &x = a.graph, &y = b.graph;
  for (std::string_view key : commonKeys) {
    auto lines = [&](const Model &model) {
      auto found = model.metadata.find(std::string(key));
      return found == model.metadata.end() ? std::string() : found->second;
    };
    if (lines(a) != lines(b))
      return differ(a, b, "property '" + std::string(key) + "' differs");
  }
  for (size_t i = 0; i < std::max(x.inputs.size(), y.inputs.size()); ++i) {
    auto text = [&](const Graph &graph) {
      return i < graph.inputs.size()
                 ? "'" + graph.inputs[i].name + "' of type " +
                       typeText(graph.inputs[i].type, graph.inputs[i].shape)
                 : std::string("absent");
    };
    if (text(x) != text(y))
      return differ(a, b,
                    "input " + std::to_string(i) + " is " + text(x) + " and " + text(y));
  }
  for (size_t i = 0; i < std::max(x.outputs.size(), y.outputs.size()); ++i) {
    auto text = [&](const Graph &graph) {
      return i < graph.outputs.size() ? "'" + graph.outputs[i] + "'"
                                      : std::string("absent");
    };
    if (text(x) != text(y))
      return differ(a, b,
                    "output " + std::to_string(i) + " is " + text(x) + " and " + text(y));
  }
  return {};
}

static Expected<void> compareNodes(const Model &a, const Model &b) {
  const Graph &x = a.graph, &y = b.graph;
  const size_t count = std::max(x.nodes.size(), y.nodes.size());
  for (size_t i = 0; i < count; ++i) {
    const bool isInBoth = i < x.nodes.size() && i < y.nodes.size();
    const std::string how = isInBoth ? differenceOf(x.nodes[i], y.nodes[i]) : "";
    if (!isInBoth || !how.empty())
      return differ(a, b,
                    nodeText(x, i) + " of the one is where the other has " +
                        nodeText(y, i) + (how.empty() ? "" : ": " + how));
  }
  return {};
}

//===-- What may differ ---------------------------------------------------===//

namespace {
class Merger {
public:
  Merger(std::vector<Model> &ranks, const Mesh &mesh) : ranks(ranks), mesh(mesh) {}

  Expected<void> run() {
    for (size_t r = 1; r < ranks.size(); ++r) {
      auto ok = compareEnds(ranks[0], ranks[r]).and_then([&] {
        return compareNodes(ranks[0], ranks[r]);
      });
      if (!ok)
        return ok;
    }
    for (const ValueInfo &input : ranks[0].graph.inputs)
      taken.insert(input.name);
    for (const Node &node : ranks[0].graph.nodes) {
      taken.insert(node.name);
      taken.insert(node.outputs.begin(), node.outputs.end());
    }
    for (Tensor &tensor : ranks[0].graph.initializers)
      taken.insert(tensor.name);
    mergeAttributes();
    return mergeInitializers();
  }

private:
  /// `i`: of a node that is the same on all ranks.
  template <typename T> std::vector<T> valuesOf(size_t i, const std::string &attribute) {
    std::vector<T> values;
    for (const Model &model : ranks)
      if (const T *value = model.graph.nodes[i].attribute<T>(attribute))
        values.push_back(*value);
    return values;
  }

  void mergeAttributes() {
    for (size_t i = 0; i < ranks[0].graph.nodes.size(); ++i) {
      Node &node = ranks[0].graph.nodes[i];
      if (const std::string root(rootName(node)); isOfRank(node, root)) {
        auto roots = valuesOf<int64_t>(i, root);
        if (std::ranges::adjacent_find(roots, std::not_equal_to<>()) != roots.end()) {
          node.attributes.erase(root);
          node.attributes["root_ranks"] = std::move(roots);
        }
      }
      if (isOfRank(node, "groups"))
        mergeGroups(node, textsOf(i, "groups"));
      for (std::string_view list : exchangeLists)
        if (isOfRank(node, list))
          node.attributes[std::string(list)] = textsOf(i, std::string(list));
    }
  }

  /// The lists of numbers that ranks have in an attribute, as a text of each rank.
  std::vector<std::string> textsOf(size_t i, const std::string &attribute) {
    std::vector<std::string> texts;
    for (const auto &numbers : valuesOf<std::vector<int64_t>>(i, attribute)) {
      std::string &text = texts.emplace_back();
      for (int64_t number : numbers)
        text += (text.empty() ? "" : ",") + std::to_string(number);
    }
    return texts;
  }

  /// Each group once; an empty one is all ranks.
  static void mergeGroups(Node &node, const std::vector<std::string> &texts) {
    std::vector<std::string> groups;
    for (const std::string &text : texts)
      if (std::ranges::find(groups, text) == groups.end())
        groups.push_back(text);
    if (groups != std::vector<std::string>{""})
      node.attributes["groups"] = std::move(groups);
  }

  Expected<void> mergeInitializers() {
    std::vector<std::map<std::string, const Tensor *>> byName(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r)
      for (const Tensor &tensor : ranks[r].graph.initializers)
        byName[r][tensor.name] = &tensor;
    std::vector<Tensor> merged;
    for (const Tensor &first : ranks[0].graph.initializers) {
      std::vector<const Tensor *> tensors;
      for (size_t r = 0; r < ranks.size(); ++r) {
        auto found = byName[r].find(first.name);
        auto text = [&] {
          return found == byName[r].end()
                     ? std::string("absent")
                     : typeText(found->second->type, found->second->shape);
        };
        if (text() != typeText(first.type, first.shape))
          return differ(ranks[0], ranks[r],
                        "initializer '" + first.name + "' is " +
                            typeText(first.type, first.shape) + " and " + text());
        tensors.push_back(found->second);
      }
      merged.push_back(mergeTensors(tensors));
    }
    Graph &graph = ranks[0].graph;
    graph.initializers = std::move(merged);
    graph.initializers.insert(graph.initializers.end(), made.begin(), made.end());
    graph.nodes.insert(graph.nodes.begin(), cuts.begin(), cuts.end());
    return {};
  }

  /// The axes over which a tensor differs, in prime parts: over any other, every rank has
  /// what its neighbours have.
  AxisList differingAxes(const std::vector<const Tensor *> &tensors) const {
    AxisList axes;
    for (const AxisRef &digit : primes(mesh.all())) {
      bool differs = false;
      for (int64_t r = 0; !differs && r < mesh.numRanks(); ++r) {
        const int64_t begin = mesh.withCoordinate(r, {digit}, 0);
        differs = !isEqual(*tensors[static_cast<size_t>(r)],
                           *tensors[static_cast<size_t>(begin)]);
      }
      if (differs)
        axes.push_back(digit);
    }
    return canonical(axes);
  }

  Tensor mergeTensors(const std::vector<const Tensor *> &tensors) {
    const Tensor &first = *tensors[0];
    const AxisList axes = differingAxes(tensors);
    if (axes.empty())
      return first;
    const int64_t count = product(axes);
    auto bytes = std::make_shared<std::vector<std::byte>>();
    bytes->reserve(static_cast<size_t>(count) * first.bytes.size());
    for (int64_t c = 0; c < count; ++c) {
      const Tensor &part = *tensors[static_cast<size_t>(mesh.withCoordinate(0, axes, c))];
      bytes->insert(bytes->end(), part.bytes.begin(), part.bytes.end());
    }
    Tensor all;
    all.name = fresh(first.name + "/of_ranks");
    all.type = first.type;
    all.shape = first.shape.empty() ? std::vector<int64_t>{1} : first.shape;
    all.shape[0] *= count;
    all.bytes = *bytes;
    all.owner = bytes;
    all.isInitializer = first.isInitializer;
    cut(first, all, axes);
    return all;
  }

  /// Adds the node by which each rank has its own.
  void cut(const Tensor &own, const Tensor &all, const AxisList &axes) {
    Layout layout = Layout::replicated(all.shape);
    layout.dims[0].factors[0].axes = axes;
    const bool isScalar = own.shape.empty();
    const std::string part = isScalar ? fresh(own.name + "/own") : own.name;
    Node node;
    node.name = node.origin = fresh(own.name + "/ToLocal");
    node.opType = "ToLocal";
    node.domain = ownDomain;
    node.inputs = {all.name};
    node.outputs = {part};
    node.attributes["layout"] = layout.str(mesh);
    cuts.push_back(std::move(node));
    if (!isScalar)
      return;
    Node squeeze;
    squeeze.name = squeeze.origin = fresh(own.name + "/Squeeze");
    squeeze.opType = "Squeeze";
    squeeze.inputs = {part, dimZero()};
    squeeze.outputs = {own.name};
    cuts.push_back(std::move(squeeze));
  }

  const std::string &dimZero() {
    if (made.empty()) {
      auto bytes = std::make_shared<std::vector<std::byte>>(sizeof(int64_t));
      Tensor zero;
      zero.name = fresh("dim_0");
      zero.type = DType::I64;
      zero.shape = {1};
      zero.bytes = *bytes;
      zero.owner = bytes;
      made.push_back(std::move(zero));
    }
    return made[0].name;
  }

  std::string fresh(const std::string &wanted) {
    std::string name = wanted;
    for (int number = 2; !taken.insert(name).second; ++number)
      name = wanted + "_" + std::to_string(number);
    return name;
  }

  std::vector<Model> &ranks;
  const Mesh &mesh;
  std::set<std::string> taken;
  std::vector<Node> cuts;
  std::vector<Tensor> made;
};
} // namespace

std::string onnx_model::rankText(int64_t rank, int64_t ranks) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(ranks);
}

/// Tells if rankText gives the text for some rank.
static bool isRankText(const std::string &text) {
  long long rank = 0, ranks = 0;
  return std::sscanf(text.c_str(), "rank %lld of %lld", &rank, &ranks) == 2 &&
         text == rankText(rank, ranks);
}

Expected<void> onnx_model::checkRank(const Model &model, int64_t rank, int64_t ranks) {
  const std::string &text = model.graph.name;
  if (auto place = StagePlace::parse(text))
    return makeError("'" + model.path + "' is the file of " + text +
                     (place->isGroup ? " of a training step, whose files are given all"
                                     : "; --stages " + std::to_string(place->stages) +
                                           " reads those of all stages"));
  if (!isRankText(text) || text == rankText(rank, ranks))
    return {};
  return makeError("'" + model.path + "' is the file of " + text + ", and is given " +
                   (ranks == 1 ? "alone" : "for " + rankText(rank, ranks)) +
                   "; files per rank are given all, in the order of the ranks");
}

Expected<Model> onnx_model::mergeRanks(std::vector<Model> ranks, const Mesh &mesh) {
  if (static_cast<int64_t>(ranks.size()) != mesh.numRanks())
    return makeError("there are files of " + std::to_string(ranks.size()) +
                     " ranks for a mesh \"" + mesh.str() + "\" of " +
                     std::to_string(mesh.numRanks()));
  for (size_t r = 0; r < ranks.size(); ++r)
    if (auto ok = checkRank(ranks[r], static_cast<int64_t>(r), mesh.numRanks()); !ok)
      return tl::unexpected(ok.error());
  if (auto ok = Merger(ranks, mesh).run(); !ok)
    return tl::unexpected(ok.error());
  return std::move(ranks[0]);
}
