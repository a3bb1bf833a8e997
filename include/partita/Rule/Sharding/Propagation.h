//===- Propagation.h - From a few hints to a strategy per op ----*- C++ -*-===//
//
// Axes spread from hinted atoms to linked atoms of other ops, backward and forward, until
// nothing changes. The result depends on the graph and the hints, never on the order in
// which ops or hints are listed:
//
//  - Rounds. All proposals of a round are computed from the state before it.
//  - Priorities. Hints of user priority 0 spread completely before those of priority 1
//    are looked at; within one, ops that only rename or combine elements in place first,
//    then contractions, then the rest; in the last two, from operands to results first.
//  - Conflicts. Where proposals to one op cannot all hold (an axis for two atoms, two
//    axis lists for one atom), the op keeps the one that saves most: bytes of the values
//    around it that then need no resharding. Ties go by the axes themselves. Every
//    rejected proposal is reported with both origins.
//
// Sources (arguments, weights, constants) never relay: each user may read its own slices.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_PROPAGATION_H
#define PARTITA_RULE_SHARDING_PROPAGATION_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Price.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace partita {

/// Axes fixed for an atom before propagation. An empty list pins the atom as unsharded.
struct Seed {
  int32_t atom;
  AxisList axes;
  std::string origin; ///< "hint for node 'fc1'": shown by explanations and conflicts
  int priority = 0;
  /// Lengths of the blocks that the axes cut the atom into; empty: equal ones.
  std::vector<int64_t> blocks = {};
};

/// Where an op's axes on one factor came from.
struct Origin {
  std::string text;
  int32_t via = -1; ///< the op it arrived from, -1 for a seed
};

struct Conflict {
  int32_t op;
  AxisList kept, rejected;
  std::string keptOrigin, rejectedOrigin;
};

struct Propagated {
  std::vector<AxisList> axes;  ///< per atom
  std::vector<Origin> origins; ///< per atom; empty text where nothing arrived
  std::vector<Conflict> conflicts;
};

/// Whether `axes` may be put on the atom: its kind allows it and its size divides, or it
/// can be padded and every rank but the last few keeps something (axes product ≤ size).
bool canShard(const FlowGraph &graph, const Atom &atom, const AxisList &axes);

/// Distributes `axes` over the atoms of one dim, major first: each atom takes the longest
/// prefix (axes are cut into sub-axes where needed) that its size divides by. Starts at
/// the first atom that is not refused, or at `first` if ≥ 0. Returns axes
/// per atom of `dim`, or an error if some axes find no place.
Expected<std::vector<AxisList>> distribute(const FlowGraph &graph,
                                           const std::vector<int32_t> &dim,
                                           const AxisList &axes, int first = -1);

Expected<Propagated> propagate(const FlowGraph &graph, const std::vector<Seed> &seeds);

/// Strategies from the axes of atoms: one padded extent per class of linked atoms, then
/// reductions deferred through linear ops where that does not cost bytes, then every
/// argument in the layout in which all its users read it, if there is one. Blocks that
/// seeds give hold for their whole class of linked atoms, wherever it has the same axes
/// and the op allows it; elsewhere blocks are equal.
std::vector<Strategy> strategiesOf(const FlowGraph &graph,
                                   const std::vector<AxisList> &axes,
                                   const std::vector<Seed> &seeds = {});

/// The layouts that users of a value ask for and the reshards that serve them, each
/// once: from the producer's layout to `steps[i].layout`, or from an earlier entry. A
/// source is read in the layouts of the entries with `from` −1, at no cost; others are
/// conversions of such a reading, made before their first user: a weight that is kept in
/// parts and gathered.
struct ServedLayout {
  Layout layout;
  int32_t from = -1; ///< index of an earlier entry, -1: the producer's layout
  std::vector<FlowUse> uses;
  /// Users that read windows get the buffer of this halo instead of `layout`. Its source
  /// is the entry `from`, or the produced value, as it is.
  std::optional<Halo> halo = std::nullopt;
  /// Of the conversion that leads here; see giveEpochs.
  int64_t epoch = 0;
};
/// How the users of values are served, by value, where a plan says so; serveUses decides
/// for all others.
using Servings = std::map<int32_t, std::vector<ServedLayout>>;

/// Partial values are reduced once, to the layout from which the others are cheapest. A
/// halo comes from whatever layout of the value needs the fewest elements moved; users
/// with equal windows share it. Of a source it comes from the parts of the dims that are
/// not read through windows. Layouts are canonical. Entries that are equal to the
/// produced layout are there too: nothing leads to them.
std::vector<ServedLayout>
serveUses(const FlowGraph &graph, const std::vector<Strategy> &strategies, int32_t value);

/// Gives conversions from one layout that begin with the same step epochs of their own,
/// so that they stay as many as they were priced as: equal steps of one epoch merge in a
/// partitioned program.
void giveEpochs(const FlowGraph &graph, const Layout &produced,
                std::vector<ServedLayout> &served);

/// A service as plans write it: users are found by what they want.
struct ServedEntry {
  std::optional<Layout> layout; ///< absent: windows
  /// Which of the distinct window buffers that users want, in the order of uses.
  int32_t window = 0;
  int32_t from = -1; ///< see ServedLayout
};
std::vector<ServedEntry> servedEntries(const FlowGraph &graph,
                                       const std::vector<Strategy> &strategies,
                                       int32_t value,
                                       const std::vector<ServedLayout> &served);
/// The service of a value by these entries; users that want the value as it is produced
/// need none. An error says which user is not served, or which entry leads nowhere.
Expected<std::vector<ServedLayout>> serveBy(const FlowGraph &graph,
                                            const std::vector<Strategy> &strategies,
                                            int32_t value,
                                            const std::vector<ServedEntry> &entries);
/// "[{8: tp}, {6}]; [{8}, {6}] from 0; window 0 from 1".
std::string servedText(const Mesh &mesh, const std::vector<ServedEntry> &entries);
Expected<std::vector<ServedEntry>> parseServed(std::string_view text, const Mesh &mesh);

/// Prices the conversions that `servings` and serveUses name, and the work of the ops.
Price price(const FlowGraph &graph, const std::vector<Strategy> &strategies,
            const Servings &servings = {}, StepObserver *observer = nullptr);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_PROPAGATION_H
