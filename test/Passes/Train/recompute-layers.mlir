// A pattern that names layers: of dotted names by their parts, of others by structure, where a
// row of ops repeats. One that leaves each node for itself saves nothing, and says so; layers are
// advised where nodes that it names read one another.
// RUN: split-file %s %t
// RUN: partita-opt --mlir-print-op-on-diagnostic=false %t/dotted.mlir --partita-train=spec=%t/dotted.json --partita-mark-recompute=spec=%t/dotted.json --partita-recompute 2>&1 | FileCheck %s
// RUN: partita-opt --mlir-print-op-on-diagnostic=false %t/plain.mlir --partita-train=spec=%t/layer.json --partita-mark-recompute=spec=%t/layer.json --partita-recompute 2>&1 | FileCheck %s
// RUN: partita-opt --mlir-print-op-on-diagnostic=false %t/plain.mlir --partita-train=spec=%t/alone.json --partita-mark-recompute=spec=%t/alone.json --partita-recompute 2>&1 | FileCheck %s --check-prefix=ALONE
// RUN: partita-opt --mlir-print-op-on-diagnostic=false %t/plain.mlir --partita-train=spec=%t/single.json --partita-mark-recompute=spec=%t/single.json --partita-recompute 2>&1 | FileCheck %s --check-prefix=SINGLE
// RUN: partita-opt --mlir-print-op-on-diagnostic=false %t/noted.mlir --partita-train=spec=%t/layer.json --partita-mark-recompute=spec=%t/layer.json --partita-recompute 2>&1 | FileCheck %s --check-prefix=NOTED
// RUN: not partita-opt --mlir-print-op-on-diagnostic=false %t/plain.mlir --partita-train=spec=%t/none.json --partita-mark-recompute=spec=%t/none.json --partita-recompute 2>&1 | FileCheck %s --check-prefix=NONE

// A layer keeps its result, the sum: the two exps are there again, before the gradients.
// CHECK-NOT: remark:
// CHECK: func.func @main
// CHECK-COUNT-4: graph.exp
// CHECK-NOT: graph.exp

// ALONE: remark: recompute: 'node*' saves no byte: what each of its parts makes is read by the rest of the forward pass, and kept ("each": "layer" makes each layer one part)
// ALONE: func.func @main
// ALONE-COUNT-2: graph.exp
// ALONE-NOT: graph.exp

// SINGLE: remark: recompute: 'node_3' saves no byte: what each of its parts makes is read by the rest of the forward pass, and kept{{$}}
// SINGLE: remark: recompute: 'last' saves no byte: what each of its parts makes is read by the rest of the forward pass, and kept{{$}}

// Equal layers differ in the names of the file that are noted at their ops.
// NOTED-NOT: remark:
// NOTED: func.func @main
// NOTED-COUNT-4: graph.exp
// NOTED-NOT: graph.exp

// NONE: recompute: "each" is "layer", but nothing that is named 'last' is in a layer: no row of ops repeats

//--- dotted.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"},
 "recompute": [{"nodes": "h.*"}]}
//--- layer.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"},
 "recompute": [{"nodes": "*", "each": "layer"}]}
//--- alone.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"},
 "recompute": [{"nodes": "node*"}]}
//--- single.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"},
 "recompute": [{"nodes": "node_3"}, {"nodes": "last"}]}
//--- none.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"},
 "recompute": [{"nodes": "last", "each": "layer"}]}

//--- dotted.mlir
func.func @main(%x: tensor<4x8xf32> {graph.name = "x"},
                %w0: tensor<8xf32> {graph.name = "w0", dist.state = #dist.state<"w0" from "w0">},
                %w1: tensor<8xf32> {graph.name = "w1", dist.state = #dist.state<"w1" from "w1">})
    -> (tensor<4x8xf32> {graph.name = "y"}) {
  %a0 = graph.mul %x, %w0 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> loc("h.0.scale")
  %b0 = graph.exp %a0 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("h.0.act")
  %c0 = graph.add %x, %b0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("h.0.sum")
  %a1 = graph.mul %c0, %w1 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> loc("h.1.scale")
  %b1 = graph.exp %a1 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("h.1.act")
  %c1 = graph.add %c0, %b1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("h.1.sum")
  %y = graph.tanh %c1 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("last")
  return %y : tensor<4x8xf32>
}
//--- plain.mlir
func.func @main(%x: tensor<4x8xf32> {graph.name = "x"},
                %w0: tensor<8xf32> {graph.name = "w0", dist.state = #dist.state<"w0" from "w0">},
                %w1: tensor<8xf32> {graph.name = "w1", dist.state = #dist.state<"w1" from "w1">})
    -> (tensor<4x8xf32> {graph.name = "y"}) {
  %a0 = graph.mul %x, %w0 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> loc("node_1")
  %b0 = graph.exp %a0 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("node_2")
  %c0 = graph.add %x, %b0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("node_3")
  %a1 = graph.mul %c0, %w1 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> loc("node_4")
  %b1 = graph.exp %a1 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("node_5")
  %c1 = graph.add %c0, %b1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("node_6")
  %y = graph.tanh %c1 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("last")
  return %y : tensor<4x8xf32>
}
//--- noted.mlir
func.func @main(%x: tensor<4x8xf32> {graph.name = "x"},
                %w0: tensor<8x8xf32> {graph.name = "w0", dist.state = #dist.state<"w0" from "w0">},
                %w1: tensor<8x8xf32> {graph.name = "w1", dist.state = #dist.state<"w1" from "w1">})
    -> (tensor<4x8xf32> {graph.name = "y"}) {
  %a0 = graph.contract %x, %w0 {equation = #graph.equation<"m k, n k -> m n">, graph.operand_order = [array<i64>, array<i64: 1, 0>],
    graph.absorbed = [{input = array<i64: 0, 1>, name = "0/transpose", operand = 1 : i64, result = array<i64: 1, 0>}]}
    : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("node_1")
  %b0 = graph.exp %a0 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("node_2")
  %c0 = graph.add %x, %b0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("node_3")
  %a1 = graph.contract %c0, %w1 {equation = #graph.equation<"m k, n k -> m n">, graph.operand_order = [array<i64>, array<i64: 1, 0>],
    graph.absorbed = [{input = array<i64: 0, 1>, name = "1/transpose", operand = 1 : i64, result = array<i64: 1, 0>}]}
    : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("node_4")
  %b1 = graph.exp %a1 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("node_5")
  %c1 = graph.add %c0, %b1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("node_6")
  %y = graph.tanh %c1 : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("last")
  return %y : tensor<4x8xf32>
}
