// Softmax and normalizations on virtual ranks: every dim but the one they mix may be split.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @softmax(%a0: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0 = graph.softmax %a0 {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }

  func.func @log_softmax(%a0: tensor<4x6x2xf32>) -> tensor<4x6x2xf32> {
    %0 = graph.log_softmax %a0 {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<4x6x2xf32>) -> tensor<4x6x2xf32>
    return %0 : tensor<4x6x2xf32>
  }

  func.func @layer_norm(%a0: tensor<4x6xf32>, %a1: tensor<6xf32>, %a2: tensor<6xf32>) -> tensor<4x6xf32> {
    %0 = graph.layer_norm %a0, %a1, %a2 {axis = -1 : i64, epsilon = 1.0e-5, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }

  func.func @rms_norm(%a0: tensor<4x6xf32>, %a1: tensor<6xf32>) -> tensor<4x6xf32> {
    %0 = graph.rms_norm %a0, %a1 {axis = -1 : i64, epsilon = 1.0e-5, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @uneven_softmax(%a0: tensor<5x6xf32>) -> tensor<5x6xf32> {
    %0 = graph.softmax %a0 {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x6xf32>) -> tensor<5x6xf32>
    return %0 : tensor<5x6xf32>
  }

  func.func @uneven_norm(%a0: tensor<7x6xf32>, %a1: tensor<6xf32>, %a2: tensor<6xf32>) -> tensor<7x6xf32> {
    %0 = graph.layer_norm %a0, %a1, %a2 {axis = -1 : i64, epsilon = 1.0e-5, dist.strategy = #dist.strategy<#mesh, {a: {7/9: tp}}>} : (tensor<7x6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<7x6xf32>
    return %0 : tensor<7x6xf32>
  }

  func.func @running_sum(%a0: tensor<5x4xf32>) -> tensor<5x4xf32> {
    %0 = graph.cumsum %a0 {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>) -> tensor<5x4xf32>
    return %0 : tensor<5x4xf32>
  }
}

// -----

#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @heads(%a0: tensor<4x6x8x8xf32>) -> tensor<4x6x8x8xf32> {
    %0 = graph.softmax %a0 {axis = 3 : i64, dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<4x6x8x8xf32>) -> tensor<4x6x8x8xf32>
    return %0 : tensor<4x6x8x8xf32>
  }
}
