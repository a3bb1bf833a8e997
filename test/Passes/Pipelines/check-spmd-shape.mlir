// Ops that move elements, on virtual ranks: dims merged and cut, permuted, sliced, joined,
// repeated and padded.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @merge(%a0: tensor<4x6x2xf32>) -> tensor<24x2xf32> {
    %0 = graph.reshape %a0 {dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<4x6x2xf32>) -> tensor<24x2xf32>
    return %0 : tensor<24x2xf32>
  }

  func.func @cut(%a0: tensor<12x5xf32>) -> tensor<4x3x5xf32> {
    %0 = graph.reshape %a0 {dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<12x5xf32>) -> tensor<4x3x5xf32>
    return %0 : tensor<4x3x5xf32>
  }

  func.func @turn(%a0: tensor<4x6x2xf32>) -> tensor<2x4x6xf32> {
    %0 = graph.transpose %a0 {permutation = array<i64: 2, 0, 1>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6x2xf32>) -> tensor<2x4x6xf32>
    return %0 : tensor<2x4x6xf32>
  }

  func.func @repeat(%a0: tensor<1x6xf32>) -> tensor<4x6xf32> {
    %0 = graph.broadcast %a0 {dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<1x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @uneven_turn(%a0: tensor<5x4xf32>) -> tensor<4x5xf32> {
    %0 = graph.transpose %a0 {permutation = array<i64: 1, 0>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>) -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }

  func.func @slice(%a0: tensor<5x8xf32>) -> tensor<5x3xf32> {
    %0 = graph.slice %a0 {starts = array<i64: 0, 1>, steps = array<i64: 1, 2>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x8xf32>) -> tensor<5x3xf32>
    return %0 : tensor<5x3xf32>
  }

  func.func @pad(%a0: tensor<5x4xf32>, %a1: tensor<f32>) -> tensor<5x7xf32> {
    %0 = graph.pad %a0, %a1 {low = array<i64: 0, 1>, high = array<i64: 0, 2>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>, tensor<f32>) -> tensor<5x7xf32>
    return %0 : tensor<5x7xf32>
  }

  func.func @join(%a0: tensor<5x3xf32>, %a1: tensor<5x4xf32>) -> tensor<5x7xf32> {
    %0 = graph.concat %a0, %a1 {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x3xf32>, tensor<5x4xf32>) -> tensor<5x7xf32>
    return %0 : tensor<5x7xf32>
  }
}

// -----

#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @third_of_thirds(%a0: tensor<4x24xf32>) -> tensor<4x8xf32> {
    %0 = graph.slice %a0 {starts = array<i64: 0, 8>, steps = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {a: dp, c: tp}>} : (tensor<4x24xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }

  func.func @inner_of_merged(%a0: tensor<2x6x4xf32>) -> tensor<12x4xf32> {
    %0 = graph.reshape %a0 {dist.strategy = #dist.strategy<#mesh, {b: tp, c: dp}>} : (tensor<2x6x4xf32>) -> tensor<12x4xf32>
    return %0 : tensor<12x4xf32>
  }
}
