// What a repeated op asks of communication: mp_comm_recompute repeats the reduction behind it, or
// keeps what the forward pass received; parallel_optimizer_comm_recompute gathers weights anew.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/again.json --partita-simplify --cse --partita-mark-recompute=spec=%t/again.json --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/hints.json" --partita-insert-reshards --partita-verify-planned --partita-recompute --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=AGAIN
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/kept.json --partita-simplify --cse --partita-mark-recompute=spec=%t/kept.json --partita-shard="mesh=tp=2 mode=semi-auto hints=%t/hints.json" --partita-insert-reshards --partita-verify-planned --partita-recompute --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=KEPT
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/once.json --partita-simplify --cse --partita-mark-recompute=spec=%t/once.json --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-recompute --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=ONCE
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/gathered.json --partita-simplify --cse --partita-mark-recompute=spec=%t/gathered.json --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-verify-planned --partita-recompute --partita-verify-planned --partita-check-spmd | FileCheck %s --check-prefix=GATHERED

// Two products, of which one stands in the backward pass, and a reduction behind each.
// AGAIN: %[[P:.*]] = graph.contract %{{.*}}
// AGAIN: dist.reshard %[[P]] to <#mesh, [{4}, {4}]>
// AGAIN: graph.tanh
// AGAIN: %[[P2:.*]] = graph.contract %{{.*}}dist.phase = #dist.phase<backward>
// AGAIN: dist.reshard %[[P2]] to <#mesh, [{4}, {4}]>
// AGAIN-NOT: dist.recompute

// The copy of exp reads what was received; the product is not repeated.
// KEPT: %[[P:.*]] = graph.contract %{{.*}}
// KEPT: %[[H:.*]] = dist.reshard %[[P]] to <#mesh, [{4}, {4}]>
// KEPT: graph.exp %[[H]]
// KEPT: graph.tanh
// KEPT-NOT: graph.contract %{{.*}}dist.phase = #dist.phase<backward>
// KEPT: graph.exp %[[H]] {{.*}}dist.phase = #dist.phase<backward>
// KEPT-NOT: dist.recompute

// Of a weight that lies in parts there is one reading, or one in each pass.
// ONCE: %[[V:.*]] = dist.reshard %[[STATE:arg[0-9]+]] to <#mesh, [{4}]>
// ONCE: graph.mul %{{.*}}, %[[V]]
// ONCE-NOT: dist.reshard %[[STATE]]
// ONCE: return
// GATHERED: %[[V:.*]] = dist.reshard %[[STATE:arg[0-9]+]] to <#mesh, [{4}]>
// GATHERED: graph.mul %{{.*}}, %[[V]]
// GATHERED: %[[V2:.*]] = dist.reshard %[[STATE]] to <#mesh, [{4}]> epoch 1
// GATHERED: graph.mul %{{.*}}, %[[V2]]

//--- again.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd"}, "recompute": [{"nodes": ["a", "b", "c"]}]}

//--- kept.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"},
 "recompute": [{"nodes": ["a", "b", "c"], "mp_comm_recompute": false}]}

//--- once.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"},
 "optimizer_parallel": {"enable": true, "level": 3, "threshold_kb": 0},
 "recompute": [{"nodes": ["c", "d"]}]}

//--- gathered.json
{"loss": {"kind": "l1", "of": "y", "labels": "target"}, "optimizer": {"kind": "sgd"},
 "optimizer_parallel": {"enable": true, "level": 3, "threshold_kb": 0},
 "recompute": [{"nodes": ["c", "d"], "parallel_optimizer_comm_recompute": true}]}

//--- hints.json
{"nodes": {"a": {"in": [[null, "tp"], ["tp", null]]}}}

//--- model.mlir
func.func @main(%x: tensor<4x8xf32> {graph.name = "x"},
                %w: tensor<8x4xf32> {graph.name = "w", dist.state = #dist.state<"w" from "w">},
                %v: tensor<4xf32> {graph.name = "v", dist.state = #dist.state<"v" from "v">})
    -> (tensor<4x4xf32> {graph.name = "y"}) {
  %p = graph.contract %x, %w {equation = #graph.equation<"b k, k n -> b n">} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> loc("a")
  %h = graph.exp %p : (tensor<4x4xf32>) -> tensor<4x4xf32> loc("b")
  %s = graph.mul %h, %v : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32> loc("c")
  %t = graph.sin %s : (tensor<4x4xf32>) -> tensor<4x4xf32> loc("d")
  %z = graph.tanh %t : (tensor<4x4xf32>) -> tensor<4x4xf32> loc("act")
  return %z : tensor<4x4xf32>
}
