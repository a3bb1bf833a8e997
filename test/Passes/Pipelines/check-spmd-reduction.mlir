// Reductions on virtual ranks: the reduced dim split (a partial result, with the neutral
// element in all padding), a kept dim split, both, and partial values that pass.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @sum(%a0: tensor<4x6xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }

  func.func @max(%a0: tensor<4x6xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<max>, axes = array<i64: 1>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }

  func.func @kept(%a0: tensor<4x6xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<prod>, axes = array<i64: 1>, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x6xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }

  func.func @all(%a0: tensor<4x6xf32>) -> tensor<f32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<sum>, axes = array<i64: 0, 1>, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x6xf32>) -> tensor<f32>
    return %0 : tensor<f32>
  }

  func.func @keep_dims(%a0: tensor<4x6xf32>) -> tensor<4x1xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<min>, axes = array<i64: 1>, keep_dims = true, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6xf32>) -> tensor<4x1xf32>
    return %0 : tensor<4x1xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @uneven_sum(%a0: tensor<5x4xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<sum>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }

  func.func @uneven_max(%a0: tensor<5x4xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<max>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }

  func.func @uneven_min(%a0: tensor<5x4xi64>) -> tensor<4xi64> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<min>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xi64>) -> tensor<4xi64>
    return %0 : tensor<4xi64>
  }

  func.func @uneven_prod(%a0: tensor<2x4xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<prod>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: {2/3: tp}}>} : (tensor<2x4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @both_reduced(%a0: tensor<4x6xf32>) -> tensor<f32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<max>, axes = array<i64: 0, 1>, dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<4x6xf32>) -> tensor<f32>
    return %0 : tensor<f32>
  }

  func.func @kept_and_reduced(%a0: tensor<4x6xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<4x6xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }

  func.func @passes(%a0: tensor<4x6xf32>) -> tensor<4xf32> {
    %0 = graph.reduce %a0 {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.strategy = #dist.strategy<#mesh, {a: dp} pass sum(0) {tp}>} : (tensor<4x6xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
