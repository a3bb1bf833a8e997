//===- Recompute.cpp - Stretches of a training step -----------------------===//
#include "partita/Search/Recompute.h"

#include <algorithm>
#include <map>
#include <set>

using namespace partita;
using namespace partita::search;

/// Neighbours within a part that are looked at together.
static constexpr int32_t longestInPart = 24;
/// Parts in a row that are looked at together, where there are many.
static constexpr int32_t mostParts = 16, fewParts = 64;

/// The node whose gradient an op of the backward pass computes, or which it repeats, by
/// the op's name: "fc1" of "fc1/backward"; empty for other ops. Stretches alone ask for
/// it.
static std::string_view differentiatedNode(const FlowOp &op) {
  std::string_view name = op.name;
  if (orderOf(op.phase) == 1)
    for (std::string_view suffix : {"/backward", "/weight", "/recompute"})
      if (name.ends_with(suffix))
        return name.substr(0, name.size() - suffix.size());
  return {};
}

namespace {
/// One unit: ops that are repeated together or not at all.
struct Unit {
  std::vector<int32_t> ops;
  bool mayRepeat = true;
  std::vector<int64_t> moments; ///< of the backward pass, while its gradients are made
  int64_t full = 0;             ///< bytes kept for the backward pass where it is kept
  int64_t made = 0;             ///< most bytes of its own values while it runs
  int64_t forward = 0;          ///< most bytes then but for those of earlier units
  int64_t backward = 0;         ///< likewise while its gradients are made
  int64_t others = 0;           ///< what is no forward value when the first of these runs
};

class SpaceBuilder {
public:
  SpaceBuilder(Timing &timing, const Decided &plan)
      : timing(timing), graph(timing.graph), plan(plan), turn(turnOf(graph)),
        unitOf(graph.ops.size(), -1) {}

  StretchProblem run(std::vector<std::vector<std::string>> &names) {
    StretchProblem problem;
    if (turn == static_cast<int32_t>(graph.ops.size()))
      return problem;
    findUnits();
    assignMoments();
    measure();
    for (const Unit &unit : units) {
      std::vector<std::string> &list = names.emplace_back();
      for (int32_t op : unit.ops)
        if (std::ranges::find(list, nameOf(op)) == list.end())
          list.push_back(nameOf(op));
    }
    problem.units = static_cast<int32_t>(units.size());
    for (int32_t u = 0; u < problem.units; ++u) {
      const Unit &unit = units[static_cast<size_t>(u)];
      problem.stretches.push_back(
          {u, u + 1, false, unit.full, std::max(unit.forward, unit.backward), 0});
    }
    for (auto [begin, end] : ranges())
      if (auto stretch = repeated(begin, end))
        problem.stretches.push_back(*stretch);
    return problem;
  }

private:
  const std::string &nameOf(int32_t op) const {
    return graph.ops[static_cast<size_t>(op)].name;
  }
  int64_t trips() const { return graph.ops[static_cast<size_t>(turn)].trips; }
  /// What is in front of a loop over micro-batches is not of the pass in it.
  bool isForward(int32_t op) const {
    return isForwardOp(graph, op, turn) &&
           graph.ops[static_cast<size_t>(op)].trips >= trips();
  }
  int64_t bytesOf(int32_t value) const {
    const FlowValue &it = graph.values[static_cast<size_t>(value)];
    auto producer = static_cast<size_t>(it.producer);
    return resultLayout(graph.ops[producer].rule, plan.strategies[producer],
                        static_cast<size_t>(it.result))
               .localElements() *
           it.elementBytes;
  }
  int32_t unitOfValue(int32_t value) const {
    int32_t producer = graph.values[static_cast<size_t>(value)].producer;
    return producer < 0 ? -1 : unitOf[static_cast<size_t>(producer)];
  }
  /// Whether an op of the backward pass reads it.
  bool isReadBehind(int32_t value) const {
    return std::ranges::any_of(
        graph.values[static_cast<size_t>(value)].uses,
        [&](const FlowUse &use) { return isReadByBackward(graph, use, turn); });
  }

  /// Cuts where no node has ops on both sides.
  void findUnits() {
    std::map<std::string_view, int32_t> last;
    for (int32_t op = 0; op < turn; ++op)
      if (isForward(op))
        last[nameOf(op)] = op;
    int32_t open = -1;
    for (int32_t op = 0; op < turn; ++op) {
      if (!isForward(op))
        continue;
      if (op > open)
        units.emplace_back();
      open = std::max(open, last[nameOf(op)]);
      units.back().ops.push_back(op);
      // What a loop of the model runs is not there to be repeated op by op.
      units.back().mayRepeat &= graph.ops[static_cast<size_t>(op)].trips == trips();
      unitOf[static_cast<size_t>(op)] = static_cast<int32_t>(units.size()) - 1;
    }
  }

