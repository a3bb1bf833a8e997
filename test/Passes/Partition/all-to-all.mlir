// A dim change is one all-to-all; without it, a gather and a slice.
// RUN: partita-opt %s --partita-check-spmd --partita-partition | FileCheck %s --check-prefix=ON
// RUN: partita-opt %s --partita-partition="all-to-all=false" | FileCheck %s --check-prefix=OFF

module attributes {dist.mesh = "tp=4"} {
  // ON: comm.all_to_all
  // OFF-NOT: comm.all_to_all
  // OFF: comm.all_gather
  func.func @f(%x: tensor<8x16xf32> {dist.layout = "[{8: tp}, {16}]"}) -> (tensor<8x16xf32> {dist.layout = "[{8}, {16: tp}]"}) {
    %0 = graph.relu %x {dist.strategy = "[{8: tp}, {16}]"} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
