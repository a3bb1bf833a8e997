// Mean and variance of rows that ranks hold are those of the ranks' own rows, gathered together and
// combined. What is no such pair stays: another number than the count, squares about something else,
// rows that do not divide, gathers of more bytes.
// RUN: partita-opt %s --split-input-file --partita-shard="mode=data-parallel" --partita-insert-reshards --partita-combine-moments --partita-verify-planned | FileCheck %s
// RUN: partita-opt %s --split-input-file --partita-shard="mode=data-parallel" --partita-insert-reshards --partita-combine-moments=most-bytes=95 --partita-verify-planned | FileCheck %s --check-prefix=FEW
// RUN: partita-opt %s --split-input-file --partita-shard="mode=data-parallel" --partita-insert-reshards --partita-combine-moments --partita-check-spmd -o /dev/null

// CHECK-LABEL: func.func @main(%arg0: tensor<8x6x4xf32>
// CHECK: %[[GROUPS:.*]] = graph.reshape %arg0 {{.*}} : (tensor<8x6x4xf32>) -> tensor<2x4x6x4xf32>
// CHECK: %[[SUM:.*]] = graph.reduce %[[GROUPS]] {axes = array<i64: 1, 3>, {{.*}} -> tensor<2x1x6x1xf32>
// CHECK: %[[MEAN:.*]] = graph.div %[[SUM]],
// CHECK: graph.sub %[[GROUPS]], %[[MEAN]]
// CHECK: %[[SQUARES:.*]] = graph.reduce {{.*}} -> tensor<2x1x6x1xf32>
// CHECK-NEXT: %[[MEANS:.*]] = dist.reshard %[[MEAN]] to <#mesh, [{2}, {1}, {6}, {1}]>
// CHECK-NEXT: %[[SUMS:.*]] = dist.reshard %[[SQUARES]] to <#mesh, [{2}, {1}, {6}, {1}]>
// CHECK: graph.reduce %[[MEANS]] {axes = array<i64: 0>
// CHECK: graph.reduce %[[SUMS]] {axes = array<i64: 0>
// CHECK-NOT: dist.reshard
// CHECK: return

// FEW-LABEL: func.func @main(%arg0: tensor<8x6x4xf32>
// FEW-NOT: graph.reshape
// FEW: dist.reshard %{{.*}} to <#mesh, [{1}, {6}, {1}]>
// FEW: dist.reshard %{{.*}} to <#mesh, [{1}, {6}, {1}]>
#mesh = #dist.mesh<dp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<8x6x4xf32> {graph.name = "x", graph.batch}) -> (tensor<8x6x4xf32> {graph.name = "y"}, tensor<1x6x1xf32> {graph.name = "v"}) {
    %n = graph.constant dense<3.200000e+01> : tensor<f32>
    %s = graph.reduce %x {axes = array<i64: 0, 2>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<8x6x4xf32>) -> tensor<1x6x1xf32>
    %m = graph.div %s, %n : (tensor<1x6x1xf32>, tensor<f32>) -> tensor<1x6x1xf32>
    %d = graph.sub %x, %m : (tensor<8x6x4xf32>, tensor<1x6x1xf32>) -> tensor<8x6x4xf32>
    %q = graph.mul %d, %d : (tensor<8x6x4xf32>, tensor<8x6x4xf32>) -> tensor<8x6x4xf32>
    %t = graph.reduce %q {axes = array<i64: 0, 2>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<8x6x4xf32>) -> tensor<1x6x1xf32>
    %v = graph.div %t, %n : (tensor<1x6x1xf32>, tensor<f32>) -> tensor<1x6x1xf32>
    %y = graph.div %d, %v : (tensor<8x6x4xf32>, tensor<1x6x1xf32>) -> tensor<8x6x4xf32>
    return %y, %v : tensor<8x6x4xf32>, tensor<1x6x1xf32>
  }
}

// -----

