// A gradient becomes the ops of its function and their derivatives; of a gradient too.
// RUN: split-file %s %t
// RUN: partita-opt %t/good.mlir --partita-expand-gradients --cse | FileCheck %s
// RUN: not partita-opt %t/none.mlir --partita-expand-gradients 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not partita-opt %t/good.mlir --partita-verify-imported 2>&1 | FileCheck %s --check-prefix=LEFT

// CHECK: func.func @main(%[[X:.*]]: tensor<4xf32>, %[[Z:.*]]: tensor<4xf32>)
// CHECK: %[[ONE:.*]] = graph.broadcast
// CHECK: %[[DX:.*]] = graph.mul %[[ONE]], %[[Z]]
// CHECK: %[[ZERO:.*]] = graph.constant dense<0
// CHECK: return %[[DX]], %[[ZERO]]
// CHECK-NOT: func.func private
// NONE: error: node 'g' (Gradient): it differentiates in a tensor of integers
// LEFT: error: 'graph.gradient' op runs nothing: --partita-expand-gradients replaces it

//--- good.mlir
func.func private @f(%x: tensor<4xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.mul %x, %z : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @df(%x: tensor<4xf32>, %z: tensor<4xf32>) -> tensor<4xf32> {
  %y = graph.gradient @f(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>, %z: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %dx = graph.gradient @f(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %ddx = graph.gradient @df(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %dx, %ddx : tensor<4xf32>, tensor<4xf32>
}

//--- none.mlir
func.func private @f(%x: tensor<4xi64>) -> tensor<4xf32> {
  %y = graph.cast %x {to = f32} : (tensor<4xi64>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @main(%x: tensor<4xi64>) -> tensor<4xi64> {
  %dx = graph.gradient @f(%x) : (tensor<4xi64>) -> tensor<4xi64> loc("g")
  return %dx : tensor<4xi64>
}
