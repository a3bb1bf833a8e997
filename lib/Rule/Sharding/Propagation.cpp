//===- Propagation.cpp - From a few hints to a strategy per op ------------===//
#include "partita/Rule/Sharding/Propagation.h"

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
/// One proposal to an op: axes for one of its atoms.
struct Proposal {
  int32_t atom;
  AxisList axes;
  int64_t savedBytes = 0; ///< bytes of values that then agree at both ends
  int32_t via = -1;
  std::string origin;
};

class Propagator {
public:
  Propagator(const FlowGraph &graph) : graph(graph) {
    state.axes.resize(graph.atoms.size());
    state.origins.resize(graph.atoms.size());
    fixed.resize(graph.atoms.size(), false);
    fixedAt.resize(graph.atoms.size(), 0);
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
    findGathered();
    for (int level = 0; level <= 2; ++level) {
      if (level > 0)
        settle(level, /*forwardOnly=*/true);
      settle(level, /*forwardOnly=*/false);
    }
    gathered.assign(graph.values.size(), {});
    settle(2, /*forwardOnly=*/false);
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
  /// next to a change are asked: the others would propose what they did before.
  void settle(int level, bool forwardOnly) {
    std::vector<int32_t> asked(graph.ops.size());
    std::iota(asked.begin(), asked.end(), 0);
    while (!asked.empty()) {
      std::vector<Proposal> accepted;
      for (int32_t op : asked)
        if (!graph.ops[op].isSource() && graph.ops[op].priority <= level)
          choose(op, forwardOnly, accepted);
      asked.clear();
      for (Proposal &p : accepted) {
        asked.push_back(graph.atoms[p.atom].op);
        for (const Atom::Link &link : graph.atoms[p.atom].links)
          asked.push_back(graph.atoms[link.atom].op);
        state.axes[p.atom] = std::move(p.axes);
        state.origins[p.atom] = {std::move(p.origin), p.via};
      }
      std::sort(asked.begin(), asked.end());
      asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
    }
  }

  std::vector<Proposal> collect(int32_t op, bool forwardOnly) const {
    std::map<std::pair<int32_t, AxisList>, Proposal> merged;
    for (int32_t a : graph.allAtoms(op)) {
      const Atom &atom = graph.atoms[a];
      if (fixed[a] || !state.axes[a].empty())
        continue;
      std::set<int32_t> counted;
      for (const Atom::Link &link : atom.links) {
        const Atom &from = graph.atoms[link.atom];
        const AxisList &axes = state.axes[link.atom];
        bool isSource = graph.ops[from.op].isSource();
        if (forwardOnly && graph.values[link.value].producer != from.op)
          continue;
        if (axes.empty() || !link.carries(axes) || (isSource && !fixed[link.atom]) ||
            !canShard(graph, atom, axes))
          continue;
        if (graph.values[link.value].producer == from.op && isGathered(link, op))
          continue;
        Proposal &p = merged[{a, axes}];
        p.atom = a;
        p.axes = axes;
        if (counted.insert(link.value).second)
          p.savedBytes += graph.values[link.value].bytes();
        // Several may say the same axes: the first origin by its text is told.
        if (p.via < 0 || state.origins[link.atom].text < p.origin) {
          p.via = from.op;
          p.origin = state.origins[link.atom].text;
        }
      }
    }
    std::vector<Proposal> result;
    for (auto &entry : merged)
      result.push_back(std::move(entry.second));
    return result;
  }

  /// Accepts the proposals to one op that can hold together, most saving first.
  void choose(int32_t op, bool forwardOnly, std::vector<Proposal> &accepted) {
    std::vector<Proposal> proposals = collect(op, forwardOnly);
    if (proposals.empty())
      return;
    std::sort(proposals.begin(), proposals.end(),
              [](const Proposal &a, const Proposal &b) {
                if (a.savedBytes != b.savedBytes)
                  return a.savedBytes > b.savedBytes;
                int64_t sa = product(a.axes), sb = product(b.axes);
                if (sa != sb)
                  return sa > sb;
                return std::tie(a.axes, a.atom) < std::tie(b.axes, b.atom);
              });
    AxisList used;
    for (int32_t a : graph.allAtoms(op))
      used.insert(used.end(), state.axes[a].begin(), state.axes[a].end());
    std::vector<Proposal> taken;
    for (Proposal &p : proposals) {
      auto rival = std::find_if(taken.begin(), taken.end(), [&](const Proposal &t) {
        return t.atom == p.atom || overlap(t.axes, p.axes);
      });
      if (rival != taken.end()) {
        report(op, *rival, p);
        continue;
      }
      if (overlap(used, p.axes)) {
        reportUsed(op, p);
        continue;
      }
      taken.push_back(std::move(p));
    }
    for (Proposal &p : taken)
      accepted.push_back(std::move(p));
  }

  void report(int32_t op, const Proposal &kept, const Proposal &rejected) {
    if (kept.atom == rejected.atom && kept.axes == rejected.axes)
      return;
    add({op,
         {kept.atom, kept.axes, kept.origin},
         {rejected.atom, rejected.axes, rejected.origin}});
  }
  void reportUsed(int32_t op, const Proposal &rejected) {
    for (int32_t a : graph.allAtoms(op))
      if (overlap(state.axes[a], rejected.axes))
        add({op, here(a), {rejected.atom, rejected.axes, rejected.origin}});
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
