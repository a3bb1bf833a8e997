// Rows across memory are summed several at once, in the order of memory: sums that do not need one another in
// one pass, squares around a mean with the sum that the mean is of. Rows that fill no block go one by one, and
// points that fill no block likewise.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-check-bundle="threads=3 work-per-part=1" -o /dev/null
// RUN: partita-opt %s --partita-lower-kernels=lower=1 | FileCheck %s

// A pass of all points but three, eight at once, one of the three, and the one that stores.
// CHECK-LABEL: llvm.func @kernel_0_body(
// CHECK-COUNT-2: llvm.sitofp
// CHECK-NOT:     llvm.sitofp
// CHECK-LABEL: llvm.func @kernel_0(
func.func @main(%x: tensor<83x80xf32>, %scale: tensor<1x80xf32>) -> (tensor<83x80xf32>, tensor<1x80xf32>) {
  %count = graph.constant dense<83.0> : tensor<f32>
  %small = graph.constant dense<1.0e-3> : tensor<f32>
  %sum = graph.reduce %x {keep_dims = true, axes = array<i64: 0>, kind = #graph.reduce<sum>} : (tensor<83x80xf32>) -> tensor<1x80xf32>
  %mean = graph.div %sum, %count : (tensor<1x80xf32>, tensor<f32>) -> tensor<1x80xf32>
  %offset = graph.sub %x, %mean : (tensor<83x80xf32>, tensor<1x80xf32>) -> tensor<83x80xf32>
  %square = graph.mul %offset, %offset : (tensor<83x80xf32>, tensor<83x80xf32>) -> tensor<83x80xf32>
  %squares = graph.reduce %square {keep_dims = true, axes = array<i64: 0>, kind = #graph.reduce<sum>} : (tensor<83x80xf32>) -> tensor<1x80xf32>
  %variance = graph.div %squares, %count : (tensor<1x80xf32>, tensor<f32>) -> tensor<1x80xf32>
  %more = graph.add %variance, %small : (tensor<1x80xf32>, tensor<f32>) -> tensor<1x80xf32>
  %deviation = graph.sqrt %more : (tensor<1x80xf32>) -> tensor<1x80xf32>
  %factor = graph.div %scale, %deviation : (tensor<1x80xf32>, tensor<1x80xf32>) -> tensor<1x80xf32>
  %y = graph.mul %offset, %factor : (tensor<83x80xf32>, tensor<1x80xf32>) -> tensor<83x80xf32>
  return %y, %variance : tensor<83x80xf32>, tensor<1x80xf32>
}

// More rows than a group has, and two sums in one pass: what is loaded for one is there for the other.
func.func @two(%x: tensor<7x2080xf32>, %y: tensor<7x2080xf32>) -> tensor<1x2080xf32> {
  %product = graph.mul %x, %y : (tensor<7x2080xf32>, tensor<7x2080xf32>) -> tensor<7x2080xf32>
  %a = graph.reduce %product {keep_dims = true, axes = array<i64: 0>, kind = #graph.reduce<sum>} : (tensor<7x2080xf32>) -> tensor<1x2080xf32>
  %b = graph.reduce %y {keep_dims = true, axes = array<i64: 0>, kind = #graph.reduce<max>} : (tensor<7x2080xf32>) -> tensor<1x2080xf32>
  %z = graph.sub %a, %b : (tensor<1x2080xf32>, tensor<1x2080xf32>) -> tensor<1x2080xf32>
  return %z : tensor<1x2080xf32>
}

// The gradient of a normalization: sums of which each point needs both.
func.func @gradient(%x: tensor<3x65x6x7xf32>, %dy: tensor<3x65x6x7xf32>, %mean: tensor<65x1x1xf32>, %inverse: tensor<65x1x1xf32>, %w: tensor<65x65x1x1xf32>)
    -> (tensor<3x65x6x7xf32>, tensor<1x65x1x1xf32>) {
  %image = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>} : (tensor<3x65x6x7xf32>, tensor<65x65x1x1xf32>) -> tensor<3x65x6x7xf32>
  %offset = graph.sub %image, %mean : (tensor<3x65x6x7xf32>, tensor<65x1x1xf32>) -> tensor<3x65x6x7xf32>
  %other = graph.conv %dy, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>} : (tensor<3x65x6x7xf32>, tensor<65x65x1x1xf32>) -> tensor<3x65x6x7xf32>
  %product = graph.mul %other, %offset : (tensor<3x65x6x7xf32>, tensor<3x65x6x7xf32>) -> tensor<3x65x6x7xf32>
  %a = graph.reduce %product {keep_dims = true, axes = array<i64: 0, 2, 3>, kind = #graph.reduce<sum>} : (tensor<3x65x6x7xf32>) -> tensor<1x65x1x1xf32>
  %b = graph.reduce %other {keep_dims = true, axes = array<i64: 0, 2, 3>, kind = #graph.reduce<sum>} : (tensor<3x65x6x7xf32>) -> tensor<1x65x1x1xf32>
  %first = graph.mul %a, %offset : (tensor<1x65x1x1xf32>, tensor<3x65x6x7xf32>) -> tensor<3x65x6x7xf32>
  %second = graph.max %first, %b : (tensor<3x65x6x7xf32>, tensor<1x65x1x1xf32>) -> tensor<3x65x6x7xf32>
  %dx = graph.mul %second, %inverse : (tensor<3x65x6x7xf32>, tensor<65x1x1xf32>) -> tensor<3x65x6x7xf32>
  return %dx, %a : tensor<3x65x6x7xf32>, tensor<1x65x1x1xf32>
}
