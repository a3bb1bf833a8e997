// What a segment keeps to itself is computed again before the backward pass reads it; its
// result, which the next op reads, is kept.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --cse --partita-verify-trained -o %t/step.mlir
// RUN: FileCheck %s --input-file %t/step.mlir

// CHECK: %[[H:.*]] = graph.exp %[[X:.*]] {graph.repeated = {{[0-9]+}} : i64} :
// CHECK: %[[S:.*]] = graph.sin %[[H]] {graph.repeated = {{[0-9]+}} : i64} :
// CHECK: %[[Y:.*]] = graph.mul %[[S]], %[[W:.*]] :
// CHECK: graph.tanh %[[Y]]
// CHECK: %[[H2:.*]] = graph.exp %[[X]] {dist.phase = #dist.phase<backward>, graph.repeats = {{[0-9]+}} : i64}
// CHECK: %[[S2:.*]] = graph.sin %[[H2]] {dist.phase = #dist.phase<backward>, graph.repeats = {{[0-9]+}} : i64}
// CHECK: graph.mul %{{.*}}, %[[S2]]
// CHECK-NOT: graph.tanh

//--- spec.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd"}, "recompute": [{"nodes": "block"}]}

//--- model.mlir
module attributes {graph.modules = {a = "block.a", b = "block.b", c = "block.c"}} {
  func.func @main(%x: tensor<4xf32> {graph.name = "x"},
                  %w: tensor<4xf32> {dist.state = #dist.state<"w" from "w">})
      -> (tensor<4xf32> {graph.name = "y"}) {
    %h = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32> loc("a")
    %s = graph.sin %h : (tensor<4xf32>) -> tensor<4xf32> loc("b")
    %y = graph.mul %s, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("c")
    %z = graph.tanh %y : (tensor<4xf32>) -> tensor<4xf32> loc("act")
    return %z : tensor<4xf32>
  }
}
