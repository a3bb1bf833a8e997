// The gradient of a maximum is part of the kernel that reads it, in the order of memory, whichever that is: of windows that
// overlap, that leave elements out, of dilated and of many taps, of more windows than are written out.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-check-bundle="threads=3 work-per-part=1" -o /dev/null
// RUN: partita-opt %s --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s

// CHECK:      domain [2, 10, 12, 40]
// CHECK:      graph.max_pool_backward
// CHECK-NEXT: load
// CHECK-NEXT: graph.map
// CHECK-NEXT: store {{.*}} f32 strides [4800, 480, 40, 1]
func.func @main(%x: tensor<2x8x10x12xf32>, %w: tensor<40x8x1x1xf32>, %v: tensor<40x40x1x1xf32>) -> tensor<2x40x10x12xf32> {
  %image = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>} : (tensor<2x8x10x12xf32>, tensor<40x8x1x1xf32>) -> tensor<2x40x10x12xf32>
  %largest, %taps = graph.max_pool %image {window = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x40x10x12xf32>) -> (tensor<2x40x5x6xf32>, tensor<2x40x5x6xi8>)
  %g = graph.max_pool_backward %largest, %taps {window = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x40x5x6xf32>, tensor<2x40x5x6xi8>) -> tensor<2x40x10x12xf32>
  %relu = graph.map %g, %image {payload = #graph.payload<"select(y > 0, x, 0)">} : (tensor<2x40x10x12xf32>, tensor<2x40x10x12xf32>) -> tensor<2x40x10x12xf32>
  %y = graph.conv %relu, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>} : (tensor<2x40x10x12xf32>, tensor<40x40x1x1xf32>) -> tensor<2x40x10x12xf32>
  return %y : tensor<2x40x10x12xf32>
}

func.func @rows(%x: tensor<2x3x9x7xf32>) -> tensor<2x3x9x7xf32> {
  %largest, %taps = graph.max_pool %x {window = array<i64: 2, 3>, strides = array<i64: 3, 1>, dilations = array<i64: 1, 2>, pads = array<i64: 0, 2, 1, 1>} : (tensor<2x3x9x7xf32>) -> (tensor<2x3x3x6xf32>, tensor<2x3x3x6xi8>)
  %g = graph.max_pool_backward %largest, %taps {window = array<i64: 2, 3>, strides = array<i64: 3, 1>, dilations = array<i64: 1, 2>, pads = array<i64: 0, 2, 1, 1>} : (tensor<2x3x3x6xf32>, tensor<2x3x3x6xi8>) -> tensor<2x3x9x7xf32>
  return %g : tensor<2x3x9x7xf32>
}

func.func @many(%x: tensor<1x2x20x9xf32>) -> tensor<1x2x20x9xf32> {
  %largest, %taps = graph.max_pool %x {window = array<i64: 13, 10>, strides = array<i64: 1, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 3, 2, 6, 4>} : (tensor<1x2x20x9xf32>) -> (tensor<1x2x17x3xf32>, tensor<1x2x17x3xi32>)
  %g = graph.max_pool_backward %largest, %taps {window = array<i64: 13, 10>, strides = array<i64: 1, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 3, 2, 6, 4>} : (tensor<1x2x17x3xf32>, tensor<1x2x17x3xi32>) -> tensor<1x2x20x9xf32>
  return %g : tensor<1x2x20x9xf32>
}

// Negative pads are the places of a rank's block in a window buffer of another one.
func.func @cut(%g: tensor<1x2x4xf32>, %x: tensor<1x2x12xf16>) -> (tensor<1x2x5xf32>, tensor<1x2x12xf16>) {
  %one = graph.constant dense<1> : tensor<1x2x4xi8>
  %0 = graph.max_pool_backward %g, %one {window = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, pads = array<i64: -3, 0>} : (tensor<1x2x4xf32>, tensor<1x2x4xi8>) -> tensor<1x2x5xf32>
  %largest, %taps = graph.max_pool %x {window = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, pads = array<i64: 1, 1>} : (tensor<1x2x12xf16>) -> (tensor<1x2x6xf16>, tensor<1x2x6xi8>)
  %1 = graph.max_pool_backward %largest, %taps {window = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, pads = array<i64: 1, 1>} : (tensor<1x2x6xf16>, tensor<1x2x6xi8>) -> tensor<1x2x12xf16>
  return %0, %1 : tensor<1x2x5xf32>, tensor<1x2x12xf16>
}

// Taps as results.
func.func @taps(%x: tensor<1x2x12xf32>) -> (tensor<1x2x6xf32>, tensor<1x2x6xi8>) {
  %largest, %taps = graph.max_pool %x {window = array<i64: 3>, strides = array<i64: 2>, dilations = array<i64: 1>, pads = array<i64: 1, 1>} : (tensor<1x2x12xf32>) -> (tensor<1x2x6xf32>, tensor<1x2x6xi8>)
  return %largest, %taps : tensor<1x2x6xf32>, tensor<1x2x6xi8>
}
