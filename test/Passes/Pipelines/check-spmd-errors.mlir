// The check sees any difference: without a tolerance, the rounding of a sum in two parts.
// RUN: not partita-opt %s --partita-check-spmd="rtol=0 atol=0" 2>&1 | FileCheck %s
// RUN: partita-opt %s --partita-check-spmd

// CHECK: error: result 0 of the partitioned program differs: element {{[0-9]+}} is
module attributes {dist.mesh = "tp=2"} {
  func.func @f(%x: tensor<4x128xf32> {dist.layout = "[{4}, {128: tp}]"}) -> (tensor<4xf32>) {
    %0 = graph.reduce %x {kind = "sum", axes = array<i64: 1>, dist.strategy = "[{4}, {128: tp}]"} : (tensor<4x128xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
