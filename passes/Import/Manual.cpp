//===- Manual.cpp - Import of graphs that are written per rank ------------===//
//
// Each node is one dist.manual: in which layout what ranks have is a tensor, and in which
// layout they have it then (docs/manual.md).
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Manual.h"

#include "dialects/Dist/Dist.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Onnx/MergeRanks.h"
#include "passes/Import/Compose.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

//===-- Groups ------------------------------------------------------------===//

std::string import::textOf(ArrayRef<int64_t> numbers) {
  return "[" +
         llvm::join(llvm::map_range(numbers, [](int64_t n) { return std::to_string(n); }),
                    ", ") +
         "]";
}

Expected<std::vector<int64_t>> import::numbersOf(StringRef text) {
  std::vector<int64_t> numbers;
  SmallVector<StringRef> parts;
  if (!text.trim().empty())
    text.split(parts, ',');
  for (StringRef part : parts)
    if (part.trim().getAsInteger(10, numbers.emplace_back()))
      return makeError("\"" + text.str() + "\" has \"" + part.trim().str() +
                       "\", which is no number");
  return numbers;
}

/// The part of the mesh whose coordinates are `stride` ranks apart, `size` of them; none
/// if no axis has it.
static std::optional<AxisRef> partAt(const Mesh &mesh, int64_t stride, int64_t size) {
  int64_t below = 1; // ranks from one coordinate of the axis to the next
  for (auto a = static_cast<int32_t>(mesh.axes().size()) - 1; a >= 0; --a) {
    const int64_t extent = mesh.axes()[static_cast<size_t>(a)].size;
    if (stride % below == 0 && extent % (stride / below * size) == 0)
      return AxisRef{a, extent / (stride / below * size), size};
    below *= extent;
  }
  return std::nullopt;
}

/// The axes along which the members of this group lie, if there are such: prime parts of
/// its size from the minor side on, each in steps of equal length.
static AxisList axesAlong(const Mesh &mesh, ArrayRef<int64_t> group) {
  AxisList axes;
  auto left = static_cast<int64_t>(group.size());
  for (int64_t done = 1; left > 1;) {
    int64_t prime = 2;
    while (left % prime)
      ++prime;
    const int64_t stride = group[static_cast<size_t>(done)] - group[0];
    auto part = stride > 0 ? partAt(mesh, stride, prime) : std::nullopt;
    // A prime that fits another axis comes first there.
    for (int64_t other = prime + 1; !part && stride > 0 && other <= left; ++other)
      if (left % other == 0)
        if (auto found = partAt(mesh, stride, other); found)
          part = found, prime = other;
    if (!part)
      return {};
    axes.insert(axes.begin(), *part);
    done *= prime, left /= prime;
  }
  return canonical(axes);
}

static Expected<std::vector<int64_t>> readRanks(const Mesh &mesh, StringRef text) {
  std::vector<int64_t> ranks;
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  for (StringRef part : parts) {
    int64_t rank = -1;
    if (part.trim().getAsInteger(10, rank) || rank < 0 || rank >= mesh.numRanks())
      return makeError("group \"" + text.str() + "\" has \"" + part.trim().str() +
                       "\", which is no rank of the mesh \"" + mesh.str() + "\" of " +
                       std::to_string(mesh.numRanks()));
    if (llvm::is_contained(ranks, rank))
      return makeError("group \"" + text.str() + "\" has rank " + std::to_string(rank) +
                       " twice");
    ranks.push_back(rank);
  }
  return ranks;
}

