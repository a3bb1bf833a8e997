// The cotangent of a norm's mean is a multiple of the sum that the bias's gradient is: what
// deviations from the mean add to it is 0. So the backward pass of a norm over the batch has
// two sums, which do not wait for each other.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --cse --partita-verify-trained -o %t/step.mlir
// RUN: FileCheck %s --input-file %t/step.mlir
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=RANKS

// CHECK: %[[OFFSET:.*]] = graph.sub
// CHECK: %[[SCALED:.*]] = graph.mul %{{.*}}, %{{.*}} : (tensor<1x2xf32>, tensor<2xf32>)
// The sum of dy is of the backward pass now, and the bias's update reads it.
// CHECK: %[[SUM:.*]] = graph.reduce %[[DY:.*]] {axes = array<i64: 0>, dist.phase = #dist.phase<backward>, kind = #graph.reduce<sum>} : (tensor<4x2xf32>) -> tensor<2xf32>
// CHECK: %[[PRODUCT:.*]] = graph.mul %[[DY]], %[[OFFSET]] {dist.phase = #dist.phase<backward>}
// CHECK: graph.reduce %[[PRODUCT]] {axes = array<i64: 0>, dist.phase = #dist.phase<backward>
// CHECK-NOT: graph.reduce {{.*}} (tensor<4x2xf32>)
// CHECK: %[[FACTOR:.*]] = graph.reshape %[[SCALED]] {dist.phase = #dist.phase<backward>}
// CHECK: graph.map %[[SUM]], %[[FACTOR]] {dist.phase = #dist.phase<backward>, payload = #graph.payload<"-(x * y)">}
// CHECK-NOT: graph.reduce {{.*}} (tensor<4x2xf32>)
// CHECK: graph.map %{{.*}}, %[[SUM]]{{.*}} {dist.phase = #dist.phase<update>, graph.parameter = "bias"

// Mean, variance, loss, two sums of the backward pass, the gradient of w.
// RANKS-COUNT-6: comm.all_reduce
// RANKS-NOT: comm.all_reduce

//--- spec.json
{"loss": {"kind": "mse", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd", "lr": 0.5}}

//--- model.mlir
func.func @main(%x: tensor<4x3xf32> {graph.name = "x"},
                %w: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">},
                %scale: tensor<2xf32> {dist.state = #dist.state<"scale" from "scale">},
                %bias: tensor<2xf32> {dist.state = #dist.state<"bias" from "bias">})
    -> (tensor<4x2xf32> {graph.name = "y"}) {
  %four = graph.constant dense<4.0> : tensor<f32>
  %epsilon = graph.constant dense<1.0e-5> : tensor<f32>
  %one = graph.constant dense<1.0> : tensor<f32>
  %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">}
       : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32> loc("fc")
  %s = graph.reduce %y {axes = array<i64: 0>, keep_dims = true, kind = #graph.reduce<sum>}
       : (tensor<4x2xf32>) -> tensor<1x2xf32> loc("norm")
  %m = graph.div %s, %four : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32> loc("norm")
  %o = graph.sub %y, %m : (tensor<4x2xf32>, tensor<1x2xf32>) -> tensor<4x2xf32> loc("norm")
  %q = graph.mul %o, %o : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32> loc("norm")
  %t = graph.reduce %q {axes = array<i64: 0>, keep_dims = true, kind = #graph.reduce<sum>}
       : (tensor<4x2xf32>) -> tensor<1x2xf32> loc("norm")
  %v = graph.div %t, %four : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32> loc("norm")
  %e = graph.add %v, %epsilon : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32> loc("norm")
  %d = graph.sqrt %e : (tensor<1x2xf32>) -> tensor<1x2xf32> loc("norm")
  %i = graph.div %one, %d : (tensor<f32>, tensor<1x2xf32>) -> tensor<1x2xf32> loc("norm")
  %f = graph.mul %i, %scale : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32> loc("norm")
  %n = graph.mul %o, %f : (tensor<4x2xf32>, tensor<1x2xf32>) -> tensor<4x2xf32> loc("norm")
  %z = graph.add %n, %bias : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32> loc("norm")
  return %z : tensor<4x2xf32>
}
