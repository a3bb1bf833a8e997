//===- Pieces.cpp - Who writes which elements of a state ------------------===//
#include "partita/Runtime/Checkpoint.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

using namespace partita;
using namespace partita::runtime;

static int64_t lengthOf(const std::vector<DimRun> &runs) {
  int64_t length = 0;
  for (const DimRun &run : runs)
    length += run.length;
  return length;
}

std::vector<int64_t> runtime::extentsOf(const Runs &runs) {
  std::vector<int64_t> extents;
  for (const std::vector<DimRun> &dim : runs)
    extents.push_back(lengthOf(dim));
  return extents;
}

Runs runtime::wholeRuns(const std::vector<int64_t> &shape) {
  Runs runs;
  for (int64_t extent : shape)
    runs.push_back({{0, 0, extent}});
  return runs;
}

uint64_t runtime::bytesOf(const Piece &piece, const std::vector<HeldState> &states) {
  return static_cast<uint64_t>(elementCount(extentsOf(piece.runs))) *
         byteWidth(states[piece.state].type);
}

/// The runs that have the elements `begin` to before `end` of a dim, counted along them.
static std::vector<DimRun> cut(const std::vector<DimRun> &runs, int64_t begin,
                               int64_t end) {
  std::vector<DimRun> result;
  int64_t at = 0;
  for (const DimRun &run : runs) {
    int64_t first = std::max(begin - at, int64_t(0));
    int64_t last = std::min(end - at, run.length);
    if (first < last)
      result.push_back({run.global + first, run.local + first, last - first});
    at += run.length;
  }
  return result;
}

/// A piece of what a rank holds; its own places follow from the lengths.
static Piece pieceOf(size_t state, const StatePart &part, const Runs &runs) {
  Piece piece{state, part.slot, {}, {}, {}, part.localShape};
  for (const std::vector<DimRun> &dim : runs) {
    auto &global = piece.runs.emplace_back();
    auto &local = piece.fromLocal.emplace_back();
    int64_t at = 0;
    for (const DimRun &run : dim) {
      global.push_back({run.global, at, run.length});
      local.push_back({at, run.local, run.length});
      at += run.length;
    }
  }
  return piece;
}

namespace {

class Cutter {
public:
  Cutter(const std::vector<HeldState> &states, int ranks)
      : states(states), pieces(static_cast<size_t>(ranks)),
        load(static_cast<size_t>(ranks)) {}

  std::vector<std::vector<Piece>> run() {
    // The large ones first: the small ones then even out what is left.
    std::vector<size_t> order(states.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::ranges::sort(order, {}, [&](size_t i) {
      return std::pair(
          -elementCount(states[i].shape) * int64_t(byteWidth(states[i].type)), i);
    });
    for (size_t i : order) {
      std::map<std::pair<int64_t, uint32_t>, std::vector<const StatePart *>> groups;
      for (const StatePart &part : states[i].parts)
        groups[{part.block, part.slot}].push_back(&part);
      for (const auto &[key, holders] : groups)
        share(i, holders);
    }
    for (std::vector<Piece> &list : pieces)
      name(list);
    return std::move(pieces);
  }

private:
  /// Elements that all of these hold: each gets some.
  void share(size_t state, std::vector<const StatePart *> holders) {
    // Cutting less would cost more than it evens out.
    constexpr int64_t leastBytes = 1024;
    const Runs &runs = holders[0]->runs;
    std::vector<int64_t> extents = extentsOf(runs);
    int64_t bytes = elementCount(extents) * int64_t(byteWidth(states[state].type));
    if (bytes == 0)
      return;
    std::ranges::sort(holders, {}, [&](const StatePart *part) {
      return std::pair(loadOf(*part), part->rank);
    });
    if (holders.size() == 1 || bytes < leastBytes)
      return add(state, *holders[0], runs);
    auto dim = static_cast<size_t>(std::ranges::max_element(extents) - extents.begin());
    int64_t extent = extents[dim], count = static_cast<int64_t>(holders.size());
    // Ranks with the least load get one more of what does not divide.
    int64_t each = extent / count, more = extent % count, begin = 0;
    for (int64_t k = 0; k < count; ++k) {
      int64_t end = begin + each + (k < more);
      if (begin == end)
        break;
      const StatePart &part = *holders[static_cast<size_t>(k)];
      Runs own = part.runs;
      own[dim] = cut(part.runs[dim], begin, end);
      add(state, part, own);
      begin = end;
    }
  }

  int64_t &loadOf(const StatePart &part) { return load[static_cast<size_t>(part.rank)]; }

  void add(size_t state, const StatePart &part, const Runs &runs) {
    Piece piece = pieceOf(state, part, runs);
    loadOf(part) += static_cast<int64_t>(bytesOf(piece, states));
    pieces[static_cast<size_t>(part.rank)].push_back(std::move(piece));
  }

  /// The state's name, with a number where a file has several pieces of one state.
  void name(std::vector<Piece> &list) const {
    std::set<std::string> taken;
    for (const HeldState &state : states)
      taken.insert(state.name);
    std::vector<bool> isUsed(states.size());
    for (Piece &piece : list) {
      piece.tensor = states[piece.state].name;
      for (int number = 1; isUsed[piece.state] && taken.contains(piece.tensor); ++number)
        piece.tensor = states[piece.state].name + "#" + std::to_string(number);
      isUsed[piece.state] = true;
      taken.insert(piece.tensor);
    }
  }

  const std::vector<HeldState> &states;
  std::vector<std::vector<Piece>> pieces;
  std::vector<int64_t> load; ///< bytes by rank
};

} // namespace

std::vector<std::vector<Piece>> runtime::piecesOf(const std::vector<HeldState> &states,
                                                  int ranks) {
  return Cutter(states, ranks).run();
}
