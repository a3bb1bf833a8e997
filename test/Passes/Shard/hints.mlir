// Written-out factors, sub-graphs with a mode of their own, and conflicts told with both
// origins.
// RUN: split-file %s %t
// RUN: partita-opt %t/fused.mlir --partita-shard="mode=semi-auto hints=%t/factors.json" --partita-check-spmd | FileCheck %s --check-prefix=FACTORS
// RUN: partita-opt %t/fused.mlir --partita-shard="mode=semi-auto hints=%t/columns.json" --partita-check-spmd | FileCheck %s --check-prefix=FACTORS
// RUN: partita-opt %t/fused.mlir --partita-shard="mode=semi-auto hints=%t/sub.json" --partita-check-spmd | FileCheck %s --check-prefix=SUB
// RUN: partita-opt %t/fused.mlir --partita-shard="mode=semi-auto hints=%t/conflict.json" --partita-check-spmd 2>&1 | FileCheck %s --check-prefix=CONFLICT
// RUN: partita-opt %t/pads.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/pads.json" --partita-check-spmd | FileCheck %s --check-prefix=PADS

// A tensor that is called like its node is the node's result, not the scalar that its
// import made and that equal ones of other nodes share.
// PADS: graph.pad {{.*}}tp}
// PADS: graph.pad
// PADS-NOT: tp}

// The columns of a fused weight are split inside each third, asked for or found.
// FACTORS: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {n: {3}*{8: tp}}>
// FACTORS: graph.slice {{.*}}dist.strategy = #dist.strategy<#mesh, {c: tp}>

// SUB: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {n: {3}*{8: tp}}>
// SUB: graph.slice {{.*}}dist.strategy = #dist.strategy<#mesh, {c: tp}>
// SUB: graph.tanh {{.*}}dist.strategy = #dist.strategy<#mesh, {a: tp}>

// CONFLICT: remark: at 'act' the hint for node '{{(qkv|out)' [(][ab]}}: {tp}) wins over the hint for node '{{(qkv|out)' [(][ab]}}: {tp})

//--- fused.mlir
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %w = graph.weight "qkv" : tensor<8x24xf32> loc("w")
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x24xf32>) -> tensor<4x24xf32> loc("qkv")
    %1 = graph.slice %0 {starts = array<i64: 0, 8>, steps = array<i64: 1, 1>} : (tensor<4x24xf32>) -> tensor<4x8xf32> loc("q")
    %2 = graph.relu %1 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("act")
    %3 = graph.tanh %2 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("out")
    return %3 : tensor<4x8xf32>
  }
}
//--- pads.mlir
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x10xf32>, tensor<5x8xf32>) {
  %zero = graph.constant dense<0.0> : tensor<f32> loc("one")
  %0 = graph.pad %x, %zero {low = array<i64: 0, 1>, high = array<i64: 0, 1>} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x10xf32> loc("one")
  %1 = graph.pad %x, %zero {low = array<i64: 1, 0>, high = array<i64: 0, 0>} : (tensor<4x8xf32>, tensor<f32>) -> tensor<5x8xf32> loc("other")
  return %0, %1 : tensor<4x10xf32>, tensor<5x8xf32>
}
//--- pads.json
{"tensors": {"one": ["tp", null]}}
//--- factors.json
{"nodes": {"qkv": {"out": [[null, {"factors": [3, 8], "axes": [[], ["tp"]]}]]}}}
//--- columns.json
{"tensors": {"w": [null, "tp"]}}
//--- sub.json
{"tensors": {"w": [null, "tp"]}, "subgraphs": {"out": "data-parallel"}}
//--- conflict.json
{"nodes": {"qkv": {"out": [[null, "tp"]]}, "out": {"out": [["tp", null]]}}}
