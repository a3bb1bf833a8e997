//===- Neighbours.cpp - Import of exchanges between neighbours ------------===//
//
// MindSpore's NeighborExchange and NeighborExchangeV2. In a graph that is written per
// rank every rank has its own neighbours, so the attributes are lists by rank. Who sends
// and who receives is matched here: what no rank takes, or none gives, would be a hang.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Manual.h"

#include "dialects/Dist/Dist.h"
#include "passes/Import/Compose.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

//===-- Lists by rank -----------------------------------------------------===//

/// Numbers of every rank.
using ByRank = std::vector<std::vector<int64_t>>;

/// An attribute that is a list of numbers for all ranks, or such a list in a string for
/// each. The count of numbers is `count`, if there is one to be met.
static Expected<ByRank> listsOf(const Mesh &mesh, const Node &node, StringRef name,
                                std::optional<size_t> count) {
  const auto ranks = static_cast<size_t>(mesh.numRanks());
  ByRank lists;
  if (const auto *same = node.attribute<std::vector<int64_t>>(name)) {
    lists.assign(ranks, *same);
  } else if (const auto *texts = node.attribute<std::vector<std::string>>(name)) {
    if (texts->size() != ranks)
      return makeError(name.str() + " has " + std::to_string(texts->size()) +
                       " lists for a mesh of " + std::to_string(ranks) + " ranks");
    for (const std::string &text : *texts) {
      auto numbers = numbersOf(text);
      if (!numbers)
        return makeError(name.str() + ": " + numbers.error().message);
      lists.push_back(std::move(*numbers));
    }
  } else {
    return makeError("expected " + name.str() +
                     ", numbers for all ranks or a string of "
                     "them for each");
  }
  for (size_t rank = 0; count && rank < ranks; ++rank)
    if (lists[rank].size() != *count)
      return makeError(name.str() + " of rank " + std::to_string(rank) + " has " +
                       std::to_string(lists[rank].size()) + " numbers, expected " +
                       std::to_string(*count));
  return lists;
}

static std::string ranksText(int64_t from, int64_t to) {
  return "rank " + std::to_string(from) + " to rank " + std::to_string(to);
}

/// Each is −1, for nobody, or a member of the rank's group.
static Expected<void> checkPeers(const Mesh &mesh, const AxisList &group, StringRef name,
                                 const ByRank &lists) {
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    const std::vector<int64_t> members = mesh.group(rank, group);
    for (int64_t peer : lists[static_cast<size_t>(rank)]) {
      const std::string what = name.str() + " of rank " + std::to_string(rank) + " has " +
                               std::to_string(peer);
      if (peer < -1 || peer >= mesh.numRanks())
        return makeError(what + ", which is neither -1 nor a rank of the mesh \"" +
                         mesh.str() + "\" of " + std::to_string(mesh.numRanks()));
      if (peer >= 0 && !llvm::is_contained(members, peer))
        return makeError(what + ", which is not in the rank's group " + textOf(members));
    }
  }
  return {};
}

namespace {
/// Whom every rank sends to and receives from.
struct Peers {
  ByRank sends, receives;

  /// Places in the lists by which `from` sends to `to`, and by which `to` receives.
  std::vector<size_t> sendsBetween(int64_t from, int64_t to) const {
    return placesOf(sends[static_cast<size_t>(from)], to);
  }
  std::vector<size_t> receivesBetween(int64_t from, int64_t to) const {
    return placesOf(receives[static_cast<size_t>(to)], from);
  }

private:
  static std::vector<size_t> placesOf(const std::vector<int64_t> &list, int64_t peer) {
    std::vector<size_t> places;
    for (auto [i, other] : llvm::enumerate(list))
      if (other == peer)
        places.push_back(i);
    return places;
  }
};

/// A send and its receive, as places in the lists of their ranks.
struct Match {
  int64_t from, to;
  size_t send, receive;
};
} // namespace

static bool isExchange(const Node &node) {
  return node.domain == "partita" &&
         (node.opType == "NeighborExchange" || node.opType == "NeighborExchangeV2");
}

