//===- ResolveHints.cpp - Hints become seeds ------------------------------===//
#include "partita/Rule/Decide/ResolveHints.h"

#include "partita/Rule/Decide/ModuleNames.h"

#include "HintLoops.h"
#include "HintTargets.h"
#include "partita/Rule/Sharding/AssignStrategies.h"
#include "partita/Rule/Sharding/Price.h"

#include <algorithm>

using namespace partita;

namespace {
/// One dim of one tensor of a group that is not left open.
struct Entry {
  const HintTarget *target;
  size_t dim;
  const DimHint *hint;
  AxisList axes; ///< as written; empty for counts and written-out factors
  std::string where;
};

/// The axes that the entries of earlier groups name, per op: a mesh axis of size 1 leaves
/// no trace in seeds, and is used once all the same.
struct NamedAxes {
  AxisList axes;
  std::vector<int32_t> loops;
  std::string where;
  int priority;
};
using NamedByOp = std::map<int32_t, std::vector<NamedAxes>>;

/// For an entry of the file, by the pieces of the dim: the piece to begin with.
using Beginnings = std::map<std::pair<const DimHint *, std::vector<int64_t>>, int>;

/// Resolves one group against the atoms that there are.
class GroupResolver {
public:
  GroupResolver(const FlowGraph &graph, const HintGroup &group, Detachments &detached,
                NamedByOp &named, SeedList &seeds, Beginnings &beginnings)
      : graph(graph), group(group), loops(graph, group, detached), named(named),
        seeds(seeds), beginningsByHint(beginnings) {}

  /// Appends the seeds of the group. False if loops were detached for it: then there are
  /// no seeds, and the graph is to be refined anew.
  Expected<bool> run() {
    if (auto ok = collect(); !ok)
      return tl::unexpected(ok.error());
    for (const std::vector<Entry> *list : {&one, &several, &counts, &severalCounts})
      for (const Entry &entry : *list) {
        auto done = entry.hint->count > 0 ? claimCount(entry) : claimNamed(entry);
        if (!done || !*done)
          return done;
      }
    for (Seed &seed : loops.seeds())
      seeds.add(std::move(seed));
    return true;
  }

private:
  /// Entries for a dim of one loop come before those for several, which then share what
  /// is left; named axes before counts, which get what is left.
  Expected<void> collect() {
    for (const HintTarget &target : group.targets)
      for (size_t d = 0; d < target.dims->size(); ++d) {
        const DimHint &hint = (*target.dims)[d];
        if (hint.open)
          continue;
        Entry entry{&target, d, &hint, {}, target.what + ", dim " + std::to_string(d)};
        if (auto ok = nameAxes(entry); !ok)
          return ok;
        bool single = target.places[0].loops(graph, d).size() < 2;
        (hint.count > 0 ? single ? counts : severalCounts
         : single       ? one
                        : several)
            .push_back(std::move(entry));
      }
    return {};
  }

  tl::unexpected<Error> errorAt(const Entry &entry, const std::string &message) const {
    return tl::unexpected<Error>({.message = entry.where + ": " + message,
                                  .node = graph.ops[entry.target->places[0].op].name,
                                  .dim = static_cast<int64_t>(entry.dim),
                                  .hint = entry.where});
  }

  /// Reads the axes of an entry. None may be used twice at an op, whatever its size.
  Expected<void> nameAxes(Entry &entry) {
    AxisList all;
    auto read = [&](const std::vector<std::string> &names, AxisList *into) {
      auto axes = parseAxes(names, all);
      if (!axes)
        return Expected<void>(errorAt(entry, axes.error().message));
      all.insert(all.end(), axes->begin(), axes->end());
      if (into)
        *into = *axes;
      return Expected<void>();
    };
    if (auto ok = read(entry.hint->axes, &entry.axes); !ok)
      return ok;
    for (const auto &names : entry.hint->factorAxes)
      if (auto ok = read(names, nullptr); !ok)
        return ok;
    const HintPlace &place = entry.target->places[0];
    const std::vector<int32_t> &here = place.loops(graph, entry.dim);
    std::vector<NamedAxes> &others = named[place.op];
    for (const NamedAxes &other : others)
      for (const AxisRef &axis : all)
        if (other.priority == group.priority && sharesAxis(other.axes, axis) &&
            std::none_of(here.begin(), here.end(), [&](int32_t f) {
              return std::find(other.loops.begin(), other.loops.end(), f) !=
                     other.loops.end();
            }))
          return errorAt(entry, "{" + graph.mesh.str(axis) + "} is already used by " +
                                    other.where);
    if (!all.empty())
      others.push_back({std::move(all), here, entry.where, group.priority});
    return {};
  }

