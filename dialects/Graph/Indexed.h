//===- Indexed.h - What ops with an index operand share ---------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_INDEXED_H
#define PARTITA_DIALECTS_GRAPH_INDEXED_H

#include "dialects/Graph/Graph.h"

namespace partita::graph::detail {

/// The loop over the places of a dim in which operand 1 looks up. Where the dim is split,
/// one rank has the element and the others give zero, so that the results add up; for
/// booleans, which have no sum, zero is the neutral element of the maximum.
inline loop::Kind lookupOf(mlir::Type data, bool isLocalized) {
  bool isBool = mlir::getElementTypeOrSelf(data).isInteger(1);
  return loop::Reduction{.reduce = isBool ? ReduceKind::Max : ReduceKind::Sum,
                         .index = 1,
                         .localized = isLocalized};
}

/// The op that one rank runs: `masked` where its indices have become places in the rank's
/// block.
template <typename Op>
mlir::Operation *localIndexed(Op op, mlir::OpBuilder &builder, mlir::ValueRange operands,
                              mlir::TypeRange results, const Strategy &strategy) {
  mlir::Operation *local =
      partita::detail::cloneWithTypes(op, builder, operands, results);
  ShardingRule rule = *op.inferShardingRule();
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (const DimLayout &dim = strategy.factors[f];
        rule.factors[f].isIndexedBy(1) && (dim.sharded() || dim.padded() != dim.size()))
      mlir::cast<Op>(local).setMasked(true);
  return local;
}

} // namespace partita::graph::detail

#endif // PARTITA_DIALECTS_GRAPH_INDEXED_H
