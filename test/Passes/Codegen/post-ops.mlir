// What engines apply themselves: bias, residual, cheap activations; nothing dearer.
// RUN: partita-opt %s --partita-lower-kernels=print=1 | FileCheck %s
// RUN: partita-opt %s --partita-check-bundle -o /dev/null

// One product with bias (operand 3), a tensor added and relu: 15 is binary-add over both
// dims, 0 relu.
// CHECK: task matmul (b0, w[[W:[0-9]+]], b{{[0-9]+}}, b[[BIAS:[0-9]+]], {{[-b0-9]+}}, b[[REST:[0-9]+]])
// CHECK-SAME: bias_mask: 1, b_packed: true, post: [ { kind: 5, {{.*}} mask: 3 }, { kind: 0, {{.*}} mask: 0 } ] }
// tanh is a kernel.
// CHECK: task kernel
// Two linear steps are one: 2·x + 1.
// CHECK: task conv {{.*}} post: [ { kind: 4, alpha: 2.0, beta: 1.0, mask: 0 } ] }
func.func @main(%x: tensor<5x8xf32>, %b: tensor<6xf32>, %r: tensor<5x6xf32>,
                %i: tensor<1x8x6x6xf32>)
    -> (tensor<5x6xf32>, tensor<1x8x6x6xf32>) {
  %w = graph.weight "w" : tensor<8x6xf32>
  %f = graph.weight "f" : tensor<8x1x3x3xf32>
  %y = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<5x8xf32>, tensor<8x6xf32>) -> tensor<5x6xf32>
  %s = graph.add %y, %b : (tensor<5x6xf32>, tensor<6xf32>) -> tensor<5x6xf32>
  %t = graph.add %r, %s : (tensor<5x6xf32>, tensor<5x6xf32>) -> tensor<5x6xf32>
  %u = graph.relu %t : (tensor<5x6xf32>) -> tensor<5x6xf32>
  %v = graph.tanh %u : (tensor<5x6xf32>) -> tensor<5x6xf32>
  %two = graph.constant dense<2.0> : tensor<f32>
  %one = graph.constant dense<1.0> : tensor<1xf32>
  %c = graph.conv %i, %f {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, group = 8 : i64} : (tensor<1x8x6x6xf32>, tensor<8x1x3x3xf32>) -> tensor<1x8x6x6xf32>
  %d = graph.mul %c, %two : (tensor<1x8x6x6xf32>, tensor<f32>) -> tensor<1x8x6x6xf32>
  %e = graph.add %d, %one : (tensor<1x8x6x6xf32>, tensor<1xf32>) -> tensor<1x8x6x6xf32>
  return %v, %e : tensor<5x6xf32>, tensor<1x8x6x6xf32>
}
