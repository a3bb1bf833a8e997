// Collectives parse, print and parse again.
// RUN: partita-opt %s | partita-opt | FileCheck %s

module attributes {dist.mesh = "dp=2,tp=4"} {
  // CHECK-LABEL: func.func @steps
  func.func @steps(%x: tensor<8x6xf32>) -> tensor<8x6xf32> {
    // CHECK: comm.reduce_scatter %{{.*}} {axes = ["tp"]{{.*}} : (tensor<8x6xf32>) -> tensor<2x6xf32>
    %0 = comm.reduce_scatter %x {axes = ["tp"], from = "[{8}, {6}] partial sum {tp}", kind = "sum", place = array<i64: 0, 0, -1, -1>, received = 36 : i64, to = "[{8: tp}, {6}]"} : (tensor<8x6xf32>) -> tensor<2x6xf32>
    // CHECK: comm.mask %{{.*}} {dims = array<i64: 1>, kind = "max", layout = "[{8: tp}, {5/6: dp}]"} : tensor<2x3xf32>
    %1 = comm.slice %0 {axes = ["dp"], from = "[{8: tp}, {5/6}]", place = array<i64: 1, 0, -1, -1>, received = 0 : i64, to = "[{8: tp}, {5/6: dp}]"} : (tensor<2x6xf32>) -> tensor<2x3xf32>
    %2 = comm.mask %1 {layout = "[{8: tp}, {5/6: dp}]", dims = array<i64: 1>, kind = "max"} : tensor<2x3xf32>
    %3 = comm.all_gather %2 {axes = ["dp"], from = "[{8: tp}, {5/6: dp}]", place = array<i64: 1, 0, -1, -1>, received = 6 : i64, to = "[{8: tp}, {5/6}]"} : (tensor<2x3xf32>) -> tensor<2x6xf32>
    // CHECK: comm.all_gather {{.*}} -> tensor<8x6xf32>
    %4 = comm.all_gather %3 {axes = ["tp"], from = "[{8: tp}, {6}]", place = array<i64: 0, 0, -1, -1>, received = 36 : i64, to = "[{8}, {6}]"} : (tensor<2x6xf32>) -> tensor<8x6xf32>
    return %4 : tensor<8x6xf32>
  }

  // CHECK-LABEL: func.func @indices
  func.func @indices(%i: tensor<5xi64>) -> tensor<5xi64> {
    // CHECK: comm.local_index %{{.*}} {layout = "[{50257/50260: tp}]"} : tensor<5xi64>
    %0 = comm.local_index %i {layout = "[{50257/50260: tp}]"} : tensor<5xi64>
    return %0 : tensor<5xi64>
  }
}

module attributes {dist.mesh = "sp=2"} {
  // CHECK-LABEL: func.func @windows
  func.func @windows(%x: tensor<2x4x3xf32>) -> tensor<2x9x3xf32> {
    // CHECK: comm.halo %{{.*}} {dims = array<i64: 1>, from = "[{2}, {7/8: sp}, {3}]", kind = "max", low = array<i64: 2>, positions = "[{2}, {4: sp}, {3}]", reach = array<i64: 7>, received = 18 : i64, strides = array<i64: 2>} : (tensor<2x4x3xf32>) -> tensor<2x9x3xf32>
    %0 = comm.halo %x {from = "[{2}, {7/8: sp}, {3}]", positions = "[{2}, {4: sp}, {3}]", dims = array<i64: 1>, strides = array<i64: 2>, reach = array<i64: 7>, low = array<i64: 2>, kind = "max", received = 18 : i64} : (tensor<2x4x3xf32>) -> tensor<2x9x3xf32>
    return %0 : tensor<2x9x3xf32>
  }
}
