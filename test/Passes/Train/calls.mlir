// A loop is differentiated by a loop from the last trip to the first, a branch by a branch.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --partita-verify-trained -o %t/step.mlir
// RUN: FileCheck %s --input-file %t/step.mlir
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned -o /dev/null

// CHECK: func.func @main
// CHECK: %[[ALL:.*]]:2 = graph.repeat @body_kept trips 3
// CHECK: graph.if %[[C:.*]] then @steep else @flat
// CHECK: %[[D:.*]] = graph.if %[[C]] then @steep_backward else @flat_backward
// CHECK: graph.slice %[[ALL]]#1 {dist.phase = #dist.phase<backward>, starts = array<i64: 2, 0>, steps = array<i64: -1, 1>}
// CHECK: graph.repeat @body_backward trips 3 carried(%[[D]],
// CHECK-DAG: func.func private @body_kept
// CHECK-DAG: func.func private @body_backward
// CHECK-DAG: func.func private @steep_backward

//--- spec.json
{"loss": {"kind": "mse", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"}}

//--- model.mlir
func.func private @body(%h: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %0 = graph.mul %h, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("mul")
  %1 = graph.sin %0 : (tensor<4xf32>) -> tensor<4xf32> loc("sin")
  return %1 : tensor<4xf32>
}
func.func private @steep(%h: tensor<4xf32>) -> tensor<4xf32> {
  %0 = graph.exp %h : (tensor<4xf32>) -> tensor<4xf32> loc("exp")
  return %0 : tensor<4xf32>
}
func.func private @flat(%h: tensor<4xf32>) -> tensor<4xf32> {
  return %h : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32> {graph.name = "x"}, %c: tensor<i1> {graph.name = "c"},
                %w: tensor<4xf32> {dist.state = #dist.state<"w" from "w">})
    -> (tensor<4xf32> {graph.name = "y"}) {
  %last = graph.repeat @body trips 3 carried(%x) with(%w)
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("loop")
  %y = graph.if %c then @steep else @flat(%last) : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32> loc("if")
  return %y : tensor<4xf32>
}
