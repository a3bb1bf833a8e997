//===- PlanAttributes.h - What a module says of its plan --------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_DIST_PLANATTRIBUTES_H
#define PARTITA_DIALECTS_DIST_PLANATTRIBUTES_H

#include "partita/Base/Bundle/Plan.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace partita::dist {

/// On the module: what was decided beside ops, values and ends.
inline constexpr llvm::StringLiteral planAttr = "dist.plan";
/// On ops that a split program has beside an op of the model
/// (ShardingRuleOpInterface::rewriteForSplit): a plan speaks of that alone.
inline constexpr llvm::StringLiteral forSplitAttr = "dist.for_split";

/// States as `dist.certificate` what a search knows of its plan.
void setCertificate(mlir::ModuleOp module, const PlanCertificate &certificate);
/// The inverse; absent where nothing is said. An error names the member that is none.
Expected<std::optional<PlanCertificate>> certificateOf(mlir::ModuleOp module);

/// States as `dist.plan` what was decided beside ops, values and ends.
void setFacts(mlir::ModuleOp module, const PlanFacts &facts);
/// The inverse, as certificateOf.
Expected<std::optional<PlanFacts>> factsOf(mlir::ModuleOp module);

} // namespace partita::dist

#endif // PARTITA_DIALECTS_DIST_PLANATTRIBUTES_H
