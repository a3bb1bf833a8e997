// What a rank holds of an image is made in the window buffer where it has one place on all
// ranks: the convolution writes from the second row on (192 bytes), and the halo fetches
// the others' rows. Behind a stride of 2 with 7 rows, 4 and 3, it has no such place.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-insert-reshards --partita-verify-planned --partita-partition --partita-verify-partitioned --partita-lower-kernels=print=1 -o /dev/null 2>&1 | FileCheck %s

// CHECK: task conv (b{{[0-9]+}}, w{{[0-9]+}}, [[BUFFER:b[0-9]+]]+192,
// CHECK-NEXT: task halo ([[BUFFER]]+192, [[BUFFER]])
// CHECK-NEXT: task conv ([[BUFFER]], w{{[0-9]+}}, [[ROWS:b[0-9]+]],
// CHECK-NEXT: task halo ([[ROWS]], [[OTHER:b[0-9]+]])
// CHECK-NEXT: task conv ([[OTHER]],
#mesh = #dist.mesh<h=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<1x8x14x6xf32> {dist.layout = #dist.layout<#mesh, [{1}, {8}, {14: h}, {6}]>}) -> tensor<1x8x7x6xf32> {
    %v = graph.weight "v" : tensor<8x8x1x1xf32>
    %w = graph.weight "w" : tensor<8x8x3x1xf32>
    %0 = graph.conv %x, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, group = 1 : i64, dist.strategy = #dist.strategy<#mesh, {c: h}>} : (tensor<1x8x14x6xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x14x6xf32>
    %1 = graph.conv %0, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 0, 1, 0>, group = 1 : i64, dist.strategy = #dist.strategy<#mesh, {c: h}>} : (tensor<1x8x14x6xf32>, tensor<8x8x3x1xf32>) -> tensor<1x8x14x6xf32>
    %2 = graph.conv %1, %w {strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 1, 0>, group = 1 : i64, dist.strategy = #dist.strategy<#mesh, {c: {7/8: h}}>} : (tensor<1x8x14x6xf32>, tensor<8x8x3x1xf32>) -> tensor<1x8x7x6xf32>
    return %2 : tensor<1x8x7x6xf32>
  }
}
