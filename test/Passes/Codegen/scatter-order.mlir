// Places in images that keep channels last are computed, and added to, in that order of
// memory: several channels at once, and those that fill no block one by one. Some places
// get several elements.
// RUN: partita-opt %s --partita-shard="mesh=dp=2 mode=data-parallel" --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-shard="mesh=dp=1 mode=data-parallel" --partita-check-bundle="threads=3 work-per-part=1" -o /dev/null
// RUN: partita-opt %s --partita-shard="mesh=dp=1 mode=data-parallel" --partita-insert-reshards --partita-partition --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s

// CHECK:      domain [2, 5, 6, 40]
// CHECK:      graph.max_pool
// CHECK:      store {{.*}} i8 strides [1200, 240, 40, 1]
// CHECK:      domain [2400]
// CHECK:      graph.cast
// CHECK:      domain [2, 40, 80] row dims 1
// CHECK:      #0 = f32 strides [3200, 1, 40]
// CHECK:      #1 = i64 view (2:1200) (40:1) (30:40)
// CHECK:      graph.scatter_elements
// CHECK-NEXT: store %1 to #3 f32 strides [3200, 1, 40]
func.func @main(%x: tensor<2x8x8x10xf32> {graph.name = "x"})
    -> (tensor<2x40xf32> {graph.name = "y"}) {
  %w = graph.weight "w" : tensor<40x8x1x1xf32>
  %image = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>} : (tensor<2x8x8x10xf32>, tensor<40x8x1x1xf32>) -> tensor<2x40x8x10xf32>
  %largest, %taps = graph.max_pool %image {window = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 2, 2>} : (tensor<2x40x8x10xf32>) -> (tensor<2x40x5x6xf32>, tensor<2x40x5x6xi8>)
  %zeros = graph.constant dense<0.0> : tensor<2x40x80xf32>
  %wide = graph.cast %taps {to = i64} : (tensor<2x40x5x6xi8>) -> tensor<2x40x5x6xi64>
  %places = graph.reshape %wide : (tensor<2x40x5x6xi64>) -> tensor<2x40x30xi64>
  %elements = graph.reshape %largest : (tensor<2x40x5x6xf32>) -> tensor<2x40x30xf32>
  %sums = graph.scatter_elements %zeros, %places, %elements {axis = 2 : i64, kind = #graph.reduce<sum>} : (tensor<2x40x80xf32>, tensor<2x40x30xi64>, tensor<2x40x30xf32>) -> tensor<2x40x80xf32>
  %two = graph.constant dense<2.0> : tensor<f32>
  %powers = graph.pow %sums, %two : (tensor<2x40x80xf32>, tensor<f32>) -> tensor<2x40x80xf32>
  %y = graph.reduce %powers {axes = array<i64: 2>, kind = #graph.reduce<sum>} : (tensor<2x40x80xf32>) -> tensor<2x40xf32>
  return %y : tensor<2x40xf32>
}
