// Collectives parse, print and parse again.
// RUN: partita-opt %s | partita-opt | FileCheck %s

#mesh = #dist.mesh<dp=2,tp=4>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @steps
  func.func @steps(%x: tensor<8x6xf32>) -> tensor<8x6xf32> {
    // CHECK: comm.reduce_scatter %{{.*}} from <#mesh, [{8}, {6}] partial sum {tp}> to <#mesh, [{8: tp}, {6}]> : (tensor<8x6xf32>) -> tensor<2x6xf32>
    %0 = comm.reduce_scatter %x from <#mesh, [{8}, {6}] partial sum {tp}> to <#mesh, [{8: tp}, {6}]> : (tensor<8x6xf32>) -> tensor<2x6xf32>
    // CHECK: comm.mask %{{.*}} dims [1] with <max> in <#mesh, [{8: tp}, {5/6: dp}]> : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = comm.slice %0 from <#mesh, [{8: tp}, {5/6}]> to <#mesh, [{8: tp}, {5/6: dp}]> : (tensor<2x6xf32>) -> tensor<2x3xf32>
    %2 = comm.mask %1 dims [1] with <max> in <#mesh, [{8: tp}, {5/6: dp}]> : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %3 = comm.all_gather %2 from <#mesh, [{8: tp}, {5/6: dp}]> to <#mesh, [{8: tp}, {5/6}]> : (tensor<2x3xf32>) -> tensor<2x6xf32>
    // CHECK: comm.all_gather {{.*}} -> tensor<8x6xf32>
    %4 = comm.all_gather %3 from <#mesh, [{8: tp}, {6}]> to <#mesh, [{8}, {6}]> : (tensor<2x6xf32>) -> tensor<8x6xf32>
    return %4 : tensor<8x6xf32>
  }

  // CHECK-LABEL: func.func @claim
  func.func @claim(%x: tensor<8x6xf32>) -> tensor<8x6xf32> {
    // CHECK: comm.claim %{{.*}} from <#mesh, [{8}, {6}]> to <#mesh, [{8}, {6}] partial sum {tp}> : tensor<8x6xf32>
    %0 = comm.claim %x from <#mesh, [{8}, {6}]> to <#mesh, [{8}, {6}] partial sum {tp}> : tensor<8x6xf32>
    return %0 : tensor<8x6xf32>
  }

  // CHECK-LABEL: func.func @pieces
  func.func @pieces(%x: tensor<8x6xf32>) -> tensor<9x6xf32> {
    // CHECK: comm.pieces %{{.*}} by <#mesh, 0 to 1 [0 to 1 of 8, 0 to 0 of 6], 7 to 7 [6 to 0 of 2, 5 to 0 of 1]> : (tensor<8x6xf32>) -> tensor<9x6xf32>
    %0 = comm.pieces %x by <#mesh, 0 to 1 [0 to 1 of 8, 0 to 0 of 6], 7 to 7 [6 to 0 of 2, 5 to 0 of 1]> : (tensor<8x6xf32>) -> tensor<9x6xf32>
    return %0 : tensor<9x6xf32>
  }

  // CHECK-LABEL: func.func @indices
  func.func @indices(%i: tensor<5xi64>) -> tensor<5xi64> {
    // CHECK: comm.local_index %{{.*}} in <#mesh, [{50257/50260: tp}]> : (tensor<5xi64>) -> tensor<5xi64>
    %0 = comm.local_index %i in <#mesh, [{50257/50260: tp}]> : (tensor<5xi64>) -> tensor<5xi64>
    return %0 : tensor<5xi64>
  }
}

#mesh1 = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh1} {
  // CHECK-LABEL: func.func @windows
  func.func @windows(%x: tensor<2x4x3xf32>) -> tensor<2x9x3xf32> {
    // CHECK: comm.halo %{{.*}} from <#mesh1, [{2}, {7/8: sp}, {3}]> to <#dist.layout<#mesh1, [{2}, {4: sp}, {3}]>, dim 1 stride 2 kernel_extent 7 low 2, fill max> : (tensor<2x4x3xf32>) -> tensor<2x9x3xf32>
    %0 = comm.halo %x from <#mesh1, [{2}, {7/8: sp}, {3}]> to <#dist.layout<#mesh1, [{2}, {4: sp}, {3}]>, dim 1 stride 2 kernel_extent 7 low 2, fill max> : (tensor<2x4x3xf32>) -> tensor<2x9x3xf32>
    return %0 : tensor<2x9x3xf32>
  }
}
