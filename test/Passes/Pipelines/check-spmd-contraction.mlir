// Contractions on virtual ranks: rows, columns, the summed dim and batches, alone and
// together, even and uneven.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @rows(%a0: tensor<4x6xf32>, %a1: tensor<6x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {m: tp}>} : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }

  func.func @columns(%a0: tensor<4x6xf32>, %a1: tensor<6x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {n: tp}>} : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }

  func.func @summed(%a0: tensor<4x6xf32>, %a1: tensor<6x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: tp}>} : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }

  func.func @passes(%a0: tensor<4x6xf32>, %a1: tensor<6x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {} pass sum(0) {tp}>} : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @uneven_rows(%a0: tensor<5x6xf32>, %a1: tensor<6x8xf32>) -> tensor<5x8xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {m: {5/6: tp}}>} : (tensor<5x6xf32>, tensor<6x8xf32>) -> tensor<5x8xf32>
    return %0 : tensor<5x8xf32>
  }

  func.func @uneven_columns(%a0: tensor<4x6xf32>, %a1: tensor<6x7xf32>) -> tensor<4x7xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {n: {7/9: tp}}>} : (tensor<4x6xf32>, tensor<6x7xf32>) -> tensor<4x7xf32>
    return %0 : tensor<4x7xf32>
  }

  func.func @uneven_sum(%a0: tensor<4x7xf32>, %a1: tensor<7x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: {7/9: tp}}>} : (tensor<4x7xf32>, tensor<7x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }

  func.func @empty_ranks(%a0: tensor<4x2xf32>, %a1: tensor<2x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: {2/3: tp}}>} : (tensor<4x2xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}

// -----

#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @batch_and_sum(%a0: tensor<4x5x6xf32>, %a1: tensor<4x6x3xf32>) -> tensor<4x5x3xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"b m k, b k n -> b m n">, dist.strategy = #dist.strategy<#mesh, {b: dp, k: tp}>} : (tensor<4x5x6xf32>, tensor<4x6x3xf32>) -> tensor<4x5x3xf32>
    return %0 : tensor<4x5x3xf32>
  }

  func.func @both_on_one(%a0: tensor<8x6xf32>, %a1: tensor<6x8xf32>) -> tensor<8x8xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {m: {dp, tp}}>} : (tensor<8x6xf32>, tensor<6x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }

  func.func @inside_a_factor(%a0: tensor<4x6xf32>, %a1: tensor<6x12xf32>) -> tensor<4x12xf32> {
    %0 = graph.contract %a0, %a1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {m: dp, n: {3}*{4: tp}}>} : (tensor<4x6xf32>, tensor<6x12xf32>) -> tensor<4x12xf32>
    return %0 : tensor<4x12xf32>
  }
}
