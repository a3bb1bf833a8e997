// Transposes disappear into contractions, sums of parts into concatenations; what changes nothing goes.
// RUN: partita-opt %s --partita-simplify | FileCheck %s

// CHECK-LABEL: func.func @transposed_weight
func.func @transposed_weight(%x: tensor<4x8xf32>) -> tensor<4x6xf32> {
  // CHECK: %[[W:.*]] = graph.weight
  %w = graph.weight "w" : tensor<6x8xf32>
  // CHECK-NOT: graph.transpose
  %t = graph.transpose %w {permutation = array<i64: 1, 0>} : (tensor<6x8xf32>) -> tensor<8x6xf32>
  // CHECK: graph.contract %{{.*}}, %[[W]] {equation = #graph.equation<"m k, n k -> m n">, graph.operand_order = [array<i64>, array<i64: 1, 0>]}
  %y = graph.contract %x, %t {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  return %y : tensor<4x6xf32>
}

// CHECK-LABEL: func.func @nothing
func.func @nothing(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %one = graph.constant dense<1.0> : tensor<f32>
  %0 = graph.reshape %x : (tensor<4x8xf32>) -> tensor<32xf32>
  %1 = graph.reshape %0 : (tensor<32xf32>) -> tensor<4x8xf32>
  %2 = graph.add %1, %zero : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %3 = graph.mul %2, %one : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  // CHECK: return %arg0
  return %3 : tensor<4x8xf32>
}

// Reshapes of two nodes stay two: a hint for the second means the dims that it has. Two of
// one node are one.
// CHECK-LABEL: func.func @named
func.func @named(%x: tensor<4x6xf32>) -> tensor<3x8xf32> {
  // CHECK: graph.reshape {{.*}} -> tensor<6x4xf32>
  // CHECK-NEXT: graph.reshape %{{.*}} : (tensor<6x4xf32>) -> tensor<3x8xf32>
  // CHECK-NEXT: return
  %0 = graph.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32> loc("first")
  %1 = graph.reshape %0 : (tensor<24xf32>) -> tensor<6x4xf32> loc("first")
  %2 = graph.reshape %1 : (tensor<6x4xf32>) -> tensor<3x8xf32> loc("second")
  return %2 : tensor<3x8xf32>
}

// A pad of zeros in front of a convolution is part of its window; one of other values, of
// channels, or one that cuts, is not.
// CHECK-LABEL: func.func @causal
func.func @causal(%x: tensor<2x3x16xf32>, %w: tensor<4x3x3xf32>) -> tensor<2x4x16xf32> {
  %zero = graph.constant dense<0.0> : tensor<f32>
  // CHECK-NOT: graph.pad
  // CHECK: graph.conv %arg0, %arg1 {{.*}}pads = array<i64: 2, 0>
  %p = graph.pad %x, %zero {low = array<i64: 0, 0, 1>, high = array<i64: 0, 0, 0>} : (tensor<2x3x16xf32>, tensor<f32>) -> tensor<2x3x17xf32>
  %y = graph.conv %p, %w {strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 1, 0>} : (tensor<2x3x17xf32>, tensor<4x3x3xf32>) -> tensor<2x4x16xf32>
  return %y : tensor<2x4x16xf32>
}

// CHECK-LABEL: func.func @other_pads
func.func @other_pads(%x: tensor<2x3x16xf32>, %w: tensor<4x4x3xf32>) -> (tensor<2x4x15xf32>, tensor<2x4x15xf32>) {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %one = graph.constant dense<1.0> : tensor<f32>
  // CHECK: graph.pad
  %c = graph.pad %x, %zero {low = array<i64: 0, 0, 1>, high = array<i64: 0, 1, 0>} : (tensor<2x3x16xf32>, tensor<f32>) -> tensor<2x4x17xf32>
  %y = graph.conv %c, %w {strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 0, 0>} : (tensor<2x4x17xf32>, tensor<4x4x3xf32>) -> tensor<2x4x15xf32>
  // CHECK: graph.pad
  %d = graph.pad %x, %one {low = array<i64: 0, 0, 1>, high = array<i64: 0, 1, 0>} : (tensor<2x3x16xf32>, tensor<f32>) -> tensor<2x4x17xf32>
  %z = graph.conv %d, %w {strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 0, 0>} : (tensor<2x4x17xf32>, tensor<4x4x3xf32>) -> tensor<2x4x15xf32>
  return %y, %z : tensor<2x4x15xf32>, tensor<2x4x15xf32>
}

// Parts that zeros keep apart are joined if they fill a dim: in the order in which they lie.
// CHECK-LABEL: func.func @parts
func.func @parts(%q: tensor<2x3xf32>, %k: tensor<2x4xf32>, %v: tensor<2x1xf32>) -> tensor<2x8xf32> {
  %zero = graph.constant dense<0.0> : tensor<f32>
  // CHECK: %[[ALL:.*]] = graph.concat %arg0, %arg1, %arg2 {axis = 1 : i64}
  // CHECK: return %[[ALL]]
  %a = graph.pad %v, %zero {low = array<i64: 0, 7>, high = array<i64: 0, 0>} : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x8xf32>
  %b = graph.pad %k, %zero {low = array<i64: 0, 3>, high = array<i64: 0, 1>} : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  %c = graph.pad %q, %zero {low = array<i64: 0, 0>, high = array<i64: 0, 5>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x8xf32>
  %d = graph.add %a, %b : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %e = graph.add %d, %c : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %e : tensor<2x8xf32>
}

// Not with a hole, nor where they meet, nor where ones stand around them.
// CHECK-LABEL: func.func @no_parts
// CHECK-NOT: graph.concat
// CHECK: return
func.func @no_parts(%x: tensor<2x3xf32>) -> (tensor<2x8xf32>, tensor<2x5xf32>, tensor<2x6xf32>) {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %one = graph.constant dense<1.0> : tensor<f32>
  %a = graph.pad %x, %zero {low = array<i64: 0, 5>, high = array<i64: 0, 0>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x8xf32>
  %b = graph.pad %x, %zero {low = array<i64: 0, 0>, high = array<i64: 0, 5>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x8xf32>
  %hole = graph.add %a, %b : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %c = graph.pad %x, %zero {low = array<i64: 0, 2>, high = array<i64: 0, 0>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x5xf32>
  %d = graph.pad %x, %zero {low = array<i64: 0, 0>, high = array<i64: 0, 2>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x5xf32>
  %meet = graph.add %c, %d : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<2x5xf32>
  %e = graph.pad %x, %one {low = array<i64: 0, 3>, high = array<i64: 0, 0>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x6xf32>
  %f = graph.pad %x, %zero {low = array<i64: 0, 0>, high = array<i64: 0, 3>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x6xf32>
  %ones = graph.add %e, %f : (tensor<2x6xf32>, tensor<2x6xf32>) -> tensor<2x6xf32>
  return %hole, %meet, %ones : tensor<2x8xf32>, tensor<2x5xf32>, tensor<2x6xf32>
}
