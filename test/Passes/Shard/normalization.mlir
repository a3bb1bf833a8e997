// How softmax and normalizations are planned: a split of the dim that they mix is gathered
// before them, any other goes through.
// RUN: split-file %s %t
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/rows.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/mixed.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=MIXED
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/mixed.json explain=softmax" -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY

// WHY: remark: 'softmax': {}; whole on every rank; needed whole (b): The axis: each element needs the maximum and the sum of its whole row, {{.*}} the program splits along it.

// ROWS-NOT: dist.reshard
// ROWS: graph.layer_norm {{.*}}{a: tp}>
// ROWS-NEXT: graph.softmax {{.*}}{a: tp}>

// MIXED: %[[PARTS:.*]] = graph.relu {{.*}}{b: tp}>
// MIXED-NEXT: %[[WHOLE:.*]] = dist.reshard %[[PARTS]] to <#mesh, [{4}, {6}]>
// MIXED-NEXT: graph.layer_norm %[[WHOLE]], {{.*}}#dist.strategy<#mesh, {}>

//--- program.mlir
func.func @main(%x: tensor<4x6xf32> {graph.name = "x"}) -> tensor<4x6xf32> {
  %s = graph.weight "s" : tensor<6xf32> loc("s")
  %b = graph.weight "b" : tensor<6xf32> loc("b")
  %0 = graph.relu %x : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("act")
  %1 = graph.layer_norm %0, %s, %b {axis = -1 : i64, epsilon = 1.0e-5} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<4x6xf32> loc("norm")
  %2 = graph.softmax %1 {axis = 1 : i64} : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("softmax")
  return %2 : tensor<4x6xf32>
}
//--- rows.json
{"nodes": {"softmax": {"out": [["tp", null]]}}}
//--- mixed.json
{"nodes": {"act": {"out": [[null, "tp"]]}}}
