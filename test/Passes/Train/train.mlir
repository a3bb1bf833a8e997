// A layer, a loss and an optimizer with one moment become one step over states.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --partita-verify-trained -o %t/step.mlir
// RUN: FileCheck %s --input-file %t/step.mlir
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --mlir-print-debuginfo | FileCheck %s --check-prefix=NAMES
// The step is a program like any other: split, it gives what it gives whole.
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=RANKS

// CHECK: func.func @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<4x3xf32> {graph.batch, graph.name = "x"}
// CHECK-SAME: %[[T:[a-z0-9]+]]: tensor<4x2xf32> {graph.batch, graph.name = "target"}
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">, graph.parameter = "w"}
// CHECK-SAME: %[[M:[a-z0-9]+]]: tensor<3x2xf32> {dist.state = #dist.state<"w.m">, graph.name = "w.m", graph.parameter = "w"}
// CHECK-SAME: -> (tensor<f32> {graph.name = "loss"}, tensor<f32> {graph.name = "learning_rate"}
// CHECK-SAME: tensor<3x2xf32> {dist.state = #dist.state<"w">}
// CHECK: %[[Y:.*]] = graph.contract %[[X]], %[[W]]
// CHECK: %[[Z:.*]] = graph.tanh %[[Y]]
// CHECK: graph.reduce
// CHECK: %[[DZ:.*]] = graph.map {{.*}}, %[[Z]], %[[T]] {dist.phase = #dist.phase<backward>
// CHECK: %[[DY:.*]] = graph.map %[[DZ]], %[[Z]] {dist.phase = #dist.phase<backward>, payload = #graph.payload<"x * (1 - y * y)">}
// CHECK: %[[G:.*]] = graph.contract %[[DY]], %[[X]] {dist.phase = #dist.phase<weight>, equation = #graph.equation<"b o, b i -> i o">}
// CHECK: %[[NEXT:.*]] = graph.map %[[M]], %[[G]] {dist.phase = #dist.phase<update>, graph.parameter = "w", payload = #graph.payload<"0.9 * x + y">}
// CHECK: graph.map %[[W]], %{{.*}}, %[[NEXT]] {dist.phase = #dist.phase<update>, graph.parameter = "w", payload = #graph.payload<"x - y * z">}

// NAMES-DAG: loc("act/backward")
// NAMES-DAG: loc("fc/weight")
// NAMES-DAG: loc("w/update")

// The gradient is reduced once, and so is the loss.
// RANKS-COUNT-2: comm.all_reduce
// RANKS-NOT: comm.

//--- spec.json
{"loss": {"kind": "mse", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd", "lr": 0.5, "momentum": 0.9}}

//--- model.mlir
func.func @main(%x: tensor<4x3xf32> {graph.name = "x"},
                %w: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4x2xf32> {graph.name = "y"}) {
  %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">}
       : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32> loc("fc")
  %z = graph.tanh %y : (tensor<4x2xf32>) -> tensor<4x2xf32> loc("act")
  return %z : tensor<4x2xf32>
}
