// Every kind of graph op parses, prints and parses again.
// RUN: partita-opt %s | partita-opt | FileCheck %s

// CHECK-LABEL: func.func @sources
func.func @sources() -> (tensor<2x3xf32>, tensor<8x8xf16>) {
  // CHECK: graph.weight "blocks.0.fc" : tensor<2x3xf32>
  %w = graph.weight "blocks.0.fc" : tensor<2x3xf32>
  // CHECK: graph.constant dense<1.000000e+00> : tensor<8x8xf16>
  %c = graph.constant dense<1.0> : tensor<8x8xf16>
  return %w, %c : tensor<2x3xf32>, tensor<8x8xf16>
}

// CHECK-LABEL: func.func @elementwise
func.func @elementwise(%x: tensor<2x3xf32>, %y: tensor<3xf32>, %c: tensor<2x1xi1>)
    -> (tensor<2x3xf32>, tensor<2x3xi1>, tensor<2x3xf16>) {
  // CHECK: graph.add %{{.*}}, %{{.*}} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %0 = graph.add %x, %y : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %1 = graph.where %c, %0, %y : (tensor<2x1xi1>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  // CHECK: graph.leaky_relu %{{.*}} {alpha = 2.000000e-01 : f64}
  %2 = graph.leaky_relu %1 {alpha = 0.2} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %3 = graph.less %2, %y : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xi1>
  // CHECK: graph.cast %{{.*}} {to = f16}
  %4 = graph.cast %2 {to = f16} : (tensor<2x3xf32>) -> tensor<2x3xf16>
  return %2, %3, %4 : tensor<2x3xf32>, tensor<2x3xi1>, tensor<2x3xf16>
}

// CHECK-LABEL: func.func @mixing
func.func @mixing(%x: tensor<2x12x64xf32>, %w: tensor<192x64xf32>, %s: tensor<192xf32>)
    -> tensor<2x12xf32> {
  // CHECK: graph.contract %{{.*}}, %{{.*}} {equation = #graph.equation<"b s k, n k -> b s n">}
  %0 = graph.contract %x, %w {equation = #graph.equation<"b s k, n k -> b s n">} : (tensor<2x12x64xf32>, tensor<192x64xf32>) -> tensor<2x12x192xf32>
  %1 = graph.rms_norm %0, %s {axis = -1 : i64, epsilon = 1.0e-5} : (tensor<2x12x192xf32>, tensor<192xf32>) -> tensor<2x12x192xf32>
  %2 = graph.softmax %1 {axis = 2 : i64} : (tensor<2x12x192xf32>) -> tensor<2x12x192xf32>
  // CHECK: graph.slice %{{.*}} {starts = array<i64: 0, 0, 64>, steps = array<i64: 1, 1, 1>}
  %3 = graph.slice %2 {starts = array<i64: 0, 0, 64>, steps = array<i64: 1, 1, 1>} : (tensor<2x12x192xf32>) -> tensor<2x12x64xf32>
  %4 = graph.reshape %3 : (tensor<2x12x64xf32>) -> tensor<24x64xf32>
  %5 = graph.reduce %4 {kind = #graph.reduce<max>, axes = array<i64: 1>} : (tensor<24x64xf32>) -> tensor<24xf32>
  %6 = graph.reshape %5 : (tensor<24xf32>) -> tensor<2x12xf32>
  return %6 : tensor<2x12xf32>
}

// CHECK-LABEL: func.func @filter_gradient
func.func @filter_gradient(%x: tensor<2x4x8x8xf32>, %g: tensor<2x6x4x4xf32>) -> tensor<6x2x3x3xf32> {
  // CHECK: graph.conv_backward_filter {{.*}}group = 2 : i64{{.*}} -> tensor<6x2x3x3xf32>
  %0 = graph.conv_backward_filter %x, %g {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, group = 2 : i64} : (tensor<2x4x8x8xf32>, tensor<2x6x4x4xf32>) -> tensor<6x2x3x3xf32>
  return %0 : tensor<6x2x3x3xf32>
}

// CHECK-LABEL: func.func @largest
func.func @largest(%x: tensor<2x4x9x8xf32>, %g: tensor<2x4x5x4xf32>) -> tensor<2x4x9x8xf32> {
  // A tap is as small as the window allows.
  // CHECK: graph.max_pool {{.*}} -> (tensor<2x4x5x4xf32>, tensor<2x4x5x4xi8>)
  // CHECK: graph.max_pool_backward {{.*}} -> tensor<2x4x9x8xf32>
  %0, %1 = graph.max_pool %x {window = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x4x9x8xf32>) -> (tensor<2x4x5x4xf32>, tensor<2x4x5x4xi8>)
  %2 = graph.max_pool_backward %g, %1 {window = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x4x5x4xf32>, tensor<2x4x5x4xi8>) -> tensor<2x4x9x8xf32>
  return %2 : tensor<2x4x9x8xf32>
}

// CHECK-LABEL: func.func @windows
func.func @windows(%x: tensor<1x4x8x8xf32>, %w: tensor<6x2x3x3xf32>) -> tensor<1x6x4x4xf32> {
  // CHECK: graph.conv {{.*}}group = 2 : i64
  %0 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, group = 2 : i64} : (tensor<1x4x8x8xf32>, tensor<6x2x3x3xf32>) -> tensor<1x6x8x8xf32>
  %1 = graph.pool %0 {kind = #graph.pool<average>, window = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>} : (tensor<1x6x8x8xf32>) -> tensor<1x6x4x4xf32>
  return %1 : tensor<1x6x4x4xf32>
}
