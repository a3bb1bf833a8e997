// The plugin gives stock mlir-opt our dialects and passes.
// RUN: mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin %s --pass-pipeline='builtin.module(partita-shard{mesh=tp=2 mode=data-parallel},partita-insert-reshards,partita-verify-planned,partita-check-spmd,partita-partition,partita-verify-partitioned)' | FileCheck %s

// CHECK: #mesh = #dist.mesh<tp=2>
// CHECK: func.func @main(%{{.*}}: tensor<2x8xf32> {dist.layout = #dist.layout<#mesh, [{4: tp}, {8}]>})
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK: graph.relu %{{.*}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %0 = graph.relu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
