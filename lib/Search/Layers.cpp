//===- Layers.cpp - Layers that are copies of each other ------------------===//
#include "Layers.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

/// Fewer copies are cheap to plan one by one.
static constexpr size_t leastCopies = 4;

namespace {
/// Compute ops in their order. Two are alike at a distance of `period` ops if they have
/// the same choices and read the same: values made as many ops before, or the very same
/// value (a mask that all layers read), or sources.
class Sequence {
public:
  Sequence(const FlowGraph &graph, const Model &model) : graph(graph), model(model) {
    position.assign(graph.ops.size(), -1);
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].kind == FlowKind::Compute) {
        position[op] = static_cast<int64_t>(ops.size());
        ops.push_back(static_cast<int32_t>(op));
      }
  }

  /// Distances at which ops of equal choices follow each other, the most frequent first.
  std::vector<size_t> periods() const {
    constexpr size_t tried = 12;
    std::map<const OpChoices *, size_t> last;
    std::map<size_t, size_t> count;
    for (size_t i = 0; i < ops.size(); ++i) {
      auto [place, added] = last.try_emplace(choices(i), i);
      if (!added)
        ++count[i - place->second];
      place->second = i;
    }
    std::vector<std::pair<size_t, size_t>> order;
    for (const auto &[distance, times] : count)
      order.emplace_back(times, distance);
    std::sort(order.begin(), order.end(), std::greater<>());
    std::vector<size_t> result;
    for (size_t i = 0; i < std::min(order.size(), tried); ++i)
      result.push_back(order[i].second);
    return result;
  }

  /// Runs [first, first + length) of ops each of which is like the one a period later.
  struct Run {
    size_t first, length;
  };
  std::vector<Run> runsOf(size_t period) const {
    std::vector<Run> runs;
    size_t begin = 0;
    for (size_t i = 0; i + period <= ops.size(); ++i) {
      if (i + period < ops.size() && alike(i, period))
        continue;
      if (i - begin >= period * (leastCopies - 1))
        runs.push_back({begin, i - begin});
      begin = i + 1;
    }
    return runs;
  }

  int32_t op(size_t i) const { return ops[i]; }

private:
  const OpChoices *choices(size_t i) const {
    return model.choices[static_cast<size_t>(ops[i])].get();
  }

  bool alike(size_t i, size_t period) const {
    if (choices(i) != choices(i + period))
      return false;
    const FlowOp &a = graph.ops[static_cast<size_t>(ops[i])];
    const FlowOp &b = graph.ops[static_cast<size_t>(ops[i + period])];
    for (size_t o = 0; o < a.operands.size(); ++o) {
      int32_t left = a.operands[o], right = b.operands[o];
      if (left == right)
        continue;
      int32_t from = graph.values[static_cast<size_t>(left)].producer;
      int32_t to = graph.values[static_cast<size_t>(right)].producer;
      bool sources = graph.ops[static_cast<size_t>(from)].kind == FlowKind::Source &&
                     graph.ops[static_cast<size_t>(to)].kind == FlowKind::Source;
      int64_t distance =
          position[static_cast<size_t>(to)] - position[static_cast<size_t>(from)];
      if (!sources && (position[static_cast<size_t>(from)] < 0 ||
                       distance != static_cast<int64_t>(period)))
        return false;
    }
    return true;
  }

  const FlowGraph &graph;
  const Model &model;
  std::vector<int32_t> ops;
  std::vector<int64_t> position; ///< per op; -1 for those that compute nothing
};

/// Ties the copies of one run of layers.
class Tier {
public:
  Tier(const FlowGraph &graph, Model &model, const Sequence &sequence)
      : graph(graph), model(model), sequence(sequence), sharedOf(graph.values.size(), -1),
        homeOf(graph.values.size(), -1) {
    for (size_t i = 0; i < model.values.size(); ++i)
      sharedOf[static_cast<size_t>(model.values[i].value)] = static_cast<int32_t>(i);
    for (const HomeSource &home : model.homes)
      homeOf[static_cast<size_t>(home.value)] = home.variable;
  }

  void tie(Sequence::Run run, size_t period) {
    size_t copies = run.length / period + 1;
    for (size_t k = 0; k < period; ++k) {
      std::vector<uint32_t> same;
      for (size_t c = 0; c < copies; ++c)
        same.push_back(variableOf(at(run, period, c, k)));
      add(same);
      const FlowOp &first = graph.ops[static_cast<size_t>(at(run, period, 0, k))];
      for (size_t r = 0; r < first.results.size(); ++r)
        tieResults(run, period, k, r);
      for (size_t o = 0; o < first.operands.size(); ++o)
        tieHomes(run, period, k, o);
    }
  }

private:
  int32_t at(Sequence::Run run, size_t period, size_t copy, size_t k) const {
    return sequence.op(run.first + copy * period + k);
  }
  uint32_t variableOf(int32_t op) const {
    return static_cast<uint32_t>(model.variables[static_cast<size_t>(op)]);
  }

  /// Values that have the same users in several copies; those of the last copy often have
  /// others.
  void tieResults(Sequence::Run run, size_t period, size_t k, size_t result) {
    size_t copies = run.length / period + 1;
    std::vector<uint32_t> same;
    const void *states = nullptr;
    for (size_t c = 0; c < copies; ++c) {
      const FlowOp &op = graph.ops[static_cast<size_t>(at(run, period, c, k))];
      int32_t shared = sharedOf[static_cast<size_t>(op.results[result])];
      const SharedValue *value =
          shared < 0 ? nullptr : &model.values[static_cast<size_t>(shared)];
      if (!value || value->states.get() != states) {
        add(same);
        same.clear();
        states = value ? value->states.get() : nullptr;
      }
      if (value)
        same.push_back(value->variable);
    }
    add(same);
  }

  /// Copies that have equal choices keep their sources in the same forms.
  void tieHomes(Sequence::Run run, size_t period, size_t k, size_t operand) {
    std::vector<uint32_t> same;
    for (size_t c = 0; c < run.length / period + 1; ++c) {
      const FlowOp &op = graph.ops[static_cast<size_t>(at(run, period, c, k))];
      int64_t home = homeOf[static_cast<size_t>(op.operands[operand])];
      if (home < 0)
        return;
      same.push_back(static_cast<uint32_t>(home));
    }
    add(same);
  }

  void add(const std::vector<uint32_t> &same) {
    if (same.size() < 2)
      return;
    solver::Class tied;
    for (uint32_t variable : same)
      tied.copies.push_back({variable});
    model.problem.classes.push_back(std::move(tied));
  }

  const FlowGraph &graph;
  Model &model;
  const Sequence &sequence;
  std::vector<int32_t> sharedOf; ///< per value its place in model.values, or -1
  std::vector<int64_t> homeOf;   ///< per value the variable of its home, or -1
};
} // namespace

size_t search::tieLayers(const FlowGraph &graph, Model &model) {
  Sequence sequence(graph, model);
  std::vector<Sequence::Run> best;
  size_t bestPeriod = 0, covered = 0;
  for (size_t period : sequence.periods()) {
    std::vector<Sequence::Run> runs = sequence.runsOf(period);
    size_t now = 0;
    for (const Sequence::Run &run : runs)
      now += run.length;
    if (now > covered) {
      covered = now;
      best = std::move(runs);
      bestPeriod = period;
    }
  }
  Tier tier(graph, model, sequence);
  size_t tied = 0;
  for (const Sequence::Run &run : best) {
    tier.tie(run, bestPeriod);
    tied += run.length / bestPeriod + 1;
  }
  return tied;
}
