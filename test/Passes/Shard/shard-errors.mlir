// Every bad hint is one sentence that names the node, dim and value.
// RUN: split-file %s %t
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/unknown.json" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/twice.json" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/count.json" 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/axis.json" 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/rank.json" 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/misspelt.json" 2>&1 | FileCheck %s --check-prefix=MISSPELT
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/type.json" 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/large.json" 2>&1 | FileCheck %s --check-prefix=LARGE
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=sideways" 2>&1 | FileCheck %s --check-prefix=MODE
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/none.json" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/clash.json" 2>&1 | FileCheck %s --check-prefix=CLASH
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/whole.json" 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: not partita-opt %t/mlp.mlir --partita-shard="mode=semi-auto hints=%t/blocks.json" 2>&1 | FileCheck %s --check-prefix=BLOCKS

// RUN: not partita-opt %t/one.mlir --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/one.json" 2>&1 | FileCheck %s --check-prefix=ONE

// UNKNOWN: error: {{.*}}unknown.json: no node and no module is named 'fc7'
// TWICE: error: {{.*}}twice.json: input 0 of 'fc1', dim 1: {tp} is already used by input 0 of 'fc1', dim 0{{$}}
// CLASH: error: sub-graph 'f*1': {dp, tp} is already used by another dim of 'fc1' (hint for tensor 'w')
// CLASH: note: {{.*}}'w' is here
// CLASH: note: {{.*}}'fc1' is here
// WHOLE: error: {{.*}}whole.json: output 0 of 'norm', dim 1: a dim of size 3 cannot be split by {tp} (2 ways): 'norm' needs all of it on every rank
// BLOCKS: error: {{.*}}blocks.json: tensor 'w', dim 0: 3 blocks are given for 2 shards
// COUNT: error: {{.*}}input 0 of 'fc1', dim 0: no axes of the mesh dp=2,tp=2 that are still free split it 3 ways
// AXIS: error: {{.*}}input 0 of 'fc1', dim 0: {{.*}}sp
// RANK: error: {{.*}}input 0 of 'fc1' has 2 dims, the hint 3
// MISSPELT: error: {{.*}}nodes/"fc1": unknown member "inn"; known are in, out, priority
// TYPE: error: {{.*}}nodes/"fc1"/in[0][1]: expected an integer, got a number
// LARGE: error: {{.*}}input 1 of 'fc1', dim 1: a dim of size 3 cannot be split by {dp, tp} (4 ways): it has fewer elements
// ONE: error: {{.*}}one.json: input 0 of 'fc1', dim 0: a dim of size 1 cannot be split by {tp}{{$}}
// MODE: error: unknown mode "sideways"
// NONE: error: there is no hints file '{{.*}}none.json' and no rule of that name; the rules are megatron[:AXIS], megatron-sp[:AXIS], megatron-ep[:AXIS] and fsdp

//--- mlp.mlir
#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x3xf32> {
    %w = graph.weight "w" : tensor<8x3xf32> loc("w")
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32> loc("fc1")
    %1 = graph.softmax %0 {axis = 1 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32> loc("norm")
    return %1 : tensor<4x3xf32>
  }
}
//--- one.mlir
func.func @main(%x: tensor<1x8xf32>) -> tensor<1x8xf32> {
  %0 = graph.tanh %x : (tensor<1x8xf32>) -> tensor<1x8xf32> loc("fc1")
  return %0 : tensor<1x8xf32>
}
//--- one.json
{"nodes": {"fc1": {"in": [[2, null]]}}}
//--- clash.json
{"tensors": {"w": [null, ["tp"]]}, "subgraphs": {"f*1": "data-parallel"}}
//--- whole.json
{"nodes": {"norm": {"out": [[null, "tp"]]}}}
//--- blocks.json
{"tensors": {"w": [{"blocks": [2, 3, 3], "axes": ["tp"]}, null]}}
//--- unknown.json
{"nodes": {"fc7": {"in": [[2, 1]]}}}
//--- twice.json
{"nodes": {"fc1": {"in": [["tp", "tp"]]}}}
//--- count.json
{"nodes": {"fc1": {"in": [[3, 1]]}}}
//--- axis.json
{"nodes": {"fc1": {"in": [["sp", 1]]}}}
//--- rank.json
{"nodes": {"fc1": {"in": [[1, 1, 1]]}}}
//--- misspelt.json
{"nodes": {"fc1": {"inn": [[1, 1]]}}}
//--- type.json
{"nodes": {"fc1": {"in": [[1, 1.5]]}}}
//--- large.json
{"nodes": {"fc1": {"in": [null, [null, ["dp", "tp"]]]}}}
