// The forward pass finds the taps of a maximum, and each element of its gradient looks at
// the windows that cover it.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --partita-verify-trained -o %t/step.mlir
// RUN: FileCheck %s --input-file %t/step.mlir
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned --partita-check-bundle -o /dev/null

// CHECK-NOT: graph.pool
// CHECK:     %[[Y:.*]], %[[TAPS:.*]] = graph.max_pool %{{.*}} {dilations
// CHECK-NOT: graph.max_pool %
// CHECK-NOT: graph.pool
// CHECK:     graph.max_pool_backward %{{.*}}, %[[TAPS]] {{.*}}dist.phase = #dist.phase<backward>
// CHECK-NOT: graph.max_pool %
// CHECK-NOT: graph.scatter_elements

//--- spec.json
{"loss": {"kind": "mse", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd", "lr": 0.5, "momentum": 0.9}}

//--- model.mlir
func.func @main(%x: tensor<4x3x9x8xf32> {graph.name = "x"},
                %w: tensor<5x3x3x3xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4x5x5x4xf32> {graph.name = "y"}) {
  %c = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>}
       : (tensor<4x3x9x8xf32>, tensor<5x3x3x3xf32>) -> tensor<4x5x9x8xf32> loc("conv")
  %y = graph.pool %c {kind = #graph.pool<max>, window = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>}
       : (tensor<4x5x9x8xf32>) -> tensor<4x5x5x4xf32> loc("pool")
  return %y : tensor<4x5x5x4xf32>
}
