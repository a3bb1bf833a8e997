// Trees that go down together: as many steps as the op says, of an odd number too, also where no node is a leaf that
// leads to itself; a sum over trees, what every row has, and rows of a tree by threads.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-check-bundle="threads=3 work-per-part=1" -o /dev/null
func.func @sum(%x: tensor<13x4xf32>, %s: tensor<9x15xf32>, %w: tensor<9x15x1xf32>) -> (tensor<13x1xf32>, tensor<13x1x5xf32>) {
  %f = graph.constant dense<[[0, 1, 2, 3, 0, 1, 2, 3, -1, -1, -1, -1, -1, -1, -1]]> : tensor<1x15xi32>
  %c = graph.constant dense<[[1, 3, 5, 7, 9, 11, 13, 7, 8, 9, 10, 11, 12, 13, 13]]> : tensor<1x15xi32>
  %fb = graph.broadcast %f : (tensor<1x15xi32>) -> tensor<9x15xi32>
  %cb = graph.broadcast %c : (tensor<1x15xi32>) -> tensor<9x15xi32>
  %y = graph.trees %x, %fb, %s, %cb, %w {depth = 3} : (tensor<13x4xf32>, tensor<9x15xi32>, tensor<9x15xf32>, tensor<9x15xi32>, tensor<9x15x1xf32>) -> tensor<9x13x1xf32>
  %sum = graph.reduce %y {axes = array<i64: 0>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<9x13x1xf32>) -> tensor<13x1xf32>
  %v = graph.constant dense<[[[1.0, 2.0, 3.0, 4.0, 5.0]]]> : tensor<1x1x5xf32>
  %r = graph.reshape %sum : (tensor<13x1xf32>) -> tensor<13x1x1xf32>
  %o = graph.mul %r, %v : (tensor<13x1x1xf32>, tensor<1x1x5xf32>) -> tensor<13x1x5xf32>
  return %sum, %o : tensor<13x1xf32>, tensor<13x1x5xf32>
}

func.func @each(%x: tensor<21x4xf32>, %s: tensor<2x15xf32>, %w: tensor<2x15x3xf32>) -> tensor<2x21x3xf32> {
  %f = graph.constant dense<[[0, 1, 2, 3, 0, 1, 2, 3, -1, -1, -1, -1, -1, -1, -1]]> : tensor<1x15xi32>
  %c = graph.constant dense<[[1, 3, 5, 7, 9, 11, 13, 7, 8, 9, 10, 11, 12, 13, 13]]> : tensor<1x15xi32>
  %fb = graph.broadcast %f : (tensor<1x15xi32>) -> tensor<2x15xi32>
  %cb = graph.broadcast %c : (tensor<1x15xi32>) -> tensor<2x15xi32>
  %y = graph.trees %x, %fb, %s, %cb, %w {depth = 4} : (tensor<21x4xf32>, tensor<2x15xi32>, tensor<2x15xf32>, tensor<2x15xi32>, tensor<2x15x3xf32>) -> tensor<2x21x3xf32>
  return %y : tensor<2x21x3xf32>
}
