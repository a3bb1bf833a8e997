//===- Passes.td - From global to local ---------------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_PARTITION_PASSES
#define PARTITA_PASSES_PARTITION_PASSES

include "mlir/Pass/PassBase.td"

def PartitionPass : Pass<"partita-partition", "::mlir::ModuleOp"> {
  let summary = "Lower a planned program to that of one rank";
  let description = [{
    Every tensor becomes one rank's part. Nothing is decided: a `dist.reshard` becomes the
    steps of the reshard planner, a `dist.window` a `comm.halo`, an op its local op, which
    keeps its `dist.strategy` and gets the rule of the op on whole tensors, `dist.rule`.
    What else an operand must go through is a function of rule and strategy
    (partita/Rule/Sharding/OperandForm.h): padding is overwritten with a neutral element
    where an op reduces over it or acts on it, indices into a dim that is split become
    places in the rank's block.

    Before:
    ```mlir
    #mesh = #dist.mesh<tp=2>
    module attributes {dist.mesh = #mesh} {
      func.func @main(%x: tensor<4x8xf32> {dist.layout = …}) -> (tensor<4x6xf32> {…}) {
        %w = graph.weight "w" : tensor<8x6xf32>
        %0 = dist.reshard %w to <#mesh, [{8: tp}, {6} ]> : tensor<8x6xf32>
        %y = graph.contract %x, %0 {equation = #graph.equation<"m k, k n -> m n">,
             dist.strategy = #dist.strategy<#mesh, {k: tp}>} : …
        %1 = dist.reshard %y to <#mesh, [{4}, {6} ]> : tensor<4x6xf32>
        return %1
    ```
    After: the argument's slice, the weight's slice, a contraction of 4×4 by 4×6 and a
    `comm.all_reduce`.
  }];
  let dependentDialects = ["::partita::comm::CommDialect", "::partita::graph::GraphDialect"];
  let statistics = [
    Statistic<"numReshards", "reshards", "Values that change their layout">,
  ];
}

def VerifyPartitionedPass : Pass<"partita-verify-partitioned", "::mlir::ModuleOp"> {
  let summary = "Gate of level L3: every value's layout, followed through the program";
  let description = [{
    Follows what is known of every value: its layout, which neutral element is in its
    padding, whether it is a window buffer, whether its elements are places in a block.
    Arguments and sources say it by `dist.layout`, comm ops by what they lead to, other ops
    by their strategy and rule. Fails where an op does not find its operands as its
    strategy asks for, where types are not the local parts of layouts, where an op's
    `dist.rule` is not the rule that the op itself states, made local. So axes that types
    cannot tell apart (dp for tp of equal size) are told apart.

    Ops of other dialects are admitted; what they make is of unknown layout, which a comm
    op may take up (its `from` is then a promise) and a graph op may not.
  }];
}

#endif // PARTITA_PASSES_PARTITION_PASSES
