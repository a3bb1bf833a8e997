//===- Successors.cpp - The same op one layer on --------------------------===//
#include "Successors.h"

#include <algorithm>
#include <deque>
#include <set>

using namespace partita;
using namespace partita::search;

/// Distances of which one is that of two layers, at most.
static constexpr size_t mostDistances = 12;
/// Maps at most, as programs have one per stack of layers.
static constexpr size_t mostMaps = 16;

namespace {
class Finder {
public:
  Finder(const FlowGraph &graph,
         const std::vector<std::shared_ptr<const OpChoices>> &choices)
      : graph(graph), choices(choices), isMapped(graph.ops.size(), false),
        tieOf(graph.ops.size(), {-1, -1}) {
    for (size_t t = 0; t < graph.ties.size(); ++t)
      for (size_t m = 0; m < graph.ties[t].members.size(); ++m)
        tieOf[static_cast<size_t>(graph.ties[t].members[m].op)] = {
            static_cast<int32_t>(t), static_cast<int32_t>(m)};
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].kind == FlowKind::Compute)
        computed.push_back(static_cast<int32_t>(op));
  }

  SuccessorRuns run(size_t leastCopies) {
    SuccessorRuns result;
    for (size_t round = 0; round < mostMaps; ++round) {
      auto runs = runsOf(bestMap(), leastCopies);
      size_t layers = 0;
      for (std::vector<int32_t> &run : runs) {
        layers = std::max(layers, run.size());
        for (int32_t op : run)
          isMapped[static_cast<size_t>(op)] = true;
        result.runs.push_back(std::move(run));
      }
      if (layers == 0)
        break;
      result.layers.push_back(layers);
    }
    return result;
  }

