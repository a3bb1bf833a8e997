// A part of a weight's gradient that another stage reads is made by the backward part: the other
// stage may have its weight part of the same micro-batch before ours, and would wait for ever.
// RUN: partita-opt %s --partita-cut-step=part-weights=1 | FileCheck %s

// CHECK-LABEL: func.func @backward(
// CHECK-SAME: graph.name = "t"
// CHECK: graph.mul
// CHECK-LABEL: func.func @weight(
// CHECK-NOT: graph.mul
// CHECK: graph.contract
// CHECK-NEXT: graph.add
// CHECK-LABEL: func.func @end(

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
    %t = graph.mul %d, %y {dist.phase = #dist.phase<weight>, dist.strategy = #s} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    return %next, %t : tensor<4x4xf32>, tensor<2x4xf32>
  }
  func.func @main(
      %x: tensor<6x4xf32> {graph.name = "x", dist.layout = #all},
      %dy: tensor<6x4xf32> {graph.name = "dy", dist.layout = #all},
      %others: tensor<f32> {graph.name = "others", task.level = 1001 : i64, dist.layout = #one},
      %w: tensor<4x4xf32> {graph.name = "w", dist.state = #dist.state<"w" from "w">, dist.layout = #w})
      -> (tensor<3x2x4xf32> {graph.name = "t", task.crossing, dist.layout = #rows},
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
