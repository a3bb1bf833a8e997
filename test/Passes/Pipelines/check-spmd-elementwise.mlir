// Elementwise ops on virtual ranks: broadcast operands, uneven dims, partial values that
// pass through, comparisons and selections.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @rows(%a0: tensor<4x6xf32>, %a1: tensor<6xf32>) -> tensor<4x6xf32> {
    %0 = graph.add %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }

  func.func @broadcast_dim(%a0: tensor<4x6xf32>, %a1: tensor<4x1xf32>) -> tensor<4x6xf32> {
    %0 = graph.mul %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }

  func.func @partial_sum(%a0: tensor<4x6xf32>, %a1: tensor<6xf32>) -> tensor<4x6xf32> {
    %0 = graph.add %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {} pass sum(0, 1) {tp}>} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }

  func.func @partial_scaled(%a0: tensor<4x6xf32>, %a1: tensor<6xf32>) -> tensor<4x6xf32> {
    %0 = graph.mul %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {} pass sum(0) {tp}>} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }

  func.func @partial_max(%a0: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0 = graph.relu %a0 {dist.strategy = #dist.strategy<#mesh, {} pass max(0) {tp}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }

  func.func @compare(%a0: tensor<4x6xf32>, %a1: tensor<4x6xf32>) -> tensor<4x6xi1> {
    %0 = graph.less %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>
    return %0 : tensor<4x6xi1>
  }
}

// -----

#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @uneven(%a0: tensor<5x4xf32>, %a1: tensor<5x4xf32>) -> tensor<5x4xf32> {
    %0 = graph.sub %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x4xf32>
    return %0 : tensor<5x4xf32>
  }

  func.func @divide(%a0: tensor<5x4xf32>, %a1: tensor<5x4xf32>) -> tensor<5x4xf32> {
    %0 = graph.div %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x4xf32>
    return %0 : tensor<5x4xf32>
  }

  func.func @select(%a0: tensor<5x1xi1>, %a1: tensor<5x4xf32>, %a2: tensor<4xf32>) -> tensor<5x4xf32> {
    %0 = graph.where %a0, %a1, %a2 {dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x1xi1>, tensor<5x4xf32>, tensor<4xf32>) -> tensor<5x4xf32>
    return %0 : tensor<5x4xf32>
  }

  func.func @cast(%a0: tensor<7xi64>) -> tensor<7xf32> {
    %0 = graph.cast %a0 {to = f32, dist.strategy = #dist.strategy<#mesh, {a: {7/9: tp}}>} : (tensor<7xi64>) -> tensor<7xf32>
    return %0 : tensor<7xf32>
  }

  func.func @clip(%a0: tensor<7xf32>, %a1: tensor<f32>, %a2: tensor<f32>) -> tensor<7xf32> {
    %0 = graph.clip %a0, %a1, %a2 {dist.strategy = #dist.strategy<#mesh, {a: {7/9: tp}}>} : (tensor<7xf32>, tensor<f32>, tensor<f32>) -> tensor<7xf32>
    return %0 : tensor<7xf32>
  }
}

// -----

#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @both(%a0: tensor<4x6xf32>, %a1: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0 = graph.max %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }

  func.func @split_and_partial(%a0: tensor<4x6xf32>, %a1: tensor<6xf32>) -> tensor<4x6xf32> {
    %0 = graph.add %a0, %a1 {dist.strategy = #dist.strategy<#mesh, {a: dp} pass sum(0, 1) {tp}>} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
