// Hints spread to the whole program; a weight's hint pins its user.
// RUN: split-file %s %t
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/column.json" | FileCheck %s --check-prefix=COLUMN
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/counts.json" | FileCheck %s --check-prefix=COUNTS
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=data-parallel" | FileCheck %s --check-prefix=DATA
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/column.json explain=*" 2>&1 >/dev/null | FileCheck %s --check-prefix=EXPLAIN
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=data-parallel hints=%t/input.json explain=x" 2>&1 | FileCheck %s --check-prefix=INPUT
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=data-parallel hints=%t/whole.json" 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/later.json explain=fc2" 2>&1 | FileCheck %s --check-prefix=LATER
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/output.json" 2>&1 | FileCheck %s --check-prefix=OUTPUT

// COLUMN: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {n: tp}>
// COLUMN: graph.gelu {{.*}}dist.strategy = #dist.strategy<#mesh, {b: tp}>
// The second contraction follows along its reduction; the bias passes the partial sum on.
// COLUMN: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {k: tp}>
// COLUMN: graph.add {{.*}}dist.strategy = #dist.strategy<#mesh, {} pass sum(0, 1) {tp}>

// A count takes axes that make it up, the same in every operand.
// COUNTS: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {m: dp, n: tp}>
// COUNTS: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {m: dp, k: tp}>

// DATA: func.func @main(%{{.*}}: tensor<4x8xf32> {dist.layout = #dist.layout<#mesh, [{4: dp, tp}, {8}]>, graph.name = "x"})
// DATA: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {m: {dp, tp}}>

// EXPLAIN: remark: input 'x': {}; whole on every rank
// EXPLAIN: remark: weight 'w2': {a: tp}; as its users read it
// EXPLAIN: remark: 'fc2': {k: tp}; k (of 12): {tp} from the hint for tensor 'w' by way of 'act'
// EXPLAIN: remark: 'fc2_bias': {} pass sum(0, 1) {tp}; partial values over {tp} pass through it unreduced

// A hint for the input, or for it to stay whole, wins over the split of the batch.
// INPUT: remark: the batch dim of 'x' is not split: hints use every axis
// INPUT: remark: input 'x': {b: {dp, tp}}; b (of 8): {dp, tp} from the hint for tensor 'x'{{$}}
// INPUT: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {k: {dp, tp}}>
// WHOLE: remark: at 'x' the hint for tensor 'x' (a: whole) wins over the split of the batch over {dp, tp} (a: {dp, tp})
// WHOLE: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {}>

// A hint that comes later takes what an earlier one has left, also in the same node.
// LATER: remark: at 'fc2' the hint for tensor 'w' (k: {tp}) wins over the hint for node 'fc2' (m: {tp})
// LATER: graph.contract {{.*}}dist.strategy = #dist.strategy<#mesh, {k: tp}>

// The node and the output have the same name; null leaves all inputs open.
// OUTPUT: graph.add {{.*}}dist.strategy = #dist.strategy<#mesh, {a: tp}>

//--- mlp.mlir
#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x8xf32> {graph.name = "x"}) -> (tensor<4x6xf32> {graph.name = "fc2_bias"}) {
    %w = graph.weight "w" : tensor<8x12xf32> loc("w")
    %w2 = graph.weight "w2" : tensor<12x6xf32> loc("w2")
    %b2 = graph.weight "b2" : tensor<6xf32> loc("b2")
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32> loc("fc1")
    %1 = graph.gelu %0 : (tensor<4x12xf32>) -> tensor<4x12xf32> loc("act")
    %2 = graph.contract %1, %w2 {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x12xf32>, tensor<12x6xf32>) -> tensor<4x6xf32> loc("fc2")
    %3 = graph.add %2, %b2 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> loc("fc2_bias")
    return %3 : tensor<4x6xf32>
  }
}
//--- column.json
{"tensors": {"w": [null, "tp"]}}
//--- input.json
{"tensors": {"x": [null, ["dp", "tp"]]}}
//--- whole.json
{"tensors": {"x": [[], null]}}
//--- later.json
{"tensors": {"w": [null, "tp"]}, "nodes": {"fc2": {"out": [["tp", null]], "priority": 1}}}
//--- output.json
{"nodes": {"fc2_bias": {"in": null, "out": [["tp", null]]}}}
//--- counts.json
{"nodes": {"fc2": {"in": [["dp", 2], [2, 1]]}}}