/// Lists of ranks as axes: every rank is in one group, and all groups lie along the same.
static Expected<AxisList> axesOf(const Mesh &mesh,
                                 const std::vector<std::string> &texts) {
  std::vector<std::vector<int64_t>> groups;
  std::vector<int64_t> groupOf(static_cast<size_t>(mesh.numRanks()), -1);
  for (const std::string &text : texts) {
    auto ranks = readRanks(mesh, text);
    if (!ranks)
      return tl::unexpected(ranks.error());
    for (int64_t rank : *ranks)
      if (int64_t other = std::exchange(groupOf[static_cast<size_t>(rank)],
                                        static_cast<int64_t>(groups.size()));
          other >= 0)
        return makeError("rank " + std::to_string(rank) + " is in groups " +
                         textOf(groups[static_cast<size_t>(other)]) + " and " +
                         textOf(*ranks));
    groups.push_back(std::move(*ranks));
  }
  if (auto alone = llvm::find(groupOf, -1); alone != groupOf.end())
    return makeError("rank " + std::to_string(alone - groupOf.begin()) +
                     " is in no group; \"groups\" lists all groups");
  AxisList axes = axesAlong(mesh, groups.front());
  for (const std::vector<int64_t> &group : groups) {
    std::vector<int64_t> along = mesh.group(group.front(), axes);
    if (along == group)
      continue;
    return makeError(
        "the group of ranks " + textOf(group) + " lies along no axes of the mesh \"" +
        mesh.str() + "\"" +
        (axes.empty() ? ""
                      : "; along " + mesh.str(axes) + " it would be " + textOf(along)));
  }
  return axes;
}

/// Adds how to ask for ranks where nobody has.
static Error withMesh(const Mesh &mesh, Error error) {
  if (mesh.axes().empty())
    error.message += "; --mesh gives the ranks for which the graph is written";
  return error;
}

Expected<AxisList> import::groupOf(const Mesh &mesh, const Node &node) {
  const auto *ranks = node.attribute<std::vector<std::string>>("groups");
  std::string text = stringAttr(node, "group", "");
  if (ranks && !text.empty())
    return makeError("\"group\" and \"groups\" are two words for one thing");
  if (ranks)
    return axesOf(mesh, *ranks);
  if (text.empty())
    return canonical(mesh.all());
  AxisList axes;
  SmallVector<StringRef> parts;
  StringRef(text).split(parts, ',');
  for (StringRef part : parts) {
    auto axis = mesh.parseAxis(std::string_view(part));
    if (!axis)
      return tl::unexpected(withMesh(mesh, axis.error()));
    if (overlap(axes, {*axis}))
      return makeError("group \"" + text + "\" names " + part.trim().str() +
                       " twice, in whole or in part");
    axes.push_back(*axis);
  }
  return canonical(axes);
}

//===-- Attributes --------------------------------------------------------===//

/// Types that an attribute can have, as bits.
enum AttributeType : unsigned { Int = 1, Text = 2, Ints = 4, Texts = 8 };

static unsigned typeOf(const onnx_model::Attribute &attribute) {
  if (std::holds_alternative<int64_t>(attribute))
    return Int;
  if (std::holds_alternative<std::string>(attribute))
    return Text;
  if (std::holds_alternative<std::vector<int64_t>>(attribute))
    return Ints;
  return std::holds_alternative<std::vector<std::string>>(attribute) ? Texts : 0;
}

using AttributeTypes = std::map<std::string_view, unsigned>;

/// Attributes by node, as the table of handlers has it.
static const AttributeTypes &attributesOf(const std::string &node) {
  static const AttributeTypes lists = {{"group", Text},
                                       {"groups", Texts},
                                       {"send_rank_ids", Ints | Texts},
                                       {"recv_rank_ids", Ints | Texts}};
  static const AttributeTypes groups = {{"group", Text}, {"groups", Texts}};
  auto with = [](AttributeTypes more, const AttributeTypes &base) {
    more.insert(base.begin(), base.end());
    return more;
  };
  static const std::map<std::string, AttributeTypes> table = {
      {"partita.AllReduce", with({{"op", Text}}, groups)},
      {"partita.AllGather", with({{"axis", Int}}, groups)},
      {"partita.ReduceScatter", with({{"op", Text}, {"axis", Int}}, groups)},
      {"partita.AlltoAll",
       with({{"split_dim", Int}, {"concat_dim", Int}, {"split_count", Int}}, groups)},
      {"partita.Broadcast", with({{"root_rank", Int}, {"root_ranks", Ints}}, groups)},
      {"partita.NeighborExchange",
       with({{"send_shapes", Texts}, {"recv_shapes", Texts}, {"recv_type", Int}}, lists)},
      {"partita.NeighborExchangeV2", with({{"send_lens", Ints | Texts},
                                           {"recv_lens", Ints | Texts},
                                           {"format", Text},
                                           {"data_format", Text}},
                                          lists)},
      {"partita.ToLocal", {{"layout", Text}}},
      {"partita.ToGlobal", {{"layout", Text}}},
      {"com.microsoft.AllReduce", {}},
      {"com.microsoft.AllGather", {{"axis", Int}, {"group_size", Int}}},
      {"com.microsoft.AllToAll", {{"group_size", Int}}},
      {"DistCollective",
       {{"collective_operation", Text},
        {"reduce_op", Text},
        {"root", Int},
        {"root_ranks", Ints},
        {"group_size", Int},
        {"nb_rank", Int},
        {"groups", Ints | Texts}}}};
  return table.at(node);
}

