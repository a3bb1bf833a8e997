// Verifiers name the operand, dim and sizes that do not fit.
// RUN: partita-opt %s --split-input-file --verify-diagnostics

func.func @wide_taps(%g: tensor<1x2x4xf32>, %taps: tensor<1x2x4xi64>) {
  // expected-error@+1 {{has taps of 'i64', those of its windows are 'i8'}}
  %0 = graph.max_pool_backward %g, %taps {window = array<i64: 2>, strides = array<i64: 2>, dilations = array<i64: 1>, pads = array<i64: 0, 0>} : (tensor<1x2x4xf32>, tensor<1x2x4xi64>) -> tensor<1x2x8xf32>
  return
}

// -----

// expected-note@+2 {{operand 0, 'tensor<1x2x4xf32>', comes from here}}
// expected-note@+1 {{operand 1, 'tensor<1x2x4xi8>', comes from here}}
func.func @other_channels(%g: tensor<1x2x4xf32>, %taps: tensor<1x2x4xi8>) {
  // expected-error@+1 {{dim 1 of the cotangent has size 2, that of the result 3}}
  %0 = graph.max_pool_backward %g, %taps {window = array<i64: 2>, strides = array<i64: 2>, dilations = array<i64: 1>, pads = array<i64: 0, 0>} : (tensor<1x2x4xf32>, tensor<1x2x4xi8>) -> tensor<1x3x8xf32>
  return
}

// -----

// expected-note@+2 {{operand 0, 'tensor<1x2x4xf32>', comes from here}}
// expected-note@+1 {{operand 1, 'tensor<1x2x4xi8>', comes from here}}
func.func @short_window(%g: tensor<1x2x4xf32>, %taps: tensor<1x2x4xi8>) {
  // expected-error@+1 {{window, strides, dilations and pads do not fit a result of rank 3}}
  %0 = graph.max_pool_backward %g, %taps {window = array<i64: 2>, strides = array<i64: 2>, dilations = array<i64: 1>, pads = array<i64: 0>} : (tensor<1x2x4xf32>, tensor<1x2x4xi8>) -> tensor<1x2x8xf32>
  return
}

// -----

// expected-note@+2 {{operand 0, 'tensor<1x2x4xf32>', comes from here}}
// expected-note@+1 {{operand 1, 'tensor<1x2x4xi8>', comes from here}}
func.func @no_stride(%g: tensor<1x2x4xf32>, %taps: tensor<1x2x4xi8>) {
  // expected-error@+1 {{spatial dim 0 has a window, stride or dilation below 1}}
  %0 = graph.max_pool_backward %g, %taps {window = array<i64: 2>, strides = array<i64: 0>, dilations = array<i64: 1>, pads = array<i64: 0, 0>} : (tensor<1x2x4xf32>, tensor<1x2x4xi8>) -> tensor<1x2x8xf32>
  return
}

// -----