static Expected<Peers> readPeers(const Mesh &mesh, const Node &node,
                                 std::optional<size_t> numSends,
                                 std::optional<size_t> numReceives) {
  auto sends = listsOf(mesh, node, "send_rank_ids", numSends);
  if (!sends)
    return tl::unexpected(sends.error());
  auto receives = listsOf(mesh, node, "recv_rank_ids", numReceives);
  if (!receives)
    return tl::unexpected(receives.error());
  return Peers{std::move(*sends), std::move(*receives)};
}

/// Other nodes in which what `isSend` is left over between the two ranks has its other
/// end: each exchange waits for its own.
static std::string otherEnds(const Importer &importer, const Node &node, int64_t from,
                             int64_t to, bool isSend) {
  std::string names;
  for (const Node &other : *importer.nodes) {
    if (&other == &node || !isExchange(other))
      continue;
    auto peers = readPeers(*importer.mesh, other, {}, {});
    if (!peers)
      continue;
    const size_t sends = peers->sendsBetween(from, to).size();
    const size_t receives = peers->receivesBetween(from, to).size();
    if (isSend ? receives > sends : sends > receives)
      names += (names.empty() ? "'" : ", '") + other.name + "'";
  }
  if (names.empty())
    return "";
  return std::string("; there is ") + (isSend ? "a receive" : "a send") +
         " too many between them in " + names +
         ": two exchanges would wait for each other";
}

/// Pairs the i-th send from one rank to another with the i-th receive there.
static Expected<std::vector<Match>> matchPeers(const Importer &importer, const Node &node,
                                               const Peers &peers) {
  std::vector<Match> matches;
  const int64_t ranks = importer.mesh->numRanks();
  for (int64_t from = 0; from < ranks; ++from)
    for (int64_t to = 0; to < ranks; ++to) {
      auto sends = peers.sendsBetween(from, to),
           receives = peers.receivesBetween(from, to);
      if (sends.size() != receives.size()) {
        const bool isSend = sends.size() > receives.size();
        return makeError(std::to_string(sends.size()) + " sends from " +
                         ranksText(from, to) + " meet " +
                         std::to_string(receives.size()) + " receives: nobody " +
                         (isSend ? "takes" : "gives") + " what rank " +
                         (isSend ? std::to_string(from) + " sends"
                                 : std::to_string(to) + " waits for") +
                         otherEnds(importer, node, from, to, isSend));
      }
      for (auto [send, receive] : llvm::zip(sends, receives))
        matches.push_back({from, to, send, receive});
    }
  return matches;
}

/// The exchange as an op; of no pieces, zeros.
static Expected<Value> emitPieces(Importer &importer, Value x, Pieces pieces) {
  const Mesh &mesh = *importer.mesh;
  pieces.sort();
  auto type = RankedTensorType::get(pieces.after, getElementTypeOrSelf(x.getType()));
  if (auto ok = checkSize(type); !ok)
    return tl::unexpected(ok.error());
  if (pieces.list.empty() && type.getNumElements() == 0)
    return importer.empty(type);
  if (pieces.list.empty())
    return Compose(importer).zeros(type.getElementType(), pieces.after);
  if (auto ok = pieces.verify(mesh); !ok)
    return tl::unexpected(ok.error());
  MLIRContext *context = importer.builder.getContext();
  auto attr = dist::MeshAttr::get(context, mesh);
  auto whole = [&](const Shape &shape) {
    return dist::LayoutAttr::get(context, attr, Layout::replicated(shape));
  };
  return dist::ManualOp::create(importer.builder, importer.location, type, x,
                                whole(pieces.before), whole(pieces.after), false, false,
                                dist::PiecesAttr::get(context, attr, pieces.list))
      .getResult();
}

//===-- NeighborExchange --------------------------------------------------===//

