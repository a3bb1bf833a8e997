// How elementwise ops are planned: what splits one operand splits the others where they have
// the dim, and partial sums pass where the op is linear.
// RUN: split-file %s %t
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/rows.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/columns.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=COLUMNS
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/partial.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=PARTIAL

// ROWS: %[[S:.*]] = dist.reshard %{{.*}} to <#mesh, [{4: tp}, {1}]>
// ROWS: graph.add {{.*}}{a: tp}>
// ROWS-NEXT: graph.mul %{{.*}}, %[[S]] {dist.strategy = #dist.strategy<#mesh, {a: tp}>}
// ROWS-NEXT: graph.tanh {{.*}}{a: tp}>

// The scale has no columns and is read whole.
// COLUMNS: %[[B:.*]] = dist.reshard %{{.*}} to <#mesh, [{6: tp}]>
// COLUMNS: graph.add %{{.*}}, %[[B]] {{.*}}{b: tp}>
// COLUMNS-NEXT: graph.mul {{.*}}{b: tp}>
// COLUMNS-NEXT: graph.tanh {{.*}}{b: tp}>

// A bias of which one rank has the value may be added before the sum is complete, and the
// sum may be scaled; tanh needs it complete.
// PARTIAL: dist.reshard %{{.*}} to <#mesh, [{6}] partial sum {tp}>
// PARTIAL: graph.add {{.*}}{} pass sum(0, 1) {tp}>
// PARTIAL-NEXT: %[[SUM:.*]] = graph.mul {{.*}}{} pass sum(0) {tp}>
// PARTIAL-NEXT: %[[WHOLE:.*]] = dist.reshard %[[SUM]] to <#mesh, [{4}, {6}]>
// PARTIAL-NEXT: graph.tanh %[[WHOLE]]

//--- program.mlir
func.func @main(%x: tensor<4x8xf32> {graph.name = "x"}) -> tensor<4x6xf32> {
  %w = graph.weight "w" : tensor<8x6xf32> loc("w")
  %b = graph.weight "b" : tensor<6xf32> loc("b")
  %s = graph.weight "s" : tensor<4x1xf32> loc("s")
  %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32> loc("fc")
  %1 = graph.add %0, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> loc("bias")
  %2 = graph.mul %1, %s : (tensor<4x6xf32>, tensor<4x1xf32>) -> tensor<4x6xf32> loc("scale")
  %3 = graph.tanh %2 : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("act")
  return %3 : tensor<4x6xf32>
}
//--- rows.json
{"nodes": {"act": {"out": [["tp", null]]}}}
//--- columns.json
{"nodes": {"bias": {"out": [[null, "tp"]]}}}
//--- partial.json
{"nodes": {"fc": {"in": [[null, "tp"]]}}}