// CHECK-LABEL: func.func @main(%arg0: tensor<7x6xf32>
// CHECK-NOT: graph.reshape
// CHECK: return
#mesh = #dist.mesh<dp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<7x6xf32> {graph.name = "x", graph.batch}) -> (tensor<7x6xf32> {graph.name = "y"}, tensor<1x6xf32> {graph.name = "v"}) {
    %n = graph.constant dense<7.000000e+00> : tensor<f32>
    %s = graph.reduce %x {axes = array<i64: 0>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<7x6xf32>) -> tensor<1x6xf32>
    %m = graph.div %s, %n : (tensor<1x6xf32>, tensor<f32>) -> tensor<1x6xf32>
    %d = graph.sub %x, %m : (tensor<7x6xf32>, tensor<1x6xf32>) -> tensor<7x6xf32>
    %q = graph.mul %d, %d : (tensor<7x6xf32>, tensor<7x6xf32>) -> tensor<7x6xf32>
    %t = graph.reduce %q {axes = array<i64: 0>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<7x6xf32>) -> tensor<1x6xf32>
    %v = graph.div %t, %n : (tensor<1x6xf32>, tensor<f32>) -> tensor<1x6xf32>
    %y = graph.div %d, %v : (tensor<7x6xf32>, tensor<1x6xf32>) -> tensor<7x6xf32>
    return %y, %v : tensor<7x6xf32>, tensor<1x6xf32>
  }
}

// -----

// The variance of a sample divides by one less: that is no mean of squares.
// CHECK-LABEL: func.func @main(%arg0: tensor<8x6xf32>
// CHECK-NOT: graph.reshape
// CHECK: return
#mesh = #dist.mesh<dp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<8x6xf32> {graph.name = "x", graph.batch}) -> (tensor<8x6xf32> {graph.name = "y"}, tensor<1x6xf32> {graph.name = "v"}) {
    %n = graph.constant dense<8.000000e+00> : tensor<f32>
    %less = graph.constant dense<7.000000e+00> : tensor<f32>
    %s = graph.reduce %x {axes = array<i64: 0>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<8x6xf32>) -> tensor<1x6xf32>
    %m = graph.div %s, %n : (tensor<1x6xf32>, tensor<f32>) -> tensor<1x6xf32>
    %d = graph.sub %x, %m : (tensor<8x6xf32>, tensor<1x6xf32>) -> tensor<8x6xf32>
    %q = graph.mul %d, %d : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
    %t = graph.reduce %q {axes = array<i64: 0>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<8x6xf32>) -> tensor<1x6xf32>
    %v = graph.div %t, %less : (tensor<1x6xf32>, tensor<f32>) -> tensor<1x6xf32>
    %y = graph.div %d, %v : (tensor<8x6xf32>, tensor<1x6xf32>) -> tensor<8x6xf32>
    return %y, %v : tensor<8x6xf32>, tensor<1x6xf32>
  }
}

// -----

// Squares about a mean of another tensor.
// CHECK-LABEL: func.func @main(%arg0: tensor<8x6xf32>
// CHECK-NOT: graph.reshape
// CHECK: return
#mesh = #dist.mesh<dp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<8x6xf32> {graph.name = "x", graph.batch}, %z: tensor<8x6xf32> {graph.name = "z", graph.batch}) -> (tensor<8x6xf32> {graph.name = "y"}, tensor<1x6xf32> {graph.name = "v"}) {
    %n = graph.constant dense<8.000000e+00> : tensor<f32>
    %s = graph.reduce %z {axes = array<i64: 0>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<8x6xf32>) -> tensor<1x6xf32>
    %m = graph.div %s, %n : (tensor<1x6xf32>, tensor<f32>) -> tensor<1x6xf32>
    %d = graph.sub %x, %m : (tensor<8x6xf32>, tensor<1x6xf32>) -> tensor<8x6xf32>
    %q = graph.mul %d, %d : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
    %t = graph.reduce %q {axes = array<i64: 0>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<8x6xf32>) -> tensor<1x6xf32>
    %v = graph.div %t, %n : (tensor<1x6xf32>, tensor<f32>) -> tensor<1x6xf32>
    %y = graph.div %d, %v : (tensor<8x6xf32>, tensor<1x6xf32>) -> tensor<8x6xf32>
    return %y, %v : tensor<8x6xf32>, tensor<1x6xf32>
  }
}
