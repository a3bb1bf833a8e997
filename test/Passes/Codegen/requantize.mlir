// What sums of products of bytes become is part of the convolution's call, up to a number
// that somebody else reads.
// RUN: partita-opt %s --partita-lower-kernels=print=1 | FileCheck %s
// RUN: partita-opt %s --partita-check-bundle -o /dev/null

// A sum per channel in i32, a cast to f32, a factor per channel, rounding, an addend, both
// limits, a cast to u8.
// CHECK: task conv {{.*}}dtype: 6, {{.*}} post: [ { kind: 5, {{[^{]*}}mask: 2 }, { kind: 9, {{[^{]*}} }, { kind: 7, {{[^{]*}}mask: 2 }, { kind: 8, {{[^{]*}} }, { kind: 4, alpha: 1.0, beta: 3.0, {{[^{]*}} }, { kind: 3, {{[^{]*}}beta: 255.0, {{[^{]*}} }, { kind: 10, {{[^{]*}} } ]
// CHECK-NOT: task kernel {{.*}}// graph.
// The second convolution's sums are read twice.
// CHECK: task conv {{.*}} post: [ { kind: 9,
// CHECK: task kernel {{.*}}// graph.mul
func.func @main(%x: tensor<1x5x6x7xui8>) -> (tensor<1x6x6x7xui8>, tensor<1x6x6x7xf32>, tensor<1x6x6x7xf32>) {
  %w = graph.weight "w" : tensor<6x5x3x3xi8>
  %p = graph.weight "p" : tensor<6x6x1x1xi8>
  %b = graph.weight "b" : tensor<6x1x1xi32>
  %f = graph.weight "f" : tensor<6x1x1xf32>
  %zero = graph.constant dense<0.0> : tensor<f32>
  %three = graph.constant dense<3.0> : tensor<f32>
  %most = graph.constant dense<255.0> : tensor<f32>
  %0 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, sums = i32} : (tensor<1x5x6x7xui8>, tensor<6x5x3x3xi8>) -> tensor<1x6x6x7xi32>
  %1 = graph.add %0, %b : (tensor<1x6x6x7xi32>, tensor<6x1x1xi32>) -> tensor<1x6x6x7xi32>
  %2 = graph.cast %1 {to = f32} : (tensor<1x6x6x7xi32>) -> tensor<1x6x6x7xf32>
  %3 = graph.mul %2, %f : (tensor<1x6x6x7xf32>, tensor<6x1x1xf32>) -> tensor<1x6x6x7xf32>
  %4 = graph.round %3 : (tensor<1x6x6x7xf32>) -> tensor<1x6x6x7xf32>
  %5 = graph.add %4, %three : (tensor<1x6x6x7xf32>, tensor<f32>) -> tensor<1x6x6x7xf32>
  %6 = graph.max %5, %zero : (tensor<1x6x6x7xf32>, tensor<f32>) -> tensor<1x6x6x7xf32>
  %7 = graph.min %6, %most : (tensor<1x6x6x7xf32>, tensor<f32>) -> tensor<1x6x6x7xf32>
  %8 = graph.cast %7 {to = ui8} : (tensor<1x6x6x7xf32>) -> tensor<1x6x6x7xui8>
  %9 = graph.conv %8, %p {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, sums = i32} : (tensor<1x6x6x7xui8>, tensor<6x6x1x1xi8>) -> tensor<1x6x6x7xi32>
  %10 = graph.cast %9 {to = f32} : (tensor<1x6x6x7xi32>) -> tensor<1x6x6x7xf32>
  %11 = graph.mul %10, %f : (tensor<1x6x6x7xf32>, tensor<6x1x1xf32>) -> tensor<1x6x6x7xf32>
  return %8, %10, %11 : tensor<1x6x6x7xui8>, tensor<1x6x6x7xf32>, tensor<1x6x6x7xf32>
}
