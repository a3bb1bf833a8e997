// Convolutions and pools on virtual ranks: images, channels of both sides, groups, rows
// and columns of positions, even and uneven.
// RUN: partita-opt %s --split-input-file --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @images(%a0: tensor<4x3x5x5xf32>, %a1: tensor<6x3x3x3xf32>) -> tensor<4x6x5x5xf32> {
    %0 = graph.conv %a0, %a1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x3x5x5xf32>, tensor<6x3x3x3xf32>) -> tensor<4x6x5x5xf32>
    return %0 : tensor<4x6x5x5xf32>
  }

  func.func @outputs(%a0: tensor<2x3x5x5xf32>, %a1: tensor<6x3x3x3xf32>) -> tensor<2x6x5x5xf32> {
    %0 = graph.conv %a0, %a1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<2x3x5x5xf32>, tensor<6x3x3x3xf32>) -> tensor<2x6x5x5xf32>
    return %0 : tensor<2x6x5x5xf32>
  }

  func.func @inputs(%a0: tensor<2x4x5x5xf32>, %a1: tensor<6x4x3x3xf32>) -> tensor<2x6x5x5xf32> {
    %0 = graph.conv %a0, %a1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x5x5xf32>
    return %0 : tensor<2x6x5x5xf32>
  }

  func.func @groups(%a0: tensor<2x4x5x5xf32>, %a1: tensor<6x2x3x3xf32>, %a2: tensor<6xf32>) -> tensor<2x6x5x5xf32> {
    %0 = graph.conv %a0, %a1, %a2 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, group = 2 : i64, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<2x4x5x5xf32>, tensor<6x2x3x3xf32>, tensor<6xf32>) -> tensor<2x6x5x5xf32>
    return %0 : tensor<2x6x5x5xf32>
  }

  func.func @transposed(%a0: tensor<4x3x6xf32>, %a1: tensor<3x5x2xf32>) -> tensor<4x5x12xf32> {
    %0 = graph.conv_transpose %a0, %a1 {strides = array<i64: 2>, dilations = array<i64: 1>, pads = array<i64: 0, 0>, output_padding = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {d: tp}>} : (tensor<4x3x6xf32>, tensor<3x5x2xf32>) -> tensor<4x5x12xf32>
    return %0 : tensor<4x5x12xf32>
  }

  func.func @maxima(%a0: tensor<2x4x6x6xf32>) -> tensor<2x4x3x3xf32> {
    %0 = graph.pool %a0 {kind = #graph.pool<max>, window = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<2x4x6x6xf32>) -> tensor<2x4x3x3xf32>
    return %0 : tensor<2x4x3x3xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @uneven_images(%a0: tensor<4x3x5x5xf32>, %a1: tensor<6x3x3x3xf32>) -> tensor<4x6x5x5xf32> {
    %0 = graph.conv %a0, %a1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {a: {4/6: tp}}>} : (tensor<4x3x5x5xf32>, tensor<6x3x3x3xf32>) -> tensor<4x6x5x5xf32>
    return %0 : tensor<4x6x5x5xf32>
  }

  func.func @uneven_rows(%a0: tensor<1x3x7x5xf32>, %a1: tensor<6x3x3x3xf32>) -> tensor<1x6x7x5xf32> {
    %0 = graph.conv %a0, %a1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: {7/9: tp}}>} : (tensor<1x3x7x5xf32>, tensor<6x3x3x3xf32>) -> tensor<1x6x7x5xf32>
    return %0 : tensor<1x6x7x5xf32>
  }

  func.func @uneven_maxima(%a0: tensor<2x4x7x6xf32>) -> tensor<2x4x4x3xf32> {
    %0 = graph.pool %a0 {kind = #graph.pool<max>, window = array<i64: 3, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 0, 1, 0>, dist.strategy = #dist.strategy<#mesh, {c: {4/6: tp}}>} : (tensor<2x4x7x6xf32>) -> tensor<2x4x4x3xf32>
    return %0 : tensor<2x4x4x3xf32>
  }

  func.func @uneven_averages(%a0: tensor<2x4x7x6xf32>) -> tensor<2x4x4x3xf32> {
    %0 = graph.pool %a0 {kind = #graph.pool<average>, window = array<i64: 3, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 0, 1, 0>, dist.strategy = #dist.strategy<#mesh, {c: {4/6: tp}}>} : (tensor<2x4x7x6xf32>) -> tensor<2x4x4x3xf32>
    return %0 : tensor<2x4x4x3xf32>
  }

  func.func @a_rank_without_positions(%a0: tensor<1x2x4x4xf32>) -> tensor<1x2x2x4xf32> {
    %0 = graph.pool %a0 {kind = #graph.pool<max>, window = array<i64: 2, 1>, strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dist.strategy = #dist.strategy<#mesh, {b: {2/3: tp}}>} : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x4xf32>
    return %0 : tensor<1x2x2x4xf32>
  }
}

// -----

#mesh = #dist.mesh<h=2,w=2>
module attributes {dist.mesh = #mesh} {
  func.func @rows_and_columns(%a0: tensor<1x3x8x8xf32>, %a1: tensor<6x3x3x3xf32>) -> tensor<1x6x4x8xf32> {
    %0 = graph.conv %a0, %a1 {strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: h, e: w}>} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<1x6x4x8xf32>
    return %0 : tensor<1x6x4x8xf32>
  }

  func.func @rows_and_outputs(%a0: tensor<1x3x8x8xf32>, %a1: tensor<6x3x3x3xf32>) -> tensor<1x6x8x8xf32> {
    %0 = graph.conv %a0, %a1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dist.strategy = #dist.strategy<#mesh, {b: w, c: h}>} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<1x6x8x8xf32>
    return %0 : tensor<1x6x8x8xf32>
  }
}