Expected<void> import::checkAttributes(const Node &node) {
  const AttributeTypes &types =
      attributesOf((node.domain.empty() ? "" : node.domain + ".") + node.opType);
  for (const auto &[name, value] : node.attributes) {
    auto type = types.find(name);
    if (type == types.end()) {
      auto names = llvm::map_range(types, [](const auto &entry) { return entry.first; });
      return makeError(
          "there is no attribute '" + name + "'" +
          (types.empty() ? "; it has none" : "; it has " + llvm::join(names, ", ")));
    }
    if (!(typeOf(value) & type->second))
      return makeError("attribute '" + name + "' is not " +
                       (type->second & Int    ? "a number"
                        : type->second & Text ? "a text"
                        : type->second & Ints ? "a list of numbers"
                                              : "a list of texts"));
  }
  return {};
}

//===-- Nodes -------------------------------------------------------------===//

namespace {
/// Operand of a node, and the layouts that it leads from and to.
struct Exchange {
  Value x;
  Shape shape;
  AxisList group;
  int64_t members = 1;
  Layout from, to;

  /// An axis of x by number, from the end if it is negative.
  Expected<size_t> axis(const Node &node, const char *name, int64_t fallback) const {
    int64_t axis = intAttr(node, name, fallback),
            rank = static_cast<int64_t>(shape.size());
    if (axis >= -rank && axis < rank)
      return static_cast<size_t>(axis < 0 ? axis + rank : axis);
    return makeError(std::string(name) + " " + std::to_string(axis) +
                     " is no dim of a tensor of rank " + std::to_string(rank));
  }
  Expected<void> divides(size_t d) const {
    if (shape[d] % members == 0)
      return {};
    return makeError("dim " + std::to_string(d) + " of size " + std::to_string(shape[d]) +
                     " is not divided by the " + std::to_string(members) +
                     " ranks of its group");
  }
};
} // namespace

static Expected<Exchange> begin(Importer &importer, const Node &node,
                                std::optional<size_t> input = {}) {
  if (!input && node.inputs.size() != 1)
    return makeError("expected one input, got " + std::to_string(node.inputs.size()));
  if (auto ok = checkAttributes(node); !ok)
    return tl::unexpected(ok.error());
  if (!node.hasInput(input.value_or(0)))
    return makeError("input " + std::to_string(input.value_or(0)) + " is absent");
  Exchange exchange;
  exchange.x = importer.input(node, input.value_or(0));
  exchange.shape = shapeOf(exchange.x);
  auto group = groupOf(*importer.mesh, node);
  if (!group)
    return tl::unexpected(group.error());
  exchange.group = std::move(*group);
  exchange.members = product(exchange.group);
  exchange.from = exchange.to = Layout::replicated(exchange.shape);
  return exchange;
}

