// What a user declares of inputs and outputs is where their data lie: it stays, and the
// program converts where it wants them otherwise, whatever decides its strategies.
// RUN: split-file %s %t
// RUN: partita-opt %t/net.mlir --partita-shard="mesh=dp=2,h=2 mode=data-parallel hints=%t/rows.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: partita-opt %t/net.mlir --partita-shard="mesh=dp=2,h=2 mode=auto hints=%t/rows.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=FOUND
// RUN: partita-opt %t/net.mlir --partita-shard="mesh=dp=2,h=2 mode=auto hints=%t/whole.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=WHOLE
// RUN: partita-opt %t/net.mlir --partita-shard="mesh=dp=2,h=2 mode=semi-auto hints=%t/batch.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=BATCH
// RUN: not partita-opt %t/net.mlir --partita-shard="mesh=dp=2,h=2 mode=auto hints=%t/unknown.json" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not partita-opt %t/net.mlir --partita-shard="mesh=dp=2,h=2 mode=auto hints=%t/dims.json" 2>&1 | FileCheck %s --check-prefix=DIMS
// RUN: not partita-opt %t/net.mlir --partita-shard="mesh=dp=2,h=2 mode=auto hints=%t/count.json" 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not partita-opt %t/net.mlir --partita-shard="mesh=dp=2,h=2 mode=auto hints=%t/twice.json" 2>&1 | FileCheck %s --check-prefix=TWICE

// ROWS: %arg0: tensor<4x6x8xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}, {6: h}, {8}]>
// ROWS: tensor<4x6x8xf32> {dist.layout = #dist.layout<#mesh, [{4}, {6/8: h, dp}, {8}]>
// FOUND: %arg0: tensor<4x6x8xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}, {6: h}, {8}]>
// WHOLE: %arg0: tensor<4x6x8xf32> {dist.layout = #dist.layout<#mesh, [{4}, {6}, {8}]>
// WHOLE: tensor<4x6x8xf32> {dist.layout = #dist.layout<#mesh, [{4}, {6}, {8}]>
// BATCH: %arg0: tensor<4x6x8xf32> {dist.layout = #dist.layout<#mesh, [{4: dp, h}, {6}, {8}]>

// UNKNOWN: error: {{.*}}unknown.json: dataset: no input and no output is named 'z'
// DIMS: error: {{.*}}dims.json: dataset 'x': 'x': it has 3 dims, the entry 2
// COUNT: error: {{.*}}count.json{{.*}}expected axes for each dim, or null: where data lie is said by axes, not by counts
// TWICE: error: {{.*}}twice.json: dataset 'x': 'x': {{.*}}dp{{.*}}

//--- net.mlir
func.func @main(%x: tensor<4x6x8xf32> {graph.name = "x"}) -> (tensor<4x6x8xf32> {graph.name = "y"}) {
  %w = graph.weight "w" : tensor<8x8xf32>
  %0 = graph.contract %x, %w {equation = #graph.equation<"b s k, k n -> b s n">} : (tensor<4x6x8xf32>, tensor<8x8xf32>) -> tensor<4x6x8xf32> loc("product")
  %1 = graph.softmax %0 {axis = 1 : i64} : (tensor<4x6x8xf32>) -> tensor<4x6x8xf32> loc("softmax")
  return %1 : tensor<4x6x8xf32>
}
//--- rows.json
{"dataset": {"x": ["dp", "h", null], "y": [null, ["h", "dp"], null]}}
//--- whole.json
{"dataset": {"*": "full_batch"}}
//--- batch.json
{"dataset": {"x": "data_parallel"}}
//--- unknown.json
{"dataset": {"z": "full_batch"}}
//--- dims.json
{"dataset": {"x": ["dp", null]}}
//--- count.json
{"dataset": {"x": [2, null, null]}}
//--- twice.json
{"dataset": {"x": ["dp", "dp", null]}}