  /// Whether an axis, or a part of it that is not independent, is in a list. Axes of size
  /// 1 are told by their names.
  static bool sharesAxis(const AxisList &axes, const AxisRef &axis) {
    return std::any_of(axes.begin(), axes.end(), [&](const AxisRef &other) {
      return overlap(other, axis) || (other.axis == axis.axis && axis.size == 1);
    });
  }

  Expected<AxisList> parseAxes(const std::vector<std::string> &names,
                               const AxisList &before) const {
    AxisList axes;
    for (const std::string &name : names) {
      auto axis = graph.mesh.parseAxis(name);
      if (!axis)
        return tl::unexpected(axis.error());
      if (sharesAxis(before, *axis) || sharesAxis(axes, *axis))
        return makeError("axis " + name + " is used twice");
      axes.push_back(*axis);
    }
    return axes;
  }

  Expected<bool> claimNamed(const Entry &entry) {
    for (const HintPlace &place : entry.target->places) {
      HintDim dim{place, entry.dim, entry.where};
      Expected<bool> done = !entry.hint->factors.empty() ? claimWritten(dim, entry)
                            : !entry.hint->blocks.empty()
                                ? loops.claimBlocks(dim, entry.axes, entry.hint->blocks)
                                : loops.claim(dim, entry.axes, beginning(entry));
      if (done && !*done)
        return false;
      if (!done && &place == &entry.target->places.front())
        return done;
    }
    return true;
  }

  /// Of the pieces of a dim that plain axes may mean, the one to begin with that moves
  /// least, the usual one of equals. Equal layers are alike: the first decides.
  int beginning(const Entry &entry) {
    HintDim dim{entry.target->places[0], entry.dim, entry.where};
    std::vector<int> ways = loops.beginnings(dim, entry.axes);
    const bool isShared =
        std::ranges::count(entry.target->places, false, &HintPlace::isCast) > 1;
    if (ways.size() < 2 || isShared)
      return -1;
    std::vector<int64_t> key;
    for (int32_t a : graph.dimAtoms(dim.place.op, dim.place.loops(graph, dim.dim)))
      key.push_back(graph.atoms[a].size);
    auto [known, isNew] = beginningsByHint.try_emplace({entry.hint, key}, -1);
    if (!isNew)
      return known->second;
    double best = -1;
    for (int way : ways) {
      HintLoops trial = loops;
      auto done = trial.claim(dim, entry.axes, way);
      if (!done || !*done)
        continue;
      double score = scoreOf(withUsers(trial.seeds()));
      if (score >= 0 && (best < 0 || score < best)) {
        best = score;
        known->second = way;
      }
    }
    return known->second;
  }

  /// What users of a weight are pinned to by its hint: sources relay nothing themselves.
  std::vector<Seed> withUsers(std::vector<Seed> own) const {
    if (group.value < 0 || !graph.ops[graph.values[group.value].producer].isSource())
      return own;
    const FlowValue &value = graph.values[group.value];
    const ShardingRule &source = graph.ops[value.producer].rule;
    std::vector<Seed> all = own;
    for (const FlowUse &use : value.uses)
      for (size_t d = 0; d < value.shape.size(); ++d) {
        auto from = graph.dimAtoms(value.producer, source.results[0][d]);
        auto to = graph.dimAtoms(use.op, graph.ops[use.op].rule.operands[use.operand][d]);
        for (size_t i = 0; i < from.size() && from.size() == to.size(); ++i)
          for (const Seed &seed : own)
            if (seed.atom == from[i] && canShard(graph, graph.atoms[to[i]], seed.axes))
              all.push_back({to[i], seed.axes, seed.origin, seed.priority});
      }
    return all;
  }

