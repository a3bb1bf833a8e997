//===- HintTargets.h - What the names in a hints file stand for -*- C++ -*-===//
#ifndef PARTITA_LIB_RULE_DECIDE_HINTTARGETS_H
#define PARTITA_LIB_RULE_DECIDE_HINTTARGETS_H

#include "partita/Rule/Decide/Hints.h"
#include "partita/Rule/Sharding/Flow.h"

#include <set>

namespace partita {

/// A tensor as one op has it: an operand, or a result.
struct HintPlace {
  int32_t op;
  bool isOperand;
  int32_t index;
  /// The operand, or -1 for a result.
  int32_t operand() const { return isOperand ? index : -1; }
  /// Where the hint speaks of a transpose that the operand stands for: its dim d is dim
  /// (*order)[d] here.
  const std::vector<int32_t> *order = nullptr;
  /// The tensor is read there behind a cast.
  bool isCast = false;

  const TensorFactors &factors(const FlowGraph &graph) const;
  /// The loops of the dim that the model calls `dim`.
  const std::vector<int32_t> &loops(const FlowGraph &graph, size_t dim) const;
};

/// A tensor that a hint names.
struct HintTarget {
  /// Where it is read, or produced. The hint holds at the first; at the others where
  /// their loops allow it.
  std::vector<HintPlace> places;
  const std::vector<DimHint> *dims;
  std::string what; ///< "input 1 of 'fc1'"
};

/// The tensors of one node, or one tensor: their loops are decided together.
struct HintGroup {
  std::string origin; ///< "hint for node 'fc1'"
  int priority = 0;
  std::vector<int32_t> ops; ///< of the node, or the producer of the tensor
  std::vector<HintTarget> targets;
  int32_t value = -1; ///< for a hint of a tensor
};

/// One group per node or tensor that a hint's glob matches, in the order of hints and of
/// the program. A node may have become several ops of its name: its inputs are the values
/// that come from outside (NodeInputs.h), its outputs those that go outside, in program
/// order. A tensor
/// is called by its own name, or by that of the node that computes it. An error names a
/// glob that matches nothing, or a tensor of another rank.
Expected<std::vector<HintGroup>> findTargets(const FlowGraph &graph, const Hints &hints);

/// Globs that match nothing.
struct UnknownHints {
  std::set<std::string> nodes, tensors;
};
UnknownHints unknownHints(const FlowGraph &graph, const Hints &hints);

} // namespace partita

#endif // PARTITA_LIB_RULE_DECIDE_HINTTARGETS_H
