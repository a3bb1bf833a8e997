// Gathers on virtual ranks: the places, the dims beside the looked-up one, and the
// looked-up dim itself, of which each rank has a block and zero for the others' rows.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @places(%a0: tensor<7x4xf32>, %a1: tensor<6xi64>) -> tensor<6x4xf32> {
    %0 = graph.gather %a0, %a1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<7x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }

  func.func @width(%a0: tensor<7x4xf32>, %a1: tensor<6xi64>) -> tensor<6x4xf32> {
    %0 = graph.gather %a0, %a1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<7x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }

  func.func @rows(%a0: tensor<8x4xf32>, %a1: tensor<6xi64>) -> tensor<6x4xf32> {
    %0 = graph.gather %a0, %a1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<8x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @uneven_rows(%a0: tensor<7x4xf32>, %a1: tensor<2x3xi64>) -> tensor<2x3x4xf32> {
    %0 = graph.gather %a0, %a1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {c: {7/9: tp}}>} : (tensor<7x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
    return %0 : tensor<2x3x4xf32>
  }

  func.func @a_rank_without_rows(%a0: tensor<4x4xf32>, %a1: tensor<6xi64>) -> tensor<6x4xf32> {
    %0 = graph.gather %a0, %a1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {b: {4/6: tp}}>} : (tensor<4x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }

  func.func @middle(%a0: tensor<4x7x2xf32>, %a1: tensor<5xi64>) -> tensor<4x5x2xf32> {
    %0 = graph.gather %a0, %a1 {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {c: {7/9: tp}}>} : (tensor<4x7x2xf32>, tensor<5xi64>) -> tensor<4x5x2xf32>
    return %0 : tensor<4x5x2xf32>
  }
}

// -----

#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @rows_and_places(%a0: tensor<8x4xf32>, %a1: tensor<6xi64>) -> tensor<6x4xf32> {
    %0 = graph.gather %a0, %a1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<8x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    return %0 : tensor<6x4xf32>
  }
}