  /// Updates and the like stand behind the gradients that they wait for. What is behind
  /// the last gradient is the same whatever is computed again.
  void assignMoments() {
    std::map<std::string_view, int32_t> unitOfName;
    for (size_t u = 0; u < units.size(); ++u)
      for (int32_t op : units[u].ops)
        unitOfName[nameOf(op)] = static_cast<int32_t>(u);
    int32_t now = static_cast<int32_t>(units.size()) - 1;
    auto end = static_cast<int32_t>(graph.ops.size());
    while (differentiatedNode(graph.ops[static_cast<size_t>(end) - 1]).empty())
      --end;
    for (auto op = turn; op < end; ++op) {
      auto found =
          unitOfName.find(differentiatedNode(graph.ops[static_cast<size_t>(op)]));
      if (found != unitOfName.end())
        now = found->second;
      for (int64_t moment : {Timing::runsAt(op), Timing::convertsAt(op)})
        units[static_cast<size_t>(now)].moments.push_back(moment);
    }
  }

  /// Adds the bytes of lives to every moment of theirs.
  static void addTo(std::vector<int64_t> &sums, const ValueLife &life) {
    auto end = std::min(static_cast<size_t>(life.live.last) + 1, sums.size());
    for (auto moment = static_cast<size_t>(life.live.first); moment < end; ++moment)
      sums[moment] += life.live.bytes;
  }

  void measure() {
    std::vector<int64_t> all = memoryOverTime(timing, plan);
    std::vector<std::vector<ValueLife>> madeBy(units.size());
    const int64_t behind = Timing::runsAt(turn);
    std::vector<int64_t> forward(all.size(), 0), before(all.size(), 0);
    for (const ValueLife &life : livesOf(timing, plan))
      if (int32_t unit = unitOfValue(life.value); unit >= 0) {
        madeBy[static_cast<size_t>(unit)].push_back(life);
        addTo(forward, life);
        if (life.live.first < behind && life.live.last >= behind)
          units[static_cast<size_t>(unit)].full += life.live.bytes;
      }
    for (size_t u = 0; u < units.size(); ++u) {
      Unit &unit = units[u];
      auto alive = [&](int64_t moment) {
        return all[static_cast<size_t>(moment)] - before[static_cast<size_t>(moment)];
      };
      for (int32_t op : unit.ops)
        for (int64_t moment : {Timing::runsAt(op), Timing::convertsAt(op)}) {
          unit.forward = std::max(unit.forward, alive(moment));
          int64_t own = 0;
          for (const ValueLife &life : madeBy[u])
            if (life.live.first <= moment && moment <= life.live.last)
              own += life.live.bytes;
          unit.made = std::max(unit.made, own);
        }
      for (int64_t moment : unit.moments)
        unit.backward = std::max(unit.backward, alive(moment));
      if (!unit.moments.empty()) {
        auto first = static_cast<size_t>(unit.moments.front());
        unit.others = all[first] - forward[first];
      }
      for (const ValueLife &life : madeBy[u])
        addTo(before, life);
    }
  }

  /// Units before which all goes through one value, but for what most of the model reads
  /// (a mask).
  std::vector<int32_t> cuts() const {
    auto count = static_cast<int32_t>(units.size());
    std::vector<int32_t> crossing(units.size() + 1, 0);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      int32_t from = unitOfValue(static_cast<int32_t>(v)), to = -1;
      for (const FlowUse &use : graph.values[v].uses)
        to = std::max(to, unitOf[static_cast<size_t>(use.op)]);
      if (from >= 0 && 2 * (to - from) <= count)
        for (int32_t u = from + 1; u <= to; ++u)
          ++crossing[static_cast<size_t>(u)];
    }
    std::vector<int32_t> result;
    for (int32_t u = 0; u <= count; ++u)
      if (crossing[static_cast<size_t>(u)] <= 1)
        result.push_back(u);
    return result;
  }

  std::vector<std::pair<int32_t, int32_t>> ranges() const {
    std::vector<int32_t> at = cuts();
    auto parts = static_cast<int32_t>(at.size()) - 1;
    int32_t longest = parts <= fewParts ? parts : mostParts;
    std::set<std::pair<int32_t, int32_t>> result;
    for (int32_t p = 0; p < parts; ++p) {
      auto begin = at[static_cast<size_t>(p)];
      for (int32_t q = p + 1; q <= std::min(parts, p + longest); ++q)
        result.insert({begin, at[static_cast<size_t>(q)]});
      int32_t end = at[static_cast<size_t>(p) + 1];
      for (int32_t a = begin; a < end; ++a)
        for (int32_t b = a + 1; b <= std::min(end, a + longestInPart); ++b)
          result.insert({a, b});
    }
    return {result.begin(), result.end()};
  }