/// Shapes, one string each, where the attribute is there.
static Expected<std::vector<Shape>> shapesOf(const Node &node, StringRef name,
                                             size_t count) {
  const auto *texts = node.attribute<std::vector<std::string>>(name);
  std::vector<Shape> shapes;
  if (!texts)
    return shapes;
  if (texts->size() != count)
    return makeError(name.str() + " has " + std::to_string(texts->size()) +
                     " shapes, expected " + std::to_string(count));
  for (const std::string &text : *texts) {
    auto shape = numbersOf(text);
    if (!shape)
      return makeError(name.str() + ": " + shape.error().message);
    if (auto extent = llvm::find_if(*shape, [](int64_t e) { return e < 0; });
        extent != shape->end())
      return makeError(name.str() + " has a dim of " + std::to_string(*extent) +
                       " elements");
    shapes.push_back(std::move(*shape));
  }
  return shapes;
}

namespace {
/// Tensors that a NeighborExchange sends and gets, each as a whole.
class Exchange {
public:
  Exchange(Importer &importer, const Node &node) : importer(importer), node(node) {}

  Expected<Values> run() {
    const Mesh &mesh = *importer.mesh;
    if (auto ok = checkAttributes(node); !ok)
      return tl::unexpected(ok.error());
    auto group = groupOf(mesh, node);
    if (!group)
      return tl::unexpected(group.error());
    if (auto ok = readInputs(); !ok)
      return tl::unexpected(ok.error());
    auto peers = readPeers(mesh, node, node.inputs.size(), node.outputs.size());
    if (!peers)
      return tl::unexpected(peers.error());
    if (auto ok = checkPeers(mesh, *group, "send_rank_ids", peers->sends); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = checkPeers(mesh, *group, "recv_rank_ids", peers->receives); !ok)
      return tl::unexpected(ok.error());
    auto matches = matchPeers(importer, node, *peers);
    if (!matches)
      return tl::unexpected(matches.error());
    if (auto ok = findShapes(*matches); !ok)
      return tl::unexpected(ok.error());
    return exchange(*matches);
  }

private:
  /// The inputs have one type, and the shapes that the node says.
  Expected<void> readInputs() {
    if (node.inputs.empty())
      return makeError("expected one input or more");
    auto said = shapesOf(node, "send_shapes", node.inputs.size());
    if (!said)
      return tl::unexpected(said.error());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.hasInput(i))
        return makeError("input " + std::to_string(i) + " is absent");
      inputs.push_back(importer.input(node, i));
      const Shape shape = shapeOf(inputs[i]);
      if (!said->empty() && (*said)[i] != shape)
        return makeError("send_shapes says " + textOf((*said)[i]) + " of input '" +
                         node.inputs[i] + "', which has shape " + textOf(shape));
      if (typeOf(inputs[i]) != typeOf(inputs[0]))
        return makeError("input '" + node.inputs[i] + "' of type " + typeName(inputs[i]) +
                         " goes with '" + node.inputs[0] + "' of type " +
                         typeName(inputs[0]));
    }
    if (!node.attributes.count("recv_type"))
      return {};
    auto type = elementTypeOfOnnx(importer, intAttr(node, "recv_type", 0));
    if (!type)
      return tl::unexpected(type.error());
    if (*type == typeOf(inputs[0]))
      return {};
    return makeError("recv_type is " + std::string(name(*dtypeOf(*type))) +
                     ", and input '" + node.inputs[0] + "', which is sent, is of type " +
                     typeName(inputs[0]));
  }

  /// Shapes of the outputs: those that the node says, or those of what is sent there.
  Expected<void> findShapes(const std::vector<Match> &matches) {
    auto said = shapesOf(node, "recv_shapes", node.outputs.size());
    if (!said)
      return tl::unexpected(said.error());
    std::vector<std::optional<Shape>> found(node.outputs.size());
    for (auto [i, shape] : llvm::enumerate(*said))
      found[i] = shape;
    for (const Match &match : matches) {
      const Shape sent = shapeOf(inputs[match.send]);
      std::optional<Shape> &shape = found[match.receive];
      if (shape.value_or(sent) != sent)
        return makeError("input '" + node.inputs[match.send] + "' of shape " +
                         textOf(sent) + " goes from " + ranksText(match.from, match.to) +
                         ", where output '" + node.outputs[match.receive] +
                         "' has shape " + textOf(*shape));
      shape = sent;
    }
    for (auto [i, shape] : llvm::enumerate(found)) {
      if (!shape)
        return makeError("no rank receives output '" + node.outputs[i] +
                         "', and no recv_shapes says its shape");
      if (auto ok = checkSize(RankedTensorType::get(*shape, typeOf(inputs[0]))); !ok)
        return ok;
      outputs.push_back(std::move(*shape));
    }
    return {};
  }

  /// Tensors of one shape keep their dims; others go as runs of one row.
  Expected<Values> exchange(const std::vector<Match> &matches) {
    Compose c(importer);
    if (inputs.size() == 1 && outputs.size() == 1 && !outputs[0].empty() &&
        shapeOf(inputs[0]) == outputs[0]) {
      Pieces pieces{outputs[0], outputs[0], {}};
      for (const Match &match : matches)
        pieces.list.push_back(whole(match, outputs[0]));
      return single(emitPieces(importer, inputs[0], std::move(pieces)));
    }
    std::vector<int64_t> sources{0}, targets{0};
    Values rows;
    for (Value input : inputs) {
      const int64_t size = elementCount(shapeOf(input));
      sources.push_back(sources.back() + size);
      if (size != 0)
        rows.push_back(c.reshape(input, {size}));
    }
    for (const Shape &shape : outputs)
      targets.push_back(targets.back() + elementCount(shape));
    Pieces pieces{{sources.back()}, {targets.back()}, {}};
    for (const Match &match : matches)
      pieces.list.push_back({match.from,
                             match.to,
                             {{sources[match.send], targets[match.receive],
                               sources[match.send + 1] - sources[match.send]}}});
    auto all = c.results({rows.empty()       ? inputs[0]
                          : rows.size() == 1 ? rows[0]
                                             : c.concat(rows, 0)});
    if (!all)
      return all;
    auto given = emitPieces(importer, all->front(), std::move(pieces));
    if (!given)
      return tl::unexpected(given.error());
    Values results;
    for (auto [i, shape] : llvm::enumerate(outputs))
      if (elementCount(shape) == 0)
        results.push_back(
            importer.empty(RankedTensorType::get(shape, typeOf(inputs[0]))));
      else
        results.push_back(c.reshape(targets.back() == targets[i + 1] - targets[i]
                                        ? *given
                                        : c.slice(*given, 0, targets[i], targets[i + 1]),
                                    shape));
    return c.results(results);
  }

  static Piece whole(const Match &match, const Shape &shape) {
    Piece piece{match.from, match.to, {}};
    for (int64_t extent : shape)
      piece.runs.push_back({0, 0, extent});
    return piece;
  }
  static Type typeOf(Value value) { return getElementTypeOrSelf(value.getType()); }
  static std::string typeName(Value value) {
    return std::string(name(*dtypeOf(typeOf(value))));
  }

  Importer &importer;
  const Node &node;
  Values inputs;
  std::vector<Shape> outputs;
};
} // namespace

