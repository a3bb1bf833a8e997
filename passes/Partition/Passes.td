//===- Passes.td - From global to local ---------------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_PARTITION_PASSES
#define PARTITA_PASSES_PARTITION_PASSES

include "mlir/Pass/PassBase.td"

def PartitionPass : Pass<"partita-partition", "::mlir::ModuleOp"> {
  let summary = "Turn a program with strategies into the program of one rank";
  let description = [{
    Every tensor becomes one rank's part. Where the layout in which a value is produced is
    not the one in which a user wants it, the steps of the reshard planner are inserted,
    once per wanted layout. Partial values are reduced where their users need them whole.
    Convolutions and pools whose spatial dims are split read window buffers, which a
    `comm.halo` fetches, and pad those dims no more.
    Padding is overwritten with a neutral element where an op reduces over it or acts on
    it. Indices into a dim that is split become places in the rank's block.

    Before:
    ```mlir
    module attributes {dist.mesh = "tp=2"} {
      func.func @main(%x: tensor<4x8xf32>) -> tensor<4x6xf32> {
        %w = graph.weight "w" : tensor<8x6xf32>
        %y = graph.contract %x, %w {equation = "m k, k n -> m n",
             dist.strategy = …k split by tp…}
        return %y
    ```
    After: the argument's slice, the weight's slice, a contraction of 4×4 by 4×6 and a
    `comm.all_reduce` over tp.
  }];
  let dependentDialects = ["::partita::comm::CommDialect", "::partita::graph::GraphDialect"];
  let options = [
    Option<"allToAll", "all-to-all", "bool", "true",
           "Allow all-to-all, permute and exchange; otherwise reshard by slices, gathers and reductions">,
  ];
  let statistics = [
    Statistic<"numReshards", "reshards", "Values that change their layout">,
  ];
}

def VerifyPartitionedPass : Pass<"partita-verify-partitioned", "::mlir::ModuleOp"> {
  let summary = "Gate of level L3: local shapes, only comm ops cross devices";
  let description = [{
    Fails if an op still has a strategy, if a function has no mesh around it, or if an op is neither local
    (graph, func) nor a comm op. Shapes were checked by the ops' own verifiers.
  }];
}

#endif // PARTITA_PASSES_PARTITION_PASSES
