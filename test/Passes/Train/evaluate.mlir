// The loss alone, of rows that count; states are only read.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-evaluate=spec=%t/classes.json --partita-simplify -o %t/evaluated.mlir
// RUN: FileCheck %s --input-file %t/evaluated.mlir
// Split, the program gives what it gives whole.
// RUN: partita-opt %t/model.mlir --partita-evaluate=spec=%t/numbers.json --partita-simplify -o %t/numbers.mlir
// RUN: partita-opt %t/numbers.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned
// RUN: FileCheck %s --check-prefix=NUMBERS --input-file %t/numbers.mlir
// RUN: partita-opt %t/scalar.mlir --partita-evaluate=spec=%t/output.json --partita-simplify | FileCheck %s --check-prefix=OUTPUT
// RUN: partita-opt %t/half.mlir --partita-evaluate=spec=%t/numbers.json --partita-simplify | FileCheck %s --check-prefix=HALF
// RUN: not partita-opt %t/taken.mlir --partita-evaluate=spec=%t/numbers.json 2>&1 | FileCheck %s --check-prefix=TAKEN
// RUN: not partita-opt %t/model.mlir --partita-evaluate=spec=%t/step.json 2>&1 | FileCheck %s --check-prefix=STEP

// CHECK: func.func @main(
// CHECK-SAME: tensor<4x3xf32> {graph.batch, graph.name = "x"}
// CHECK-SAME: %[[LABELS:[a-z0-9]+]]: tensor<4xi64> {graph.batch, graph.name = "labels"}
// CHECK-SAME: %[[ROWS:[a-z0-9]+]]: tensor<4xf32> {graph.batch, graph.name = "row_weights"}
// CHECK-SAME: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">, graph.parameter = "w"}
// CHECK-SAME: -> (tensor<f32> {graph.name = "loss"}, tensor<f32> {graph.name = "counted"})
// CHECK-NOT: graph.log_softmax
// CHECK-NOT: dist.phase
// CHECK: graph.equal
// CHECK: return %{{.*}}, %{{.*}} : tensor<f32>, tensor<f32>

// NUMBERS: func.func @main(
// NUMBERS-SAME: tensor<4x2xf32> {graph.batch, graph.name = "labels"}
// NUMBERS-SAME: -> (tensor<f32> {graph.name = "loss"}, tensor<f32> {graph.name = "counted"})

// OUTPUT: func.func @main(%{{[a-z0-9]+}}: tensor<4x3xf32> {graph.batch, graph.name = "x"}
// OUTPUT-SAME: tensor<3x2xf32> {dist.state
// OUTPUT-SAME: -> (tensor<f32> {graph.name = "loss"})

// Numbers of 16 bits cannot count many rows.
// HALF: tensor<4x2xf16> {graph.batch, graph.name = "labels"}
// HALF-SAME: -> (tensor<f32> {graph.name = "loss"}, tensor<f32> {graph.name = "counted"})

// TAKEN: error: loss: the input of "evaluate" is 'row_weights', which is an input of the model already
// STEP: error: "training_info" names a step that the model's file has, whose loss is not known

//--- classes.json
{"loss": {"kind": "softmax_cross_entropy", "of": "y", "labels": "labels", "ignore_index": -100},
 "optimizer": {"kind": "sgd"}}
//--- numbers.json
{"loss": {"kind": "mse", "of": "y", "labels": "labels"}, "optimizer": {"kind": "sgd"}}
//--- output.json
{"loss": {"output": "y"}, "optimizer": {"kind": "sgd"}}
//--- step.json
{"training_info": 0}

//--- model.mlir
func.func @main(%x: tensor<4x3xf32> {graph.name = "x"},
                %w: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4x2xf32> {graph.name = "y"}) {
  %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">} : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32> loc("fc")
  return %y : tensor<4x2xf32>
}

//--- scalar.mlir
func.func @main(%x: tensor<4x3xf32> {graph.name = "x"},
                %w: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<f32> {graph.name = "y"}) {
  %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> ">} : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<f32> loc("fc")
  return %y : tensor<f32>
}

//--- half.mlir
func.func @main(%x: tensor<4x3xf16> {graph.name = "x"},
                %w: tensor<3x2xf16> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4x2xf16> {graph.name = "y"}) {
  %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">} : (tensor<4x3xf16>, tensor<3x2xf16>) -> tensor<4x2xf16> loc("fc")
  return %y : tensor<4x2xf16>
}

//--- taken.mlir
func.func @main(%x: tensor<4x2xf32> {graph.name = "row_weights"},
                %w: tensor<2xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4x2xf32> {graph.name = "y"}) {
  %y = graph.mul %x, %w : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32> loc("fc")
  return %y : tensor<4x2xf32>
}
