// Micro-batches are the rows of a loop that adds up loss and gradients.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --partita-verify-trained -o %t/step.mlir
// RUN: FileCheck %s --input-file %t/step.mlir
// Level 2 scatters the gradient in each trip, and the sum is kept in parts.
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=RANKS

// CHECK: func.func private @micro_batch(%[[LOSS:[a-z0-9]+]]: tensor<f32>, %[[SUM:.*]]: tensor<4x2xf32> {graph.parameter = "w"}
// CHECK: graph.add %[[SUM]], %{{.*}} {dist.phase = #dist.phase<weight>}
// CHECK: func.func @main(%[[X:[a-z0-9]+]]: tensor<12x4xf32>
// CHECK-SAME: graph.optimizer_parallel = {level = 2 : i64, shard_size = -1 : i64, threshold = 0 : i64}
// CHECK: %[[ROWS:.*]] = graph.reshape %[[X]] : (tensor<12x4xf32>) -> tensor<3x4x4xf32>
// CHECK: graph.repeat @micro_batch trips 3 carried({{.*}}) scanned(%[[ROWS]],

// RANKS: @micro_batch
// RANKS: comm.reduce_scatter
// RANKS-NOT: comm.
// RANKS: func.func @main
// RANKS: comm.all_gather

//--- spec.json
{"loss": {"kind": "mse", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd", "lr": 0.5, "momentum": 0.9}, "accumulation": 3,
 "optimizer_parallel": {"enable": true, "level": 2, "threshold_kb": 0}}

//--- model.mlir
func.func @main(%x: tensor<4x4xf32> {graph.name = "x"},
                %w: tensor<4x2xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4x2xf32> {graph.name = "y"}) {
  %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">}
       : (tensor<4x4xf32>, tensor<4x2xf32>) -> tensor<4x2xf32> loc("fc")
  return %y : tensor<4x2xf32>
}
