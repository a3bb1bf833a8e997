// One hint splits a spatial dim of all layers behind and before it; a hint that windows do
// not allow is one sentence.
// RUN: split-file %s %t
// RUN: partita-opt %t/net.mlir --partita-shard="mode=semi-auto hints=%t/rows.json" --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: partita-opt %t/net.mlir --partita-shard="mode=semi-auto hints=%t/both.json" --partita-check-spmd | FileCheck %s --check-prefix=BOTH
// RUN: partita-opt %t/net.mlir --partita-shard="mode=semi-auto hints=%t/blocks.json" --partita-check-spmd | FileCheck %s --check-prefix=BLOCKS
// RUN: partita-opt %t/net.mlir --partita-shard="mode=data-parallel" | FileCheck %s --check-prefix=DATA
// RUN: not partita-opt %t/net.mlir --partita-shard="mode=semi-auto hints=%t/cut.json" 2>&1 | FileCheck %s --check-prefix=CUT
// RUN: not partita-opt %t/net.mlir --partita-shard="mode=semi-auto hints=%t/input-blocks.json" 2>&1 | FileCheck %s --check-prefix=INPUT
// RUN: not partita-opt %t/net.mlir --partita-shard="mode=semi-auto hints=%t/transposed.json" 2>&1 | FileCheck %s --check-prefix=TRANSPOSED

// Through a stride, point-wise kernels and elementwise ops; the sum over rows is partial.
// ROWS: graph.conv {{.*}}dist.strategy = #dist.strategy<#mesh, {d: {13/14: h}}>
// ROWS: graph.relu {{.*}}dist.strategy = #dist.strategy<#mesh, {c: {13/14: h}}>
// ROWS: graph.pool {{.*}}dist.strategy = #dist.strategy<#mesh, {c: {7/8: h}}>
// ROWS: graph.conv {{.*}}dist.strategy = #dist.strategy<#mesh, {d: {7/8: h}}>
// ROWS: graph.reduce {{.*}}dist.strategy = #dist.strategy<#mesh, {c: {7/8: h}}>
// A transposed convolution splits in groups of `stride` positions, whether or not its
// filter reaches into others; not where the result is no multiple of the stride.
// ROWS: graph.conv_transpose {{.*}}dist.strategy = #dist.strategy<#mesh, {d: {7/8: h}}>
// ROWS: graph.conv_transpose {{.*}}dist.strategy = #dist.strategy<#mesh, {d: {7/8: h}}>
// ROWS: graph.conv_transpose {{.*}}dist.strategy = #dist.strategy<#mesh, {}>

// BOTH: graph.pool {{.*}}dist.strategy = #dist.strategy<#mesh, {c: {7/8: h}, d: w}>

// Blocks of positions where the hint is, equal ones behind the stride.
// BLOCKS: graph.conv {{.*}}dist.strategy = #dist.strategy<#mesh, {d: {13=4+9: h}}>
// BLOCKS: graph.pool {{.*}}dist.strategy = #dist.strategy<#mesh, {c: {7/8: h}}>

// DATA: graph.conv {{.*}}dist.strategy = #dist.strategy<#mesh, {a: {{[hw]}}}>

// CUT: error: {{.*}}output 0 of 'pool', dim 3: the factor 2 does not fall on the dim's own cuts
// INPUT: error: {{.*}}input 0 of 'pool', dim 2: blocks cannot be given for a dim of size 13 that is read through 7 windows; give them for the output
// TRANSPOSED: error: {{.*}}output 0 of 'odd', dim 2: a dim of size 13 cannot be split by {h} (2 ways)

//--- net.mlir
#mesh = #dist.mesh<h=2,w=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<2x3x13x12xf32>) -> (tensor<2x4xf32>, tensor<2x3x14x12xf32>, tensor<2x3x14x12xf32>, tensor<2x3x13x11xf32>) {
    %v = graph.weight "v" : tensor<4x3x3x3xf32>
    %p = graph.weight "p" : tensor<4x4x1x1xf32>
    %u = graph.weight "u" : tensor<4x3x2x2xf32>
    %o = graph.weight "o" : tensor<4x3x3x3xf32>
    %0 = graph.conv %x, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x3x13x12xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x13x12xf32> loc("conv")
    %1 = graph.relu %0 : (tensor<2x4x13x12xf32>) -> tensor<2x4x13x12xf32> loc("relu")
    %2 = graph.pool %1 {kind = #graph.pool<max>, window = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x4x13x12xf32>) -> tensor<2x4x7x6xf32> loc("pool")
    %3 = graph.conv %2, %p {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>} : (tensor<2x4x7x6xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x7x6xf32> loc("point")
    %4 = graph.reduce %3 {kind = #graph.reduce<sum>, axes = array<i64: 2, 3>} : (tensor<2x4x7x6xf32>) -> tensor<2x4xf32> loc("sum")
    %5 = graph.conv_transpose %3, %u {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, output_padding = array<i64: 0, 0>} : (tensor<2x4x7x6xf32>, tensor<4x3x2x2xf32>) -> tensor<2x3x14x12xf32> loc("up")
    %6 = graph.conv_transpose %3, %o {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, output_padding = array<i64: 1, 1>} : (tensor<2x4x7x6xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x14x12xf32> loc("over")
    %7 = graph.conv_transpose %3, %o {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, output_padding = array<i64: 0, 0>} : (tensor<2x4x7x6xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x13x11xf32> loc("odd")
    return %4, %5, %6, %7 : tensor<2x4xf32>, tensor<2x3x14x12xf32>, tensor<2x3x14x12xf32>, tensor<2x3x13x11xf32>
  }
}
//--- rows.json
{"nodes": {"relu": {"out": [[null, null, "h", null]]}}}
//--- both.json
{"nodes": {"conv": {"out": [[null, null, "h", "w"]]}}}
//--- blocks.json
{"nodes": {"conv": {"out": [[null, null, {"blocks": [4, 9], "axes": ["h"]}, null]]}}}
//--- cut.json
{"nodes": {"pool": {"out": [[null, null, null, {"factors": [2, 3], "axes": [["h"], []]}]]}}}
//--- input-blocks.json
{"nodes": {"pool": {"in": [[null, null, {"blocks": [4, 9], "axes": ["h"]}, null]]}}}
//--- transposed.json
{"nodes": {"odd": {"out": [[null, null, "h", null]]}}}
