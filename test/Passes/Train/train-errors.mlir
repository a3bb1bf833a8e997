// What a specification asks and a model does not have; ops without a gradient.
// RUN: split-file %s %t
// RUN: not partita-opt %t/model.mlir --partita-train=spec=%t/output.json 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: not partita-opt %t/model.mlir --partita-train=spec=%t/labels.json 2>&1 | FileCheck %s --check-prefix=LABELS
// RUN: not partita-opt %t/model.mlir --partita-train=spec=%t/axis.json 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not partita-opt %t/model.mlir --partita-train=spec=%t/recompute.json --partita-mark-recompute=spec=%t/recompute.json 2>&1 | FileCheck %s --check-prefix=RECOMPUTE
// RUN: not partita-opt %t/model.mlir --partita-train=spec=%t/none.json 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not partita-opt %t/gradient.mlir --partita-train=spec=%t/mse.json 2>&1 | FileCheck %s --check-prefix=GRADIENT
// RUN: not partita-opt %t/weightless.mlir --partita-train=spec=%t/mse.json 2>&1 | FileCheck %s --check-prefix=WEIGHTLESS
// RUN: not partita-opt %t/phase.mlir --partita-verify-trained 2>&1 | FileCheck %s --check-prefix=PHASE
// RUN: not partita-opt %t/model.mlir --partita-verify-trained 2>&1 | FileCheck %s --check-prefix=STILL

// OUTPUT: error: loss: the model has no output 'z'; it has 'y'
// LABELS: error: loss: "labels" is 'x', which is an input of the model already
// AXIS: error: loss: output 'y' is [2, 3, 4]: "axis" must say which dim has the classes (-1: the last)
// RECOMPUTE: error: recompute: no node and no module is named 'fc7'
// NONE: error: {{.*}}none.json
// GRADIENT: error: node 'inner' (graph.gradient) has no gradient, and the loss depends on parameter 'w' through it
// WEIGHTLESS: error: no parameter trains
// PHASE: 'graph.exp' op is in phase forward and reads 'graph.sin' of phase update
// STILL: error: no state is updated: the program does not train

//--- output.json
{"loss": {"kind": "mse", "of": "z", "labels": "t"}, "optimizer": {"kind": "sgd"}}
//--- labels.json
{"loss": {"kind": "mse", "of": "y", "labels": "x"}, "optimizer": {"kind": "sgd"}}
//--- axis.json
{"loss": {"kind": "nll", "of": "y", "labels": "t"}, "optimizer": {"kind": "sgd"}}
//--- mse.json
{"loss": {"kind": "mse", "of": "y", "labels": "t"}, "optimizer": {"kind": "sgd"}}
//--- recompute.json
{"loss": {"kind": "mse", "of": "y", "labels": "t"}, "optimizer": {"kind": "sgd"}, "recompute": [{"nodes": "fc7"}]}

//--- model.mlir
func.func @main(%x: tensor<2x3x4xf32> {graph.name = "x"},
                %w: tensor<4xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<2x3x4xf32> {graph.name = "y"}) {
  %y = graph.mul %x, %w : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32> loc("fc")
  return %y : tensor<2x3x4xf32>
}

//--- gradient.mlir
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.mul %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32> {graph.name = "x"},
                %w: tensor<4xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4xf32> {graph.name = "y"}) {
  %y = graph.mul %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("fc")
  %z = graph.gradient @f(%y) : (tensor<4xf32>) -> tensor<4xf32> loc("inner")
  return %z : tensor<4xf32>
}

//--- weightless.mlir
func.func @main(%x: tensor<4xf32> {graph.name = "x"}) -> (tensor<4xf32> {graph.name = "y"}) {
  %y = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32> loc("exp")
  return %y : tensor<4xf32>
}

//--- phase.mlir
func.func @main(%x: tensor<4xf32> {graph.name = "x"},
                %w: tensor<4xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4xf32> {graph.name = "y"}, tensor<4xf32> {dist.state = #dist.state<"w">}) {
  %0 = graph.sin %w {dist.phase = #dist.phase<update>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = graph.exp %0 : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %0 : tensor<4xf32>, tensor<4xf32>
}
