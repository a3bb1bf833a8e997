// What a segment keeps to itself is marked, and computed again before the backward pass reads it;
// its result, which the next op reads, is kept.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --cse --partita-mark-recompute=spec=%t/spec.json --partita-verify-trained -o %t/step.mlir
// RUN: FileCheck %s --input-file %t/step.mlir --check-prefix=MARKED
// RUN: partita-opt %t/step.mlir --partita-recompute | FileCheck %s

// MARKED: %[[H:.*]] = graph.exp %{{.*}} {dist.recompute = #dist.recompute<before first>} :
// MARKED: graph.sin %[[H]] {dist.recompute = #dist.recompute<before first>} :
// MARKED-NOT: dist.recompute

// CHECK: %[[H:.*]] = graph.exp %[[X:[^ ]*]] :
// CHECK: %[[S:.*]] = graph.sin %[[H]] :
// CHECK: %[[Y:.*]] = graph.mul %[[S]], %[[W:.*]] :
// CHECK: graph.tanh %[[Y]]
// CHECK: %[[H2:.*]] = graph.exp %[[X]] {dist.phase = #dist.phase<backward>}
// CHECK: %[[S2:.*]] = graph.sin %[[H2]] {dist.phase = #dist.phase<backward>}
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