static Expected<Values> importExchange(Importer &importer, const Node &node) {
  return Exchange(importer, node).run();
}

//===-- NeighborExchangeV2 ------------------------------------------------===//

namespace {
/// Directions, clockwise from the top, and what of an image lies there.
constexpr size_t numDirections = 8;
constexpr StringRef directionNames[numDirections] = {
    "top",    "top right",   "right", "bottom right",
    "bottom", "bottom left", "left",  "top left"};
enum Side : size_t { Top, Bottom, Left, Right };
constexpr size_t numSides = 4;
constexpr StringRef sideNames[numSides] = {"top", "bottom", "left", "right"};
/// The direction that is each side.
constexpr size_t directionOf[numSides] = {0, 4, 6, 2};

/// The side of rows, and of columns, to which a direction leads; none: all of them.
std::optional<Side> rowsOf(size_t direction) {
  if (direction == 7 || direction <= 1)
    return Top;
  if (direction >= 3 && direction <= 5)
    return Bottom;
  return std::nullopt;
}
std::optional<Side> columnsOf(size_t direction) {
  if (direction >= 1 && direction <= 3)
    return Right;
  if (direction >= 5)
    return Left;
  return std::nullopt;
}

/// Borders of images go to the ranks around, which put them around theirs.
class BorderExchange {
public:
  BorderExchange(Importer &importer, const Node &node)
      : importer(importer), node(node), mesh(*importer.mesh) {}

