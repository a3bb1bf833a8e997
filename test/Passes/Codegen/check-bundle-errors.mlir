// The check sees any difference, and says which element of which result.
// RUN: not partita-opt %s --partita-check-bundle="rtol=0 atol=0" 2>&1 | FileCheck %s
// RUN: partita-opt %s --partita-check-bundle

// CHECK: error: @rounded: result 0 of the compiled program differs: element {{[0-9]+}} is
func.func @rounded(%x: tensor<4x128xf32>) -> tensor<4xf32> {
  %0 = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 1>} : (tensor<4x128xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