private:
  /// Per op its successor and predecessor, or -1.
  struct Map {
    std::vector<int32_t> next, previous;
    size_t size = 0;
  };

  const void *colour(int32_t op) const { return choices[static_cast<size_t>(op)].get(); }
  const FlowOp &opAt(int32_t op) const { return graph.ops[static_cast<size_t>(op)]; }
  const FlowValue &valueAt(int32_t value) const {
    return graph.values[static_cast<size_t>(value)];
  }

  /// Of the distances at which ops of equal choices follow each other the most frequent,
  /// and of each the pair of ops in the middle.
  std::vector<std::pair<int32_t, int32_t>> seeds() const {
    std::map<const void *, size_t> last;
    std::map<size_t, std::vector<size_t>> places; // by distance
    for (size_t i = 0; i < computed.size(); ++i) {
      if (isMapped[static_cast<size_t>(computed[i])])
        continue;
      auto [place, added] = last.try_emplace(colour(computed[i]), i);
      if (!added)
        places[i - place->second].push_back(place->second);
      place->second = i;
    }
    std::vector<std::pair<size_t, size_t>> order;
    for (const auto &[distance, list] : places)
      order.emplace_back(list.size(), distance);
    std::sort(order.begin(), order.end(), std::greater<>());
    order.resize(std::min(order.size(), mostDistances));
    std::vector<std::pair<int32_t, int32_t>> result;
    for (const auto &[count, distance] : order) {
      const std::vector<size_t> &list = places[distance];
      size_t middle = list[list.size() / 2];
      result.emplace_back(computed[middle], computed[middle + distance]);
    }
    return result;
  }

  Map bestMap() const {
    Map best;
    for (const auto &[from, to] : seeds())
      if (Map map = grown(from, to); map.size > best.size)
        best = std::move(map);
    return best;
  }

  Map grown(int32_t from, int32_t to) const {
    Map map{std::vector<int32_t>(graph.ops.size(), -1),
            std::vector<int32_t>(graph.ops.size(), -1), 0};
    std::deque<int32_t> open;
    auto match = [&](int32_t a, int32_t b) {
      auto x = static_cast<size_t>(a), y = static_cast<size_t>(b);
      if (a == b || !isAlike(a, b) || isMapped[x] || isMapped[y] || map.next[x] >= 0 ||
          map.previous[y] >= 0)
        return;
      map.next[x] = b;
      map.previous[y] = a;
      ++map.size;
      open.push_back(a);
    };
    match(from, to);
    while (!open.empty()) {
      int32_t a = open.front();
      open.pop_front();
      matchNeighbours(a, map.next[static_cast<size_t>(a)], match);
    }
    return map;
  }

  bool isAlike(int32_t a, int32_t b) const {
    return colour(a) == colour(b) && opAt(a).operands.size() == opAt(b).operands.size() &&
           opAt(a).results.size() == opAt(b).results.size();
  }

  template <typename Match>
  void matchNeighbours(int32_t a, int32_t b, Match match) const {
    const FlowOp &one = opAt(a), &two = opAt(b);
    for (size_t o = 0; o < one.operands.size(); ++o) {
      const FlowValue &x = valueAt(one.operands[o]), &y = valueAt(two.operands[o]);
      if (x.result == y.result && colour(x.producer))
        match(x.producer, y.producer);
    }
    for (size_t r = 0; r < one.results.size(); ++r)
      matchUsers(valueAt(one.results[r]), valueAt(two.results[r]), match);
    if (one.tied >= 0 && two.tied >= 0)
      match(one.tied, two.tied);
    auto [tie, member] = tieOf[static_cast<size_t>(a)];
    auto [other, place] = tieOf[static_cast<size_t>(b)];
    if (tie < 0 || other < 0 || member != place)
      return;
    const auto &mine = graph.ties[static_cast<size_t>(tie)].members;
    const auto &theirs = graph.ties[static_cast<size_t>(other)].members;
    for (size_t m = 0; mine.size() == theirs.size() && m < mine.size(); ++m)
      match(mine[m].op, theirs[m].op);
  }

  /// Users by what they are and which operand the value is; of those alike, where they
  /// are equally many, in their order.
  template <typename Match>
  void matchUsers(const FlowValue &x, const FlowValue &y, Match match) const {
    using Kind = std::pair<const void *, int32_t>;
    std::map<Kind, std::pair<std::vector<int32_t>, std::vector<int32_t>>> kinds;
    for (const FlowUse &use : x.uses)
      kinds[{colour(use.op), use.operand}].first.push_back(use.op);
    for (const FlowUse &use : y.uses)
      kinds[{colour(use.op), use.operand}].second.push_back(use.op);
    for (auto &[kind, users] : kinds) {
      auto &[ones, twos] = users;
      if (ones.size() != twos.size())
        continue;
      std::sort(ones.begin(), ones.end());
      std::sort(twos.begin(), twos.end());
      for (size_t i = 0; i < ones.size(); ++i)
        match(ones[i], twos[i]);
    }
  }

  /// Whether what the op reads has the successors that its successor reads.
  bool readsAlike(const Map &map, int32_t a) const {
    const FlowOp &one = opAt(a), &two = opAt(map.next[static_cast<size_t>(a)]);
    for (size_t o = 0; o < one.operands.size(); ++o) {
      if (one.operands[o] == two.operands[o])
        continue;
      const FlowValue &x = valueAt(one.operands[o]), &y = valueAt(two.operands[o]);
      bool sources = !colour(x.producer) && !colour(y.producer);
      if (!sources && (x.result != y.result ||
                       map.next[static_cast<size_t>(x.producer)] != y.producer))
        return false;
    }
    return true;
  }

  std::vector<std::vector<int32_t>> runsOf(const Map &map, size_t leastCopies) const {
    std::vector<std::vector<int32_t>> runs;
    auto follows = [&](int32_t op) { // the one before, in one run
      int32_t before = map.previous[static_cast<size_t>(op)];
      return before >= 0 && readsAlike(map, before);
    };
    for (size_t i = 0; map.size != 0 && i < graph.ops.size(); ++i) {
      auto op = static_cast<int32_t>(i);
      if (map.next[i] < 0 || follows(op))
        continue;
      std::vector<int32_t> run{op};
      while (map.next[static_cast<size_t>(op)] >= 0 && readsAlike(map, op)) {
        op = map.next[static_cast<size_t>(op)];
        run.push_back(op);
      }
      if (run.size() >= leastCopies)
        runs.push_back(std::move(run));
    }
    return runs;
  }

  const FlowGraph &graph;
  const std::vector<std::shared_ptr<const OpChoices>> &choices;
  std::vector<int32_t> computed;
  std::vector<bool> isMapped; ///< by an earlier map
  /// Per op its tie and its place there, or -1. What is in two ties is in the later.
  std::vector<std::pair<int32_t, int32_t>> tieOf;
};
} // namespace

SuccessorRuns
search::findSuccessors(const FlowGraph &graph,
                       const std::vector<std::shared_ptr<const OpChoices>> &choices,
                       size_t leastCopies) {
  return Finder(graph, choices).run(leastCopies);
}
