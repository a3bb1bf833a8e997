//===- Passes.td - Deciding strategies ----------------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_SHARD_PASSES
#define PARTITA_PASSES_SHARD_PASSES

include "mlir/Pass/PassBase.td"

def ShardPass : Pass<"partita-shard", "::mlir::ModuleOp"> {
  let summary = "Give every op a strategy";
  let description = [{
    Decides by mode and hints (partita/Rule/Decide/Hints.h) and writes `dist.mesh`,
    `dist.strategy` and `dist.layout`. What the user should know (conflicts, what stays
    whole, which seed won) is emitted as remarks.
  }];
  let options = [
    Option<"mesh", "mesh", "std::string", "", "Mesh, e.g. dp=2,tp=4 (default: the module's)">,
    Option<"mode", "mode", "std::string", "\"auto\"", "auto, data-parallel or semi-auto">,
    Option<"hints", "hints", "std::string", "", "Hints file (JSON)">,
    Option<"plan", "plan", "std::string", "", "Take all strategies from this plan.json">,
    Option<"explain", "explain", "std::string", "", "Node name or glob to explain in remarks">,
  ];
  let statistics = [
    Statistic<"numConflicts", "conflicts", "Proposals rejected by another">,
  ];
}

#endif // PARTITA_PASSES_SHARD_PASSES
