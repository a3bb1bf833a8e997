// Hints speak of the dims of an operand as the model has them: the head of a language
// model multiplies by the transpose of the token table, which the contraction absorbs.
// RUN: split-file %s %t
// RUN: partita-opt %t/head.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/columns.json" --partita-check-spmd | FileCheck %s --check-prefix=COLUMNS
// RUN: partita-opt %t/head.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/rows.json" --partita-check-spmd | FileCheck %s --check-prefix=ROWS

// So does the transpose itself, which is no op any more, by its node's name and its
// result's; two of them, one behind the other, each have their own order.
// RUN: partita-opt %t/head.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/result.json" --partita-check-spmd | FileCheck %s --check-prefix=COLUMNS
// RUN: partita-opt %t/head.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/input.json" --partita-check-spmd | FileCheck %s --check-prefix=COLUMNS
// RUN: partita-opt %t/head.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/value.json" --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: not partita-opt %t/head.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/three.json" 2>&1 | FileCheck %s --check-prefix=THREE
// RUN: partita-opt %t/two.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/first.json" --partita-check-spmd | FileCheck %s --check-prefix=FIRST
// RUN: partita-opt %t/two.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/second.json" --partita-check-spmd | FileCheck %s --check-prefix=FIRST
// THREE: error: {{.*}}three.json: output 0 of 'transposed' has 2 dims, the hint 3
// FIRST: graph.contract {{.*}}{b: {3/4: tp}}>

// COLUMNS-NOT: absorbed
// COLUMNS-NOT: operand_order
// COLUMNS: graph.contract {{.*}}{n: tp}>, equation = #graph.equation<"b m k, n k -> b m n">
// ROWS: graph.contract {{.*}}{k: tp}>, equation = #graph.equation<"b m k, n k -> b m n">

//--- head.mlir
func.func @main(%x: tensor<1x4x8xf32>) -> tensor<1x4x10xf32> {
  %table = graph.weight "table" : tensor<10x8xf32> loc("table")
  %0 = graph.transpose %table {permutation = array<i64: 1, 0>} : (tensor<10x8xf32>) -> tensor<8x10xf32> loc("transposed"("t"))
  %1 = graph.contract %x, %0 {equation = #graph.equation<"b m k, k n -> b m n">} : (tensor<1x4x8xf32>, tensor<8x10xf32>) -> tensor<1x4x10xf32> loc("head")
  return %1 : tensor<1x4x10xf32>
}
//--- two.mlir
func.func @main(%x: tensor<3x4x8xf32>, %y: tensor<6x8x3xf32>) -> tensor<3x4x6xf32> {
  %0 = graph.transpose %y {permutation = array<i64: 2, 0, 1>} : (tensor<6x8x3xf32>) -> tensor<3x6x8xf32> loc("first")
  %1 = graph.transpose %0 {permutation = array<i64: 0, 2, 1>} : (tensor<3x6x8xf32>) -> tensor<3x8x6xf32> loc("second")
  %2 = graph.contract %x, %1 {equation = #graph.equation<"b m k, b k n -> b m n">} : (tensor<3x4x8xf32>, tensor<3x8x6xf32>) -> tensor<3x4x6xf32> loc("product")
  return %2 : tensor<3x4x6xf32>
}
//--- result.json
{"nodes": {"transposed": {"out": [[null, 2]]}}, "subgraphs": {"transposed": "semi-auto"}}
//--- input.json
{"nodes": {"transposed": {"in": [["tp", null]]}}}
//--- value.json
{"tensors": {"t": ["tp", null]}}
//--- three.json
{"tensors": {"transposed": [null, null, 2]}}
//--- first.json
{"nodes": {"first": {"in": [[null, null, "tp"]], "out": [["tp", null, null]]}}}
//--- second.json
{"nodes": {"second": {"in": [["tp", null, null]], "out": [["tp", null, null]]}}}
//--- columns.json
{"nodes": {"head": {"in": [[1, 1, 1], [1, 2]], "out": [[1, 1, 2]]}}}
//--- rows.json
{"nodes": {"head": {"in": [null, [2, 1]]}}}
