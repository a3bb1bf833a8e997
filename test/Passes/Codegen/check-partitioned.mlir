// Programs that are one rank's already, compiled and run on their ranks, equal the evaluator:
// a reshape of a split dim, of even and of uneven blocks, with and without communication.
// RUN: partita-opt %s --partita-insert-reshards --partita-verify-planned --partita-partition --partita-verify-partitioned -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: partita-opt %t.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t.mlir --partita-check-bundle=target=plain -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: @cut
  // CHECK: graph.reshape %{{.*}} : (tensor<6x5xf32>) -> tensor<2x3x5xf32>
  // CHECK-NOT: comm.
  func.func @cut(%a0: tensor<12x5xf32> {dist.layout = #dist.layout<#mesh, [{12: tp}, {5}]>}) -> (tensor<4x3x6xf32> {dist.layout = #dist.layout<#mesh, [{4: tp}, {3}, {6}]>}) {
    %w = graph.weight "w" : tensor<5x6xf32>
    %0 = graph.reshape %a0 {dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<12x5xf32>) -> tensor<4x3x5xf32>
    %1 = graph.contract %0, %w {equation = #graph.equation<"a b k, k n -> a b n">, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x3x5xf32>, tensor<5x6xf32>) -> tensor<4x3x6xf32>
    return %1 : tensor<4x3x6xf32>
  }
  // CHECK-LABEL: @merge
  // CHECK: comm.slice
  // CHECK: graph.reshape
  // CHECK: comm.all_gather
  func.func @merge(%a0: tensor<4x6x2xf32>) -> tensor<24x2xf32> {
    %0 = graph.reshape %a0 {dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<4x6x2xf32>) -> tensor<24x2xf32>
    return %0 : tensor<24x2xf32>
  }
  // A split weight, of which a rank has 4 of 7 rows.
  // CHECK-LABEL: @uneven
  func.func @uneven(%a0: tensor<7x3xf32>) -> tensor<7x3xf32> {
    %w = graph.weight "v" : tensor<7x3xf32>
    %0 = graph.add %a0, %w {dist.strategy = #dist.strategy<#mesh, {a: {7/8: tp}}>} : (tensor<7x3xf32>, tensor<7x3xf32>) -> tensor<7x3xf32>
    %1 = graph.tanh %0 {dist.strategy = #dist.strategy<#mesh, {a: {7/8: tp}}>} : (tensor<7x3xf32>) -> tensor<7x3xf32>
    return %1 : tensor<7x3xf32>
  }
}