  /// The price of the plan that these seeds and those so far lead to; -1 for none.
  double scoreOf(const std::vector<Seed> &own) const {
    std::vector<Seed> trial = seeds.all();
    trial.insert(trial.end(), own.begin(), own.end());
    auto spread = propagate(graph, trial);
    return spread ? price(graph, strategiesOf(graph, spread->axes, trial)).score() : -1;
  }

  Expected<bool> claimWritten(const HintDim &dim, const Entry &entry) {
    std::vector<AxisList> lists;
    for (const auto &names : entry.hint->factorAxes)
      lists.push_back(*parseAxes(names, {})); // read before
    return loops.claimWritten(dim, entry.hint->factors, lists);
  }

  /// All ways to write `count` as a list of whole mesh axes not in `taken`, in mesh
  /// order; if there is none, the major-most free part of the first axis that has one.
  std::vector<AxisList> waysToSplit(int64_t count, const AxisList &taken) const {
    std::vector<AxisList> ways;
    size_t n = graph.mesh.axes().size();
    for (uint64_t subset = 1; n < 20 && subset < (uint64_t(1) << n); ++subset) {
      AxisList axes;
      for (size_t a = 0; a < n; ++a)
        if (subset >> a & 1)
          axes.push_back(graph.mesh.whole(static_cast<int32_t>(a)));
      if (product(axes) == count && canonical(axes) == axes && !overlap(axes, taken))
        ways.push_back(std::move(axes));
    }
    for (size_t a = 0; ways.empty() && a < n; ++a)
      for (int64_t pre = 1, size = graph.mesh.axes()[a].size; pre * count <= size;
           ++pre) {
        AxisRef part{static_cast<int32_t>(a), pre, count};
        if (size % (pre * count) == 0 && !overlap(taken, {part})) {
          ways.push_back({part});
          break;
        }
      }
    return ways;
  }

  /// The axes at the ops of an entry, those of earlier groups included.
  AxisList takenAt(const Entry &entry) const {
    AxisList taken = loops.axesAt(entry.target->places);
    for (const HintPlace &place : entry.target->places)
      for (const Seed *seed : seeds.at(place.op))
        if (seed->priority <= group.priority)
          taken.insert(taken.end(), seed->axes.begin(), seed->axes.end());
    return taken;
  }

  Expected<bool> claimCount(const Entry &entry) {
    HintDim dim{entry.target->places[0], entry.dim, entry.where};
    loops.adopt(dim, seeds, entry.hint->count);
    auto open = loops.openShards(dim, entry.hint->count);
    if (!open)
      return tl::unexpected(open.error());
    if (*open == 1)
      return claimEverywhere(entry, {});
    // Two loops of a node have different axes where the mesh has enough; two ops of it
    // can do without.
    AxisList here = takenAt(entry), node = loops.axesOfNode();
    node.insert(node.end(), here.begin(), here.end());
    std::vector<AxisList> ways = waysToSplit(*open, node);
    if (ways.empty())
      ways = waysToSplit(*open, here);
    if (ways.empty())
      return errorAt(entry, "no axes of the mesh " + graph.mesh.str() +
                                " that are still free split it " +
                                std::to_string(entry.hint->count) + " ways");
    std::vector<AxisList> fitting;
    for (const AxisList &axes : ways)
      if (loops.fits(dim, axes))
        fitting.push_back(axes);
    // Where none fits, the first says why, or detaches what stands in its way.
    return claimEverywhere(entry, fitting.empty()       ? ways[0]
                                  : fitting.size() == 1 ? fitting[0]
                                                        : cheapest(entry, fitting));
  }

