// Hints speak of the dims of an operand as the model has them: the head of a language
// model multiplies by the transpose of the token table, which the contraction absorbs.
// RUN: split-file %s %t
// RUN: partita-opt %t/head.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/columns.json" --partita-check-spmd | FileCheck %s --check-prefix=COLUMNS
// RUN: partita-opt %t/head.mlir --partita-simplify --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/rows.json" --partita-check-spmd | FileCheck %s --check-prefix=ROWS

// COLUMNS-NOT: operand_order
// COLUMNS: graph.contract {{.*}}{n: tp}>, equation = "b m k, n k -> b m n"
// ROWS: graph.contract {{.*}}{k: tp}>, equation = "b m k, n k -> b m n"

//--- head.mlir
func.func @main(%x: tensor<1x4x8xf32>) -> tensor<1x4x10xf32> {
  %table = graph.weight "table" : tensor<10x8xf32> loc("table")
  %0 = graph.transpose %table {permutation = array<i64: 1, 0>} : (tensor<10x8xf32>) -> tensor<8x10xf32> loc("transposed")
  %1 = graph.contract %x, %0 {equation = "b m k, k n -> b m n"} : (tensor<1x4x8xf32>, tensor<8x10xf32>) -> tensor<1x4x10xf32> loc("head")
  return %1 : tensor<1x4x10xf32>
}
//--- columns.json
{"nodes": {"head": {"in": [[1, 1, 1], [1, 2]], "out": [[1, 1, 2]]}}}
//--- rows.json
{"nodes": {"head": {"in": [null, [2, 1]]}}}
