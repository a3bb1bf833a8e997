// A residual that nobody reads later is where the sum goes: the engine adds to what it
// finds there. One that is read once more keeps its place.
// RUN: partita-opt %s --partita-lower-kernels=print=1 | FileCheck %s
// RUN: partita-opt %s --partita-check-bundle -o /dev/null

// CHECK: task conv (b{{[0-9]+}}, w{{[0-9]+}}, b[[X:[0-9]+]],
// CHECK: task conv (b[[X]], w{{[0-9]+}}, b[[INNER:[0-9]+]],
// CHECK: task conv (b[[INNER]], w{{[0-9]+}}, b[[X]],
// CHECK-SAME: post: [ { kind: 0, {{[^{]*}} } ], adds_to_result: true }
// Its result, which lies there, is read behind the next sum.
// CHECK: task conv (b[[X]], w{{[0-9]+}}, b[[Y:[0-9]+]],
// CHECK-SAME: post: [ { kind: 5, {{[^{]*}} mask: 14 } ] }
// An image that the convolution itself reads is no place for its result.
// CHECK: task conv (b[[Y]], w{{[0-9]+}}, b{{[0-9]+}},
// CHECK-SAME: post: [ { kind: 5, {{[^{]*}} mask: 14 } ] }
// CHECK-NOT: task conv
func.func @main(%image: tensor<1x8x6x6xf32>) -> (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) {
  %f0 = graph.weight "f0" : tensor<8x8x1x1xf32>
  %f1 = graph.weight "f1" : tensor<8x8x1x1xf32>
  %f2 = graph.weight "f2" : tensor<8x8x1x1xf32>
  %0 = graph.conv %image, %f0 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, group = 1 : i64} : (tensor<1x8x6x6xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x6x6xf32>
  %x = graph.relu %0 : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %1 = graph.conv %x, %f1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, group = 1 : i64} : (tensor<1x8x6x6xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x6x6xf32>
  %inner = graph.relu %1 : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %2 = graph.conv %inner, %f2 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, group = 1 : i64} : (tensor<1x8x6x6xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x6x6xf32>
  %3 = graph.add %2, %x : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %y = graph.relu %3 : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %4 = graph.conv %y, %f1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, group = 1 : i64} : (tensor<1x8x6x6xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x6x6xf32>
  %z = graph.add %4, %y : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %5 = graph.conv %z, %f2 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, group = 1 : i64} : (tensor<1x8x6x6xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x6x6xf32>
  %s = graph.add %5, %z : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %6 = graph.tanh %s : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %7 = graph.exp %y : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  return %6, %7 : tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>
}