  std::optional<Stretch> repeated(int32_t begin, int32_t end) {
    Stretch stretch{begin, end, true, 0, 0, 0};
    if (!addRepeated(stretch))
      return std::nullopt;
    int64_t before = 0, others = 0, made = 0;
    for (int32_t u = begin; u < end; ++u) {
      const Unit &unit = units[static_cast<size_t>(u)];
      if (!unit.mayRepeat)
        return std::nullopt;
      stretch.peak =
          std::max({stretch.peak, unit.backward + before, unit.forward + stretch.kept});
      made = std::max(made, before + unit.made);
      others = std::max(others, unit.others);
      before += unit.full;
    }
    stretch.peak = std::max(stretch.peak, others + made);
    return stretch;
  }

  /// Time and kept bytes; false if nothing is repeated.
  bool addRepeated(Stretch &stretch) {
    auto isInside = [&](int32_t op) {
      int32_t unit = unitOf[static_cast<size_t>(op)];
      return unit >= stretch.begin && unit < stretch.end;
    };
    std::set<int32_t> again, inputs;
    for (int32_t u = stretch.end - 1; u >= stretch.begin; --u) {
      const std::vector<int32_t> &ops = units[static_cast<size_t>(u)].ops;
      for (auto it = ops.rbegin(); it != ops.rend(); ++it) {
        const FlowOp &op = graph.ops[static_cast<size_t>(*it)];
        bool isNeeded = false;
        for (int32_t value : op.results) {
          bool isKept = false, isRead = isReadBehind(value);
          for (const FlowUse &use : graph.values[static_cast<size_t>(value)].uses) {
            isKept |= use.op < turn
                          ? !isInside(use.op)
                          : graph.ops[static_cast<size_t>(use.op)].kind == FlowKind::Sink;
            isRead |= again.count(use.op) != 0;
          }
          stretch.kept += isKept ? bytesOf(value) : 0;
          if (isKept || !isRead)
            continue;
          isNeeded = true;
          stretch.time += conversions(value);
        }
        if (!isNeeded)
          continue;
        again.insert(*it);
        stretch.time += timing.op(*it, plan.strategies[static_cast<size_t>(*it)]);
        inputs.insert(op.operands.begin(), op.operands.end());
      }
    }
    for (int32_t value : inputs)
      if (int32_t unit = unitOfValue(value);
          unit >= 0 && unit < stretch.begin && !isReadBehind(value))
        stretch.kept += bytesOf(value);
    return !again.empty();
  }

  Picos conversions(int32_t number) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    auto producer = static_cast<size_t>(value.producer);
    auto given = plan.servings.find(number);
    auto served = given != plan.servings.end()
                      ? given->second
                      : serveUses(graph, plan.strategies, number);
    Layout produced = resultLayout(graph.ops[producer].rule, plan.strategies[producer],
                                   static_cast<size_t>(value.result))
                          .canonicalized();
    Picos time = 0;
    for (const ServedLayout &entry : served) {
      const Layout &from =
          entry.from < 0 ? produced : served[static_cast<size_t>(entry.from)].layout;
      if (!entry.halo && entry.layout == from)
        continue;
      int32_t to = timing.forms.add(Form{entry.layout, entry.halo});
      time += timing.convert(timing.forms.add(from), to, value.elementBytes).time;
    }
    return repeated(time, graph.ops[producer].trips);
  }
  static Picos repeated(Picos time, int64_t trips) {
    return search::repeated(time, trips);
  }

  Timing &timing;
  const FlowGraph &graph;
  const Decided &plan;
  int32_t turn;
  std::vector<Unit> units;
  std::vector<int32_t> unitOf; ///< per op; −1: it is none of the forward pass
};
} // namespace

RecomputeSpace::RecomputeSpace(Timing &timing, const Decided &plan) {
  problem = SpaceBuilder(timing, plan).run(names);
  int64_t kept = 0;
  for (const Stretch &stretch : problem.stretches)
    if (!stretch.repeats) {
      peakBefore = std::max(peakBefore, kept + stretch.peak);
      kept += stretch.kept;
    }
}

std::optional<RecomputeChoice> RecomputeSpace::choose(int64_t limit) const {
  auto way = cheapestWay(problem, limit);
  if (!way)
    return std::nullopt;
  RecomputeChoice choice;
  for (const Stretch &stretch : way->stretches) {
    if (!stretch.repeats)
      continue;
    std::vector<std::string> &nodes = choice.nodes.emplace_back();
    for (int32_t u = stretch.begin; u < stretch.end; ++u)
      nodes.insert(nodes.end(), names[static_cast<size_t>(u)].begin(),
                   names[static_cast<size_t>(u)].end());
  }
  choice.time = way->time;
  choice.peak = way->peak;
  choice.before = peakBefore;
  choice.least = least();
  choice.proved = way->proved;
  return choice;
}
