// A marked op is computed again by its strategy, before the first op behind the forward pass that
// reads it. A plan has the conversions of its copy, which belong to the backward pass, and the copy
// reads the last conversion of what the op reads: its own of a weight that is gathered anew, the
// forward pass's of other values.
// RUN: partita-opt %s --partita-shard="mode=semi-auto hints=%S/Inputs/recompute.json" --partita-insert-reshards --partita-verify-planned | FileCheck %s --check-prefix=PLAN
// RUN: partita-opt %s --partita-shard="mode=semi-auto hints=%S/Inputs/recompute.json" --partita-insert-reshards --partita-recompute --partita-verify-planned | FileCheck %s
// RUN: partita-opt %s --partita-shard="mode=semi-auto hints=%S/Inputs/recompute.json" --partita-check-spmd
// RUN: partita-opt %s --partita-shard="mode=semi-auto hints=%S/Inputs/recompute.json" --partita-insert-reshards --partita-recompute --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=RANK
// RUN: not partita-opt %s --partita-shard="mode=semi-auto hints=%S/Inputs/recompute-other.json" 2>&1 | FileCheck %s --check-prefix=OTHER

// PLAN: %[[P:.*]] = graph.contract %{{.*}}dist.recompute = #dist.recompute<before first>
// PLAN-DAG: %[[F:.*]] = dist.reshard %[[P]] to <#mesh, [{4}, {4}]> : tensor
// PLAN: graph.exp %[[F]]
// PLAN: %[[B:.*]] = dist.reshard %[[P]] to <#mesh, [{4}, {4}]> {dist.phase = #dist.phase<backward>}
// PLAN: graph.mul %{{.*}}, %[[B]]

// CHECK: %[[P:.*]] = graph.contract %[[X:[^ ,]*]], %[[W:[^ ]*]] {dist.strategy
// CHECK: %[[F:.*]] = dist.reshard %[[P]] to <#mesh, [{4}, {4}]> : tensor
// CHECK: graph.exp %[[F]]
// CHECK: %[[P2:.*]] = graph.contract %[[X]], %[[W]] {dist.phase = #dist.phase<backward>, dist.strategy
// CHECK-NEXT: %[[B:.*]] = dist.reshard %[[P2]] to <#mesh, [{4}, {4}]> {dist.phase = #dist.phase<backward>}
// CHECK: graph.mul %{{.*}}, %[[B]]
// CHECK-NOT: dist.recompute

// A step of a conversion is of the conversion's part.
// RANK: comm.all_reduce
// RANK-NOT: dist.phase
// RANK: graph.exp
// RANK: comm.all_reduce %{{.*}}dist.phase = #dist.phase<backward>

// OTHER: error: hint for {{.*}}'product/recompute'{{.*}} gives it another strategy than 'product' has, by which it is computed again

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x8xf32> {graph.name = "x"}, %w: tensor<8x4xf32> {graph.name = "w"}) -> tensor<4x4xf32> {
    %p = graph.contract %x, %w {equation = #graph.equation<"b k, k n -> b n">, dist.recompute = #dist.recompute<before first>} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> loc("product")
    %y = graph.exp %p : (tensor<4x4xf32>) -> tensor<4x4xf32> loc("exp")
    %d = graph.mul %y, %p {dist.phase = #dist.phase<backward>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32> loc("exp/backward")
    return %d : tensor<4x4xf32>
  }
}
