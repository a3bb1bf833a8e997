//===- Pieces.cpp - Exchanges whose pieces are named by rank --------------===//
#include "partita/Base/Layout/Pieces.h"

#include "ReshardRefine.h"

#include <algorithm>
#include <tuple>

using namespace partita;

int64_t Piece::elements() const {
  int64_t count = 1;
  for (const ExchangeRun &run : runs)
    count *= run.length;
  return count;
}

static auto keyOf(const Piece &piece) {
  std::vector<std::tuple<int64_t, int64_t, int64_t>> runs;
  for (const ExchangeRun &run : piece.runs)
    runs.emplace_back(run.after, run.before, run.length);
  return std::tuple(piece.to, piece.from, std::move(runs));
}

void Pieces::sort() {
  std::erase_if(list, [](const Piece &piece) { return piece.elements() == 0; });
  std::sort(list.begin(), list.end(),
            [](const Piece &a, const Piece &b) { return keyOf(a) < keyOf(b); });
}

/// Says whether two boxes of a target have elements in common.
static bool meet(const Piece &a, const Piece &b) {
  for (size_t d = 0; d < a.runs.size(); ++d)
    if (a.runs[d].after + a.runs[d].length <= b.runs[d].after ||
        b.runs[d].after + b.runs[d].length <= a.runs[d].after)
      return false;
  return true;
}

static std::string textOf(const Piece &piece) {
  return "the piece from rank " + std::to_string(piece.from) + " to rank " +
         std::to_string(piece.to);
}

/// The piece is one of tensors of these shapes.
static Expected<void> verifyPiece(const Pieces &pieces, const Piece &piece,
                                  int64_t ranks) {
  for (int64_t rank : {piece.from, piece.to})
    if (rank < 0 || rank >= ranks)
      return makeError(textOf(piece) + ": the mesh has " + std::to_string(ranks) +
                       " ranks");
  if (piece.runs.size() != pieces.before.size())
    return makeError(textOf(piece) + " has " + std::to_string(piece.runs.size()) +
                     " dims, the tensors have " + std::to_string(pieces.before.size()));
  auto fits = [](int64_t begin, int64_t length, int64_t extent) {
    return begin >= 0 && length >= 1 && length <= extent && begin <= extent - length;
  };
  for (size_t d = 0; d < piece.runs.size(); ++d) {
    const ExchangeRun &run = piece.runs[d];
    if (!fits(run.before, run.length, pieces.before[d]) ||
        !fits(run.after, run.length, pieces.after[d]))
      return makeError(
          textOf(piece) + ": elements " + std::to_string(run.before) + " to " +
          std::to_string(run.after) + ", " + std::to_string(run.length) +
          " of them, are not in dim " + std::to_string(d) + " of sizes " +
          std::to_string(pieces.before[d]) + " and " + std::to_string(pieces.after[d]));
  }
  return {};
}

Expected<void> Pieces::verify(const Mesh &mesh) const {
  if (before.size() != after.size())
    return makeError("ranks have tensors of " + std::to_string(before.size()) +
                     " dims and get ones of " + std::to_string(after.size()));
  if (list.empty())
    return makeError("there is no piece");
  for (size_t i = 0; i < list.size(); ++i) {
    if (auto ok = verifyPiece(*this, list[i], mesh.numRanks()); !ok)
      return ok;
    if (i != 0 && keyOf(list[i - 1]) >= keyOf(list[i]))
      return makeError(textOf(list[i]) + " is not in the order of receivers");
    for (size_t j = i; j-- > 0 && list[j].to == list[i].to;)
      if (meet(list[i], list[j]))
        return makeError(textOf(list[i]) + " and " + textOf(list[j]) +
                         " fill the same elements");
  }
  return {};
}

/// Says whether a piece leads along this part of an axis.
static bool crosses(const Mesh &mesh, const Pieces &pieces, const AxisRef &digit) {
  return std::ranges::any_of(pieces.list, [&](const Piece &piece) {
    return mesh.coordinate(piece.from, digit) != mesh.coordinate(piece.to, digit);
  });
}

AxisList Pieces::axes(const Mesh &mesh) const {
  AxisList result;
  for (const AxisRef &digit : primes(mesh.all()))
    if (crosses(mesh, *this, digit))
      result.push_back(digit);
  return canonical(result);
}

/// Says whether ranks that differ along this part of an axis alone get other pieces. No
/// piece leads along it.
static bool listsDiffer(const Mesh &mesh, const Pieces &pieces, const AxisRef &digit) {
  std::vector<std::vector<Piece>> received(static_cast<size_t>(mesh.numRanks()));
  for (const Piece &piece : pieces.list)
    received[static_cast<size_t>(piece.to)].push_back(piece);
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    const int64_t first = mesh.withCoordinate(rank, {digit}, 0);
    const std::vector<Piece> &other = received[static_cast<size_t>(first)];
    std::vector<Piece> own = received[static_cast<size_t>(rank)];
    for (Piece &piece : own)
      piece.from += first - rank, piece.to = first;
    if (own != other)
      return true;
  }
  return false;
}

