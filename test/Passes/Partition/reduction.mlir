// Local reductions: the neutral element of the kind stands in the padding of a reduced dim,
// and one collective of that kind ends it; kept dims need neither.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @product
  // CHECK: %[[X:.*]] = comm.mask %{{.*}} dims [0] with <prod>
  // CHECK-NEXT: %[[P:.*]] = graph.reduce %[[X]] {{.*}}(tensor<3x4xf32>) -> tensor<4xf32>
  // CHECK-NEXT: comm.all_reduce %[[P]] from <#mesh, [{4}] partial prod {tp}>
  func.func @product(%x: tensor<5x4xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %x {kind = #graph.reduce<prod>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  // CHECK-LABEL: func.func @kept
  // CHECK-NOT: comm.mask
  // CHECK: graph.reduce {{.*}}(tensor<3x4xf32>) -> tensor<3xf32>
  // CHECK-NEXT: comm.all_gather
  func.func @kept(%x: tensor<5x4xf32>) -> tensor<5xf32> {
    %0 = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>) -> tensor<5xf32>
    return %0 : tensor<5xf32>
  }
  // CHECK-LABEL: func.func @scattered
  // CHECK: %[[P:.*]] = graph.reduce
  // CHECK-NEXT: comm.reduce_scatter %[[P]] from <#mesh, [{4}] partial sum {tp}> to <#mesh, [{4: tp}]>
  func.func @scattered(%x: tensor<8x4xf32>) -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4: tp}]>}) {
    %0 = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<8x4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
