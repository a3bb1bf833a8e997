// Scalars, empty tensors, results that are arguments, constants or each other.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null

func.func @empty(%x: tensor<0x4xf32>, %y: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<0x4xf32>, tensor<4xf32>) {
  %c = graph.concat %x, %y {axis = 0 : i64} : (tensor<0x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  %e = graph.exp %x : (tensor<0x4xf32>) -> tensor<0x4xf32>
  %r = graph.reduce %x {kind = "sum", axes = array<i64: 0>} : (tensor<0x4xf32>) -> tensor<4xf32>
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
