//===- HintLoops.h - What hints decide for the loops of a node --*- C++ -*-===//
#ifndef PARTITA_LIB_RULE_DECIDE_HINTLOOPS_H
#define PARTITA_LIB_RULE_DECIDE_HINTLOOPS_H

#include "HintTargets.h"
#include "partita/Rule/Sharding/Propagation.h"

#include <map>
#include <set>
#include <unordered_map>

namespace partita {

/// An op and the number of one of its factors.
using Loop = std::pair<int32_t, int32_t>;
/// Loops that are taken out of the refinement, with the pieces that a hint writes out.
using Detachments = std::map<Loop, std::vector<int64_t>>;

/// The seeds so far, by op.
class SeedList {
public:
  explicit SeedList(const FlowGraph &graph) : graph(graph) {}
  void add(Seed seed) {
    byOp[graph.atoms[seed.atom].op].push_back(seeds.size());
    seeds.push_back(std::move(seed));
  }
  const std::vector<Seed> &all() const { return seeds; }
  std::vector<const Seed *> at(int32_t op) const {
    std::vector<const Seed *> result;
    if (auto it = byOp.find(op); it != byOp.end())
      for (size_t i : it->second)
        result.push_back(&seeds[i]);
    return result;
  }

private:
  const FlowGraph &graph;
  std::vector<Seed> seeds;
  std::unordered_map<int32_t, std::vector<size_t>> byOp;
};

/// One dim of a hinted tensor.
struct HintDim {
  HintPlace place;
  size_t dim;
  std::string where; ///< "input 1 of 'fc1', dim 0"
};

/// The loops that a group of hints is about. Loops of several ops that are linked inside
/// the node are one, and have one decision.
///
/// The claims return true; or false where a loop was added to the detachments, since the
/// axes do not fit the pieces that other ops cut it into: all is void then, and to be
/// asked again of the graph that is refined anew. Errors are what the node alone cannot
/// do.
class HintLoops {
public:
  HintLoops(const FlowGraph &graph, const HintGroup &group, Detachments &detached);

  /// Splits the dim by exactly these axes, major first, over the loops that have none
  /// yet. `first` is the atom to begin with, of those of these loops; -1: the first that
  /// may be split everywhere.
  Expected<bool> claim(const HintDim &dim, const AxisList &axes, int first = -1);
  /// The atoms to begin with that `claim` can: more than one where other ops cut the dim
  /// into pieces that may not be split (a fused query-key-value dim).
  std::vector<int> beginnings(const HintDim &dim, const AxisList &axes) const;
  /// As claim, with axes for the loops that have none yet alone.
  Expected<bool> claimOpen(const HintDim &dim, const AxisList &axes, int first = -1);
  /// One block per shard, for a dim of one loop.
  Expected<bool> claimBlocks(const HintDim &dim, const AxisList &axes,
                             const std::vector<int64_t> &blocks);
  /// Axes per factor, major first, whose product is the size of the dim.
  Expected<bool> claimWritten(const HintDim &dim, const std::vector<int64_t> &factors,
                              const std::vector<AxisList> &axes);

  /// Takes over what an earlier group decided for the dim, if that is `count` shards.
  void adopt(const HintDim &dim, const SeedList &seeds, int64_t count);
  /// How many ways the loops of the dim that have no axes yet must be split for `count`
  /// shards. An error if those that have some do not go with it.
  Expected<int64_t> openShards(const HintDim &dim, int64_t count) const;
  /// Whether claimOpen would succeed with the atoms that there are.
  bool fits(const HintDim &dim, const AxisList &axes) const;

  AxisList axesOf(const HintDim &dim) const;
  AxisList axesAt(const std::vector<HintPlace> &places) const;
  AxisList axesOfNode() const;

  /// Seeds of the loops that were claimed by name; where a loop is detached, of all that
  /// are linked with it inside the node, so that it stays one.
  std::vector<Seed> seeds() const;

private:
  struct Claim {
    std::vector<AxisList> pieces; ///< per atom of the loop
    std::string what;             ///< who asks for it
    std::vector<int64_t> blocks;
    AxisList axes() const;
  };

  void link(const HintPlace &a, const HintPlace &b);
  Loop find(Loop loop) const;
  std::vector<Loop> members(Loop loop) const;
  const Claim *claimOf(Loop loop) const;
  void set(Loop loop, std::vector<AxisList> pieces, const HintDim &dim,
           std::vector<int64_t> blocks = {});
  /// Axes per atom of a loop that is linked with a claimed one.
  Expected<std::vector<AxisList>> share(Loop loop, const Claim &claim) const;
  std::vector<int32_t> openAtoms(const HintDim &dim) const;
  /// Adds the loops of a dim to the detachments; `why` if they are there already.
  Expected<bool> detach(const HintDim &dim, const std::string &why,
                        const std::vector<std::vector<int64_t>> &pieces = {});
  tl::unexpected<Error> unequal(const HintDim &dim, const std::string &asked,
                                const Claim &claim) const;
  std::string text(const AxisList &axes) const;

  const FlowGraph &graph;
  const HintGroup &group;
  Detachments *detached;
  std::map<Loop, Loop> parent;
  std::map<Loop, Claim> claims; ///< by the root of a class
  std::set<Loop> named;         ///< loops at hinted places
  std::vector<Loop> namedInOrder;
};

} // namespace partita

#endif // PARTITA_LIB_RULE_DECIDE_HINTLOOPS_H
