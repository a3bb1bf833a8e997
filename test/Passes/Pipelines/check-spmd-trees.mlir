// Forests on virtual ranks: rows, trees and targets, alone and together, even and uneven.
// Split by trees, the sum over the trees is a sum of what each rank's trees say.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @by_rows(%x: tensor<4x3xf32>, %f: tensor<6x7xi32>, %s: tensor<6x7xf32>, %c: tensor<6x7xi32>, %w: tensor<6x7x2xf32>) -> tensor<4x2xf32> {
    %0 = graph.trees %x, %f, %s, %c, %w {depth = 3 : i64, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x3xf32>, tensor<6x7xi32>, tensor<6x7xf32>, tensor<6x7xi32>, tensor<6x7x2xf32>) -> tensor<6x4x2xf32>
    %1 = graph.reduce %0 {axes = array<i64: 0>, keep_dims = false, kind = #graph.reduce<sum>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<6x4x2xf32>) -> tensor<4x2xf32>
    return %1 : tensor<4x2xf32>
  }

  func.func @by_trees(%x: tensor<4x3xf32>, %f: tensor<6x7xi32>, %s: tensor<6x7xf32>, %c: tensor<6x7xi32>, %w: tensor<6x7x2xf32>) -> tensor<4x2xf32> {
    %0 = graph.trees %x, %f, %s, %c, %w {depth = 3 : i64, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<4x3xf32>, tensor<6x7xi32>, tensor<6x7xf32>, tensor<6x7xi32>, tensor<6x7x2xf32>) -> tensor<6x4x2xf32>
    %1 = graph.reduce %0 {axes = array<i64: 0>, keep_dims = false, kind = #graph.reduce<sum>, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<6x4x2xf32>) -> tensor<4x2xf32>
    return %1 : tensor<4x2xf32>
  }

  func.func @by_targets(%x: tensor<4x3xf32>, %f: tensor<6x7xi32>, %s: tensor<6x7xf32>, %c: tensor<6x7xi32>, %w: tensor<6x7x2xf32>) -> tensor<4x2xf32> {
    %0 = graph.trees %x, %f, %s, %c, %w {depth = 3 : i64, dist.strategy = #dist.strategy<#mesh, {e: tp}>} : (tensor<4x3xf32>, tensor<6x7xi32>, tensor<6x7xf32>, tensor<6x7xi32>, tensor<6x7x2xf32>) -> tensor<6x4x2xf32>
    %1 = graph.reduce %0 {axes = array<i64: 0>, keep_dims = false, kind = #graph.reduce<sum>, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<6x4x2xf32>) -> tensor<4x2xf32>
    return %1 : tensor<4x2xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @uneven_trees(%x: tensor<4x3xf32>, %f: tensor<7x7xi32>, %s: tensor<7x7xf32>, %c: tensor<7x7xi32>, %w: tensor<7x7x1xf32>) -> tensor<4x1xf32> {
    %0 = graph.trees %x, %f, %s, %c, %w {depth = 3 : i64, dist.strategy = #dist.strategy<#mesh, {c: {7/9: tp}}>} : (tensor<4x3xf32>, tensor<7x7xi32>, tensor<7x7xf32>, tensor<7x7xi32>, tensor<7x7x1xf32>) -> tensor<7x4x1xf32>
    %1 = graph.reduce %0 {axes = array<i64: 0>, keep_dims = false, kind = #graph.reduce<sum>, dist.strategy = #dist.strategy<#mesh, {a: {7/9: tp}}>} : (tensor<7x4x1xf32>) -> tensor<4x1xf32>
    return %1 : tensor<4x1xf32>
  }
}

// -----

#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @rows_and_trees(%x: tensor<5x3xf32>, %f: tensor<6x7xi32>, %s: tensor<6x7xf32>, %c: tensor<6x7xi32>, %w: tensor<6x7x2xf32>) -> tensor<5x2xf32> {
    %0 = graph.trees %x, %f, %s, %c, %w {depth = 3 : i64, dist.strategy = #dist.strategy<#mesh, {a: {5/6: dp}, c: tp}>} : (tensor<5x3xf32>, tensor<6x7xi32>, tensor<6x7xf32>, tensor<6x7xi32>, tensor<6x7x2xf32>) -> tensor<6x5x2xf32>
    %1 = graph.reduce %0 {axes = array<i64: 0>, keep_dims = false, kind = #graph.reduce<sum>, dist.strategy = #dist.strategy<#mesh, {a: tp, b: {5/6: dp}}>} : (tensor<6x5x2xf32>) -> tensor<5x2xf32>
    return %1 : tensor<5x2xf32>
  }
}
