//===- Passes.h - Passes that need several stages ---------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_PASSES_H
#define PARTITA_PASSES_PIPELINES_PASSES_H

#include "passes/Pipelines/RunBundle.h"

#include "mlir/Pass/Pass.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace partita {

#define GEN_PASS_DECL
#include "passes/Pipelines/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Pipelines/Passes.h.inc"

/// Every dialect that a Partita program may contain.
void registerPartitaDialects(mlir::DialectRegistry &registry);
/// Every pass, under its `partita-` name. `run` is what partita-check-bundle runs bundles
/// with; without one that pass fails.
void registerPartitaPasses(BundleRunner run = {});
/// partita-check-bundle alone.
void registerCheckBundle(BundleRunner run);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_PASSES_H