static Expected<Values> finish(Importer &importer, const Exchange &exchange,
                               bool enters = false, bool leaves = false) {
  OpBuilder &builder = importer.builder;
  MLIRContext *context = builder.getContext();
  auto mesh = dist::MeshAttr::get(context, *importer.mesh);
  auto layoutOf = [&](const Layout &layout) {
    return dist::LayoutAttr::get(context, mesh, layout);
  };
  for (const Layout *layout : {&exchange.from, &exchange.to})
    if (auto ok = layout->verify(*importer.mesh); !ok)
      return tl::unexpected(ok.error());
  auto type = RankedTensorType::get(exchange.to.localShape(),
                                    getElementTypeOrSelf(exchange.x.getType()));
  if (auto ok = checkSize(type); !ok)
    return tl::unexpected(ok.error());
  return Values{dist::ManualOp::create(builder, importer.location, type, exchange.x,
                                       layoutOf(exchange.from), layoutOf(exchange.to),
                                       enters, leaves, dist::PiecesAttr())
                    .getResult()};
}

static AxisList sorted(AxisList axes) {
  llvm::sort(axes);
  return canonical(axes);
}

/// Says of `from` that it is to be reduced.
static Expected<void> reduceFrom(Exchange &exchange, const Node &node) {
  std::string word = stringAttr(node, "op", "sum");
  auto kind = reduceKindFromName(word);
  if (!kind)
    return makeError("op \"" + word + "\" is none of sum, max, min and prod");
  if (getElementTypeOrSelf(exchange.x.getType()).isInteger(1))
    return makeError("booleans have no " + word + "; cast them to numbers");
  if (!exchange.group.empty())
    exchange.from.partial = {{*kind, sorted(exchange.group)}};
  return {};
}

static Expected<Values> importAllReduce(Importer &importer, const Node &node) {
  auto exchange = begin(importer, node);
  if (!exchange)
    return tl::unexpected(exchange.error());
  if (auto ok = reduceFrom(*exchange, node); !ok)
    return tl::unexpected(ok.error());
  return finish(importer, *exchange);
}

static Expected<Values> gather(Importer &importer, const Node &node, Exchange &exchange) {
  auto axis = exchange.axis(node, "axis", 0);
  if (!axis)
    return tl::unexpected(axis.error());
  Shape all = exchange.shape;
  all[*axis] *= exchange.members;
  exchange.from = exchange.to = Layout::replicated(all);
  exchange.from.dims[*axis].factors[0].axes = exchange.group;
  return finish(importer, exchange);
}

static Expected<Values> importAllGather(Importer &importer, const Node &node) {
  return begin(importer, node).and_then([&](Exchange exchange) {
    return gather(importer, node, exchange);
  });
}

static Expected<Values> importReduceScatter(Importer &importer, const Node &node) {
  auto exchange = begin(importer, node);
  auto axis =
      exchange ? exchange->axis(node, "axis", 0) : tl::unexpected(exchange.error());
  if (!axis)
    return tl::unexpected(axis.error());
  if (auto ok = reduceFrom(*exchange, node); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = exchange->divides(*axis); !ok)
    return tl::unexpected(ok.error());
  exchange->to.dims[*axis].factors[0].axes = exchange->group;
  return finish(importer, *exchange);
}

/// Block i along `split` goes to member i, which joins what it gets along `concat`.
static Expected<Values> allToAll(Importer &importer, Exchange &exchange, size_t split,
                                 size_t concat) {
  if (auto ok = exchange.divides(split); !ok)
    return tl::unexpected(ok.error());
  const int64_t n = exchange.members;
  Shape all = exchange.shape;
  all[concat] *= n;
  exchange.from = exchange.to = Layout::replicated(all);
  if (split != concat) {
    exchange.from.dims[concat].factors[0].axes = exchange.group;
    exchange.to.dims[split].factors[0].axes = exchange.group;
    return finish(importer, exchange);
  }
  // Parts by source, by destination, the rest.
  const int64_t rest = exchange.shape[split] / n;
  exchange.from.dims[split].factors = {
      {n, n, exchange.group}, {n, n, {}}, {rest, rest, {}}};
  exchange.to.dims[split].factors = {
      {n, n, {}}, {n, n, exchange.group}, {rest, rest, {}}};
  return finish(importer, exchange);
}

