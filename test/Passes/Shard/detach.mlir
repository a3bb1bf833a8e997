// What a node alone can do is done, whatever its neighbours make of the dim: a loop that
// they cut otherwise is one padded piece with reshards around it.
// RUN: split-file %s %t
// RUN: partita-opt %t/heads.mlir --partita-shard="mesh=tp=6 mode=semi-auto hints=%t/cut.json" --partita-check-spmd | FileCheck %s --check-prefix=CUT
// RUN: partita-opt %t/heads.mlir --partita-shard="mesh=tp=6 mode=semi-auto hints=%t/again.json" --partita-check-spmd | FileCheck %s --check-prefix=CUT
// RUN: partita-opt %t/heads.mlir --partita-shard="mesh=tp=5 mode=semi-auto hints=%t/weight.json" --partita-check-spmd | FileCheck %s --check-prefix=WEIGHT
// RUN: partita-opt %t/heads.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/bias.json" --partita-check-spmd | FileCheck %s --check-prefix=BIAS
// RUN: partita-opt %t/heads.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/rows.json" --partita-check-spmd | FileCheck %s --check-prefix=ROWS
// RUN: not partita-opt %t/heads.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/unequal.json" 2>&1 | FileCheck %s --check-prefix=UNEQUAL
// RUN: not partita-opt %t/heads.mlir --partita-shard="mesh=tp=2,one=1 mode=semi-auto hints=%t/twice.json" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not partita-opt %t/heads.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/inside.json" 2>&1 | FileCheck %s --check-prefix=INSIDE
// RUN: partita-opt %t/heads.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/lost.json" --partita-check-spmd 2>&1 | FileCheck %s --check-prefix=LOST

// 64 columns are 4 heads of 16 for the reshape: 6 divides neither.
// CUT: graph.relu {{.*}}{64/66: tp}
// CUT: graph.reshape
// WEIGHT: graph.contract {{.*}}{64/65: tp}
// The bias of a node that became two ops.
// BIAS: graph.contract {{.*}}tp
// BIAS: graph.add {{.*}}tp
// The 7 is inside the 14 for the reshape.
// ROWS: graph.tanh {{.*}}{7/8: tp}
// UNEQUAL: error: {{.*}}unequal.json: input 2 of 'fc', dim 0: 2 shards asked, but no split by input 1 of 'fc', dim 1, which is the same loop
// TWICE: error: {{.*}}twice.json: input 0 of 'act', dim 1: {one} is already used by input 0 of 'act', dim 0
// INSIDE: error: {{.*}}inside.json: output 0 of 'apart', dim 1: a dim of size 7 cannot be split by {tp} (2 ways): it does not divide, and is inside another dim of 'apart', where there is no room for padding
// LOST: remark: the hint for tensor 'x' has no effect: 'fc' reads it as [{14}, {6}]

//--- heads.mlir
func.func @main(%x: tensor<14x6xf32> {graph.name = "x"}) -> tensor<2x7x4x16xf32> {
  %w = graph.weight "w" : tensor<6x64xf32> loc("w")
  %b = graph.weight "b" : tensor<64xf32> loc("b")
  %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<14x6xf32>, tensor<6x64xf32>) -> tensor<14x64xf32> loc("fc")
  %1 = graph.add %0, %b : (tensor<14x64xf32>, tensor<64xf32>) -> tensor<14x64xf32> loc("fc")
  %2 = graph.relu %1 : (tensor<14x64xf32>) -> tensor<14x64xf32> loc("act")
  %3 = graph.reshape %2 : (tensor<14x64xf32>) -> tensor<2x7x4x16xf32> loc("apart")
  %4 = graph.tanh %3 : (tensor<2x7x4x16xf32>) -> tensor<2x7x4x16xf32> loc("out")
  return %4 : tensor<2x7x4x16xf32>
}
//--- cut.json
{"nodes": {"act": {"out": [[null, 6]]}}}
//--- again.json
{"nodes": {"act": {"out": [[null, 6]]}}, "tensors": {"act": [null, "tp"]}}
//--- weight.json
{"tensors": {"w": [null, 5]}}
//--- bias.json
{"nodes": {"fc": {"in": [[1, 1], [1, 2], [2]]}}}
//--- rows.json
{"nodes": {"out": {"in": [[null, 2, null, null]]}}}
//--- unequal.json
{"nodes": {"fc": {"in": [[1, 1], [1, 1], [2]]}}}
//--- twice.json
{"nodes": {"act": {"in": [["one", "one"]]}}}
//--- inside.json
{"nodes": {"apart": {"out": [[null, 2, null, null]]}}}
//--- lost.json
{"nodes": {"fc": {"in": [[1, 1]]}}, "tensors": {"x": ["tp", null]}}