  Expected<Values> run() {
    if (auto ok = checkAttributes(node); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = readInput(); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = readLists(); !ok)
      return tl::unexpected(ok.error());
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
      if (auto ok = checkRank(static_cast<size_t>(rank)); !ok)
        return tl::unexpected(ok.error());
    if (auto ok = findExtents(); !ok)
      return tl::unexpected(ok.error());
    auto matches = matchPeers(importer, node, peers);
    if (!matches)
      return tl::unexpected(matches.error());
    Pieces pieces{shape, shape, {}};
    pieces.after[2] += extents[Top] + extents[Bottom];
    pieces.after[3] += extents[Left] + extents[Right];
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
      pieces.list.push_back(own(rank));
    for (const Match &match : *matches) {
      auto piece = border(match);
      if (!piece)
        return tl::unexpected(piece.error());
      pieces.list.push_back(std::move(*piece));
    }
    return single(emitPieces(importer, x, std::move(pieces)));
  }

private:
  Expected<void> readInput() {
    if (node.inputs.size() != 1 || !node.hasInput(0))
      return makeError("expected one input, got " + std::to_string(node.inputs.size()));
    x = importer.input(node, 0);
    shape = shapeOf(x);
    if (shape.size() != 4)
      return makeError("expected a tensor NCHW, got one of shape " + textOf(shape));
    std::string format =
        stringAttr(node, "format", stringAttr(node, "data_format", "NCHW"));
    if (format != "NCHW")
      return makeError("format \"" + format + "\" is not NCHW");
    return {};
  }

  Expected<void> readLists() {
    auto group = groupOf(mesh, node);
    if (!group)
      return tl::unexpected(group.error());
    auto found = readPeers(mesh, node, numDirections, numDirections);
    if (!found)
      return tl::unexpected(found.error());
    peers = std::move(*found);
    if (auto ok = checkPeers(mesh, *group, "send_rank_ids", peers.sends); !ok)
      return ok;
    if (auto ok = checkPeers(mesh, *group, "recv_rank_ids", peers.receives); !ok)
      return ok;
    for (auto [name, lens] :
         {std::pair("send_lens", &sendLens), std::pair("recv_lens", &receiveLens)}) {
      auto lists = listsOf(mesh, node, name, numSides);
      if (!lists)
        return tl::unexpected(lists.error());
      for (auto [rank, list] : llvm::enumerate(*lists))
        for (int64_t length : list)
          if (length < 0)
            return makeError(std::string(name) + " of rank " + std::to_string(rank) +
                             " has " + std::to_string(length));
      *lens = std::move(*lists);
    }
    return {};
  }

  /// Conditions of MindSpore for the lists of one rank.
  Expected<void> checkRank(size_t rank) const {
    const std::string of = " of rank " + std::to_string(rank);
    for (auto [name, list] : {std::pair("send_rank_ids", &peers.sends[rank]),
                              std::pair("recv_rank_ids", &peers.receives[rank])})
      for (size_t i = 0; i < numDirections; ++i)
        if ((*list)[i] >= 0 &&
            llvm::is_contained(ArrayRef(*list).take_front(i), (*list)[i]))
          return makeError(name + of + " has " + std::to_string((*list)[i]) + " twice");
    for (size_t side = 0; side < numSides; ++side) {
      const size_t d = side < Left ? 2 : 3;
      if (sendLens[rank][side] > shape[d])
        return makeError(
            "send_lens" + of + " has " + std::to_string(sendLens[rank][side]) +
            " at the " + sideNames[side].str() + ", and dim " + std::to_string(d) +
            " of '" + node.inputs[0] + "' has size " + std::to_string(shape[d]));
    }
    for (size_t corner = 1; corner < numDirections; corner += 2) {
      const std::vector<int64_t> &list = peers.receives[rank];
      const size_t before = corner - 1, behind = (corner + 1) % numDirections;
      if ((list[corner] >= 0) != (list[before] >= 0 && list[behind] >= 0))
        return makeError(
            "recv_rank_ids" + of + " has " + std::to_string(list[corner]) + " at the " +
            directionNames[corner].str() + ", " + std::to_string(list[before]) +
            " at the " + directionNames[before].str() + " and " +
            std::to_string(list[behind]) + " at the " + directionNames[behind].str() +
            ": a corner comes where both sides come");
    }
    return {};
  }

