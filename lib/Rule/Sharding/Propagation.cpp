//===- Propagation.cpp - From a few hints to a strategy per op ------------===//
#include "partita/Rule/Sharding/Propagation.h"

#include "Proposals.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>
#include <set>

using namespace partita;

bool partita::canShard(const FlowGraph &graph, const Atom &atom, const AxisList &axes) {
  if (axes.empty())
    return true;
  if (graph.kindOf(atom) == FactorKind::Replicate)
    return false;
  int64_t shards = product(axes);
  return atom.size % shards == 0 || (atom.canPad && shards <= atom.size);
}

/// Why the atoms of a dim cannot take the axes.
static std::string refusal(const FlowGraph &graph, const std::vector<int32_t> &dim,
                           const AxisList &axes) {
  int64_t size = 1, shards = product(axes);
  std::string asked =
      graph.mesh.str(canonical(axes)) + " (" + std::to_string(shards) + " ways)";
  if (dim.empty()) // no loop runs over it
    return "a dim of size 1 cannot be split by " + asked;
  bool whole = true, alone = true;
  const std::string op = "'" + graph.ops[graph.atoms[dim[0]].op].name + "'";
  std::string cuts;
  for (int32_t a : dim) {
    const Atom &atom = graph.atoms[a];
    size *= atom.size;
    bool bare = graph.kindOf(atom) == FactorKind::Replicate;
    whole &= bare;
    alone &= bare || atom.detached;
    cuts += (cuts.empty() ? "" : " x ") + std::to_string(atom.size);
  }
  std::string why;
  if (whole)
    why = op + " needs all of it on every rank";
  else if (size < shards)
    why = "it has fewer elements";
  else if (dim.size() > 1)
    why = (alone ? op + " cuts" : "other ops cut") + " it into " + cuts;
  else if (alone)
    why = "it does not divide, and is inside another dim of " + op +
          ", where there is no room for padding";
  else
    why = "it does not divide, and other ops leave no room for padding";
  return "a dim of size " + std::to_string(size) + " cannot be split by " + asked + ": " +
         why;
}

Expected<std::vector<AxisList>> partita::distribute(const FlowGraph &graph,
                                                    const std::vector<int32_t> &dim,
                                                    const AxisList &axes, int first) {
  std::vector<AxisList> result(dim.size());
  size_t at = first >= 0 ? static_cast<size_t>(first) : 0;
  if (first < 0) {
    while (at < dim.size() && graph.atoms[dim[at]].refused)
      ++at;
    if (at == dim.size())
      at = 0;
  }
  AxisList left = primes(axes);
  for (; at < dim.size() && !left.empty(); ++at) {
    const Atom &atom = graph.atoms[dim[at]];
    // The whole rest first (a single padded atom takes it uneven), then digit by digit.
    AxisList taken = left;
    while (!taken.empty() && !canShard(graph, atom, taken))
      taken.pop_back();
    left.erase(left.begin(), left.begin() + static_cast<int64_t>(taken.size()));
    result[at] = canonical(taken);
  }
  if (!left.empty())
    return makeError(refusal(graph, dim, axes));
  return result;
}

std::string partita::toString(const FlowGraph &graph, const Conflict &conflict) {
  auto text = [&](const Conflict::Side &side) {
    const Atom &atom = graph.atoms[side.atom];
    return "the " + side.origin + " (" +
           graph.ops[atom.op].rule.loopName(static_cast<size_t>(atom.factor)) + ": " +
           (side.axes.empty() ? "whole" : graph.mesh.str(side.axes)) + ")";
  };
  return text(conflict.kept) + " wins over " + text(conflict.rejected);
}

namespace {
class Propagator {
public:
  explicit Propagator(const FlowGraph &graph)
      : graph(graph), hasBackward(!std::ranges::all_of(graph.ops, &FlowOp::isForward)) {
    state.axes.resize(graph.atoms.size());
    state.origins.resize(graph.atoms.size());
    fixed.resize(graph.atoms.size(), false);
    fixedAt.resize(graph.atoms.size(), 0);
    together.resize(1);
    std::vector<size_t> depths(graph.ops.size(), 0);
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      for (int32_t value : graph.ops[op].operands)
        if (int32_t producer = graph.values[value].producer; producer >= 0)
          depths[op] = std::max(depths[op], depths[producer] + 1);
      byDepth.resize(std::max(byDepth.size(), depths[op] + 1));
      byDepth[depths[op]].push_back(static_cast<int32_t>(op));
      together[0].push_back(static_cast<int32_t>(op));
    }
  }

