// The gradient of a bias in front of a norm over the batch is a sum less as much, 0: it is
// no sum by the time that the optimizer reads it, which would divide noise by its size.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --cse --partita-verify-trained | FileCheck %s

// CHECK: %[[ZERO:.*]] = graph.constant dense<0.000000e+00> : tensor<2xf32>
// CHECK: graph.map %{{.*}}, %{{.*}}, %[[ZERO]] {dist.phase = #dist.phase<update>, graph.parameter = "shift"
// The gradients of the bias behind the norm and of w are none.
// CHECK-NOT: %[[ZERO]] {dist.phase = #dist.phase<update>, graph.parameter = "{{bias|w}}"

//--- spec.json
{"loss": {"kind": "mse", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd", "lr": 0.5}}

//--- model.mlir
func.func @main(%x: tensor<4x3xf32> {graph.name = "x"},
                %w: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">},
                %shift: tensor<2xf32> {dist.state = #dist.state<"shift" from "shift">},
                %bias: tensor<2xf32> {dist.state = #dist.state<"bias" from "bias">})
    -> (tensor<4x2xf32> {graph.name = "y"}) {
  %four = graph.constant dense<4.0> : tensor<f32>
  %epsilon = graph.constant dense<1.0e-5> : tensor<f32>
  %one = graph.constant dense<1.0> : tensor<f32>
  %p = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">}
       : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32> loc("fc")
  %y = graph.add %p, %shift : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32> loc("fc")
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
  %n = graph.mul %o, %i : (tensor<4x2xf32>, tensor<1x2xf32>) -> tensor<4x2xf32> loc("norm")
  %r = graph.add %n, %bias : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32> loc("y")
  return %r : tensor<4x2xf32>
}
