//===- ServeUses.h - Which conversions serve the users of a value *- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_SERVEUSES_H
#define PARTITA_RULE_SHARDING_SERVEUSES_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Strategy.h"

#include <map>

namespace partita {

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

} // namespace partita

#endif // PARTITA_RULE_SHARDING_SERVEUSES_H
