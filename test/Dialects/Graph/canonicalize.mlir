// Ops that change nothing fold, but not where they carry attributes of another dialect.
// RUN: partita-opt %s -canonicalize | FileCheck %s

// CHECK-LABEL: func.func @unchanged(
// CHECK-SAME: %[[X:.*]]: tensor<2x3xf32>
// CHECK-NEXT: return %[[X]]
func.func @unchanged(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %one = graph.constant dense<1.0> : tensor<3xf32>
  %0 = graph.reshape %x : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = graph.transpose %0 {permutation = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = graph.add %1, %zero : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %3 = graph.sub %2, %zero : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %4 = graph.mul %3, %one : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %5 = graph.div %4, %one : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %5 : tensor<2x3xf32>
}

// A neutral operand of a larger shape makes a larger result.
// CHECK-LABEL: func.func @larger(
// CHECK: graph.add
func.func @larger(%x: tensor<3xf32>) -> tensor<2x3xf32> {
  %zero = graph.constant dense<0.0> : tensor<2x3xf32>
  %0 = graph.add %x, %zero : (tensor<3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @changed(
// CHECK: graph.transpose
// CHECK: graph.add
// CHECK: graph.mul
func.func @changed(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %one = graph.constant dense<1.0> : tensor<f32>
  %0 = graph.transpose %x {permutation = array<i64: 1, 0>} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %1 = graph.add %0, %one : (tensor<3x3xf32>, tensor<f32>) -> tensor<3x3xf32>
  %2 = graph.mul %1, %zero : (tensor<3x3xf32>, tensor<f32>) -> tensor<3x3xf32>
  return %2 : tensor<3x3xf32>
}

// Planned: what a rank holds of two reshapes can have one type and yet be two things.
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @planned(
  // CHECK: graph.reshape
  func.func @planned(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = graph.reshape %x {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
