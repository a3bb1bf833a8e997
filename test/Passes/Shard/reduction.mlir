// How reductions are planned: over a split dim the result is partial, and reduced once; a
// split of a kept dim goes on.
// RUN: split-file %s %t
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/reduced.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=REDUCED
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/kept.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=KEPT

// The negation is linear and passes the partial sums on; tanh is not.
// REDUCED: graph.relu {{.*}}{b: tp}>
// REDUCED-NEXT: graph.reduce {{.*}}{b: tp}>
// REDUCED-NEXT: %[[SUM:.*]] = graph.neg {{.*}}{} pass sum(0) {tp}>
// REDUCED-NEXT: dist.reshard %[[SUM]] to <#mesh, [{4}]>

// KEPT-NOT: dist.reshard
// KEPT: graph.reduce {{.*}}{a: tp}>
// KEPT-NEXT: graph.neg {{.*}}{a: tp}>
// KEPT-NEXT: graph.tanh {{.*}}{a: tp}>

//--- program.mlir
func.func @main(%x: tensor<4x6xf32> {graph.name = "x"}) -> tensor<4xf32> {
  %0 = graph.relu %x : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("act")
  %1 = graph.reduce %0 {kind = #graph.reduce<sum>, axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32> loc("sum")
  %2 = graph.neg %1 : (tensor<4xf32>) -> tensor<4xf32> loc("neg")
  %3 = graph.tanh %2 : (tensor<4xf32>) -> tensor<4xf32> loc("out")
  return %3 : tensor<4xf32>
}
//--- reduced.json
{"nodes": {"act": {"out": [[null, "tp"]]}}}
//--- kept.json
{"nodes": {"act": {"out": [["tp", null]]}}}
