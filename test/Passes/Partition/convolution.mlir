// Local convolutions and pools: parts of the channels, groups, and rows of positions
// that read a window buffer and pad no more.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @channels
  // CHECK: graph.weight "w" {{.*}}tensor<6x2x3x3xf32>
  // CHECK-NEXT: %[[SUM:.*]] = graph.conv {{.*}} -> tensor<2x6x5x5xf32>
  // CHECK-NEXT: comm.all_reduce %[[SUM]]
  func.func @channels(%x: tensor<2x4x5x5xf32>) -> tensor<2x6x5x5xf32> {
    %w = graph.weight "w" : tensor<6x4x3x3xf32>
    %0 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x5x5xf32>
    return %0 : tensor<2x6x5x5xf32>
  }
  // CHECK-LABEL: func.func @groups
  // One group on each rank is no group any more.
  // CHECK: graph.weight "w" {dist.layout = #dist.layout<#mesh, [{6: tp}, {2}, {3}, {3}]>}
  // CHECK-NEXT: graph.conv
  // CHECK-NOT: group
  // CHECK-SAME: (tensor<2x2x5x5xf32>, tensor<3x2x3x3xf32>) -> tensor<2x3x5x5xf32>
  func.func @groups(%x: tensor<2x4x5x5xf32>) -> tensor<2x6x5x5xf32> {
    %w = graph.weight "w" : tensor<6x2x3x3xf32>
    %0 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, group = 2 : i64, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<2x4x5x5xf32>, tensor<6x2x3x3xf32>) -> tensor<2x6x5x5xf32>
    return %0 : tensor<2x6x5x5xf32>
  }
  // CHECK-LABEL: func.func @average
  // The buffer has its pads as elements: an average that counts them, corrected at the edges.
  // CHECK: %[[X:.*]] = comm.halo %arg0 {{.*}} -> tensor<2x4x6x4xf32>
  // CHECK-NEXT: %[[Y:.*]] = graph.pool %[[X]] {count_padding = true, {{.*}}pads = array<i64: 0, 0, 0, 0>
  // CHECK-NEXT: graph.constant {{.*}}1.500000e+00], [1.000000e+00]
  // CHECK-NEXT: %[[S:.*]] = comm.slice
  // CHECK-NEXT: graph.mul %[[Y]], %[[S]]
  func.func @average(%x: tensor<2x4x8x4xf32>) -> tensor<2x4x8x4xf32> {
    %0 = graph.pool %x {kind = #graph.pool<average>, window = array<i64: 3, 1>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 0, 1, 0>, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<2x4x8x4xf32>) -> tensor<2x4x8x4xf32>
    return %0 : tensor<2x4x8x4xf32>
  }
}