static Expected<Values> importAllToAll(Importer &importer, const Node &node) {
  auto exchange = begin(importer, node);
  auto split =
      exchange ? exchange->axis(node, "split_dim", 0) : tl::unexpected(exchange.error());
  auto concat = split ? exchange->axis(node, "concat_dim", 0) : split;
  if (!concat)
    return tl::unexpected(concat.error());
  if (int64_t count = intAttr(node, "split_count", exchange->members);
      count != exchange->members)
    return makeError("split_count " + std::to_string(count) + " is not the size of its " +
                     "group, " + std::to_string(exchange->members));
  return allToAll(importer, *exchange, *split, *concat);
}

/// The member of its group that each of these roots is: one root, or one of every rank.
static Expected<int64_t> memberOfRoots(const Mesh &mesh, const Exchange &exchange,
                                       ArrayRef<int64_t> roots, bool isListed) {
  if (isListed && static_cast<int64_t>(roots.size()) != mesh.numRanks())
    return makeError("root_ranks lists " + std::to_string(roots.size()) +
                     " roots for a mesh of " + std::to_string(mesh.numRanks()) +
                     " ranks");
  for (auto [rank, root] : llvm::enumerate(roots)) {
    if (root < 0 || root >= mesh.numRanks())
      return makeError("root " + std::to_string(root) + " is no rank of the mesh \"" +
                       mesh.str() + "\" of " + std::to_string(mesh.numRanks()));
    auto own = static_cast<int64_t>(rank);
    if (isListed && !llvm::is_contained(mesh.group(own, exchange.group), root))
      return makeError("the root " + std::to_string(root) + " of rank " +
                       std::to_string(rank) + " is not in the rank's group " +
                       textOf(mesh.group(own, exchange.group)));
    if (mesh.coordinate(root, exchange.group) !=
        mesh.coordinate(roots[0], exchange.group))
      return makeError("the roots " + std::to_string(roots[0]) + " and " +
                       std::to_string(root) +
                       " have other places in their groups: one program serves all");
  }
  return mesh.coordinate(roots[0], exchange.group);
}

/// The member of its group that has what all get: of the rank that the node names, or of
/// those that it lists for every rank.
static Expected<int64_t> rootOf(Importer &importer, const Node &node,
                                const Exchange &exchange) {
  std::vector<int64_t> roots = intsAttr(node, "root_ranks", {});
  const bool isListed = !roots.empty();
  if (isListed == (node.attribute<int64_t>("root_rank") != nullptr))
    return makeError("expected one of root_rank and root_ranks, which lists a root for "
                     "every rank");
  if (!isListed)
    roots = {intAttr(node, "root_rank", 0)};
  return memberOfRoots(*importer.mesh, exchange, roots, isListed);
}

/// The root's block is all, those of others have no elements. Whoever has none reads.
static void holdAtRoot(Exchange &exchange, int64_t root) {
  if (exchange.members > 1 && elementCount(exchange.shape) != 0) {
    DimFactor &rows = exchange.from.dims[0].factors[0];
    rows.axes = exchange.group;
    rows.blocks.assign(static_cast<size_t>(exchange.members), 0);
    rows.blocks[static_cast<size_t>(root)] = rows.size;
    rows.padded = rows.size * exchange.members;
  } else if (exchange.members > 1) {
    exchange.from.partial = {{ReduceKind::Sum, sorted(exchange.group)}};
  }
}

static Expected<Value> broadcast(Importer &importer, Exchange exchange, int64_t root) {
  const bool isScalar = exchange.shape.empty();
  if (isScalar) {
    auto row = importer.reshape(exchange.x, {1});
    if (!row)
      return row;
    exchange.x = *row;
    exchange.from = exchange.to = Layout::replicated({1});
  }
  holdAtRoot(exchange, root);
  auto made = finish(importer, exchange);
  if (!made)
    return tl::unexpected(made.error());
  return isScalar ? importer.reshape(made->front(), {}) : made->front();
}