// expected-note@+2 {{operand 0, 'tensor<2x3xf32>', comes from here}}
// expected-note@+1 {{operand 1, 'tensor<2xf32>', comes from here}}
func.func @broadcast(%x: tensor<2x3xf32>, %y: tensor<2xf32>) {
  // expected-error@+1 {{operand 1 of shape [2] does not broadcast: dim 0 has size 2, another operand has 3}}
  %0 = graph.add %x, %y : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

// expected-note@+2 {{operand 0, 'tensor<2x3xf32>', comes from here}}
// expected-note@+1 {{operand 1, 'tensor<4x5xf32>', comes from here}}
func.func @contract(%x: tensor<2x3xf32>, %y: tensor<4x5xf32>) {
  // expected-error@+1 {{operand 1 dim 0 has size 4, expected 3}}
  %0 = graph.contract %x, %y {equation = #graph.equation<"m k, k n -> m n">} : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @equation(%x: tensor<2x3xf32>, %y: tensor<3x5xf32>) {
  // expected-error@+1 {{'m k), (k n -> m n' has a ')' without its '('}}
  %0 = graph.contract %x, %y {equation = #graph.equation<"m k), (k n -> m n">} : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @result(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{expected}}
  %0 = graph.relu %x : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @reshape(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{cannot reshape [2, 3] of 6 elements to [4] of 4}}
  %0 = graph.reshape %x : (tensor<2x3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @slice(%x: tensor<8xf32>) {
  // expected-error@+1 {{dim 0: elements 6 to 9 are not inside the size 8}}
  %0 = graph.slice %x {starts = array<i64: 6>, steps = array<i64: 1>} : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @kind(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected sum, max, min or prod, got mean}}
  %0 = graph.reduce %x {kind = #graph.reduce<mean>, axes = array<i64: 0>} : (tensor<8xf32>) -> tensor<f32>
  return
}

// -----

// expected-note@+2 {{operand 0, 'tensor<1x4x8x8xf32>', comes from here}}
// expected-note@+1 {{operand 1, 'tensor<6x3x3x3xf32>', comes from here}}
func.func @conv(%x: tensor<1x4x8x8xf32>, %w: tensor<6x3x3x3xf32>) {
  // expected-error@+1 {{the filter's channels do not fit 4 input channels in 1 groups}}
  %0 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<1x4x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<1x6x8x8xf32>
  return
}

// -----

// expected-note@+2 {{operand 0, 'tensor<2x4x8x8xf32>', comes from here}}
// expected-note@+1 {{operand 1, 'tensor<2x6x5x4xf32>', comes from here}}
func.func @filter_gradient(%x: tensor<2x4x8x8xf32>, %g: tensor<2x6x5x4xf32>) {
  // expected-error@+1 {{dim 2 of the cotangent has size 5, that of the convolution's result 4}}
  %0 = graph.conv_backward_filter %x, %g {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x4x8x8xf32>, tensor<2x6x5x4xf32>) -> tensor<6x4x3x3xf32>
  return
}

// -----

// expected-note@+2 {{operand 0, 'tensor<2x3xf32>', comes from here}}
// expected-note@+1 {{operand 1, 'tensor<3x3xf32>', comes from here}}
func.func @concat(%x: tensor<2x3xf32>, %y: tensor<3x3xf32>) {
  // expected-error@+1 {{operand 1 of shape [3, 3] does not fit operand 0 of shape [2, 3] outside axis 1}}
  %0 = graph.concat %x, %y {axis = 1 : i64} : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func private @two(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  return %x, %x : tensor<4xf32>, tensor<4xf32>
}
func.func @gradient_of_two(%x: tensor<4xf32>) {
  // expected-error@+1 {{differentiates one result, @two has 2}}
  %0 = graph.gradient @two(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func private @one(%x: tensor<4xf32>, %y: tensor<3xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func @gradient_type(%x: tensor<4xf32>, %y: tensor<3xf32>) {
  // expected-error@+1 {{result 1 is 'tensor<4xf32>', expected the type of operand 1, 'tensor<3xf32>'}}
  %0:2 = graph.gradient @one(%x, %y) : (tensor<4xf32>, tensor<3xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x3xui8>, %w: tensor<3x4xi8>) -> tensor<2x4xi32> {
  // expected-error @+1 {{multiplies 'ui8' by 'i8', and says no type of sums}}
  %y = "graph.contract"(%x, %w) {equation = #graph.equation<"m k, k n -> m n">} : (tensor<2x3xui8>, tensor<3x4xi8>) -> tensor<2x4xui8>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %w: tensor<3x4xi8>) -> tensor<2x4xi32> {
  // expected-error @+1 {{sums products of 8-bit integers in 'i32', and has an operand of 'f32'}}
  %y = "graph.contract"(%x, %w) {equation = #graph.equation<"m k, k n -> m n">, sums = i32} : (tensor<2x3xf32>, tensor<3x4xi8>) -> tensor<2x4xi32>
  return
}

// -----

func.func @f(%x: tensor<1x2x5x5xui8>, %w: tensor<3x2x3x3xi8>, %b: tensor<3xi32>) -> tensor<1x3x3x3xi32> {
  // expected-error @+1 {{sums products of 8-bit integers, and has a bias}}
  %y = "graph.conv"(%x, %w, %b) {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, sums = i32} : (tensor<1x2x5x5xui8>, tensor<3x2x3x3xi8>, tensor<3xi32>) -> tensor<1x3x3x3xi32>
  return
}

// -----

// expected-note@+3 {{operand 0, 'tensor<2x64xf32>', comes from here}}
// expected-note@+2 {{operand 1, 'tensor<5x3x16xui8>', comes from here}}
// expected-note@+1 {{operand 2, 'tensor<3x5xf32>', comes from here}}
func.func @f(%x: tensor<2x64xf32>, %w: tensor<5x3x16xui8>, %s: tensor<3x5xf32>) {
  // expected-error @+1 {{rows of 64 elements meet 3 blocks of 32}}
  %y = "graph.contract_blocks"(%x, %w, %s) {block = 32 : i64} : (tensor<2x64xf32>, tensor<5x3x16xui8>, tensor<3x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

// expected-note@+3 {{operand 0, 'tensor<2x64xf32>', comes from here}}
// expected-note@+2 {{operand 1, 'tensor<5x2x16xui8>', comes from here}}
// expected-note@+1 {{operand 2, 'tensor<5x2xf32>', comes from here}}
func.func @f(%x: tensor<2x64xf32>, %w: tensor<5x2x16xui8>, %s: tensor<5x2xf32>) {
  // expected-error @+1 {{scales of shape 5x2, expected is 2x5}}
  %y = "graph.contract_blocks"(%x, %w, %s) {block = 32 : i64} : (tensor<2x64xf32>, tensor<5x2x16xui8>, tensor<5x2xf32>) -> tensor<2x5xf32>
  return
}

// -----

// expected-note@+3 {{operand 0, 'tensor<2x64xf32>', comes from here}}
// expected-note@+2 {{operand 1, 'tensor<5x2x32xui8>', comes from here}}
// expected-note@+1 {{operand 2, 'tensor<2x5xf32>', comes from here}}
func.func @f(%x: tensor<2x64xf32>, %w: tensor<5x2x32xui8>, %s: tensor<2x5xf32>) {
  // expected-error @+1 {{a weight of shape 5x2x32 has no blocks of 32 numbers}}
  %y = "graph.contract_blocks"(%x, %w, %s) {block = 32 : i64} : (tensor<2x64xf32>, tensor<5x2x32xui8>, tensor<2x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

// expected-note@+3 {{operand 0, 'tensor<2x63xf32>', comes from here}}
// expected-note@+2 {{operand 1, 'tensor<5x9x3xui8>', comes from here}}
// expected-note@+1 {{operand 2, 'tensor<9x5xf32>', comes from here}}
func.func @f(%x: tensor<2x63xf32>, %w: tensor<5x9x3xui8>, %s: tensor<9x5xf32>) {
  // expected-error @+1 {{blocks have 7 numbers, expected is an even count}}
  %y = "graph.contract_blocks"(%x, %w, %s) {block = 7 : i64} : (tensor<2x63xf32>, tensor<5x9x3xui8>, tensor<9x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @f(%x: tensor<2x64xf32>, %w: tensor<5x2x16xi8>, %s: tensor<2x5xf32>) {
  // expected-error @+1 {{has a weight of 'i8', expected are bytes of ui8}}
  %y = "graph.contract_blocks"(%x, %w, %s) {block = 32 : i64} : (tensor<2x64xf32>, tensor<5x2x16xi8>, tensor<2x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @f(%x: tensor<2x64xf16>, %w: tensor<5x2x16xui8>, %s: tensor<2x5xf32>) {
  // expected-error @+1 {{multiplies f32 by numbers whose scales are f32}}
  %y = "graph.contract_blocks"(%x, %w, %s) {block = 32 : i64} : (tensor<2x64xf16>, tensor<5x2x16xui8>, tensor<2x5xf32>) -> tensor<2x5xf16>
  return
}

// -----

func.func @f(%x: tensor<2x64xf32>, %w: tensor<5x2x16xui8>, %s: tensor<2x5xf32>, %z: tensor<2x5xi32>) {
  // expected-error @+1 {{has zero points of 'i32', expected are ui8 or f32}}
  %y = "graph.contract_blocks"(%x, %w, %s, %z) {block = 32 : i64} : (tensor<2x64xf32>, tensor<5x2x16xui8>, tensor<2x5xf32>, tensor<2x5xi32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @f(%x: tensor<2x64xf32>, %w: tensor<5x2x16xui8>, %s: tensor<2x5xf32>) {
  // expected-error @+1 {{has accuracy_level 5, expected is 0 to 4}}
  %y = "graph.contract_blocks"(%x, %w, %s) {block = 32 : i64, accuracy_level = 5 : i64} : (tensor<2x64xf32>, tensor<5x2x16xui8>, tensor<2x5xf32>) -> tensor<2x5xf32>
  return
}
