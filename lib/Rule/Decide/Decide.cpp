//===- Decide.cpp - Strategies by propagation: hints, data-parallel -------===//
#include "Notes.h"
#include "partita/Rule/Decide/Kept.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "partita/Rule/Decide/ResolveHints.h"

#include <algorithm>
#include <map>
#include <set>

using namespace partita;

/// The longest leading part of `axes` (digit by digit) that the atom can be split by.
static AxisList fitting(const FlowGraph &graph, const Atom &atom, const AxisList &axes) {
  AxisList digits = primes(axes);
  while (!digits.empty() && !canShard(graph, atom, digits))
    digits.pop_back();
  return canonical(digits);
}

/// Whether `start`, through linked atoms of which each `passes`, is linked with one that
/// is the `goal`.
template <typename Passes, typename Goal>
static bool reaches(const FlowGraph &graph, int32_t start, Passes passes, Goal goal) {
  std::set<int32_t> seen{start};
  std::vector<int32_t> open{start};
  while (!open.empty()) {
    const Atom &atom = graph.atoms[open.back()];
    open.pop_back();
    if (goal(atom))
      return true;
    if (!passes(atom))
      continue;
    for (const Atom::Link &link : atom.links)
      if (graph.ops[graph.atoms[link.atom].op].kind != FlowKind::Source &&
          seen.insert(link.atom).second)
        open.push_back(link.atom);
  }
  return false;
}

/// Whether dim 0 of an argument reaches dim 0 of some result through linked factors that
/// can be split: then it is a batch dim.
static bool reachesResult(const FlowGraph &graph, int32_t start) {
  auto parallel = [&](const Atom &a) { return graph.kindOf(a) == FactorKind::Parallel; };
  return reaches(graph, start, parallel, [&](const Atom &a) {
    return parallel(a) && graph.ops[a.op].kind == FlowKind::Sink;
  });
}

/// The digits of `axes` that hints leave free in every op that the batch dim reaches:
/// split by others, it would be gathered before each op where they are used.
static AxisList freeAxes(const FlowGraph &graph, int32_t batch, const AxisList &axes,
                         const std::vector<AxisList> &hinted) {
  std::set<int32_t> reached;
  reaches(
      graph, batch,
      [&](const Atom &a) { return graph.kindOf(a) == FactorKind::Parallel; },
      [&](const Atom &a) {
        reached.insert(static_cast<int32_t>(&a - graph.atoms.data()));
        return false;
      });
  AxisList used;
  for (int32_t r : reached)
    for (int32_t a : graph.allAtoms(graph.atoms[r].op))
      if (!reached.count(a))
        used.insert(used.end(), hinted[a].begin(), hinted[a].end());
  AxisList free;
  for (const AxisRef &digit : primes(axes))
    if (!overlap(used, {digit}))
      free.push_back(digit);
  return canonical(free);
}

/// Seeds that split the batch dim of every argument, by axes that `hinted` leaves free
/// (per atom, what hints alone give it).
static std::vector<Seed> batchSeeds(const FlowGraph &graph, const AxisList &all,
                                    std::vector<std::string> *notes,
                                    const std::vector<AxisList> *hinted = nullptr) {
  std::vector<Seed> seeds;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    if (op.kind != FlowKind::Argument || op.rule.results[0].empty())
      continue;
    auto dim = graph.dimAtoms(static_cast<int32_t>(i), op.rule.results[0][0]);
    const auto &shape = graph.values[op.results[0]].shape;
    if (op.isBatch && !dim.empty())
      dim.front() = dim.back();
    if (dim.empty() || !(op.isBatch || reachesResult(graph, dim[0]))) {
      if (notes)
        notes->push_back("dim 0 of input '" + op.name + "', of size " +
                         std::to_string(shape[0]) +
                         ", is no batch: it does not become the first dim of an "
                         "output; the input is whole on every rank");
      continue;
    }
    AxisList axes = hinted ? freeAxes(graph, dim[0], all, *hinted) : all;
    if (notes && axes != canonical(all))
      notes->push_back("the batch dim of '" + op.name + "' is " +
                       (axes.empty() ? "not split: hints use every axis"
                                     : "split by " + graph.mesh.str(axes) +
                                           " alone: hints use the other axes"));
    AxisList fit = fitting(graph, graph.atoms[dim[0]], axes);
    if (notes && product(fit) != product(axes))
      notes->push_back("the batch dim of '" + op.name + "', of size " +
                       std::to_string(shape[0]) + ", is split " +
                       std::to_string(product(fit)) + " ways of " +
                       std::to_string(product(axes)) + "; the rest is replicated");
    if (!fit.empty())
      seeds.push_back(
          {dim[0], fit, "split of the batch over " + graph.mesh.str(axes), 0});
  }
  return seeds;
}