static Expected<Values> importBroadcast(Importer &importer, const Node &node) {
  Values results;
  for (size_t i = 0; i < std::max<size_t>(node.inputs.size(), 1); ++i) {
    auto exchange = begin(importer, node, i);
    if (!exchange)
      return tl::unexpected(exchange.error());
    auto root = rootOf(importer, node, *exchange);
    if (!root)
      return tl::unexpected(root.error());
    auto made = broadcast(importer, std::move(*exchange), *root);
    if (!made)
      return tl::unexpected(made.error());
    results.push_back(*made);
  }
  return results;
}

/// The layout that the node names.
static Expected<Layout> layoutOf(Importer &importer, const Node &node) {
  auto layout = Layout::parse(stringAttr(node, "layout", ""), *importer.mesh);
  if (!layout)
    return tl::unexpected(withMesh(*importer.mesh, layout.error()));
  for (auto [d, dim] : llvm::enumerate(layout->dims))
    for (const DimFactor &factor : dim.factors)
      if (factor.padded != factor.size || !factor.blocks.empty())
        return makeError("dim " + std::to_string(d) + " of layout " +
                         layout->str(*importer.mesh) + " is not divided evenly");
  return layout;
}

static Error misfit(const Shape &shape, const Layout &layout, const Mesh &mesh,
                    const Shape &wanted) {
  return {.message = "its operand of shape " + textOf(shape) + " does not fit layout " +
                     layout.str(mesh) + ", of which it would have shape " +
                     textOf(wanted)};
}

static Expected<Values> importToLocal(Importer &importer, const Node &node) {
  auto exchange = begin(importer, node);
  auto layout = exchange ? layoutOf(importer, node) : tl::unexpected(exchange.error());
  if (!layout)
    return tl::unexpected(layout.error());
  if (layout->globalShape() != exchange->shape)
    return tl::unexpected(
        misfit(exchange->shape, *layout, *importer.mesh, layout->globalShape()));
  exchange->to = std::move(*layout);
  return finish(importer, *exchange, /*enters=*/true);
}

static Expected<Values> importToGlobal(Importer &importer, const Node &node) {
  auto exchange = begin(importer, node);
  auto layout = exchange ? layoutOf(importer, node) : tl::unexpected(exchange.error());
  if (!layout)
    return tl::unexpected(layout.error());
  if (layout->localShape() != exchange->shape)
    return tl::unexpected(
        misfit(exchange->shape, *layout, *importer.mesh, layout->localShape()));
  exchange->to = Layout::replicated(layout->globalShape());
  exchange->from = std::move(*layout);
  return finish(importer, *exchange, /*enters=*/false, /*leaves=*/true);
}

//===-- ONNX Runtime's ----------------------------------------------------===//

/// All ranks, as many as the node says.
static Expected<Exchange> beginAll(Importer &importer, const Node &node) {
  auto exchange = begin(importer, node);
  if (!exchange)
    return exchange;
  int64_t size = intAttr(node, "group_size", exchange->members);
  if (size != exchange->members)
    return makeError("group_size " + std::to_string(size) +
                     " is not the number of ranks, " + std::to_string(exchange->members) +
                     ": the group is all ranks");
  return exchange;
}

static Expected<Values> importOrtAllGather(Importer &importer, const Node &node) {
  return beginAll(importer, node).and_then([&](Exchange exchange) {
    return gather(importer, node, exchange);
  });
}

static Expected<Values> importOrtAllToAll(Importer &importer, const Node &node) {
  auto exchange = beginAll(importer, node);
  auto dim =
      exchange ? exchange->axis(node, "axis", 0) : tl::unexpected(exchange.error());
  return dim.and_then([&](size_t d) { return allToAll(importer, *exchange, d, d); });
}

//===-- TensorRT's --------------------------------------------------------===//

