// Local contractions: rows and columns need nothing, the summed dim ends in a reduction, its
// padding is masked on both sides, for 0 times NaN is NaN.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @rows
  // CHECK: %[[X:.*]] = comm.slice %arg0 {{.*}} -> tensor<2x6xf32>
  // CHECK-NEXT: %[[Y:.*]] = graph.contract %[[X]], %arg1 {{.*}} -> tensor<2x8xf32>
  // CHECK-NEXT: comm.all_gather %[[Y]]
  func.func @rows(%x: tensor<4x6xf32>, %y: tensor<6x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.contract %x, %y {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {m: tp}>} : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
  // CHECK-LABEL: func.func @columns
  // CHECK: graph.weight "w" {dist.layout = #dist.layout<#mesh, [{6}, {8: tp}]>} : tensor<6x4xf32>
  // CHECK-NEXT: graph.contract %arg0, {{.*}} -> tensor<4x4xf32>
  // CHECK-NEXT: comm.all_gather
  func.func @columns(%x: tensor<4x6xf32>) -> tensor<4x8xf32> {
    %y = graph.weight "w" : tensor<6x8xf32>
    %0 = graph.contract %x, %y {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {n: tp}>} : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
  // CHECK-LABEL: func.func @uneven
  // CHECK: %[[W:.*]] = graph.weight "w"
  // CHECK-NEXT: %[[X0:.*]] = comm.mask %{{.*}} dims [1] with <sum> in <#mesh, [{4}, {7/8: tp}]>
  // CHECK-NEXT: %[[W0:.*]] = comm.mask %[[W]] dims [0] with <sum> in <#mesh, [{7/8: tp}, {8}]>
  // CHECK-NEXT: %[[SUM:.*]] = graph.contract %[[X0]], %[[W0]] {{.*}}(tensor<4x4xf32>, tensor<4x8xf32>)
  // CHECK-NEXT: comm.all_reduce %[[SUM]] from <#mesh, [{4}, {8}] partial sum {tp}>
  func.func @uneven(%x: tensor<4x7xf32>) -> tensor<4x8xf32> {
    %y = graph.weight "w" : tensor<7x8xf32>
    %0 = graph.contract %x, %y {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: {7/8: tp}}>} : (tensor<4x7xf32>, tensor<7x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
