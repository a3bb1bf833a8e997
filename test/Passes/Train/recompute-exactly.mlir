// What a node makes is kept where another node of the forward pass reads it. With
// "exactly" it is computed again all the same.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/kept.json --partita-simplify --cse --partita-mark-recompute=spec=%t/kept.json --partita-verify-trained --partita-recompute | FileCheck %s --check-prefix=KEPT
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/exactly.json --partita-simplify --cse --partita-mark-recompute=spec=%t/exactly.json --partita-verify-trained --partita-recompute | FileCheck %s --check-prefix=EXACTLY

// KEPT: graph.exp
// KEPT-NOT: graph.exp

// EXACTLY: %[[H:.*]] = graph.exp %[[X:[^ ]*]] :
// EXACTLY: graph.sin %[[H]]
// EXACTLY: %[[H2:.*]] = graph.exp %[[X]] {dist.phase = #dist.phase<backward>}
// EXACTLY: %[[H2]]

//--- kept.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd"}, "recompute": [{"nodes": "a"}]}

//--- exactly.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd"}, "recompute": [{"nodes": "a", "exactly": true}]}

//--- model.mlir
module {
  func.func @main(%x: tensor<4xf32> {graph.name = "x"},
                  %w: tensor<4xf32> {dist.state = #dist.state<"w" from "w">})
      -> (tensor<4xf32> {graph.name = "y"}) {
    %u = graph.mul %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("u")
    %h = graph.exp %u : (tensor<4xf32>) -> tensor<4xf32> loc("a")
    %s = graph.sin %h : (tensor<4xf32>) -> tensor<4xf32> loc("b")
    return %s : tensor<4xf32>
  }
}
