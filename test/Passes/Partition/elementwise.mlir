// Local elementwise ops: each rank its part of every operand that has the dim, a bias once,
// a divisor that is never padding.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @broadcast
  // CHECK: graph.weight "b" {{.*}}tensor<3xf32>
  // CHECK-NEXT: graph.add {{.*}}(tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  func.func @broadcast(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %b = graph.weight "b" : tensor<6xf32>
    %0 = graph.add %x, %b {dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
  // CHECK-LABEL: func.func @divisor
  // A division of integers by zero traps: the padding of the divisor is 1.
  // CHECK: %[[ONE:.*]] = comm.mask %{{.*}} dims [0] with <prod>
  // CHECK-NEXT: graph.div %{{.*}}, %[[ONE]]
  func.func @divisor(%x: tensor<5xi64>, %y: tensor<5xi64>) -> tensor<5xi64> {
    %0 = graph.div %x, %y {dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5xi64>, tensor<5xi64>) -> tensor<5xi64>
    return %0 : tensor<5xi64>
  }
  // CHECK-LABEL: func.func @maxima
  // CHECK: graph.reduce
  // CHECK-NEXT: %[[MAX:.*]] = graph.relu
  // CHECK-NEXT: comm.all_reduce %[[MAX]] from <#mesh, [{4}] partial max {tp}>
  func.func @maxima(%x: tensor<4x6xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %x {kind = #graph.reduce<max>, axes = array<i64: 1>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6xf32>) -> tensor<4xf32>
    %1 = graph.relu %0 {dist.strategy = #dist.strategy<#mesh, {} pass max(0) {tp}>} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
