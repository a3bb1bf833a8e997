// A loop adds up gradients of micro-batches whose batch is split: each rank adds its own
// parts, and one reduction follows the loop.
// RUN: split-file %s %t
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=2 mode=semi-auto hints=%t/hints.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o %t/planned.mlir
// RUN: FileCheck %s --input-file %t/planned.mlir
// RUN: partita-opt %t/planned.mlir --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=RANKS
// RUN: partita-opt %t/planned.mlir --partita-check-bundle -o /dev/null

// Where the body reads what it adds to, each trip needs the whole sum.
// RUN: partita-opt %t/read.mlir --partita-shard="mesh=dp=2 mode=semi-auto hints=%t/hints.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o %t/read-planned.mlir
// RUN: FileCheck %s --check-prefix=READ --input-file %t/read-planned.mlir

// What is added may be broadcast: it is reduced before.
// RUN: partita-opt %t/broadcast.mlir --partita-shard="mesh=dp=2 mode=semi-auto hints=%t/hints.json" --partita-insert-reshards --partita-verify-planned --partita-check-spmd -o %t/broadcast-planned.mlir
// RUN: FileCheck %s --check-prefix=BROADCAST --input-file %t/broadcast-planned.mlir

// Gradients in 16 bits are added up in f32 as partial sums, too, even where two trips move
// as many bytes as one reduction in f32.
// RUN: partita-opt %t/narrow.mlir --partita-shard="mesh=dp=2 mode=semi-auto hints=%t/hints.json" --partita-insert-reshards --partita-verify-planned -o %t/narrow-planned.mlir
// RUN: FileCheck %s --check-prefix=NARROW --input-file %t/narrow-planned.mlir
// RUN: partita-opt %t/narrow-planned.mlir --partita-partition --partita-verify-partitioned | FileCheck %s --check-prefix=RANKS

// NARROW: @micro(%{{.*}}: tensor<4x6xf32> {dist.layout = {{.*}} partial sum {dp}>}
// NARROW-NOT: dist.reshard
// NARROW: graph.cast {{.*}}pass sum(0) {dp}{{.*}} -> tensor<4x6xf32>
// NARROW-NEXT: graph.add {{.*}}pass sum(0, 1) {dp}

// CHECK: @micro(%{{.*}}: tensor<4x6xf32> {dist.layout = {{.*}} partial sum {dp}>}
// CHECK: graph.add {{.*}}pass sum(0, 1) {dp}
// CHECK: @main
// CHECK: dist.reshard %{{.*}} partial sum {dp}
// CHECK: %[[SUM:.*]] = graph.repeat @micro
// CHECK-NEXT: dist.reshard %[[SUM]] to <#mesh, [{4}, {6}]>

// RANKS: @micro
// RANKS-NOT: comm.
// RANKS: @main
// RANKS: graph.repeat
// RANKS-NEXT: comm.all_reduce
// RANKS-NOT: comm.

// READ: @micro(%{{.*}}: tensor<4x6xf32> {dist.layout = {{.*}}[{4}, {6}]>}
// READ: %[[GRADIENT:.*]] = dist.reshard {{.*}} to <#mesh, [{4}, {6}]>
// READ-NEXT: graph.add %{{.*}}, %[[GRADIENT]]

// BROADCAST: @micro(%{{.*}}: tensor<4x6xf32> {dist.layout = {{.*}}[{4}, {6}]>}
// BROADCAST: graph.reduce
// BROADCAST-NEXT: dist.reshard
// BROADCAST-NEXT: graph.add

//--- hints.json
{"tensors": {"x": [null, "dp", null]}}