  Expected<void> seed(const std::vector<Seed> &seeds, int priority) {
    for (const Seed &seed : seeds) {
      if (seed.priority != priority)
        continue;
      const Atom &atom = graph.atoms[seed.atom];
      if (!canShard(graph, atom, seed.axes))
        return makeError(seed.origin + ": a dim of size " + std::to_string(atom.size) +
                         " of '" + graph.ops[atom.op].name + "' cannot be split by " +
                         graph.mesh.str(seed.axes));
      int32_t rival = rivalOf(seed);
      // A later priority never overrides what an earlier one has asked or spread here.
      if (rival >= 0 && (!fixed[rival] || fixedAt[rival] < priority)) {
        add({atom.op, here(rival), {seed.atom, seed.axes, seed.origin}});
        continue;
      }
      if (rival == seed.atom)
        return makeError(seed.origin + ": " + graph.mesh.str(seed.axes) +
                         " on a dim of '" + graph.ops[atom.op].name + "' contradicts " +
                         graph.mesh.str(state.axes[rival]) + " from " +
                         state.origins[rival].text);
      if (rival >= 0)
        return makeError(seed.origin + ": " + graph.mesh.str(seed.axes) +
                         " is already used by another dim of '" +
                         graph.ops[atom.op].name + "' (" + state.origins[rival].text +
                         ")");
      state.axes[seed.atom] = seed.axes;
      state.origins[seed.atom] = {seed.origin, -1};
      fixed[seed.atom] = true;
      fixedAt[seed.atom] = priority;
    }
    return {};
  }

  /// Within a level results follow operands before operands follow results: what a weight
  /// was split for reaches the next contraction before that one's own users do. Which of
  /// two waves gets there first must not depend on how many ops lie between.
  ///
  /// Of a value that a hinted reader takes whole (below), the other readers hear last:
  /// their own neighbours go before it.
  void spread() {
    for (isStep = false;; isStep = true) {
      findGathered();
      for (int level = 0; level <= 2; ++level) {
        if (level > 0 && !isStep)
          settle(level, /*forwardOnly=*/true);
        settle(level, /*forwardOnly=*/false);
      }
      gathered.assign(graph.values.size(), {});
      settle(2, /*forwardOnly=*/false);
      if (isStep || !hasBackward)
        return;
    }
  }

  Propagated take() { return std::move(state); }

private:
  /// The atom of the seed's op whose axes do not go with the seed: its own, when it has
  /// others, or one that uses the same; -1 if there is none.
  int32_t rivalOf(const Seed &seed) const {
    const AxisList &own = state.axes[seed.atom];
    if (own != seed.axes && (fixed[seed.atom] || !own.empty()))
      return seed.atom;
    for (int32_t a : graph.allAtoms(graph.atoms[seed.atom].op))
      if (a != seed.atom && overlap(state.axes[a], seed.axes))
        return a;
    return -1;
  }

  /// Per value, the atoms with axes of readers that hints have fixed. Where such an atom
  /// is another dim's, its reader takes the value without these axes: it is gathered, and
  /// then whole for everybody. To be split like it saves the other readers nothing. (The
  /// positions between the layers of a transformer, of whose next three products the
  /// first alone is hinted by its columns.)
  void findGathered() {
    gathered.assign(graph.values.size(), {});
    for (size_t op = 0; op < graph.ops.size(); ++op)
      for (int32_t a : graph.allAtoms(static_cast<int32_t>(op)))
        if (fixed[a] && !state.axes[a].empty())
          for (int32_t value : graph.ops[op].operands)
            gathered[value].push_back(a);
  }
  bool isGathered(const Atom::Link &link, int32_t reader) const {
    return std::any_of(
        gathered[link.value].begin(), gathered[link.value].end(), [&](int32_t a) {
          const Atom &atom = graph.atoms[a];
          return atom.op != reader && overlap(state.axes[a], state.axes[link.atom]) &&
                 std::none_of(atom.links.begin(), atom.links.end(),
                              [&](const Atom::Link &own) {
                                return own.atom == link.atom && own.value == link.value;
                              });
        });
  }

  /// Rounds over ops of priority ≤ level until nothing changes. After the first, only ops
  /// next to a change are asked: the others would propose what they did before. Towards
  /// results alone, a round goes from depth to depth, so that an op chooses when all its
  /// operands have: the values of an attention are made earlier than its weights.
  void settle(int level, bool forwardOnly) {
    std::vector<bool> isAsked(graph.ops.size(), true);
    for (bool changes = true; changes;) {
      changes = false;
      for (const std::vector<int32_t> &ops : forwardOnly ? byDepth : together) {
        std::vector<Proposal> accepted;
        for (int32_t op : ops)
          if (isAsked[op] && isOpen(graph.ops[op], level))
            choose(op, forwardOnly, accepted);
        for (int32_t op : ops)
          isAsked[op] = false;
        for (Proposal &p : accepted) {
          isAsked[graph.atoms[p.atom].op] = true;
          for (const Atom::Link &link : graph.atoms[p.atom].links)
            isAsked[graph.atoms[link.atom].op] = true;
          state.axes[p.atom] = std::move(p.axes);
          state.origins[p.atom] = {std::move(p.origin), p.via};
        }
        changes |= !accepted.empty();
      }
    }
  }

