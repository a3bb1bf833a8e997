// Split spatial dims: convolutions and pools read window buffers and pad no more.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s
// RUN: sed 's/dist.mesh = #mesh/dist.mesh = #mesh, dist.no_all_to_all/' %s | partita-opt --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=OFF

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  // Two users of one window share its buffer; a point-wise convolution needs none.
  // CHECK-LABEL: func.func @shared
  func.func @shared(%x: tensor<1x8x8x8xf32> {dist.layout = #dist.layout<#mesh, [{1}, {8}, {8: sp}, {8}]>}) -> (tensor<1x4x8x8xf32> {dist.layout = #dist.layout<#mesh, [{1}, {4}, {8: sp}, {8}]>}, tensor<1x4x8x8xf32> {dist.layout = #dist.layout<#mesh, [{1}, {4}, {8: sp}, {8}]>}, tensor<1x4x8x8xf32> {dist.layout = #dist.layout<#mesh, [{1}, {4}, {8: sp}, {8}]>}) {
    %v = graph.weight "v" : tensor<4x8x3x3xf32>
    %w = graph.weight "w" : tensor<4x8x3x3xf32>
    %p = graph.weight "p" : tensor<4x8x1x1xf32>
    // CHECK: %[[H:.*]] = comm.halo %{{.*}} from <#mesh, [{1}, {8}, {8: sp}, {8}]> to <#dist.layout<#mesh, [{1}, {8}, {8: sp}, {8}]>, dim 2 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<1x8x4x8xf32>) -> tensor<1x8x6x8xf32>
    // CHECK-NOT: comm.halo
    // CHECK: graph.conv %[[H]], %{{.*}} {{.*}}pads = array<i64: 0, 1, 0, 1>
    %0 = graph.conv %x, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: sp}>} : (tensor<1x8x8x8xf32>, tensor<4x8x3x3xf32>) -> tensor<1x4x8x8xf32>
    // CHECK: graph.conv %[[H]], %{{.*}} {{.*}}pads = array<i64: 0, 1, 0, 1>
    %1 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: sp}>} : (tensor<1x8x8x8xf32>, tensor<4x8x3x3xf32>) -> tensor<1x4x8x8xf32>
    // CHECK: graph.conv %arg0
    %2 = graph.conv %x, %p {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dist.strategy = #dist.strategy<#mesh, {c: sp}>} : (tensor<1x8x8x8xf32>, tensor<4x8x1x1xf32>) -> tensor<1x4x8x8xf32>
    return %0, %1, %2 : tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>
  }
}

// -----

#mesh = #dist.mesh<h=2,w=2>
module attributes {dist.mesh = #mesh} {
  // Rows and columns; the corners are in the same buffer. Lowest stands around it.
  // CHECK-LABEL: func.func @corners
  func.func @corners(%x: tensor<1x2x8x6xf32> {dist.layout = #dist.layout<#mesh, [{1}, {2}, {8: h}, {6: w}]>}) -> (tensor<1x2x4x6xf32> {dist.layout = #dist.layout<#mesh, [{1}, {2}, {4: h}, {6: w}]>}) {
    // CHECK: comm.halo %{{.*}} from <#mesh, [{1}, {2}, {8: h}, {6: w}]> to <#dist.layout<#mesh, [{1}, {2}, {4: h}, {6: w}]>, dim 2 stride 2 kernel_extent 3 low 0, dim 3 stride 1 kernel_extent 3 low 1, fill max> : (tensor<1x2x4x3xf32>) -> tensor<1x2x5x5xf32>
    // CHECK: graph.pool {{.*}}pads = array<i64: 0, 0, 0, 0>
    %0 = graph.pool %x {kind = #graph.pool<max>, window = array<i64: 3, 3>, strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {b: h, c: w}>} : (tensor<1x2x8x6xf32>) -> tensor<1x2x4x6xf32>
    return %0 : tensor<1x2x4x6xf32>
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  // What lies in the pads does not count in an average: at the border 3 taps are 2.
  // CHECK-LABEL: func.func @average
  // OFF-LABEL: func.func @average
  func.func @average(%x: tensor<1x2x4xf32> {dist.layout = #dist.layout<#mesh, [{1}, {2: sp}, {4}]>}) -> (tensor<1x2x4xf32> {dist.layout = #dist.layout<#mesh, [{1}, {2}, {4: sp}]>}) {
    // Straight from another split; without exchanges the blocks move first.
    // CHECK: comm.halo %{{.*}} from <#mesh, [{1}, {2: sp}, {4}]>
    // OFF: comm.all_gather
    // OFF: comm.slice
    // OFF: comm.halo %{{.*}} from <#mesh, [{1}, {2}, {4: sp}]>
    // CHECK: graph.pool {{.*}}count_padding = true
    // CHECK: graph.constant {{.*}}dense<{{.*}}1.500000e+00{{.*}}1.000000e+00{{.*}}> : tensor<1x1x4xf32>
    // CHECK: comm.slice
    // CHECK: graph.mul
    %0 = graph.pool %x {kind = #graph.pool<average>, window = array<i64: 3>, strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {b: sp}>} : (tensor<1x2x4xf32>) -> tensor<1x2x4xf32>
    return %0 : tensor<1x2x4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2,sp=2>
module attributes {dist.mesh = #mesh} {
  // A partial sum is reduced once, for the windows of both users.
  // CHECK-LABEL: func.func @partial
  func.func @partial(%x: tensor<1x4x8xf32> {dist.layout = #dist.layout<#mesh, [{1}, {4: tp}, {8: sp}]>}) -> (tensor<1x2x8xf32> {dist.layout = #dist.layout<#mesh, [{1}, {2}, {8: sp}]>}, tensor<1x2x8xf32> {dist.layout = #dist.layout<#mesh, [{1}, {2}, {8: sp}]>}) {
    %w = graph.weight "w" : tensor<2x4x1xf32>
    %0 = graph.conv %x, %w {strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 0, 0>, dist.strategy = #dist.strategy<#mesh, {a: tp, c: sp}>} : (tensor<1x4x8xf32>, tensor<2x4x1xf32>) -> tensor<1x2x8xf32>
    // CHECK: %[[SUM:.*]] = comm.all_reduce
    // CHECK-NOT: comm.all_reduce
    // CHECK: comm.halo %[[SUM]] {{.*}}kernel_extent 3
    // CHECK: comm.halo %[[SUM]] {{.*}}kernel_extent 5
    %1 = graph.pool %0 {kind = #graph.pool<max>, window = array<i64: 3>, strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {b: sp}>} : (tensor<1x2x8xf32>) -> tensor<1x2x8xf32>
    %2 = graph.pool %0 {kind = #graph.pool<max>, window = array<i64: 5>, strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 2, 2>, dist.strategy = #dist.strategy<#mesh, {b: sp}>} : (tensor<1x2x8xf32>) -> tensor<1x2x8xf32>
    return %1, %2 : tensor<1x2x8xf32>, tensor<1x2x8xf32>
  }
}
