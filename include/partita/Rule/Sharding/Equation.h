//===- Equation.h - The loops of a sum of products, by name -----*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_EQUATION_H
#define PARTITA_RULE_SHARDING_EQUATION_H

#include "partita/Rule/Sharding/ShardingRule.h"

#include <span>

namespace partita {

/// "b m k, b k n -> b m n": operands, then results; one word per dim, "(a b)" for a dim
/// of two loops, the first major, "1" for a broadcast dim. A word that no result has is
/// summed over.
struct Equation {
  /// Dims, each the names of its loops.
  using Tensor = std::vector<std::vector<std::string>>;
  std::vector<Tensor> operands, results;

  /// An error names what is out of place.
  static Expected<Equation> parse(std::string_view text);
  std::string str() const;

  /// The rule on operands of these shapes, which give the loops their sizes. Errors name
  /// operand, dim and sizes that disagree, or a loop whose size does not follow.
  Expected<ShardingRule> rule(const std::vector<std::vector<int64_t>> &shapes) const;

  /// The equation on x where operand `index` here is transpose(x): its dim d is dim
  /// permutation[d] of x.
  Equation withTransposed(size_t index, std::span<const int64_t> permutation) const;

  bool operator==(const Equation &) const = default;
};

} // namespace partita

#endif // PARTITA_RULE_SHARDING_EQUATION_H
