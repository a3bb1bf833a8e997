// A state is planned as what it is, a tensor that stays in its place: a step of gradient
// descent on a weight, whose layout follows hints, spreads to what updates it, and is
// gathered where the forward pass reads it.
// RUN: split-file %s %t
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=WHOLE
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2 mode=semi-auto hints=%t/sharded.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o %t/sharded.mlir
// RUN: FileCheck %s --check-prefix=SHARDED --input-file %t/sharded.mlir
// RUN: partita-opt %t/sharded.mlir --partita-partition --partita-verify-partitioned --partita-schedule --partita-verify-scheduled | FileCheck %s --check-prefix=SCHEDULED

// A search finds where it lies; uneven blocks and a mesh of two axes.
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=3 mode=auto" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned -o /dev/null
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2,tp=2 mode=auto" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned -o /dev/null

// Replicated: one all-reduce of the gradient, by every rank.
// WHOLE: %arg1: tensor<4x6xf32> {dist.layout = #dist.layout<#mesh, [{4}, {6}]>, dist.state = #dist.state<"w" from "w0">
// WHOLE: tensor<4x6xf32> {dist.layout = #dist.layout<#mesh, [{4}, {6}]>, dist.state = #dist.state<"w">
// WHOLE: graph.contract {{.*}}{b: dp}>
// WHOLE: graph.contract {{.*}}{b: dp}
// WHOLE: dist.reshard %{{.*}} to <#mesh, [{4}, {6}]>
// WHOLE-NOT: dist.reshard

// Sharded: gathered for the forward pass, and the gradient scattered to where it lies.
// SHARDED: %arg1: tensor<4x6xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}, {6}]>, dist.state
// SHARDED: tensor<4x6xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}, {6}]>, dist.state
// SHARDED: %[[W:.*]] = dist.reshard %arg1 to <#mesh, [{4}, {6}]>
// SHARDED: %[[Y:.*]] = graph.contract %arg0, %[[W]]
// SHARDED: %[[G:.*]] = graph.contract %arg0, %[[Y]]
// SHARDED: dist.reshard %[[G]] to <#mesh, [{4: dp}, {6}]>

// SCHEDULED: task.buffer @state_0 state "w" init "w0" in <#mesh, [{4: dp}, {6}]> : tensor<2x6xf32>
// SCHEDULED-NOT: task.buffer @state_1
// SCHEDULED: comm.reduce_scatter
// SCHEDULED: task.segment @request calls @main from [@input_0, @state_0] to [@output_0, @state_0]

//--- step.mlir
func.func @main(%x: tensor<8x4xf32> {graph.name = "x"},
                %w: tensor<4x6xf32> {graph.name = "w", dist.state = #dist.state<"w" from "w0">})
    -> (tensor<8x6xf32> {graph.name = "y"},
        tensor<4x6xf32> {graph.name = "w_next", dist.state = #dist.state<"w">}) {
  %rate = graph.constant dense<0.125> : tensor<f32>
  %y = graph.contract %x, %w {equation = #graph.equation<"b k, k n -> b n">} : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32> loc("forward")
  %g = graph.contract %x, %y {equation = #graph.equation<"b k, b n -> k n">} : (tensor<8x4xf32>, tensor<8x6xf32>) -> tensor<4x6xf32> loc("gradient")
  %d = graph.mul %g, %rate : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32> loc("scaled")
  %n = graph.sub %w, %d : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("update")
  return %y, %n : tensor<8x6xf32>, tensor<4x6xf32>
}
//--- sharded.json
{"nodes": {"forward": {"in": [["dp", null], null]}, "gradient": {"in": [["dp", null], null]}},
 "tensors": {"w": ["dp", null]}}