/// The group of one rank as its ranks; those of the other ranks lie along the same axes.
static Expected<AxisList> groupOfRanks(const Mesh &mesh, ArrayRef<int64_t> ranks) {
  if (ranks.empty())
    return canonical(mesh.all());
  for (auto [i, rank] : llvm::enumerate(ranks)) {
    if (rank < 0 || rank >= mesh.numRanks())
      return makeError("groups has " + std::to_string(rank) +
                       ", which is no rank of the mesh \"" + mesh.str() + "\" of " +
                       std::to_string(mesh.numRanks()));
    if (llvm::is_contained(ranks.take_front(i), rank))
      return makeError("groups has rank " + std::to_string(rank) + " twice");
  }
  AxisList axes = axesAlong(mesh, ranks);
  if (ArrayRef(mesh.group(ranks.front(), axes)) == ranks)
    return axes;
  return makeError("the group of ranks " + textOf(ranks) +
                   " lies along no axes of the mesh \"" + mesh.str() + "\"");
}

/// A number that says how many ranks there are, where it is there.
static Expected<void> checkCount(const Node &node, const char *name, int64_t unset,
                                 int64_t members) {
  int64_t count = intAttr(node, name, unset);
  if (count == members || count <= unset)
    return {};
  return makeError(std::string(name) + " " + std::to_string(count) +
                   " is not the size of its group, " + std::to_string(members));
}

/// `groups` and the counts.
static Expected<Exchange> beginRanks(Importer &importer, const Node &node) {
  auto exchange = begin(importer, node);
  if (!exchange)
    return exchange;
  // Files of all ranks together say all groups; a file alone has one rank's.
  if (!node.attribute<std::vector<std::string>>("groups")) {
    auto group = groupOfRanks(*importer.mesh, intsAttr(node, "groups", {}));
    if (!group)
      return tl::unexpected(group.error());
    exchange->group = std::move(*group);
    exchange->members = product(exchange->group);
  }
  if (auto ok = checkCount(node, "group_size", 0, exchange->members); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = checkCount(node, "nb_rank", 1, exchange->members); !ok)
    return tl::unexpected(ok.error());
  return exchange;
}

/// The member of its group that `root` is; a rank of the group that the node names. Files
/// of all ranks together list the roots of all.
static Expected<int64_t> memberOf(const Mesh &mesh, const Node &node,
                                  const Exchange &exchange) {
  if (const auto *roots = node.attribute<std::vector<int64_t>>("root_ranks"))
    return memberOfRoots(mesh, exchange, *roots, /*isListed=*/true);
  const std::vector<int64_t> named = intsAttr(node, "groups", {});
  const int64_t root = intAttr(node, "root", -1);
  const std::vector<int64_t> ranks =
      mesh.group(named.empty() ? 0 : named.front(), exchange.group);
  if (auto at = llvm::find(ranks, root); at != ranks.end())
    return at - ranks.begin();
  return makeError("root " + std::to_string(root) + " is no rank of its group " +
                   textOf(ranks));
}

static std::string lowerAttr(const Node &node, const char *name) {
  return StringRef(stringAttr(node, name, "")).lower();
}

/// The reduction that the node asks for is that of `from`; an average is a sum, divided.
static Expected<Values> reduceRanks(Importer &importer, const Node &node,
                                    Exchange &exchange) {
  std::string word = lowerAttr(node, "reduce_op");
  const bool isAverage = word == "avg";
  auto kind = reduceKindFromName(isAverage ? "sum" : word);
  if (!kind)
    return makeError("reduce_op \"" + word + "\" is none of sum, prod, max, min and avg");
  const Type type = getElementTypeOrSelf(exchange.x.getType());
  if (type.isInteger(1) || (isAverage && !isa<FloatType>(type)))
    return makeError("reduce_op \"" + word + "\" of " +
                     std::string(name(*dtypeOf(type))) + "; cast it to floats");
  if (!exchange.group.empty())
    exchange.from.partial = {{*kind, sorted(exchange.group)}};
  auto made = finish(importer, exchange);
  if (!made || !isAverage)
    return made;
  Compose c(importer);
  return c.results({c.div(made->front(), static_cast<double>(exchange.members))});
}