  /// Splits the loops that have no axes yet, and the other places like the first.
  Expected<bool> claimEverywhere(const Entry &entry, const AxisList &axes) {
    HintDim dim{entry.target->places[0], entry.dim, entry.where};
    auto done = loops.claimOpen(dim, axes);
    if (!done || !*done)
      return done;
    Entry named = entry;
    named.axes = loops.axesOf(dim);
    return claimNamed(named);
  }

  /// The first way with the lowest price, given the seeds so far.
  AxisList cheapest(const Entry &entry, const std::vector<AxisList> &ways) const {
    size_t best = 0;
    double bestScore = -1;
    for (size_t i = 0; i < ways.size(); ++i) {
      HintLoops trialLoops = loops;
      if (!trialLoops.claimOpen({entry.target->places[0], entry.dim, entry.where},
                                ways[i]))
        continue;
      double score = scoreOf(trialLoops.seeds());
      if (score >= 0 && (bestScore < 0 || score < bestScore)) {
        bestScore = score;
        best = i;
      }
    }
    return ways[best];
  }

  const FlowGraph &graph;
  const HintGroup &group;
  HintLoops loops;
  NamedByOp &named;
  SeedList &seeds;
  Beginnings &beginningsByHint;
  std::vector<Entry> one, several, counts, severalCounts;
};

/// All groups against the atoms that there are.
class Round {
public:
  Round(const FlowGraph &graph, Detachments &detached)
      : result(graph), graph(graph), detached(detached) {}

  /// False if loops were detached.
  Expected<bool> run(const std::vector<HintGroup> &groups) {
    bool again = false;
    for (const HintGroup &group : groups) {
      auto done = GroupResolver(graph, group, detached, named, result, beginnings).run();
      if (!done)
        return done;
      again |= !*done;
      if (*done && group.value >= 0)
        again |= !pinUsers(group);
    }
    return !again;
  }

  SeedList result;

private:
  /// A hint for a weight is meant for the ops that use it: they are pinned like the
  /// weight, where their loops allow it (an embedding's gather may not); in a training
  /// step those of the forward pass, which the others follow. So are those of
  /// an input whose own loop is detached. False if loops were detached.
  bool pinUsers(const HintGroup &group) {
    const FlowValue &value = graph.values[group.value];
    const FlowOp &source = graph.ops[value.producer];
    if (!source.isSource() && !source.isParameter)
      return true;
    bool again = false;
    for (size_t d = 0; d < value.shape.size(); ++d) {
      std::vector<int32_t> atoms =
          graph.dimAtoms(value.producer, source.rule.results[0][d]);
      std::vector<Seed> wanted;
      bool isDetached = false;
      for (int32_t a : atoms) {
        isDetached |= graph.atoms[a].detached;
        for (const Seed *seed : result.at(value.producer))
          if (seed->atom == a && seed->origin == group.origin && !seed->axes.empty())
            wanted.push_back(*seed);
      }
      if (wanted.empty() || (source.kind == FlowKind::Argument && !isDetached))
        continue;
      for (const FlowUse &use : value.uses)
        if (source.isSource() || isComputed(use))
          again |= !pinUse(use, d, atoms, wanted);
    }
    return !again;
  }

  /// True of a use by an op of the forward pass.
  bool isComputed(const FlowUse &use) const {
    const FlowOp &user = graph.ops[use.op];
    return user.kind == FlowKind::Compute && user.isForward();
  }