  /// Results have one shape in one program. A side that only some ranks receive is zeros
  /// on the others.
  Expected<void> findExtents() {
    for (size_t side = 0; side < numSides; ++side) {
      std::optional<size_t> first;
      for (size_t rank = 0; rank < peers.receives.size(); ++rank) {
        if (peers.receives[rank][directionOf[side]] < 0)
          continue;
        const int64_t length = receiveLens[rank][side];
        if (first && length != extents[side])
          return makeError("recv_lens of rank " + std::to_string(*first) + " has " +
                           std::to_string(extents[side]) + " at the " +
                           sideNames[side].str() + ", that of rank " +
                           std::to_string(rank) + " " + std::to_string(length) +
                           ": one program has results of one shape");
        if (!first)
          first = rank, extents[side] = length;
      }
    }
    return {};
  }

  Piece own(int64_t rank) const {
    return {rank,
            rank,
            {{0, 0, shape[0]},
             {0, 0, shape[1]},
             {0, extents[Top], shape[2]},
             {0, extents[Left], shape[3]}}};
  }

  /// Elements of a dim that are sent, and where they come: `sent` and `received` are the
  /// sides to which the two directions lead. `first`: the dim's side in front.
  std::pair<ExchangeRun, int64_t> runOf(const Match &match, std::optional<Side> sent,
                                        std::optional<Side> received, Side first) const {
    const int64_t extent = shape[first == Top ? 2 : 3];
    const int64_t length =
        sent ? sendLens[static_cast<size_t>(match.from)][*sent] : extent;
    const int64_t room = received ? extents[*received] : extent;
    ExchangeRun run{sent && *sent != first ? extent - length : 0, 0, length};
    if (!received)
      run.after = extents[first];
    else if (*received != first)
      run.after = extents[first] + extent;
    return {run, room};
  }

  Expected<Piece> border(const Match &match) const {
    auto [rows, rowsThere] = runOf(match, rowsOf(match.send), rowsOf(match.receive), Top);
    auto [columns, columnsThere] =
        runOf(match, columnsOf(match.send), columnsOf(match.receive), Left);
    if (rows.length != rowsThere || columns.length != columnsThere)
      return makeError("the " + directionNames[match.send].str() + " of rank " +
                       std::to_string(match.from) + ", " +
                       textOf({rows.length, columns.length}) + ", comes to the " +
                       directionNames[match.receive].str() + " of rank " +
                       std::to_string(match.to) + ", which waits for " +
                       textOf({rowsThere, columnsThere}));
    return Piece{
        match.from, match.to, {{0, 0, shape[0]}, {0, 0, shape[1]}, rows, columns}};
  }

  Importer &importer;
  const Node &node;
  const Mesh &mesh;
  Value x;
  Shape shape;
  Peers peers;
  ByRank sendLens, receiveLens;
  int64_t extents[numSides] = {}; ///< that the result has more at each side
};
} // namespace

static Expected<Values> importBorderExchange(Importer &importer, const Node &node) {
  return BorderExchange(importer, node).run();
}

void import::addNeighbours(HandlerTable &table) {
  table["partita.NeighborExchange"] = importExchange;
  table["partita.NeighborExchangeV2"] = importBorderExchange;
}
