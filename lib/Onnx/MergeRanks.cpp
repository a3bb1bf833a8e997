//===- MergeRanks.cpp - The files of all ranks as one program -------------===//
#include "partita/Onnx/MergeRanks.h"

#include "partita/Base/Layout/Layout.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

using namespace partita;
using namespace partita::onnx_model;

//===-- What is equal -----------------------------------------------------===//

static bool isEqual(const Tensor &a, const Tensor &b) {
  return a.type == b.type && a.shape == b.shape && a.bytes.size() == b.bytes.size() &&
         (a.bytes.data() == b.bytes.data() ||
          std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0);
}

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

/// Attributes that say what a rank is in its group.
static bool isOfRank(const Node &node, std::string_view attribute) {
  return (node.domain == ownDomain && node.opType == "Broadcast" &&
          attribute == "root_rank") ||
         (node.opType == "DistCollective" && attribute == "groups");
}

static bool isEqual(const Node &a, const Node &b) {
  if (a.opType != b.opType || a.domain != b.domain || a.inputs != b.inputs ||
      a.outputs != b.outputs || a.attributes.size() != b.attributes.size())
    return false;
  return std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(),
                    [&](const auto &x, const auto &y) {
                      return x.first == y.first &&
                             (isOfRank(a, x.first) || isEqual(x.second, y.second));
                    });
}

static std::string typeText(DType type, const std::vector<int64_t> &shape) {
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
  for (size_t i = 0; i < count; ++i)
    if (i >= x.nodes.size() || i >= y.nodes.size() || !isEqual(x.nodes[i], y.nodes[i]))
      return differ(
          a, b, nodeText(x, i) + " of the one is where the other has " + nodeText(y, i));
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
    for (Node &node : ranks[0].graph.nodes)
      taken.insert(node.outputs.begin(), node.outputs.end());
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
      if (isOfRank(node, "root_rank")) {
        auto roots = valuesOf<int64_t>(i, "root_rank");
        if (std::adjacent_find(roots.begin(), roots.end(), std::not_equal_to<>()) !=
            roots.end()) {
          node.attributes.erase("root_rank");
          node.attributes["root_ranks"] = std::move(roots);
        }
      } else if (isOfRank(node, "groups")) {
        mergeGroups(node, valuesOf<std::vector<int64_t>>(i, "groups"));
      }
    }
  }

  /// Each group as a text, once.
  static void mergeGroups(Node &node, const std::vector<std::vector<int64_t>> &groups) {
    std::vector<std::string> texts;
    for (const std::vector<int64_t> &group : groups) {
      std::string text;
      for (int64_t rank : group)
        text += (text.empty() ? "" : ",") + std::to_string(rank);
      if (std::find(texts.begin(), texts.end(), text) == texts.end())
        texts.push_back(std::move(text));
    }
    if (!texts.empty())
      node.attributes["groups"] = std::move(texts);
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

Expected<Model> onnx_model::mergeRanks(std::vector<Model> ranks, const Mesh &mesh) {
  if (static_cast<int64_t>(ranks.size()) != mesh.numRanks())
    return makeError("there are files of " + std::to_string(ranks.size()) +
                     " ranks for a mesh \"" + mesh.str() + "\" of " +
                     std::to_string(mesh.numRanks()));
  if (auto ok = Merger(ranks, mesh).run(); !ok)
    return tl::unexpected(ok.error());
  return std::move(ranks[0]);
}