  bool isOpen(const FlowOp &op, int level) const {
    return !op.isSource() && op.priority <= level && (isStep || op.isForward());
  }

  /// Collects what links propose to an op. Several may say the same axes: the first
  /// origin by its text is told.
  Asked collect(int32_t op, bool forwardOnly) const {
    std::map<std::pair<int32_t, AxisList>, Proposal> merged;
    std::map<std::pair<int32_t, int32_t>, OtherEnd> ends;
    for (int32_t a : graph.allAtoms(op)) {
      if (fixed[a] || !state.axes[a].empty())
        continue;
      std::set<int32_t> counted;
      for (const Atom::Link &link : graph.atoms[a].links) {
        if (!proposes(link, a, forwardOnly))
          continue;
        const int32_t from = graph.atoms[link.atom].op;
        const AxisList &axes = state.axes[link.atom];
        const std::string &origin = state.origins[link.atom].text;
        Proposal &p = merged.try_emplace({a, axes}, Proposal{a, axes}).first->second;
        if (counted.insert(link.value).second)
          p.savedBytes += graph.values[link.value].bytes();
        if (p.via < 0 || origin < p.origin) {
          p.via = from;
          p.origin = origin;
        }
        OtherEnd &end =
            ends.try_emplace({link.value, from}, OtherEnd{link.value, {}}).first->second;
        end.axes.emplace_back(a, axes);
      }
    }
    Asked asked;
    for (auto &entry : merged)
      asked.proposals.push_back(std::move(entry.second));
    std::set<OtherEnd> distinct;
    for (auto &entry : ends)
      distinct.insert(std::move(entry.second));
    asked.ends.assign(distinct.begin(), distinct.end());
    return asked;
  }

  /// True if the axes at the other end of a link are proposed to an open atom.
  bool proposes(const Atom::Link &link, int32_t to, bool forwardOnly) const {
    const Atom &atom = graph.atoms[to], &from = graph.atoms[link.atom];
    const AxisList &axes = state.axes[link.atom];
    const bool isForward = graph.values[link.value].producer == from.op;
    const bool isSource = graph.ops[from.op].isSource();
    return !(forwardOnly && !isForward) && !axes.empty() && link.carries(axes) &&
           !(isSource && !fixed[link.atom]) && canFollow(graph, atom, axes) &&
           !(isForward && isGathered(link, atom.op));
  }

  void choose(int32_t op, bool forwardOnly, std::vector<Proposal> &accepted) {
    Asked asked = collect(op, forwardOnly);
    if (asked.proposals.empty())
      return;
    Choice choice = chooseAmong(graph, op, state.axes, std::move(asked));
    for (const Rejected &it : choice.rejected) {
      auto taken = std::ranges::find(choice.taken, it.by, &Proposal::atom);
      const Proposal &other = it.proposal;
      add({op,
           taken == choice.taken.end()
               ? here(it.by)
               : Conflict::Side{taken->atom, taken->axes, taken->origin},
           {other.atom, other.axes, other.origin}});
    }
    for (Proposal &p : choice.taken)
      accepted.push_back(std::move(p));
  }

  Conflict::Side here(int32_t atom) const {
    return {atom, state.axes[atom], state.origins[atom].text};
  }
  /// Each pair once per op, however many rounds see it; a hint does not conflict with
  /// what spread from itself.
  void add(Conflict conflict) {
    const std::string &kept = conflict.kept.origin, &other = conflict.rejected.origin;
    if (kept == other)
      return;
    auto key = std::tuple(conflict.op, kept, other);
    if (seen.insert(key).second)
      state.conflicts.push_back(std::move(conflict));
  }

  const FlowGraph &graph;
  const bool hasBackward;
  std::vector<std::vector<int32_t>> byDepth, together; ///< ops, for settle
  bool isStep = false; ///< whether ops behind the forward pass are asked
  Propagated state;
  std::vector<bool> fixed;
  std::vector<int> fixedAt; ///< the priority of the seed that fixed an atom
  std::vector<std::vector<int32_t>> gathered; ///< see findGathered
  std::set<std::tuple<int32_t, std::string, std::string>> seen;
};
} // namespace

Expected<Propagated> partita::propagate(const FlowGraph &graph,
                                        const std::vector<Seed> &seeds) {
  std::set<int> priorities{0};
  for (const Seed &seed : seeds)
    priorities.insert(seed.priority);
  Propagator propagator(graph);
  for (int priority : priorities) {
    if (auto ok = propagator.seed(seeds, priority); !ok)
      return tl::unexpected(ok.error());
    propagator.spread();
  }
  return propagator.take();
}
