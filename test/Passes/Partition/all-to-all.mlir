// A dim change is one all-to-all; without it, a gather and a slice.
// RUN: partita-opt %s --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=ON
// RUN: sed 's/dist.mesh = #mesh/dist.mesh = #mesh, dist.no_all_to_all/' %s | partita-opt --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=OFF

#mesh = #dist.mesh<tp=4>
module attributes {dist.mesh = #mesh} {
  // ON: comm.all_to_all
  // OFF-NOT: comm.all_to_all
  // OFF: comm.all_gather
  func.func @f(%x: tensor<8x16xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}, {16}]>}) -> (tensor<8x16xf32> {dist.layout = #dist.layout<#mesh, [{8}, {16: tp}]>}) {
    %0 = graph.relu %x {dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
