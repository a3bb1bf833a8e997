// Hints spread to the whole program; a weight's hint pins its user.
// RUN: split-file %s %t
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/column.json" | FileCheck %s --check-prefix=COLUMN
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/counts.json" | FileCheck %s --check-prefix=COUNTS
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=data-parallel" | FileCheck %s --check-prefix=DATA
// RUN: partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/column.json explain=fc2" 2>&1 >/dev/null | FileCheck %s --check-prefix=EXPLAIN

// COLUMN: graph.contract {{.*}}dist.strategy = "[{4}, {8}, {12: tp}]"
// COLUMN: graph.gelu {{.*}}dist.strategy = "[{4}, {12: tp}]"
// The second contraction follows along its reduction; the bias passes the partial sum on.
// COLUMN: graph.contract {{.*}}dist.strategy = "[{4}, {12: tp}, {6}]"
// COLUMN: graph.add {{.*}}dist.strategy = "[{4}, {6}] pass 0 {tp}"

// A count takes axes that make it up, the same in every operand.
// COUNTS: graph.contract {{.*}}dist.strategy = "[{4: dp}, {8}, {12: tp}]"
// COUNTS: graph.contract {{.*}}dist.strategy = "[{4: dp}, {12: tp}, {6}]"

// DATA: func.func @main(%{{.*}}: tensor<4x8xf32> {dist.layout = "[{4: dp, tp}, {8}]"})
// DATA: graph.contract {{.*}}dist.strategy = "[{4: dp, tp}, {12}, {6}]"

// EXPLAIN: remark: 'fc2': [{4}, {12: tp}, {6}]; {tp} on a dim of 12 from hint for tensor 'w' by way of 'act'

//--- mlp.mlir
module attributes {dist.mesh = "dp=2,tp=2"} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x6xf32> {
    %w = graph.weight "w" : tensor<8x12xf32> loc("w")
    %w2 = graph.weight "w2" : tensor<12x6xf32> loc("w2")
    %b2 = graph.weight "b2" : tensor<6xf32> loc("b2")
    %0 = graph.contract %x, %w {equation = "m k, k n -> m n"} : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32> loc("fc1")
    %1 = graph.gelu %0 : (tensor<4x12xf32>) -> tensor<4x12xf32> loc("act")
    %2 = graph.contract %1, %w2 {equation = "m k, k n -> m n"} : (tensor<4x12xf32>, tensor<12x6xf32>) -> tensor<4x6xf32> loc("fc2")
    %3 = graph.add %2, %b2 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> loc("fc2_bias")
    return %3 : tensor<4x6xf32>
  }
}
//--- column.json
{"tensors": {"w": [null, "tp"]}}
//--- counts.json
{"nodes": {"fc2": {"in": [["dp", 2], [2, 1]]}}}
