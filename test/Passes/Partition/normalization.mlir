// Local softmax and normalization: rows of one rank; columns that are split are gathered
// first, and their padding goes.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @rows
  // CHECK: graph.softmax {{.*}}(tensor<3x6xf32>) -> tensor<3x6xf32>
  // CHECK-NEXT: comm.all_gather
  func.func @rows(%x: tensor<5x6xf32>) -> tensor<5x6xf32> {
    %0 = graph.softmax %x {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x6xf32>) -> tensor<5x6xf32>
    return %0 : tensor<5x6xf32>
  }
  // CHECK-LABEL: func.func @columns
  // CHECK: %[[ALL:.*]] = comm.all_gather %arg0
  // CHECK-NEXT: %[[X:.*]] = comm.repad %[[ALL]] from <#mesh, [{4}, {5/6}]> to <#mesh, [{4}, {5}]>
  // CHECK: graph.rms_norm %[[X]]
  func.func @columns(%x: tensor<4x5xf32> {dist.layout = #dist.layout<#mesh, [{4}, {5/6: tp}]>}) -> tensor<4x5xf32> {
    %s = graph.weight "s" : tensor<5xf32>
    %0 = graph.rms_norm %x, %s {axis = -1 : i64, epsilon = 1.0e-5, dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4x5xf32>, tensor<5xf32>) -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}