  /// Pins one dim of one user as `wanted` says of the source's atoms, if it can be. False
  /// if its loops were detached for that.
  bool pinUse(const FlowUse &use, size_t d, const std::vector<int32_t> &sourceAtoms,
              const std::vector<Seed> &wanted) {
    const ShardingRule &rule = graph.ops[use.op].rule;
    const std::vector<int32_t> &dim = rule.operands[use.operand][d];
    std::vector<int32_t> atoms = graph.dimAtoms(use.op, dim);
    if (std::any_of(atoms.begin(), atoms.end(), [&](int32_t a) { return pinned(a); }))
      return true;
    AxisList axes;
    for (const Seed &seed : wanted)
      axes.insert(axes.end(), seed.axes.begin(), seed.axes.end());
    std::vector<AxisList> lists(atoms.size());
    bool alike = atoms.size() == sourceAtoms.size();
    for (size_t i = 0; alike && i < atoms.size(); ++i) {
      alike =
          graph.extent(graph.atoms[atoms[i]], true) == graph.atoms[sourceAtoms[i]].size;
      for (const Seed &seed : wanted)
        if (seed.atom == sourceAtoms[i])
          lists[i] = seed.axes;
      alike = alike && canShard(graph, graph.atoms[atoms[i]], lists[i]);
    }
    if (!alike) {
      auto spread = distribute(graph, atoms, axes);
      if (!spread)
        return !detachUse(use, dim);
      lists = std::move(*spread);
    }
    for (size_t i = 0; i < atoms.size(); ++i)
      if (!lists[i].empty())
        result.add({atoms[i], lists[i], wanted[0].origin, wanted[0].priority,
                    alike ? wanted[0].blocks : std::vector<int64_t>()});
    return true;
  }

  /// Only loops that may be split gain anything by it. False if they all are already.
  bool detachUse(const FlowUse &use, const std::vector<int32_t> &dim) {
    bool again = false;
    for (int32_t f : dim)
      if (graph.ops[use.op].rule.factors[f].kind() != FactorKind::Replicate)
        again |= detached.try_emplace({use.op, f}).second;
    return again;
  }

  bool pinned(int32_t atom) const {
    std::vector<const Seed *> seeds = result.at(graph.atoms[atom].op);
    return std::any_of(seeds.begin(), seeds.end(),
                       [&](const Seed *seed) { return seed->atom == atom; });
  }

  const FlowGraph &graph;
  Detachments &detached;
  NamedByOp named;
  Beginnings beginnings;
};
} // namespace

/// The error with the hints file in front of its message.
static tl::unexpected<Error> inFile(const std::string &file, Error error) {
  error.message = file + ": " + error.message;
  return tl::unexpected(std::move(error));
}

Expected<std::vector<Seed>> partita::resolveHints(FlowGraph &graph, const Hints &hints) {
  auto groups = findTargets(graph, hints);
  if (!groups)
    return tl::unexpected(groups.error());
  Detachments detached;
  for (;;) {
    Round round(graph, detached);
    auto done = round.run(*groups);
    if (!done)
      return inFile(hints.file, done.error());
    if (*done)
      return round.result.all();
    // Every round detaches a loop more, so that there is a last one.
    std::vector<DetachedLoop> loops;
    for (const auto &[loop, pieces] : detached)
      loops.push_back({loop.first, loop.second, pieces});
    graph.finalize(loops);
  }
}

Hints partita::hintsFor(const FlowGraph &graph, const Hints &hints) {
  UnknownHints unknown = unknownHints(graph, hints);
  Hints result = hints;
  std::erase_if(result.nodes,
                [&](const NodeHint &it) { return unknown.nodes.count(it.glob) != 0; });
  std::erase_if(result.tensors, [&](const NamedTensorHint &it) {
    return unknown.tensors.count(it.glob) != 0;
  });
  auto namesNothing = [&](const auto &it) {
    return std::none_of(graph.ops.begin(), graph.ops.end(),
                        [&](const FlowOp &op) { return isNamed(graph, op, it.glob); });
  };
  std::erase_if(result.subgraphs, namesNothing);
  std::erase_if(result.kept, namesNothing);
  std::erase_if(result.dataset, [&](const DatasetHint &it) {
    return std::none_of(graph.ops.begin(), graph.ops.end(), [&](const FlowOp &op) {
      return (op.kind == FlowKind::Argument || op.kind == FlowKind::Sink) &&
             matchesGlob(it.glob, op.name);
    });
  });
  return result;
}
