//===- Passes.h - Deciding strategies ---------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_PASSES_H
#define PARTITA_PASSES_SHARD_PASSES_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Rule/Decide/Hints.h"
#include "partita/Topology/Topology.h"

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Shard/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Shard/Passes.h.inc"

/// What the options of `partita-shard` say, read.
struct Deciding {
  ShardMode mode = ShardMode::Auto;
  std::optional<GivenHints> hints;
  std::optional<Plan> plan; ///< whose strategies are taken
  Machine machine;
  bool allToAll = true;
  /// The module is this stage of a pipeline: hints that name nothing of it are for
  /// others, and a plan has a part for each; −1: it is a whole program.
  int stage = -1;
  std::string hintsOutput = {}, explain = {}; ///< empty: none
  /// Remarks what the plan would take in this type, where the device is faster in it.
  std::optional<DType> narrower = {};
};

/// The module has its mesh.
std::unique_ptr<mlir::Pass> createShardPass(Deciding how);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_PASSES_H
