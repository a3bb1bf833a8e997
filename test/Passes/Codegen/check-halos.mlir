// Convolutions and pools with split spatial dims, compiled and run on threads, equal the
// evaluator: images row-major and channels-last, blocks of different sizes, a window over
// several blocks, rows and columns, half precision, a window on the function's result.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-check-bundle="threads=2 work-per-part=1" -o /dev/null
// RUN: partita-opt %s --partita-insert-reshards --partita-verify-planned --partita-partition --partita-verify-partitioned --partita-lower-kernels=print=1 -o /dev/null 2>&1 | FileCheck %s

#mesh = #dist.mesh<h=3,w=2>
module attributes {dist.mesh = #mesh} {
  // Images stay channels-last between the convolutions: no copy around the second halo.
  // CHECK: task halo
  // CHECK-NEXT: task conv
  // CHECK-NEXT: task halo {{.*}} from [{1}, {13/15: h}, {10: w}, {8}] to [{1}, {7/9: h}, {5/6: w}, {8}]
  // CHECK-NEXT: task conv
  func.func @main(%x: tensor<1x3x13x10xf32> {dist.layout = #dist.layout<#mesh, [{1}, {3}, {13/15: h}, {10: w}]>}) -> tensor<1x8x7x5xf32> {
    %v = graph.weight "v" : tensor<8x3x3x3xf32>
    %w = graph.weight "w" : tensor<8x8x3x3xf32>
    %0 = graph.conv %x, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: {13/15: h}, e: w}>} : (tensor<1x3x13x10xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x13x10xf32>
    %1 = graph.conv %0, %w {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: {7/9: h}, e: {5/6: w}}>} : (tensor<1x8x13x10xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x7x5xf32>
    return %1 : tensor<1x8x7x5xf32>
  }
  func.func @reach(%x: tensor<2x4x9xf32>) -> (tensor<2x6x9xf32> {dist.layout = #dist.layout<#mesh, [{2}, {6}, {9/12: h, w}]>}) {
    %w = graph.weight "u" : tensor<6x4x7xf32>
    %0 = graph.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 2, 4>, dist.strategy = #dist.strategy<#mesh, {d: {9/12: h, w}}>} : (tensor<2x4x9xf32>, tensor<6x4x7xf32>) -> tensor<2x6x9xf32>
    return %0 : tensor<2x6x9xf32>
  }
  func.func @pools(%x: tensor<2x5x9x8xf32> {dist.layout = #dist.layout<#mesh, [{2}, {5}, {9: h}, {8: w}]>}) -> (tensor<2x5x5x8xf32>, tensor<2x5x5x8xf32>, tensor<2x5x5x8xf32>) {
    %0 = graph.pool %x {kind = #graph.pool<max>, window = array<i64: 3, 3>, strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: {5/6: h}, d: w}>} : (tensor<2x5x9x8xf32>) -> tensor<2x5x5x8xf32>
    %1 = graph.pool %x {kind = #graph.pool<average>, window = array<i64: 3, 3>, strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: {5/6: h}, d: w}>} : (tensor<2x5x9x8xf32>) -> tensor<2x5x5x8xf32>
    %2 = graph.pool %x {kind = #graph.pool<average>, window = array<i64: 3, 3>, strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, count_padding = true, dist.strategy = #dist.strategy<#mesh, {c: {5/6: h}}>} : (tensor<2x5x9x8xf32>) -> tensor<2x5x5x8xf32>
    return %0, %1, %2 : tensor<2x5x5x8xf32>, tensor<2x5x5x8xf32>, tensor<2x5x5x8xf32>
  }
  // Channels and rows: a partial sum behind the windows, with the bias counted once.
  func.func @channels(%x: tensor<1x6x8xf32> {dist.layout = #dist.layout<#mesh, [{1}, {6: w}, {8/9: h}]>}) -> tensor<1x4x8xf32> {
    %w = graph.weight "t" : tensor<4x6x3xf32>
    %b = graph.weight "b" : tensor<4xf32>
    %0 = graph.conv %x, %w, %b {strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {a: w, c: {8/9: h}}>} : (tensor<1x6x8xf32>, tensor<4x6x3xf32>, tensor<4xf32>) -> tensor<1x4x8xf32>
    return %0 : tensor<1x4x8xf32>
  }
  // The gradient of a filter sums over rows: the input is a window buffer, the cotangent
  // its block, whose padding is zero; the result is a sum over the ranks.
  func.func @filter(%x: tensor<2x3x13x6xf32> {dist.layout = #dist.layout<#mesh, [{2}, {3}, {13/15: h}, {6}]>}, %g: tensor<2x4x7x6xf32> {dist.layout = #dist.layout<#mesh, [{2}, {4}, {7/9: h}, {6}]>}) -> tensor<4x3x3x3xf32> {
    %0 = graph.conv_backward_filter %x, %g {strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {a: w, d: {7/9: h}}>} : (tensor<2x3x13x6xf32>, tensor<2x4x7x6xf32>) -> tensor<4x3x3x3xf32>
    return %0 : tensor<4x3x3x3xf32>
  }
  // A transposed convolution in groups of two rows, whose window reaches into both blocks.
  func.func @transposed(%x: tensor<1x4x7x5xf32> {dist.layout = #dist.layout<#mesh, [{1}, {4}, {7/9: h}, {5}]>}) -> tensor<1x3x14x5xf32> {
    %w = graph.weight "r" : tensor<4x3x3x3xf32>
    %0 = graph.conv_transpose %x, %w {strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, output_padding = array<i64: 1, 0>, dist.strategy = #dist.strategy<#mesh, {c: {7/9: h}}>} : (tensor<1x4x7x5xf32>, tensor<4x3x3x3xf32>) -> tensor<1x3x14x5xf32>
    return %0 : tensor<1x3x14x5xf32>
  }
  // Both operands are read through windows of one place.
  func.func @largest(%g: tensor<1x4x7x5xf32> {dist.layout = #dist.layout<#mesh, [{1}, {4}, {7/9: h}, {5}]>}, %x: tensor<1x4x14x5xf32>) -> tensor<1x4x14x5xf32> {
    %0, %taps = graph.max_pool %x {window = array<i64: 3, 3>, strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<1x4x14x5xf32>) -> (tensor<1x4x7x5xf32>, tensor<1x4x7x5xi8>)
    %1 = graph.max_pool_backward %g, %taps {window = array<i64: 3, 3>, strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {b: {7/9: h}}>} : (tensor<1x4x7x5xf32>, tensor<1x4x7x5xi8>) -> tensor<1x4x14x5xf32>
    return %1 : tensor<1x4x14x5xf32>
  }
  func.func @half(%x: tensor<1x4x9x6xf16> {dist.layout = #dist.layout<#mesh, [{1}, {4}, {9: h}, {6}]>}) -> tensor<1x8x9x6xf16> {
    %w = graph.weight "s" : tensor<8x4x3x3xf16>
    %0 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: h, e: w}>} : (tensor<1x4x9x6xf16>, tensor<8x4x3x3xf16>) -> tensor<1x8x9x6xf16>
    return %0 : tensor<1x8x9x6xf16>
  }
}
