// Scalars, empty tensors, results that are arguments, constants or each other, a product with
// part of a weight.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-check-bundle="threads=2 work-per-part=1" -o /dev/null

func.func @empty(%x: tensor<0x4xf32>, %y: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<0x4xf32>, tensor<4xf32>) {
  %c = graph.concat %x, %y {axis = 0 : i64} : (tensor<0x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  %e = graph.exp %x : (tensor<0x4xf32>) -> tensor<0x4xf32>
  %r = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 0>} : (tensor<0x4xf32>) -> tensor<4xf32>
  return %c, %e, %r : tensor<3x4xf32>, tensor<0x4xf32>, tensor<4xf32>
}
func.func @scalar(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<1x1xf32>, tensor<f32>) {
  %e = graph.add %x, %y : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %r = graph.reshape %e : (tensor<f32>) -> tensor<1x1xf32>
  return %e, %r, %x : tensor<f32>, tensor<1x1xf32>, tensor<f32>
}
func.func @same(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xi64>, tensor<2xi64>) {
  %c = graph.constant dense<[3, 4]> : tensor<2xi64>
  %d = graph.constant dense<5> : tensor<2xi64>
  %e = graph.neg %x : (tensor<4xf32>) -> tensor<4xf32>
  return %e, %e, %c, %d : tensor<4xf32>, tensor<4xf32>, tensor<2xi64>, tensor<2xi64>
}
func.func @part(%x: tensor<3x4xf32>) -> tensor<3x128xf32> {
  %w = graph.weight "w" : tensor<8x128xf32>
  %s = graph.slice %w {starts = array<i64: 4, 0>, steps = array<i64: 1, 1>} : (tensor<8x128xf32>) -> tensor<4x128xf32>
  %y = graph.contract %x, %s {equation = #graph.equation<"m k, k n -> m n">} : (tensor<3x4xf32>, tensor<4x128xf32>) -> tensor<3x128xf32>
  return %y : tensor<3x128xf32>
}