//--- step.mlir
func.func private @micro(%g: tensor<4x6xf32>, %x: tensor<8x4xf32>, %w: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = graph.contract %x, %w {equation = #graph.equation<"b k, k n -> b n">} : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32> loc("forward")
  %d = graph.contract %x, %y {equation = #graph.equation<"b k, b n -> k n">} : (tensor<8x4xf32>, tensor<8x6xf32>) -> tensor<4x6xf32> loc("gradient")
  %s = graph.add %g, %d : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("sum")
  return %s : tensor<4x6xf32>
}
func.func @main(%x: tensor<4x8x4xf32> {graph.name = "x"},
                %w: tensor<4x6xf32> {graph.name = "w", dist.state = #dist.state<"w" from "w0">})
    -> (tensor<4x6xf32> {graph.name = "w_next", dist.state = #dist.state<"w">}) {
  %zero = graph.constant dense<0.0> : tensor<4x6xf32>
  %rate = graph.constant dense<0.125> : tensor<f32>
  %g = graph.repeat @micro trips 4 carried(%zero) scanned(%x) with(%w) : (tensor<4x6xf32>, tensor<4x8x4xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("accumulate")
  %d = graph.mul %g, %rate : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32> loc("scaled")
  %n = graph.sub %w, %d : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("update")
  return %n : tensor<4x6xf32>
}

//--- narrow.mlir
func.func private @micro(%g: tensor<4x6xf32>, %x: tensor<8x4xbf16>, %w: tensor<4x6xbf16>) -> tensor<4x6xf32> {
  %y = graph.contract %x, %w {equation = #graph.equation<"b k, k n -> b n">} : (tensor<8x4xbf16>, tensor<4x6xbf16>) -> tensor<8x6xbf16> loc("forward")
  %d = graph.contract %x, %y {equation = #graph.equation<"b k, b n -> k n">} : (tensor<8x4xbf16>, tensor<8x6xbf16>) -> tensor<4x6xbf16> loc("gradient")
  %f = graph.cast %d {to = f32} : (tensor<4x6xbf16>) -> tensor<4x6xf32> loc("wide")
  %s = graph.add %g, %f : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("sum")
  return %s : tensor<4x6xf32>
}
func.func @main(%x: tensor<2x8x4xbf16> {graph.name = "x"}, %w: tensor<4x6xbf16> {graph.name = "w"}) -> tensor<4x6xf32> {
  %zero = graph.constant dense<0.0> : tensor<4x6xf32>
  %g = graph.repeat @micro trips 2 carried(%zero) scanned(%x) with(%w) : (tensor<4x6xf32>, tensor<2x8x4xbf16>, tensor<4x6xbf16>) -> tensor<4x6xf32> loc("accumulate")
  return %g : tensor<4x6xf32>
}

//--- read.mlir
func.func private @micro(%g: tensor<4x6xf32>, %x: tensor<8x4xf32>) -> tensor<4x6xf32> {
  %y = graph.contract %x, %g {equation = #graph.equation<"b k, k n -> b n">} : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32> loc("forward")
  %d = graph.contract %x, %y {equation = #graph.equation<"b k, b n -> k n">} : (tensor<8x4xf32>, tensor<8x6xf32>) -> tensor<4x6xf32> loc("gradient")
  %s = graph.add %g, %d : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("sum")
  return %s : tensor<4x6xf32>
}
func.func @main(%x: tensor<2x8x4xf32> {graph.name = "x"}, %w: tensor<4x6xf32> {graph.name = "w"}) -> tensor<4x6xf32> {
  %g = graph.repeat @micro trips 2 carried(%w) scanned(%x) : (tensor<4x6xf32>, tensor<2x8x4xf32>) -> tensor<4x6xf32> loc("loop")
  return %g : tensor<4x6xf32>
}

//--- broadcast.mlir
func.func private @micro(%g: tensor<4x6xf32>, %x: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %d = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 0>} : (tensor<8x6xf32>) -> tensor<6xf32> loc("gradient")
  %s = graph.add %g, %d : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> loc("sum")
  return %s : tensor<4x6xf32>
}
func.func @main(%x: tensor<2x8x6xf32> {graph.name = "x"}, %w: tensor<4x6xf32> {graph.name = "w"}) -> tensor<4x6xf32> {
  %g = graph.repeat @micro trips 2 carried(%w) scanned(%x) : (tensor<4x6xf32>, tensor<2x8x6xf32>) -> tensor<4x6xf32> loc("loop")
  return %g : tensor<4x6xf32>
}
