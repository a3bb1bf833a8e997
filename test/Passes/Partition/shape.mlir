// Local ops that move elements: sizes and offsets of one rank, in each part of a dim that is
// split inside.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @thirds
  // CHECK-SAME: tensor<4x12xf32>
  // CHECK-NEXT: graph.slice %arg0 {{.*}}starts = array<i64: 0, 8>{{.*}} -> tensor<4x4xf32>
  // CHECK-NEXT: return
  func.func @thirds(%x: tensor<4x24xf32> {dist.layout = #dist.layout<#mesh, [{4}, {3}*{8: tp}]>}) -> (tensor<4x8xf32> {dist.layout = #dist.layout<#mesh, [{4}, {8: tp}]>}) {
    %0 = graph.slice %x {starts = array<i64: 0, 16>, steps = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<4x24xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
  // CHECK-LABEL: func.func @merged
  // CHECK-NEXT: graph.reshape %arg0 {{.*}}(tensor<4x3x2xf32>) -> tensor<12x2xf32>
  // CHECK-NEXT: return
  func.func @merged(%x: tensor<4x6x2xf32> {dist.layout = #dist.layout<#mesh, [{4}, {6: tp}, {2}]>}) -> (tensor<24x2xf32> {dist.layout = #dist.layout<#mesh, [{4}*{6: tp}, {2}]>}) {
    %0 = graph.reshape %x {dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6x2xf32>) -> tensor<24x2xf32>
    return %0 : tensor<24x2xf32>
  }
  // CHECK-LABEL: func.func @turned
  // CHECK: graph.transpose {{.*}}(tensor<3x4xf32>) -> tensor<4x3xf32>
  // CHECK-NEXT: comm.all_gather %{{.*}} from <#mesh, [{4}, {5/6: tp}]>
  // CHECK-NEXT: comm.repad
  func.func @turned(%x: tensor<5x4xf32>) -> tensor<4x5xf32> {
    %0 = graph.transpose %x {permutation = array<i64: 1, 0>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>) -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
