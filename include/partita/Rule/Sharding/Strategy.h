//===- Strategy.h - The axes of an op's loops -------------------*- C++ -*-===//
//
// The decision of a plan for an op is the axes that each *factor* gets, not a layout per
// tensor: operand and result layouts follow from it, so that no combination can be
// written down that the op cannot compute.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_STRATEGY_H
#define PARTITA_RULE_SHARDING_STRATEGY_H

#include "partita/Base/Layout/Halo.h"
#include "partita/Rule/Sharding/ShardingRule.h"

namespace partita {

/// Partial axes that enter through one linear set and leave on every result.
struct Passing {
  int32_t set = 0; ///< index into ShardingRule::linear
  AxisList axes;
  bool operator==(const Passing &) const = default;
};

/// What a plan decides for one op: axes per factor. A factor may itself be cut into
/// sub-factors ({3}*{768: tp}), so each entry is a DimLayout.
struct Strategy {
  std::vector<DimLayout> factors;
  std::vector<Passing> passing;

  static Strategy replicated(const ShardingRule &rule);
  /// Loops by name, see NamedStrategy::str.
  std::string str(const Mesh &mesh, const ShardingRule &rule) const;
  /// The inverse; an error names the place. Does not check what verifyStrategy checks.
  static Expected<Strategy> parse(std::string_view text, const Mesh &mesh,
                                  const ShardingRule &rule);
  /// Axes used by any factor or passing entry.
  AxisList axes() const;
  bool operator==(const Strategy &) const = default;
};

/// Whether partial values may enter by `set` beside what the strategy lets pass: where
/// one operand is partial by max and another by min, ranks without elements would combine
/// -inf and inf (their sum is NaN).
bool canPass(const ShardingRule &rule, const Strategy &strategy, int32_t set);

/// Checks a strategy: sizes agree, no axis twice, Replicate factors bare and unpadded,
/// Window factors in one piece, linear sets exist and can pass together, and the layouts
/// of all operands and results are valid (only the major-most factor of a dim may be
/// padded).
Expected<void> verifyStrategy(const Mesh &mesh, const ShardingRule &rule,
                              const Strategy &strategy);

/// The layout that `strategy` asks of operand `i`. A dim that is read through windows is
/// split over the axes of the positions, like them if they are as many, else in equal
/// blocks of the least padded extent.
Layout operandLayout(const ShardingRule &rule, const Strategy &strategy, size_t i);
/// The windows through which operand `i` is read, from operandLayout, if a dim of it
/// belongs to a Window factor that is split; else the op pads by itself.
std::optional<Halo> operandHalo(const ShardingRule &rule, const Strategy &strategy,
                                size_t i);
/// The layout in which result `i` appears: partial along the axes of reduction factors
/// and passing sets.
Layout resultLayout(const ShardingRule &rule, const Strategy &strategy, size_t i);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_STRATEGY_H
