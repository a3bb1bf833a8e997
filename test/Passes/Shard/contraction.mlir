// How contractions are planned: a hint for columns, the summed dim or rows, and what stands
// between two that disagree.
// RUN: split-file %s %t
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=dp=2,tp=2 mode=semi-auto hints=%t/megatron.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=MEGATRON
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=dp=2,tp=2 mode=semi-auto hints=%t/rows.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=dp=2,tp=2 mode=semi-auto hints=%t/apart.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=APART

// Columns, then the summed dim: one all-reduce at the end, none between.
// MEGATRON: dist.reshard %{{.*}} to <#mesh, [{8}, {12: tp}]>
// MEGATRON: %[[DOWN:.*]] = dist.reshard %{{.*}} to <#mesh, [{12: tp}, {8}]>
// MEGATRON: %[[UP:.*]] = graph.contract {{.*}}{dist.strategy = #dist.strategy<#mesh, {n: tp}>
// MEGATRON-NEXT: %[[SUM:.*]] = graph.contract %[[UP]], %[[DOWN]] {dist.strategy = #dist.strategy<#mesh, {k: tp}>
// MEGATRON-NEXT: dist.reshard %[[SUM]] to <#mesh, [{4}, {8}]>

// Rows go through both; the weights are read whole.
// ROWS: func.func @main({{.*}}[{4: dp}, {8}]
// ROWS-NOT: dist.reshard
// ROWS: graph.contract {{.*}}{m: dp}>
// ROWS: graph.contract {{.*}}{m: dp}>

// What two nodes ask for apart meets in one conversion.
// APART: %[[UP:.*]] = graph.contract {{.*}}{n: tp}>
// APART-NEXT: %[[MOVED:.*]] = dist.reshard %[[UP]] to <#mesh, [{4: tp}, {12}]>
// APART-NEXT: graph.contract %[[MOVED]], {{.*}}{m: tp}>

//--- program.mlir
func.func @main(%x: tensor<4x8xf32> {graph.name = "x"}) -> tensor<4x8xf32> {
  %w = graph.weight "w" : tensor<8x12xf32> loc("w")
  %v = graph.weight "v" : tensor<12x8xf32> loc("v")
  %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32> loc("up")
  %1 = graph.contract %0, %v {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x12xf32>, tensor<12x8xf32>) -> tensor<4x8xf32> loc("down")
  return %1 : tensor<4x8xf32>
}
//--- megatron.json
{"tensors": {"w": [null, "tp"]}}
//--- rows.json
{"tensors": {"x": ["dp", null]}}
//--- apart.json
{"nodes": {"up": {"out": [[null, "tp"]]}, "down": {"in": [[null, 1]], "out": [["tp", null]]}}}
