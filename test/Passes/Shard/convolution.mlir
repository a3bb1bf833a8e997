// How convolutions and pools are planned: images, channels, and rows of positions, whose
// windows are read from a buffer.
// RUN: split-file %s %t
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=sp=2 mode=semi-auto hints=%t/images.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=IMAGES
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=sp=2 mode=semi-auto hints=%t/outputs.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=OUTPUTS
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=sp=2 mode=semi-auto hints=%t/inputs.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=INPUTS
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=sp=2 mode=semi-auto hints=%t/rows.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ROWS

// IMAGES-NOT: {{dist.(reshard|window)}}
// IMAGES: graph.conv {{.*}}{a: sp}>
// IMAGES-NEXT: graph.pool {{.*}}{a: sp}>

// OUTPUTS: dist.reshard %{{.*}} to <#mesh, [{6: sp}, {4}, {3}, {3}]>
// OUTPUTS: graph.conv {{.*}}{c: sp}>
// OUTPUTS-NEXT: graph.pool {{.*}}{b: sp}>

// The sum over input channels is complete before the pool, which takes maxima.
// INPUTS: %[[Y:.*]] = graph.conv {{.*}}{b: sp}>
// INPUTS-NEXT: %[[WHOLE:.*]] = dist.reshard %[[Y]] to <#mesh, [{2}, {6}, {8}, {8}]>
// INPUTS-NEXT: graph.pool %[[WHOLE]] {{.*}}#dist.strategy<#mesh, {}>

// Windows of 3 reach into the neighbours' rows; those of 2, two apart, do not overlap.
// ROWS: %[[X:.*]] = dist.window %arg0 to <#dist.layout<#mesh, [{2}, {4}, {8: sp}, {8}]>, dim 2 stride 1 kernel_extent 3 low 1, fill sum>
// ROWS: %[[Y:.*]] = graph.conv %[[X]], {{.*}}{d: sp}>
// ROWS-NEXT: %[[Z:.*]] = dist.window %[[Y]] to <#dist.layout<#mesh, [{2}, {6}, {4: sp}, {8}]>, dim 2 stride 2 kernel_extent 2 low 0, fill max>
// ROWS-NEXT: graph.pool %[[Z]] {{.*}}{c: sp}>

//--- program.mlir
func.func @main(%x: tensor<2x4x8x8xf32> {graph.name = "x"}) -> tensor<2x6x4x4xf32> {
  %w = graph.weight "w" : tensor<6x4x3x3xf32> loc("w")
  %0 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x8x8xf32> loc("conv")
  %1 = graph.pool %0 {kind = #graph.pool<max>, window = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>} : (tensor<2x6x8x8xf32>) -> tensor<2x6x4x4xf32> loc("pool")
  return %1 : tensor<2x6x4x4xf32>
}
//--- images.json
{"tensors": {"x": ["sp", null, null, null]}}
//--- outputs.json
{"tensors": {"w": ["sp", null, null, null]}}
//--- inputs.json
{"tensors": {"w": [null, "sp", null, null]}}
//--- rows.json
{"nodes": {"conv": {"out": [[null, null, "sp", null]]}}}
