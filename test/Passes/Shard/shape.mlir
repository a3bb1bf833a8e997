// How ops that move elements are planned: a split goes through merged and cut dims, through
// permutations and slices of other dims.
// RUN: split-file %s %t
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/heads.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=HEADS
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/rows.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: partita-opt %t/program.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/width.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=WIDTH

// Each of the three thirds is split, so that the slice of one moves nothing.
// HEADS: func.func @main({{.*}}[{4}, {3}*{8: tp}]
// HEADS-NOT: dist.reshard
// HEADS: graph.relu {{.*}}{b: {3}*{8: tp}}>
// HEADS-NEXT: graph.slice {{.*}}{c: tp}>
// HEADS-NEXT: graph.reshape {{.*}}{b: tp}>
// HEADS-NEXT: graph.transpose {{.*}}{b: tp}>

// ROWS-NOT: dist.reshard
// ROWS: graph.slice {{.*}}{a: tp}>
// ROWS-NEXT: graph.reshape {{.*}}{c: tp}>
// ROWS-NEXT: graph.transpose {{.*}}{a: tp}>

// The inner of two merged dims: 4 of each 8, on both sides.
// WIDTH: func.func @main({{.*}}[{4}, {6}*{4: tp}]
// WIDTH-NOT: dist.reshard
// WIDTH: graph.slice {{.*}}{c: {2}*{4: tp}}>
// WIDTH-NEXT: graph.reshape {{.*}}{a: tp}>
// WIDTH-NEXT: graph.transpose {{.*}}{c: tp}>

//--- program.mlir
func.func @main(%x: tensor<4x24xf32> {graph.name = "x"}) -> tensor<2x4x4xf32> {
  %0 = graph.relu %x : (tensor<4x24xf32>) -> tensor<4x24xf32> loc("act")
  %1 = graph.slice %0 {starts = array<i64: 0, 8>, steps = array<i64: 1, 1>} : (tensor<4x24xf32>) -> tensor<4x8xf32> loc("third")
  %2 = graph.reshape %1 : (tensor<4x8xf32>) -> tensor<4x2x4xf32> loc("heads")
  %3 = graph.transpose %2 {permutation = array<i64: 1, 0, 2>} : (tensor<4x2x4xf32>) -> tensor<2x4x4xf32> loc("turn")
  return %3 : tensor<2x4x4xf32>
}
//--- heads.json
{"nodes": {"turn": {"out": [["tp", null, null]]}}}
//--- rows.json
{"tensors": {"x": ["tp", null]}}
//--- width.json
{"nodes": {"turn": {"out": [[null, null, "tp"]]}}}
