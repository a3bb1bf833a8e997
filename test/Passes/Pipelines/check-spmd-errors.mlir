// The check sees any difference: without a tolerance, the rounding of a sum in two parts.
// RUN: not partita-opt %s --partita-check-spmd="rtol=0 atol=0" 2>&1 | FileCheck %s
// RUN: partita-opt %s --partita-check-spmd

// CHECK: error: result 0 of the partitioned program differs: element {{[0-9]+}} is
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @f(%x: tensor<4x128xf32> {dist.layout = #dist.layout<#mesh, [{4}, {128: tp}]>}) -> (tensor<4xf32>) {
    %0 = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x128xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
