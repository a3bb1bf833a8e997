// Squares around a mean whose own square no f32 holds: numbers near 2^65.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-check-bundle="threads=3 work-per-part=1" -o /dev/null
// RUN: partita-opt %s --partita-lower-kernels=lower=1 | FileCheck %s

// CHECK-LABEL: llvm.func @kernel_0_body(
// CHECK:       llvm.sitofp
func.func @main(%x: tensor<64x4xf32>, %w: tensor<4x80xf32>) -> (tensor<64x80xf32>, tensor<1x80xf32>) {
  %count = graph.constant dense<64.0> : tensor<f32>
  %scale = graph.constant dense<1.0e18> : tensor<f32>
  %large = graph.constant dense<36893488147419103232.0> : tensor<f32>
  %product = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<64x4xf32>, tensor<4x80xf32>) -> tensor<64x80xf32>
  %spread = graph.mul %product, %scale : (tensor<64x80xf32>, tensor<f32>) -> tensor<64x80xf32>
  %equal = graph.add %spread, %large : (tensor<64x80xf32>, tensor<f32>) -> tensor<64x80xf32>
  %sum = graph.reduce %equal {keep_dims = true, axes = array<i64: 0>, kind = #graph.reduce<sum>} : (tensor<64x80xf32>) -> tensor<1x80xf32>
  %mean = graph.div %sum, %count : (tensor<1x80xf32>, tensor<f32>) -> tensor<1x80xf32>
  %offset = graph.sub %equal, %mean : (tensor<64x80xf32>, tensor<1x80xf32>) -> tensor<64x80xf32>
  %square = graph.mul %offset, %offset : (tensor<64x80xf32>, tensor<64x80xf32>) -> tensor<64x80xf32>
  %squares = graph.reduce %square {keep_dims = true, axes = array<i64: 0>, kind = #graph.reduce<sum>} : (tensor<64x80xf32>) -> tensor<1x80xf32>
  %variance = graph.div %squares, %count : (tensor<1x80xf32>, tensor<f32>) -> tensor<1x80xf32>
  %y = graph.max %offset, %variance : (tensor<64x80xf32>, tensor<1x80xf32>) -> tensor<64x80xf32>
  return %y, %variance : tensor<64x80xf32>, tensor<1x80xf32>
}
