//===- Passes.h - Backward pass and optimizer -------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_PASSES_H
#define PARTITA_PASSES_TRAIN_PASSES_H

#include "partita/Train/Spec.h"

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Train/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Train/Passes.h.inc"

/// Globs of nodes, modules or tensors that keep `partita-form-attention` from making an
/// attention one op: of `nodes` one that names any node of it, of `inner` one that names
/// a node, or a tensor, in front of the second product, of `parts` one that names such a
/// node and not the second product. `byStages`: so do stages that cut it.
struct NamedApart {
  std::vector<std::string> nodes, inner, parts;
  bool byStages = false;
};
std::unique_ptr<mlir::Pass> createFormAttentionPass(const NamedApart &named);

/// `partita-train`, `partita-evaluate` and `partita-mark-recompute` with a specification
/// that was read.
std::unique_ptr<mlir::Pass> createTrainPass(train::Spec spec);
std::unique_ptr<mlir::Pass> createEvaluatePass(train::Spec spec);
std::unique_ptr<mlir::Pass> createMarkRecomputePass(train::Spec spec);

} // namespace partita

#endif // PARTITA_PASSES_TRAIN_PASSES_H
