//===- Layers.cpp - Layers that are copies of each other ------------------===//
#include "Layers.h"

#include "Successors.h"

#include <numeric>

using namespace partita;
using namespace partita::search;

/// Fewer copies are cheap to plan one by one.
static constexpr size_t leastCopies = 4;

namespace {
/// Ties the copies of one run of layers.
class Tier {
public:
  Tier(const FlowGraph &graph, Model &model)
      : graph(graph), model(model), sharedOf(graph.values.size(), -1),
        homeOf(graph.values.size(), -1) {
    for (size_t i = 0; i < model.values.size(); ++i)
      sharedOf[static_cast<size_t>(model.values[i].value)] = static_cast<int32_t>(i);
    for (const HomeSource &home : model.homes)
      homeOf[static_cast<size_t>(home.value)] = home.variable;
  }

  /// Ops of which each is the successor of the one before.
  void tie(const std::vector<int32_t> &run) {
    std::vector<uint32_t> same;
    for (int32_t op : run)
      same.push_back(static_cast<uint32_t>(model.variables[static_cast<size_t>(op)]));
    add(same);
    const FlowOp &first = graph.ops[static_cast<size_t>(run[0])];
    for (size_t r = 0; r < first.results.size(); ++r)
      tieResults(run, r);
    for (size_t o = 0; o < first.operands.size(); ++o)
      tieHomes(run, o);
  }

private:
  /// Values that have the same users in several copies; those of the last copy often have
  /// others.
  void tieResults(const std::vector<int32_t> &run, size_t result) {
    std::vector<uint32_t> same;
    const void *states = nullptr;
    for (int32_t number : run) {
      const FlowOp &op = graph.ops[static_cast<size_t>(number)];
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
  void tieHomes(const std::vector<int32_t> &run, size_t operand) {
    std::vector<uint32_t> same;
    for (int32_t number : run) {
      const FlowOp &op = graph.ops[static_cast<size_t>(number)];
      int64_t home = homeOf[static_cast<size_t>(op.operands[operand])];
      if (home < 0)
        return;
      same.push_back(static_cast<uint32_t>(home));
    }
    add(same);
  }

  /// Neighbours that have equally many choices. An op that may be computed again has more
  /// or fewer of them by who reads its result, which the last copies often differ in.
  void add(const std::vector<uint32_t> &same) {
    auto choices = [&](uint32_t variable) {
      return model.problem.variables[variable].costs.size();
    };
    for (size_t begin = 0, end; begin < same.size(); begin = end) {
      end = begin + 1;
      while (end < same.size() && choices(same[end]) == choices(same[begin]))
        ++end;
      if (end - begin < 2)
        continue;
      solver::Class tied;
      for (size_t i = begin; i < end; ++i)
        tied.copies.push_back({same[i]});
      model.problem.classes.push_back(std::move(tied));
    }
  }

  const FlowGraph &graph;
  Model &model;
  std::vector<int32_t> sharedOf; ///< per value its place in model.values, or -1
  std::vector<int64_t> homeOf;   ///< per value the variable of its home, or -1
};
} // namespace

size_t search::tieLayers(const FlowGraph &graph, Model &model) {
  SuccessorRuns found = findSuccessors(graph, model.choices, leastCopies);
  Tier tier(graph, model);
  for (const std::vector<int32_t> &run : found.runs)
    tier.tie(run);
  return std::accumulate(found.layers.begin(), found.layers.end(), size_t(0));
}
