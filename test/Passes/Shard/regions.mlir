// Loops and branches: one plan for all functions, ends of one variable in one layout, and
// the same numbers on every mesh.
// RUN: split-file %s %t
// RUN: partita-opt %t/loop.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/columns.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o %t/columns.mlir
// RUN: FileCheck %s --check-prefix=COLUMNS --input-file %t/columns.mlir
// RUN: partita-opt %t/columns.mlir --partita-partition --partita-verify-partitioned --partita-schedule --partita-verify-scheduled | FileCheck %s --check-prefix=SCHEDULED
// RUN: partita-opt %t/loop.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: partita-opt %t/loop.mlir --partita-shard="mesh=dp=3 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned -o /dev/null
// RUN: partita-opt %t/loop.mlir --partita-shard="mesh=tp=3 mode=auto" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned -o /dev/null
// RUN: partita-opt %t/loop.mlir --partita-shard="mesh=dp=2,tp=2 mode=auto" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned -o /dev/null
// RUN: partita-opt %t/nested.mlir --partita-shard="mesh=dp=2,tp=2 mode=auto" --partita-insert-reshards --partita-verify-planned --partita-check-spmd --partita-partition --partita-verify-partitioned --partita-schedule --partita-verify-scheduled -o /dev/null
// RUN: partita-opt %t/nested.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o /dev/null

// What is carried is split by columns; each trip gathers it for the product.
// COLUMNS: func.func private @step(%arg0: tensor<4x6xf32> {dist.layout = #dist.layout<#mesh, [{4}, {6: tp}]>
// COLUMNS-SAME: -> (tensor<4x6xf32> {dist.layout = #dist.layout<#mesh, [{4}, {6: tp}]>
// COLUMNS: dist.reshard %arg0 to <#mesh, [{4}, {6}]>
// COLUMNS: graph.repeat @step

// SCHEDULED: func.func private @step(%arg0: tensor<4x3xf32>
// SCHEDULED: comm.all_gather
// SCHEDULED: task.repeat @step trips 5 carried(

// ROWS: func.func private @step(%arg0: tensor<4x6xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}, {6}]>
// ROWS-NOT: dist.reshard %arg0
// ROWS: func.func @main

//--- loop.mlir
func.func private @step(%h: tensor<4x6xf32>, %x: tensor<4x6xf32>, %w: tensor<6x6xf32>)
    -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %p = graph.contract %h, %w {equation = #graph.equation<"b k, k n -> b n">} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32> loc("product")
  %s = graph.add %p, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("sum")
  %t = graph.tanh %s : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("state")
  return %t, %s : tensor<4x6xf32>, tensor<4x6xf32>
}
func.func @main(%h: tensor<4x6xf32> {graph.name = "h"}, %x: tensor<4x5x6xf32> {graph.name = "x"})
    -> (tensor<4x6xf32> {graph.name = "last"}, tensor<4x6xf32> {graph.name = "total"}) {
  %w = graph.weight "w" : tensor<6x6xf32>
  %rows = graph.transpose %x {permutation = array<i64: 1, 0, 2>} : (tensor<4x5x6xf32>) -> tensor<5x4x6xf32> loc("rows")
  %last, %all = graph.repeat @step trips 5 carried(%h) scanned(%rows) with(%w)
      : (tensor<4x6xf32>, tensor<5x4x6xf32>, tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<5x4x6xf32>) loc("loop")
  %total = graph.reduce %all {kind = #graph.reduce<sum>, axes = array<i64: 0>} : (tensor<5x4x6xf32>) -> tensor<4x6xf32> loc("total")
  return %last, %total : tensor<4x6xf32>, tensor<4x6xf32>
}
//--- columns.json
{"nodes": {"product": {"in": [null, [null, "tp"]]}}}
//--- nested.mlir
func.func private @inner(%h: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> tensor<4x6xf32> {
  %p = graph.contract %h, %w {equation = #graph.equation<"b k, k n -> b n">} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32> loc("product")
  %t = graph.tanh %p : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("inner state")
  return %t : tensor<4x6xf32>
}
func.func private @outer(%h: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>) {
  %i = graph.repeat @inner trips 3 carried(%h) with(%w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32> loc("inner loop")
  %s = graph.reduce %i {kind = #graph.reduce<sum>, axes = array<i64: 0>} : (tensor<4x6xf32>) -> tensor<6xf32> loc("sums")
  return %i, %s : tensor<4x6xf32>, tensor<6xf32>
}
func.func private @yes(%h: tensor<4x6xf32>) -> tensor<4x6xf32> {
  return %h : tensor<4x6xf32>
}
func.func private @no(%h: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %t = graph.neg %h : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("negated")
  return %t : tensor<4x6xf32>
}
func.func @main(%h: tensor<4x6xf32> {graph.name = "h"}, %w: tensor<6x6xf32> {graph.name = "w"}, %c: tensor<i1> {graph.name = "c"})
    -> (tensor<4x6xf32> {graph.name = "last"}, tensor<2x6xf32> {graph.name = "sums"}) {
  %last, %sums = graph.repeat @outer trips 2 carried(%h) with(%w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<2x6xf32>) loc("outer loop")
  %y = graph.if %c then @yes else @no(%last) : (tensor<i1>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("branch")
  return %y, %sums : tensor<4x6xf32>, tensor<2x6xf32>
}