AxisList Pieces::differingAxes(const Mesh &mesh) const {
  AxisList result;
  for (const AxisRef &digit : primes(mesh.all()))
    if (crosses(mesh, *this, digit) || listsDiffer(mesh, *this, digit))
      result.push_back(digit);
  return canonical(result);
}

Pieces::Back Pieces::back() const {
  Back result{{after, before, {}}, 1};
  for (const Piece &piece : list) {
    Piece turned{piece.to, piece.from, piece.runs};
    for (ExchangeRun &run : turned.runs)
      std::swap(run.before, run.after);
    result.pieces.list.push_back(std::move(turned));
  }
  result.pieces.sort();
  std::vector<std::pair<Piece, int64_t>> placed; // of one receiver, with their layers
  for (Piece &piece : result.pieces.list) {
    if (!placed.empty() && placed[0].first.to != piece.to)
      placed.clear();
    std::vector<bool> isTaken(static_cast<size_t>(result.layers));
    for (const auto &[other, layer] : placed)
      if (meet(piece, other))
        isTaken[static_cast<size_t>(layer)] = true;
    const int64_t layer =
        std::find(isTaken.begin(), isTaken.end(), false) - isTaken.begin();
    result.layers = std::max(result.layers, layer + 1);
    placed.emplace_back(piece, layer);
    piece.runs[0].after += layer * before[0];
  }
  result.pieces.after[0] *= result.layers;
  result.pieces.sort();
  return result;
}

std::vector<ExchangeBlock> partita::pieceBlocks(const Pieces &pieces, int64_t rank) {
  std::vector<ExchangeBlock> blocks;
  for (const Piece &piece : pieces.list) {
    if (piece.to != rank)
      continue;
    ExchangeBlock block{piece.from, {}};
    for (const ExchangeRun &run : piece.runs)
      block.dims.push_back({run});
    blocks.push_back(std::move(block));
  }
  return blocks;
}

/// Cuts what the piece fills out of the box: in each dim what lies before and behind it,
/// within the piece's runs of the dims before.
static void cutOut(EmptyBox box, const Piece &piece, std::vector<EmptyBox> &rest) {
  for (size_t d = 0; d < piece.runs.size(); ++d) {
    const int64_t first = box.begin[d], end = first + box.length[d];
    const int64_t from = std::clamp(piece.runs[d].after, first, end);
    const int64_t to = std::clamp(piece.runs[d].after + piece.runs[d].length, from, end);
    if (from == to) {
      rest.push_back(std::move(box));
      return;
    }
    for (auto [begin, stop] : {std::pair(first, from), std::pair(to, end)}) {
      if (begin == stop)
        continue;
      rest.push_back(box);
      rest.back().begin[d] = begin, rest.back().length[d] = stop - begin;
    }
    box.begin[d] = from, box.length[d] = to - from;
  }
}

std::vector<EmptyBox> partita::emptyBoxes(const Pieces &pieces, int64_t rank) {
  std::vector<EmptyBox> boxes{
      {std::vector<int64_t>(pieces.after.size(), 0), pieces.after}};
  if (elementCount(pieces.after) == 0)
    return {};
  for (const Piece &piece : pieces.list) {
    if (piece.to != rank)
      continue;
    std::vector<EmptyBox> rest;
    for (EmptyBox &box : boxes)
      cutOut(std::move(box), piece, rest);
    boxes = std::move(rest);
  }
  return boxes;
}

int64_t partita::pieceElements(const Pieces &pieces) {
  int64_t most = 0, received = 0;
  for (size_t i = 0; i < pieces.list.size(); ++i) {
    const Piece &piece = pieces.list[i];
    if (i == 0 || pieces.list[i - 1].to != piece.to)
      received = 0;
    received += piece.from == piece.to ? 0 : piece.elements();
    most = std::max(most, received);
  }
  return most;
}

std::vector<HostTensor> partita::executePieces(const Mesh &mesh, const Pieces &pieces,
                                               const std::vector<HostTensor> &locals) {
  std::vector<HostTensor> result;
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    result.push_back(HostTensor::zeros(locals[0].type, pieces.after));
    for (const ExchangeBlock &block : pieceBlocks(pieces, rank))
      reshard::copyBlock(block, pieces.before, pieces.after,
                         locals[static_cast<size_t>(block.peer)], result.back());
  }
  return result;
}
