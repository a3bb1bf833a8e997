//===- OperandForm.h - What a local op must find in its operands -*- C++ -*-===//
//
// One function of (rule, strategy) says in what form one rank's op reads an operand. It
// is what conversions are inserted for, what partitioning emits masks and local indices
// from, what the gate of a partitioned program asks for, and what is priced.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_OPERANDFORM_H
#define PARTITA_RULE_SHARDING_OPERANDFORM_H

#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

struct OperandForm {
  /// Where the operand's elements are; canonical. With `window` the layout from which a
  /// buffer would be filled at the least, see operandLayout.
  Layout layout;
  /// The operand is the buffer of this halo instead. `before` is as `layout`, but the
  /// buffer may be filled from any layout. Positions are canonical.
  std::optional<Halo> window;
  /// Per dim the kind whose neutral element must stand in the padding; nothing where
  /// padding does not exist or is not looked at. Empty with `window`: buffers have it.
  std::vector<std::optional<ReduceKind>> padding;
  /// The elements are indices of a loop that is split or padded like this: they must be
  /// places in the rank's block, -1 for others.
  std::optional<DimLayout> localIndex;

  /// The dims of `padding` that need `kind`.
  std::vector<int64_t> dimsOf(ReduceKind kind) const;
};

OperandForm operandForm(const ShardingRule &rule, const Strategy &strategy,
                        size_t operand);

/// The rule that one rank's op must state about itself: loops with their local sizes,
/// those of one iteration gone, split windows reading a buffer without pads.
ShardingRule localRule(const ShardingRule &rule, const Strategy &strategy);

/// Whether two rules are equal but for the numbers and names of their loops.
bool equalUpToNames(const ShardingRule &a, const ShardingRule &b);

/// The strategy of an elementwise op of one tensor with a loop per dim (those of size 1
/// have none) whose result has `layout`. The layout's partial axes are left out.
Strategy strategyForLayout(const ShardingRule &rule, const TensorFactors &tensor,
                           const Layout &layout);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_OPERANDFORM_H
