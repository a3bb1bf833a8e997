//===- Dist.h - Meshes, strategies and layouts in IR ------------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_DIST_DIST_H
#define PARTITA_DIALECTS_DIST_DIST_H

#include "dialects/Interfaces/OpInterfaces.h"

#include "mlir/IR/Dialect.h"

#include "dialects/Dist/DistDialect.h.inc"

namespace partita::dist {

inline constexpr llvm::StringLiteral meshAttr = "dist.mesh";
inline constexpr llvm::StringLiteral strategyAttr = "dist.strategy";
inline constexpr llvm::StringLiteral layoutAttr = "dist.layout";

/// The mesh of the closest enclosing op that has one; an error if there is none.
Expected<Mesh> meshOf(mlir::Operation *op);

/// The op's strategy, parsed and checked against its rule; replicated if it has none.
Expected<Strategy> strategyOf(const Mesh &mesh, mlir::Operation *op,
                              const ShardingRule &rule);
void setStrategy(const Mesh &mesh, mlir::Operation *op, const Strategy &strategy);

} // namespace partita::dist

#endif // PARTITA_DIALECTS_DIST_DIST_H
