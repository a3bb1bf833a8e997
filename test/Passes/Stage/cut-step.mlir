// A planned step becomes what a schedule runs: what a trip keeps for its backward part has
// a buffer, sums over micro-batches are read and written, rows become the part of one
// micro-batch, and what waits for another stage behind the loop is a segment of its own.
// RUN: partita-opt %s --partita-cut-step | FileCheck %s
// RUN: partita-opt %s --partita-cut-step=part-weights=1 | FileCheck %s --check-prefix=PARTS
// RUN: partita-opt %s --partita-cut-step --partita-verify-planned -o /dev/null

// CHECK-LABEL: func.func @begin() -> (tensor<4x4xf32> {{{.*}}task.buffer = "carried0"})
// CHECK-SAME: task.once
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[X:.*]]: tensor<2x4xf32> {{{.*}}graph.name = "x", task.buffer = "argument0"}
// CHECK-SAME: %[[W:.*]]: tensor<4x4xf32> {{{.*}}task.buffer = "state w"}
// CHECK-SAME: -> (tensor<2x4xf32> {{{.*}}graph.name = "y", task.buffer = "result0"
// CHECK-SAME: dist.trips = 3
// CHECK: %[[P:.*]] = graph.contract %[[X]], %[[W]]
// CHECK: %[[Y:.*]] = graph.relu %[[P]]
// CHECK: return %[[Y]]
// CHECK-LABEL: func.func @backward(
// CHECK-SAME: graph.name = "dy", task.buffer = "argument1"
// CHECK-SAME: task.buffer = "result0"
// CHECK-SAME: task.buffer = "carried0"
// CHECK-SAME: -> (tensor<4x4xf32> {{{.*}}task.buffer = "carried0"})
// CHECK: graph.map
// CHECK: graph.contract
// CHECK: graph.add
// CHECK-LABEL: func.func @end(
// CHECK-SAME: task.buffer = "carried0"
// CHECK-SAME: graph.name = "norm", task.buffer = "result1"
// CHECK-LABEL: func.func @end1(
// CHECK-SAME: graph.name = "others"
// CHECK-SAME: task.buffer = "state w"
// CHECK: graph.map

// PARTS-LABEL: func.func @backward(
// PARTS-SAME: -> (tensor<2x4xf32> {{{.*}}task.buffer = "value
// PARTS-LABEL: func.func @weight(
// PARTS: graph.contract
// PARTS-NEXT: graph.add

#mesh = #dist.mesh<dp=1>
#x = #dist.layout<#mesh, [{2}, {4}]>
#all = #dist.layout<#mesh, [{6}, {4}]>
#rows = #dist.layout<#mesh, [{3}, {2}, {4}]>
#w = #dist.layout<#mesh, [{4}, {4}]>
#one = #dist.layout<#mesh, []>
#s = #dist.strategy<#mesh, {}>
module attributes {dist.mesh = #mesh} {
  func.func private @micro_batch(
      %sum: tensor<4x4xf32> {dist.layout = #w}, %x: tensor<2x4xf32> {dist.layout = #x},
      %dy: tensor<2x4xf32> {dist.layout = #x}, %w: tensor<4x4xf32> {dist.layout = #w})
      -> (tensor<4x4xf32> {dist.layout = #w}, tensor<2x4xf32> {dist.layout = #x}) {
    %p = graph.contract %x, %w {dist.strategy = #s, equation = #graph.equation<"m k, k n -> m n">} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %y = graph.relu %p {dist.strategy = #s} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %d = graph.map %dy, %y {dist.phase = #dist.phase<backward>, dist.strategy = #s, payload = #graph.payload<"select(y > 0, x, 0)">} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %g = graph.contract %d, %x {dist.phase = #dist.phase<weight>, dist.strategy = #s, equation = #graph.equation<"m n, m k -> k n">} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
    %next = graph.add %sum, %g {dist.phase = #dist.phase<weight>, dist.strategy = #s} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    return %next, %y : tensor<4x4xf32>, tensor<2x4xf32>
  }
  func.func @main(
      %x: tensor<6x4xf32> {graph.name = "x", dist.layout = #all},
      %dy: tensor<6x4xf32> {graph.name = "dy", dist.layout = #all},
      %others: tensor<f32> {graph.name = "others", task.level = 1001 : i64, dist.layout = #one},
      %w: tensor<4x4xf32> {graph.name = "w", dist.state = #dist.state<"w" from "w">, dist.layout = #w})
      -> (tensor<3x2x4xf32> {graph.name = "y", task.crossing, dist.layout = #rows},
          tensor<f32> {graph.name = "norm", task.crossing, dist.layout = #one},
          tensor<4x4xf32> {dist.state = #dist.state<"w">, dist.layout = #w}) {
    %zero = graph.constant dense<0.0> : tensor<4x4xf32>
    %rows = graph.reshape %x {dist.strategy = #s} : (tensor<6x4xf32>) -> tensor<3x2x4xf32>
    %cotangents = graph.reshape %dy {dist.strategy = #s} : (tensor<6x4xf32>) -> tensor<3x2x4xf32>
    %loop:2 = graph.repeat @micro_batch trips 3 carried(%zero) scanned(%rows, %cotangents) with(%w) : (tensor<4x4xf32>, tensor<3x2x4xf32>, tensor<3x2x4xf32>, tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<3x2x4xf32>)
    %norm = graph.reduce %loop#0 {axes = array<i64: 0, 1>, dist.phase = #dist.phase<update>, dist.strategy = #s, kind = #graph.reduce<sum>} : (tensor<4x4xf32>) -> tensor<f32>
    %next = graph.map %w, %loop#0, %norm, %others {dist.phase = #dist.phase<update>, dist.strategy = #s, payload = #graph.payload<"x - y / (z + w)">} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>) -> tensor<4x4xf32>
    return %loop#1, %norm, %next : tensor<3x2x4xf32>, tensor<f32>, tensor<4x4xf32>
  }
}
