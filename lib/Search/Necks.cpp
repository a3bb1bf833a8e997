//===- Necks.cpp - What can run beside what -------------------------------===//
#include "Necks.h"

#include <algorithm>
#include <limits>

using namespace partita;
using namespace partita::search;

namespace {
class Finder {
public:
  explicit Finder(const FlowGraph &graph)
      : graph(graph), section(graph.ops.size(), 0),
        places{std::vector<Place>(graph.ops.size(), Place::Between),
               std::vector<Place>(graph.values.size(), Place::Anywhere)} {}

  Places run() {
    findNecks();
    for (size_t v = 0; v < graph.values.size(); ++v)
      placeValue(v);
    for (const auto &[number, values] : inSection)
      if (values.size() == 1 && !hasOps[static_cast<size_t>(number)] &&
          isReadOnce(values[0]))
        places.values[values[0]] = Place::Alone;
    return std::move(places);
  }

private:
  static constexpr int32_t never = std::numeric_limits<int32_t>::max();
  static size_t at(int32_t number) { return static_cast<size_t>(number); }
  bool isCompute(int32_t op) const { return graph.ops[at(op)].kind == FlowKind::Compute; }

  /// The first compute op that reads what an op makes.
  int32_t firstUser(const FlowOp &op) const {
    int32_t first = never;
    for (int32_t value : op.results)
      for (const FlowUse &use : graph.values[at(value)].uses)
        if (isCompute(use.op))
          first = std::min(first, use.op);
    return first;
  }
  /// The last compute op that makes what an op reads; −1: there is none.
  int32_t lastProducer(const FlowOp &op) const {
    int32_t last = -1;
    for (int32_t value : op.operands)
      if (int32_t producer = graph.values[at(value)].producer;
          producer >= 0 && isCompute(producer))
        last = std::max(last, producer);
    return last;
  }

  /// All ops in front of op n come before it if each has a user in front of it or in it,
  /// and likewise behind: of each a user is nearer, and so on.
  void findNecks() {
    const auto count = static_cast<int32_t>(graph.ops.size());
    std::vector<int32_t> farthest(at(count) + 1, -1); // first users of ops in front
    for (int32_t op = 0; op < count; ++op)
      farthest[at(op) + 1] =
          std::max(farthest[at(op)], isCompute(op) ? firstUser(graph.ops[at(op)]) : -1);
    int32_t nearest = never; // last producers of ops behind
    std::vector<char> isNeck(at(count), false);
    for (int32_t op = count; op-- > 0;) {
      if (!isCompute(op))
        continue;
      const FlowOp &it = graph.ops[at(op)];
      isNeck[at(op)] = it.trips == 1 && farthest[at(op)] <= op && nearest >= op;
      nearest = std::min(nearest, lastProducer(it));
    }
    int32_t number = 0;
    hasOps.assign(1, false);
    for (int32_t op = 0; op < count; ++op) {
      section[at(op)] = number;
      if (isNeck[at(op)]) {
        places.ops[at(op)] = Place::Alone;
        ++number;
        hasOps.push_back(false);
      } else if (isCompute(op)) {
        hasOps[at(number)] = true;
      }
    }
    last = number;
  }

  /// The section that lies behind an op that makes a value.
  int32_t sectionBehind(int32_t op) const {
    return section[at(op)] + (places.ops[at(op)] == Place::Alone ? 1 : 0);
  }

  void placeValue(size_t number) {
    const FlowValue &value = graph.values[number];
    if (value.producer < 0 || value.uses.empty())
      return;
    int32_t first = isCompute(value.producer) ? sectionBehind(value.producer) : 0;
    int32_t end = 0; // the section in front of the last user
    for (const FlowUse &use : value.uses)
      end = std::max(end, isCompute(use.op) ? section[at(use.op)] : last);
    if (first != end)
      return;
    places.values[number] = Place::Between;
    inSection[first].push_back(number);
  }

  bool isReadOnce(size_t value) const {
    return graph.values[value].uses.size() == 1 &&
           isCompute(graph.values[value].producer);
  }

  const FlowGraph &graph;
  std::vector<int32_t> section; ///< per op the section it is in, or in front of a neck
  std::vector<char> hasOps;     ///< per section
  std::map<int32_t, std::vector<size_t>> inSection; ///< values that are converted there
  int32_t last = 0;
  Places places;
};
} // namespace

Places search::placesOf(const FlowGraph &graph) { return Finder(graph).run(); }
