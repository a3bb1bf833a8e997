//===- ResolveHints.cpp - Hints become seeds ------------------------------===//
#include "partita/Rule/Decide/Hints.h"

#include <algorithm>
#include <fnmatch.h>

using namespace partita;

static bool matches(const std::string &glob, const std::string &name) {
  return glob == name || ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

namespace {
/// One tensor of a node with the hint for it: where its dims live as atoms.
struct Target {
  int32_t op;
  const TensorFactors *factors;
  bool isOperand;
  const std::vector<DimHint> *dims;
  std::string what; ///< "operand 1 of 'fc1'"
};

class Resolver {
public:
  Resolver(const FlowGraph &graph, const Hints &hints) : graph(graph), hints(hints) {}

  Expected<std::vector<Seed>> run() {
    for (const NodeHint &hint : hints.nodes)
      if (auto ok = resolveNode(hint); !ok)
        return tl::unexpected(ok.error());
    for (const NamedTensorHint &hint : hints.tensors)
      if (auto ok = resolveTensor(hint); !ok)
        return tl::unexpected(ok.error());
    return std::move(seeds);
  }

private:
  tl::unexpected<Error> error(const std::string &message) const {
    return makeError(hints.file + ": " + message);
  }

  /// A node may have become several ops of its name. Its inputs are the operands that
  /// come from outside, its outputs the results that go outside, in program order.
  Expected<void> resolveNode(const NodeHint &hint) {
    bool found = false;
    std::vector<std::string> names;
    for (const FlowOp &op : graph.ops)
      if (op.kind == FlowKind::Compute && matches(hint.glob, op.name) &&
          std::find(names.begin(), names.end(), op.name) == names.end())
        names.push_back(op.name);
    for (const std::string &node : names) {
      found = true;
      std::vector<Target> targets;
      if (auto ok = targetsOf(hint, node, targets); !ok)
        return ok;
      if (auto ok = seedTargets(targets, "hint for node '" + node + "'", hint.priority);
          !ok)
        return ok;
    }
    if (!found)
      return error("no node is named '" + hint.glob + "'");
    return {};
  }

  Expected<void> targetsOf(const NodeHint &hint, const std::string &node,
                           std::vector<Target> &targets) {
    std::vector<std::pair<int32_t, int32_t>> ins, outs;
    // An output of the program may be called like the nameless node that computes it.
    auto inside = [&](int32_t op) {
      return op >= 0 && graph.ops[op].kind == FlowKind::Compute &&
             graph.ops[op].name == node;
    };
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (!inside(static_cast<int32_t>(i)))
        continue;
      const FlowOp &op = graph.ops[i];
      for (size_t o = 0; o < op.operands.size(); ++o)
        if (!inside(graph.values[op.operands[o]].producer))
          ins.emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(o));
      for (size_t r = 0; r < op.results.size(); ++r) {
        const auto &uses = graph.values[op.results[r]].uses;
        if (std::any_of(uses.begin(), uses.end(),
                        [&](const FlowUse &use) { return !inside(use.op); }))
          outs.emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(r));
      }
    }
    auto add = [&](const std::vector<TensorHint> &list, const auto &places,
                   const char *what, bool isInput) -> Expected<void> {
      if (list.size() > places.size())
        return error("hint for node '" + node + "': it has " +
                     std::to_string(places.size()) + " " + what + "s, the hint " +
                     std::to_string(list.size()));
      for (size_t i = 0; i < list.size(); ++i) {
        if (!list[i])
          continue;
        const ShardingRule &rule = graph.ops[places[i].first].rule;
        targets.push_back(
            {places[i].first,
             isInput ? &rule.operands[places[i].second] : &rule.results[places[i].second],
             isInput, &*list[i],
             std::string(what) + " " + std::to_string(i) + " of '" + node + "'"});
      }
      return {};
    };
    if (auto ok = add(hint.in, ins, "input", true); !ok)
      return ok;
    return add(hint.out, outs, "output", false);
  }

  Expected<void> resolveTensor(const NamedTensorHint &hint) {
    bool found = false;
    for (const FlowValue &value : graph.values) {
      if (!matches(hint.glob, value.name) || value.producer < 0)
        continue;
      found = true;
      if (!hint.dims)
        continue;
      std::vector<Target> targets{{value.producer,
                                   &graph.ops[value.producer].rule.results[value.result],
                                   false, &*hint.dims, "tensor '" + value.name + "'"}};
      std::string origin = "hint for tensor '" + value.name + "'";
      if (auto ok = seedTargets(targets, origin, hint.priority); !ok)
        return ok;
      if (graph.ops[value.producer].kind == FlowKind::Source)
        seedUsers(value, origin, hint.priority);
    }
    if (!found)
      return error("no tensor is named '" + hint.glob + "'");
    return {};
  }

  /// A hint for a weight is meant for the ops that use it: they are pinned like the
  /// weight, where their loops allow it (an embedding's gather may not).
  void seedUsers(const FlowValue &value, const std::string &origin, int priority) {
    const TensorFactors &from = graph.ops[value.producer].rule.results[value.result];
    for (const FlowUse &use : value.uses)
      for (size_t d = 0; d < from.size(); ++d)
        for (int32_t a : graph.dimAtoms(value.producer, from[d]))
          for (const Atom::Link &link : graph.atoms[a].links) {
            const Atom &user = graph.atoms[link.atom];
            auto seed = std::find_if(seeds.begin(), seeds.end(), [&](const Seed &s) {
              return s.atom == a && s.origin == origin;
            });
            if (user.op == use.op && seed != seeds.end() && !seed->axes.empty() &&
                link.carries(seed->axes) && canShard(graph, user, seed->axes) &&
                !pinned(link.atom))
              seeds.push_back({link.atom, seed->axes, origin, priority, seed->blocks});
          }
  }

  bool pinned(int32_t atom) const {
    return std::any_of(seeds.begin(), seeds.end(),
                       [&](const Seed &s) { return s.atom == atom; });
  }

  Expected<AxisList> parseAxes(const std::vector<std::string> &names,
                               const std::string &where) const {
    AxisList axes;
    for (const std::string &name : names) {
      auto axis = graph.mesh.parseAxis(name);
      if (!axis)
        return error(where + ": " + axis.error().message);
      if (overlap(axes, {*axis}))
        return error(where + ": axis " + name + " is used twice");
      axes.push_back(*axis);
    }
    return axes;
  }

  /// All ways to write `count` as a list of whole mesh axes not in `taken`, in mesh
  /// order; if there is none, a leading part of the first axis that divides.
  std::vector<AxisList> waysToSplit(int64_t count, const AxisList &taken) const {
    std::vector<AxisList> ways;
    size_t n = graph.mesh.axes().size();
    for (uint64_t subset = 1; n < 20 && subset < (uint64_t(1) << n); ++subset) {
      AxisList axes;
      for (size_t a = 0; a < n; ++a)
        if (subset >> a & 1)
          axes.push_back(graph.mesh.whole(static_cast<int32_t>(a)));
      if (product(axes) == count && !overlap(axes, taken))
        ways.push_back(std::move(axes));
    }
    for (size_t a = 0; ways.empty() && a < n; ++a) {
      AxisRef part{static_cast<int32_t>(a), 1, count};
      if (graph.mesh.axes()[a].size % count == 0 && !overlap(taken, {part}))
        ways.push_back({part});
    }
    return ways;
  }

  /// Seeds of one dim for given axes.
  Expected<std::vector<Seed>> dimSeeds(const Target &target, size_t d,
                                       const AxisList &axes, const std::string &origin,
                                       int priority) const {
    std::vector<int32_t> atoms = graph.dimAtoms(target.op, (*target.factors)[d]);
    std::vector<Seed> result;
    if (axes.empty()) {
      for (int32_t a : atoms)
        result.push_back({a, {}, origin, priority});
      return result;
    }
    auto lists = atoms.empty()
                     ? Expected<std::vector<AxisList>>(makeError(
                           "a dim of size 1 cannot be split by " + graph.mesh.str(axes)))
                     : distribute(graph, atoms, axes);
    if (!lists)
      return error(target.what + ", dim " + std::to_string(d) + ": " +
                   lists.error().message);
    for (size_t i = 0; i < atoms.size(); ++i)
      result.push_back({atoms[i], (*lists)[i], origin, priority});
    return result;
  }

  /// Given blocks need a dim that nothing cuts further.
  Expected<std::vector<Seed>> blockSeeds(const Target &target, size_t d,
                                         const AxisList &axes,
                                         const std::vector<int64_t> &blocks,
                                         const std::string &origin, int priority) const {
    std::vector<int32_t> atoms = graph.dimAtoms(target.op, (*target.factors)[d]);
    std::string where = target.what + ", dim " + std::to_string(d);
    if (atoms.size() != 1)
      return error(where + ": blocks cannot be given for a dim " +
                   (atoms.empty() ? "of size 1" : "that other ops cut into factors"));
    if (static_cast<int64_t>(blocks.size()) != product(axes))
      return error(where + ": " + std::to_string(blocks.size()) +
                   " blocks are given for " + std::to_string(product(axes)) + " shards");
    const Atom &atom = graph.atoms[atoms[0]];
    if (graph.extent(atom, target.isOperand) != atom.size)
      return error(where + ": blocks cannot be given for a dim of size " +
                   std::to_string(graph.extent(atom, target.isOperand)) +
                   " that is read through " + std::to_string(atom.size) +
                   " windows; give them for the output");
    Seed seed{atoms[0], axes, origin, priority, blocks};
    DimFactor factor{atom.size, 0, axes, blocks};
    factor.padded = factor.shards() * *std::max_element(blocks.begin(), blocks.end());
    Layout layout;
    layout.dims = {{{factor}}};
    if (auto ok = layout.verify(graph.mesh); !ok)
      return error(where + ok.error().message.substr(std::string("dim 0").size()));
    return std::vector<Seed>{seed};
  }

  Expected<std::vector<Seed>> writtenSeeds(const Target &target, size_t d,
                                           const DimHint &hint, const std::string &origin,
                                           int priority) const {
    std::vector<int32_t> atoms = graph.dimAtoms(target.op, (*target.factors)[d]);
    std::string where = target.what + ", dim " + std::to_string(d);
    std::vector<Seed> result;
    size_t next = 0;
    for (size_t f = 0; f < hint.factors.size(); ++f) {
      // A written factor must be a run of atoms.
      std::vector<int32_t> run;
      int64_t size = 1;
      while (size < hint.factors[f] && next < atoms.size()) {
        run.push_back(atoms[next]);
        size *= graph.extent(graph.atoms[atoms[next++]], target.isOperand);
      }
      if (size != hint.factors[f])
        return error(where + ": the factor " + std::to_string(hint.factors[f]) +
                     " does not fall on the dim's own cuts");
      auto axes = parseAxes(hint.factorAxes[f], where);
      if (!axes)
        return tl::unexpected(axes.error());
      if (run.empty() && !axes->empty())
        return error(where + ": a factor of size 1 cannot be split");
      auto lists = distribute(graph, run, *axes, axes->empty() ? 0 : -1);
      if (!lists)
        return error(where + ": " + lists.error().message);
      for (size_t i = 0; i < run.size(); ++i)
        result.push_back({run[i], (*lists)[i], origin, priority});
    }
    if (next != atoms.size())
      return error(where + ": the factors do not make up its size");
    return result;
  }

  /// Seeds of one dim whose axes the hint names.
  Expected<std::vector<Seed>> namedSeeds(const Target &target, size_t d,
                                         const DimHint &hint, const std::string &origin,
                                         int priority) const {
    if (!hint.factors.empty())
      return writtenSeeds(target, d, hint, origin, priority);
    auto axes = parseAxes(hint.axes, target.what + ", dim " + std::to_string(d));
    if (!axes)
      return tl::unexpected(axes.error());
    return hint.blocks.empty()
               ? dimSeeds(target, d, *axes, origin, priority)
               : blockSeeds(target, d, *axes, hint.blocks, origin, priority);
  }

  Expected<void> seedTargets(const std::vector<Target> &targets,
                             const std::string &origin, int priority) {
    for (const Target &target : targets)
      if (target.dims->size() != target.factors->size())
        return error(target.what + " has " + std::to_string(target.factors->size()) +
                     " dims, the hint " + std::to_string(target.dims->size()));
    // Named axes first: counts get what is left.
    AxisList taken;
    struct Counted {
      const Target *target;
      size_t dim;
      int64_t count;
    };
    std::vector<Counted> counted;
    for (const Target &target : targets) {
      AxisList here; // axes of the dims of this tensor
      for (size_t d = 0; d < target.dims->size(); ++d) {
        const DimHint &hint = (*target.dims)[d];
        if (hint.open)
          continue;
        if (hint.count > 0) {
          counted.push_back({&target, d, hint.count});
          continue;
        }
        auto list = namedSeeds(target, d, hint, origin, priority);
        if (!list)
          return tl::unexpected(list.error());
        for (const Seed &seed : *list)
          if (overlap(here, seed.axes))
            return error(target.what + ", dim " + std::to_string(d) + ": " +
                         graph.mesh.str(seed.axes) +
                         " is already used by this dim or one before it");
          else
            here.insert(here.end(), seed.axes.begin(), seed.axes.end());
        append(*list, taken);
      }
    }
    for (const Counted &entry : counted)
      if (auto ok =
              seedCount(*entry.target, entry.dim, entry.count, origin, priority, taken);
          !ok)
        return ok;
    return {};
  }

  void append(const std::vector<Seed> &list, AxisList &taken) {
    for (const Seed &seed : list) {
      taken.insert(taken.end(), seed.axes.begin(), seed.axes.end());
      seeds.push_back(seed);
    }
  }

  Expected<void> seedCount(const Target &target, size_t d, int64_t count,
                           const std::string &origin, int priority, AxisList &taken) {
    // A factor that another operand of this node has already fixed keeps its axes.
    std::vector<int32_t> atoms = graph.dimAtoms(target.op, (*target.factors)[d]);
    int64_t fixedShards = 1;
    for (int32_t a : atoms)
      for (const Seed &seed : seeds)
        if (seed.atom == a && seed.origin == origin)
          fixedShards *= product(seed.axes);
    if (fixedShards == count)
      return {};
    std::string where = target.what + ", dim " + std::to_string(d);
    if (fixedShards != 1)
      return error(where + ": " + std::to_string(count) +
                   " shards asked, but another tensor of the node splits it " +
                   std::to_string(fixedShards) + " ways");
    std::vector<std::vector<Seed>> ways;
    for (const AxisList &axes : waysToSplit(count, taken))
      if (auto list = dimSeeds(target, d, axes, origin, priority))
        ways.push_back(std::move(*list));
    if (ways.empty())
      return error(where + ": no axes of the mesh " + graph.mesh.str() +
                   " that are still free split it " + std::to_string(count) + " ways");
    append(ways[ways.size() == 1 ? 0 : cheapest(ways)], taken);
    return {};
  }

  /// The first way with the lowest price, given the seeds so far.
  size_t cheapest(const std::vector<std::vector<Seed>> &ways) const {
    size_t best = 0;
    double bestScore = -1;
    for (size_t i = 0; i < ways.size(); ++i) {
      std::vector<Seed> trial = seeds;
      trial.insert(trial.end(), ways[i].begin(), ways[i].end());
      auto spread = propagate(graph, trial);
      if (!spread)
        continue;
      double score = price(graph, strategiesOf(graph, spread->axes, trial)).score();
      if (bestScore < 0 || score < bestScore) {
        bestScore = score;
        best = i;
      }
    }
    return best;
  }

  const FlowGraph &graph;
  const Hints &hints;
  std::vector<Seed> seeds;
};
} // namespace

Expected<std::vector<Seed>> partita::resolveHints(const FlowGraph &graph,
                                                  const Hints &hints) {
  return Resolver(graph, hints).run();
}
