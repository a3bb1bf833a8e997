//===- Passes.td - Deciding and planning --------------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_SHARD_PASSES
#define PARTITA_PASSES_SHARD_PASSES

include "mlir/Pass/PassBase.td"

def ShardPass : Pass<"partita-shard", "::mlir::ModuleOp"> {
  let summary = "Give every op a strategy";
  let description = [{
    Decides and writes `dist.mesh`, `dist.strategy` and `dist.layout`: without hints in
    mode auto by search (docs/search.md), which also writes `dist.served` where users are
    not served as they usually are, and `dist.certificate` on the module; else by
    propagation (partita/Rule/Decide/Hints.h). What the user should know (conflicts, what
    stays whole, what the search has proved) is emitted as remarks. Conversions between
    layouts are the next pass's, `partita-insert-reshards`.
  }];
  let options = [
    Option<"mesh", "mesh", "std::string", "", "Mesh, e.g. dp=2,tp=4 (default: the module's)">,
    Option<"mode", "mode", "std::string", "\"auto\"", "auto, data-parallel, semi-auto or manual">,
    Option<"hints", "hints", "std::string", "", "Hints file (JSON), or a rule: megatron, megatron-sp, megatron-ep, fsdp">,
    Option<"hintsOutput", "write-hints", "std::string", "", "Write the hints, those of a rule as well, to this file">,
    Option<"plan", "plan", "std::string", "", "Take all strategies from this plan.json">,
    Option<"explain", "explain", "std::string", "", "Node name or glob to explain in remarks">,
    Option<"cluster", "cluster", "std::string", "", "Cluster file for the search (JSON)">,
    Option<"memory", "memory", "std::string", "", "Bytes that a device may use, e.g. 16GiB">,
    Option<"allToAll", "all-to-all", "bool", "true",
           "Allow all-to-all, permute and exchange; otherwise reshard by slices, gathers and reductions">,
  ];
  let dependentDialects = ["::partita::dist::DistDialect"];
  let statistics = [
    Statistic<"numConflicts", "conflicts", "Proposals rejected by another">,
  ];
}

def InsertReshardsPass : Pass<"partita-insert-reshards", "::mlir::ModuleOp"> {
  let summary = "Make every conversion of a plan an op";
  let description = [{
    Ops have strategies; where a user wants a value in another layout than it has, a
    `dist.reshard` is inserted after the value, once per wanted layout, and a
    `dist.window` for operands that are read through split windows. Partial values are
    reduced once, to the layout from which the other users are cheapest to serve. Where a
    value has `dist.served`, that says how its users are served. The result is level L2.
    With `explain` a remark tells, for each value of the nodes that are named so, the
    layout in which it is made, its conversions, who shares each and reads it last.

    Before, with tp = 2 and the contraction's `k` split:
    ```mlir
    %w = graph.weight "w" : tensor<8x6xf32>
    %y = graph.contract %x, %w {…, dist.strategy = #dist.strategy<#mesh, {k: tp}>} : …
    return %y : tensor<4x6xf32>
    ```
    After:
    ```mlir
    %w = graph.weight "w" : tensor<8x6xf32>
    %w0 = dist.reshard %w to <#mesh, [{8: tp}, {6} ]> : tensor<8x6xf32>
    %y = graph.contract %x, %w0 {…, dist.strategy = #dist.strategy<#mesh, {k: tp}>} : …
    %y0 = dist.reshard %y to <#mesh, [{4}, {6} ]> : tensor<4x6xf32>
    return %y0 : tensor<4x6xf32>
    ```
  }];
  let options = [
    Option<"explain", "explain", "std::string", "",
           "Name or glob of nodes and values whose conversions to explain in remarks">,
  ];
  let dependentDialects = ["::partita::dist::DistDialect"];
  let statistics = [
    Statistic<"numConversions", "conversions", "Reshards and windows inserted">,
  ];
}

def RecomputePass : Pass<"partita-recompute", "::mlir::ModuleOp"> {
  let summary = "Copies of what the backward pass computes again";
  let description = [{
    Of a planned program: an op with `dist.recompute` is repeated, by its strategy, before
    the first op that is not of the forward pass and reads it; such ops then read the
    copy. The copy of an op whose operands are marked reads their copies. Where the op
    reads a conversion, its copy reads the last one before it of the same value and form:
    that of a copy's value is marked as of the backward pass; where there is none, what
    the forward pass received is kept. Conversions and copies that nothing reads go.
    Marks are gone; no layout changes.
  }];
  let statistics = [
    Statistic<"numCopies", "copies", "Ops computed again">,
  ];
}

def CombineMomentsPass : Pass<"partita-combine-moments", "::mlir::ModuleOp"> {
  let summary = "Mean and variance of what ranks hold in parts, by one collective";
  let description = [{
    Of a planned program: a mean that ranks reduce, and the variance about it that they
    reduce in turn, become means and sums of squared deviations of what each rank holds,
    which are gathered and combined. Both gathers may start together, where the second
    reduction waits for the first one. Only where ranks hold equal parts and the gathers
    take few bytes; the layouts of what others read stay.

    Before, with dp = 2, for a tensor `%x` of 8 rows by 16 channels:
    ```mlir
    %s = graph.reduce %x {axes = [0], kind = sum, … {a: dp}} : … -> tensor<1x16xf32>
    %m = graph.div %s, %n {… pass sum(0) {dp}}
    %mean = dist.reshard %m to <#mesh, [{1}, {16} ]>
    %d = graph.sub %x, %mean
    %v = … // the same for %d · %d
    %variance = dist.reshard %v to <#mesh, [{1}, {16} ]>
    ```
    After:
    ```mlir
    %g = graph.reshape %x {… {a: dp}} : … -> tensor<2x4x16xf32>
    %m, %q = … // mean and sum of squared deviations of each group: tensor<2x1x16xf32>
    %means = dist.reshard %m to <#mesh, [{2}, {1}, {16} ]>
    %sums = dist.reshard %q to <#mesh, [{2}, {1}, {16} ]>
    %mean, %variance = … // of both groups
    ```
  }];
  let options = [
    Option<"mostBytes", "most-bytes", "int64_t", "65536", "Of both gathers together">,
  ];
  let dependentDialects = ["::partita::dist::DistDialect", "::partita::graph::GraphDialect"];
  let statistics = [
    Statistic<"numCombined", "combined", "Pairs of a mean and a variance">,
  ];
}

def VerifyPlannedPass : Pass<"partita-verify-planned", "::mlir::ModuleOp"> {
  let summary = "Gate of level L2: every operand is in the layout its op asks for";
  let description = [{
    Follows every value's layout: arguments by their `dist.layout`, results of ops by
    their strategies, conversions by themselves. Fails where an op reads an operand in
    another layout than its strategy asks for (partial axes included), where split windows
    do not come from the matching `dist.window`, where a returned value is not in the
    layout of the result, where a conversion leads to the layout it comes from, or where
    the same value is converted to the same layout twice in one epoch. Errors carry a note
    at the op that made the value.
  }];
}

#endif // PARTITA_PASSES_SHARD_PASSES