/// Gives what is computed again the strategy of the first time; an error if a hint asks
/// for another one.
static Expected<void> repeatStrategies(const FlowGraph &graph,
                                       const std::vector<Seed> &seeds,
                                       std::vector<Strategy> &strategies) {
  auto isOther = [&](size_t op) {
    const int32_t first = graph.ops[op].repeats;
    return first >= 0 && !(strategies[op] == strategies[static_cast<size_t>(first)]);
  };
  for (const Seed &seed : seeds) {
    auto op = static_cast<size_t>(graph.atoms[static_cast<size_t>(seed.atom)].op);
    if (isOther(op))
      return makeError(seed.origin + " gives it another strategy than '" +
                       graph.ops[static_cast<size_t>(graph.ops[op].repeats)].name +
                       "' has, by which it is computed again");
  }
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (isOther(op))
      strategies[op] = strategies[static_cast<size_t>(graph.ops[op].repeats)];
  return {};
}

static Expected<Decision> finish(const FlowGraph &graph, const std::vector<Seed> &seeds) {
  auto spread = propagate(graph, seeds);
  if (!spread)
    return tl::unexpected(spread.error());
  Decision decision;
  decision.strategies = strategiesOf(graph, spread->axes, seeds);
  if (auto ok = repeatStrategies(graph, seeds, decision.strategies); !ok)
    return tl::unexpected(ok.error());
  decision.propagated = std::move(*spread);
  decision.price = price(graph, decision.strategies);
  return decision;
}

/// Pins every op of the sub-graphs that ask for data-parallel to what batch seeds alone
/// give it.
static Expected<void> pinSubgraphs(const FlowGraph &graph, const Hints &hints,
                                   std::vector<Seed> &seeds) {
  bool any = false;
  for (const SubgraphHint &hint : hints.subgraphs)
    any |= hint.mode == ShardMode::DataParallel;
  auto batch = propagate(graph, any ? batchSeeds(graph, graph.mesh.all(), nullptr)
                                    : std::vector<Seed>{});
  if (!batch)
    return tl::unexpected(batch.error());
  for (const SubgraphHint &hint : hints.subgraphs) {
    bool found = false;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      if (op.kind != FlowKind::Compute || !isNamed(graph, op, hint.glob))
        continue;
      found = true;
      if (hint.mode == ShardMode::DataParallel)
        for (int32_t a : graph.allAtoms(static_cast<int32_t>(i)))
          seeds.push_back({a, batch->axes[a], "sub-graph '" + hint.glob + "'", 0});
    }
    // A node that changes nothing, or that an op absorbs, is only a name.
    auto isMeant = [&](const std::string &name) { return matchesGlob(hint.glob, name); };
    for (const FlowValue &value : graph.values)
      found |= std::any_of(value.otherNames.begin(), value.otherNames.end(), isMeant);
    for (const FlowOp &op : graph.ops)
      found |= std::any_of(op.absorbed.begin(), op.absorbed.end(),
                           [&](const auto &it) { return isMeant(it.name); });
    if (!found)
      return makeError(hints.file + ": no node and no module is named '" + hint.glob +
                       "'" + nearMisses(graph, hint.glob));
  }
  return {};
}

Expected<Decision> partita::decide(FlowGraph &graph, ShardMode mode, const Hints &hints) {
  std::vector<std::string> notes;
  auto seeds = resolveHints(graph, hints);
  if (!seeds)
    return tl::unexpected(seeds.error());
  if (auto ok = pinSubgraphs(graph, hints, *seeds); !ok)
    return tl::unexpected(ok.error());
  std::vector<Seed> hinted = *seeds;
  if (mode == ShardMode::DataParallel) {
    auto spread = propagate(graph, hinted);
    if (!spread)
      return tl::unexpected(spread.error());
    for (Seed &seed : batchSeeds(graph, graph.mesh.all(), &notes, &spread->axes)) {
      // Hints win over the default.
      seed.priority = NodeHint::lastPriority + 1;
      seeds->push_back(std::move(seed));
    }
  }
  auto decision = finish(graph, *seeds);
  if (!decision)
    return decision;
  noteLostHints(graph, hinted, *decision);
  if (auto ok = keepWeights(graph, hints, *decision); !ok)
    return tl::unexpected(ok.error());
  decision->notes.insert(decision->notes.begin(), notes.begin(), notes.end());
  noteConflicts(graph, hints.areFound, *decision);
  return decision;
}