/// The root's rows in equal parts.
static Expected<Values> scatterRanks(Importer &importer, const Node &node,
                                     Exchange &exchange) {
  auto root = memberOf(*importer.mesh, node, exchange);
  if (!root)
    return tl::unexpected(root.error());
  if (auto ok = exchange.divides(0); !ok)
    return tl::unexpected(ok.error());
  holdAtRoot(exchange, *root);
  exchange.to.dims[0].factors[0].axes = exchange.group;
  return finish(importer, exchange);
}

static Expected<Values> importDistCollective(Importer &importer, const Node &node) {
  auto exchange = beginRanks(importer, node);
  if (!exchange)
    return tl::unexpected(exchange.error());
  const std::string what = lowerAttr(node, "collective_operation");
  const bool isWhole = what == "all_reduce" || what == "reduce" || what == "broadcast";
  if (!isWhole && exchange->shape.empty())
    return makeError("a scalar has no rows to " + what);
  // Whoever is not the root may have anything: all have what the root has.
  if (what == "all_reduce" || what == "reduce" || what == "gather")
    if (auto root = memberOf(*importer.mesh, node, *exchange);
        !root && what != "all_reduce")
      return tl::unexpected(root.error());
  if (what == "all_reduce" || what == "reduce")
    return reduceRanks(importer, node, *exchange);
  if (what == "all_gather" || what == "gather")
    return gather(importer, node, *exchange);
  if (what == "all_to_all")
    return allToAll(importer, *exchange, 0, 0);
  if (what == "scatter")
    return scatterRanks(importer, node, *exchange);
  if (what == "reduce_scatter") {
    if (auto ok = exchange->divides(0); !ok)
      return tl::unexpected(ok.error());
    exchange->to.dims[0].factors[0].axes = exchange->group;
    return reduceRanks(importer, node, *exchange);
  }
  if (what != "broadcast")
    return makeError("collective_operation \"" + what +
                     "\" is none of all_reduce, all_gather, broadcast, reduce, "
                     "reduce_scatter, all_to_all, gather and scatter");
  return memberOf(*importer.mesh, node, *exchange).and_then([&](int64_t root) {
    return single(broadcast(importer, *exchange, root));
  });
}

/// Nodes between stages, which are ends where all stages' files are read.
static Expected<Values> importCrossing(Importer &, const Node &) {
  return makeError("crosses stages, and --stages reads the files of all of them");
}

/// A node that receives what another part of the same program sends (MergeStep.h).
static Expected<Values> importReceive(Importer &importer, const Node &node) {
  const auto *sender = node.attribute<std::string>("sender");
  const auto *number = node.attribute<int64_t>("type");
  const auto *shape = node.attribute<std::vector<int64_t>>("shape");
  const Value value = importer.input(node, 0);
  auto wanted =
      number ? dtypeFromOnnx(static_cast<int32_t>(*number)) : std::optional<DType>();
  if (!sender || !wanted || !shape || !value)
    return importCrossing(importer, node);
  const DType type = *dtypeOf(getElementTypeOrSelf(value.getType()));
  if (type != *wanted || shapeOf(value) != *shape)
    return makeError("receives " + onnx_model::typeText(*wanted, *shape) + ", and " +
                     *sender + " sends " + onnx_model::typeText(type, shapeOf(value)));
  return Values{value};
}

void import::addManual(HandlerTable &table) {
  table["partita.Send"] = importCrossing;
  table["partita.Receive"] = importReceive;
  table["partita.AllReduce"] = importAllReduce;
  table["partita.AllGather"] = importAllGather;
  table["partita.ReduceScatter"] = importReduceScatter;
  table["partita.AlltoAll"] = importAllToAll;
  table["partita.Broadcast"] = importBroadcast;
  table["partita.ToLocal"] = importToLocal;
  table["partita.ToGlobal"] = importToGlobal;
  table["DistCollective"] = importDistCollective;
  table["com.microsoft.AllReduce"] = importAllReduce;
  table["com.microsoft.AllGather"] = importOrtAllGather;
  table["com.microsoft.AllToAll"] = importOrtAllToAll;
  addNeighbours(table);
}
