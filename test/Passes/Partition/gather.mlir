// Local gathers: a rank's block of the table and places in it for the indices, -1 for other
// ranks' rows, which give zero; the sum is complete behind one reduction.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @rows
  // CHECK: %[[T:.*]] = graph.weight "table" {dist.layout = #dist.layout<#mesh, [{7/8: tp}, {4}]>} : tensor<4x4xf32>
  // CHECK-NEXT: %[[I:.*]] = comm.local_index %arg0 in <#mesh, [{7/8: tp}]>
  // CHECK-NEXT: %[[ROWS:.*]] = graph.gather %[[T]], %[[I]] {{.*}}masked}
  // CHECK-NEXT: comm.all_reduce %[[ROWS]]
  func.func @rows(%ids: tensor<6xi64>) -> tensor<6x4xf32> {
    %t = graph.weight "table" : tensor<7x4xf32>
    %0 = graph.gather %t, %ids {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {b: {7/8: tp}}>} : (tensor<7x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }
  // CHECK-LABEL: func.func @places
  // An index that is padding could be any number: it is 0.
  // CHECK: %[[I:.*]] = comm.mask %{{.*}} dims [0] with <sum>
  // CHECK-NEXT: graph.gather %{{.*}}, %[[I]]
  // CHECK-NOT: comm.all_reduce
  func.func @places(%ids: tensor<5xi64>) -> tensor<5x4xf32> {
    %t = graph.weight "table" : tensor<7x4xf32>
    %0 = graph.gather %t, %ids {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<7x4xf32>, tensor<5xi64>) -> tensor<5x4xf32>
    return %0 : tensor<5x4xf32>
  }
}
