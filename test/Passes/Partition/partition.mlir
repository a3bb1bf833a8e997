// Global becomes local: weights are read in slices, a split reduction ends in one
// all-reduce behind the bias, uneven rows are padded and masked where they are summed.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @row
  // CHECK-SAME: (%[[X:.*]]: tensor<4x4xf32> {dist.layout = #dist.layout<#mesh, [{4}, {8: tp}]>})
  func.func @row(%x: tensor<4x8xf32> {dist.layout = #dist.layout<#mesh, [{4}, {8: tp}]>}) -> tensor<4x6xf32> {
    // CHECK: graph.weight "w" {dist.layout = #dist.layout<#mesh, [{8: tp}, {6}]>} : tensor<4x6xf32>
    %w = graph.weight "w" : tensor<8x6xf32>
    // CHECK: %[[B:.*]] = graph.weight "b"
    %b = graph.weight "b" : tensor<6xf32>
    // The bias counts once.
    // CHECK: %[[ONCE:.*]] = comm.to_partial %[[B]]
    // CHECK: %[[Y:.*]] = graph.contract %[[X]]
    %y = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: tp}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    // CHECK: %[[SUM:.*]] = graph.add %[[Y]], %[[ONCE]]
    %z = graph.add %y, %b {dist.strategy = #dist.strategy<#mesh, {} pass sum(0, 1) {tp}>} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    // CHECK: %[[R:.*]] = comm.all_reduce %[[SUM]] from <#mesh, [{4}, {6}] partial sum {tp}> to <#mesh, [{4}, {6}]>
    // CHECK: return %[[R]]
    return %z : tensor<4x6xf32>
  }
}

// -----

#mesh = #dist.mesh<dp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @uneven
  // CHECK-SAME: tensor<3x2xf32>
  func.func @uneven(%x: tensor<5x2xf32> {dist.layout = #dist.layout<#mesh, [{5/6: dp}, {2}]>}) -> tensor<2xf32> {
    // CHECK: %[[M:.*]] = comm.mask %{{.*}} dims [0] with <max>
    // CHECK: graph.reduce %[[M]]
    // CHECK: comm.all_reduce {{.*}}partial max
    %0 = graph.reduce %x {kind = #graph.reduce<max>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: dp}}>} : (tensor<5x2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // A fused projection is split inside each third and sliced without communication.
  // CHECK-LABEL: func.func @fused
  func.func @fused(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    // CHECK: graph.weight "qkv" {dist.layout = #dist.layout<#mesh, [{8}, {3}*{8: tp}]>} : tensor<8x12xf32>
    %w = graph.weight "qkv" : tensor<8x24xf32>
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {n: {3}*{8: tp}}>} : (tensor<4x8xf32>, tensor<8x24xf32>) -> tensor<4x24xf32>
    // CHECK-NOT: comm
    // CHECK: graph.slice %{{.*}}starts = array<i64: 0, 4>
    %1 = graph.slice %0 {starts = array<i64: 0, 8>, steps = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<4x24xf32>) -> tensor<4x8xf32>
    // CHECK: comm.all_gather
    return %1 : tensor<4x8xf32>
  }
}
