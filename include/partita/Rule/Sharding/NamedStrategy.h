//===- NamedStrategy.h - Strategies with loops by name ----------*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_NAMEDSTRATEGY_H
#define PARTITA_RULE_SHARDING_NAMEDSTRATEGY_H

#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// A strategy with its loops by name, as texts and attributes have it: it can be read,
/// printed and compared without the rule.
///
///   {m: dp, k: {9/10: tp}, n: {3}*{256: sp}} pass sum(0, 1) {ep}
///
/// `m: dp` (or `m: {dp, tp}`) splits a loop of whatever size in one piece; the other two
/// are written out as Layout::str does a dim, for loops that are padded, cut or have
/// given blocks. Loops that are whole are not named.
struct NamedStrategy {
  struct Loop {
    std::string name;
    /// Size 0 in the only factor: that of the loop.
    DimLayout split;
    bool operator==(const Loop &) const = default;
  };
  struct Pass {
    LinearSet set;
    AxisList axes;
    bool operator==(const Pass &) const = default;
  };
  std::vector<Loop> loops; ///< in the rule's order when made by `of`
  std::vector<Pass> passes;

  /// The names of a strategy of this rule; splits are canonical.
  static NamedStrategy of(const ShardingRule &rule, const Strategy &strategy);
  /// The strategy for a rule. An error names a loop or a linear set that the rule does
  /// not have, or a loop named twice.
  Expected<Strategy> resolve(const ShardingRule &rule) const;
  std::string str(const Mesh &mesh) const;
  static Expected<NamedStrategy> parse(std::string_view text, const Mesh &mesh);
  bool operator==(const NamedStrategy &) const = default;
};

} // namespace partita

#endif // PARTITA_RULE_SHARDING_NAMEDSTRATEGY_H
