// How gathers are planned: along the places and the width nothing moves; of a split table
// each rank looks up its rows, and the sum of what they find is reduced once.
// RUN: split-file %s %t
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/places.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=PLACES
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/width.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=WIDTH
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/rows.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ROWS

// PLACES-NOT: dist.reshard
// PLACES: graph.gather {{.*}}{a: tp}>
// PLACES-NEXT: graph.add {{.*}}{a: tp}>

// WIDTH: dist.reshard %{{.*}} to <#mesh, [{10}, {8: tp}]>
// WIDTH: graph.gather {{.*}}{d: tp}>
// WIDTH-NEXT: graph.add {{.*}}{c: tp}>

// The positions are added on one rank, before the sum over the rows is complete.
// ROWS: dist.reshard %{{.*}} to <#mesh, [{10: tp}, {8}]>
// ROWS: dist.reshard %{{.*}} to <#mesh, [{6}, {8}] partial sum {tp}>
// ROWS: graph.gather {{.*}}{c: tp}>
// ROWS-NEXT: %[[SUM:.*]] = graph.add {{.*}}{} pass sum(0, 1) {tp}>
// ROWS-NEXT: dist.reshard %[[SUM]] to <#mesh, [{4}, {6}, {8}]>

//--- program.mlir
func.func @main(%ids: tensor<4x6xi64> {graph.name = "ids"}) -> tensor<4x6x8xf32> {
  %table = graph.weight "table" : tensor<10x8xf32> loc("table")
  %where = graph.weight "where" : tensor<6x8xf32> loc("where")
  %0 = graph.gather %table, %ids {axis = 0 : i64} : (tensor<10x8xf32>, tensor<4x6xi64>) -> tensor<4x6x8xf32> loc("embed")
  %1 = graph.add %0, %where : (tensor<4x6x8xf32>, tensor<6x8xf32>) -> tensor<4x6x8xf32> loc("sum")
  return %1 : tensor<4x6x8xf32>
}
//--- places.json
{"tensors": {"ids": ["tp", null]}}
//--- width.json
{"tensors": {"table": [null, "tp"]}}
//--- rows.json
{"tensors": {"table": ["tp", null]}}
