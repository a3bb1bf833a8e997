// A state that is moved on by a concatenation lies in more rows than it has: the new rows
// are made behind the old ones, and nothing else is written. Where it cannot, the window
// moves.
// RUN: split-file %s %t
// RUN: partita-opt %t/grow.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-partition --partita-schedule --partita-verify-scheduled --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=GROW
// RUN: partita-opt %t/shift.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-partition --partita-schedule --partita-verify-scheduled --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=SHIFT
// RUN: partita-opt %t/product.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=PRODUCT
// RUN: partita-opt %t/narrow.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=NARROW
// RUN: partita-opt %t/wide.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=WIDE
// RUN: partita-opt %t/other.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=OTHER
// RUN: partita-opt %t/grow.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/shift.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/product.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/narrow.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/wide.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/other.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/turned.mlir --partita-check-bundle -o /dev/null

// One row of 64 bytes in each of two windows, by the kernel that makes it.
// GROW: state "cache" {{.*}} in [[S:b[0-9]+]] rolls by 1 of 12 rows along dim 2
// GROW-NOT: task copy
// GROW: task kernel {{.*}} ({{b[0-9]+}}, [[S]]) // twice
// GROW-NEXT: task kernel {{.*}} ([[S]], {{b[0-9]+}}) // read
// GROW: states 1536 bytes, 128 written, 128 moved

// Two concatenations of the same rows.
// SHIFT: state "cache" {{.*}} in [[S:b[0-9]+]] rolls by 2 of 12 rows along dim 2
// SHIFT: task kernel {{.*}} ({{b[0-9]+}}, [[S]]) // twice
// SHIFT-NEXT: task kernel {{.*}} ([[S]], {{b[0-9]+}}) // read
// SHIFT-NEXT: task kernel {{.*}} ([[S]], {{b[0-9]+}}) // read again
// SHIFT: states 1536 bytes, 256 written, 256 moved

// By the product.
// PRODUCT: state "cache" {{.*}} in [[S:b[0-9]+]] rolls by 3 of 12 rows along dim 1
// PRODUCT-NOT: task copy
// PRODUCT: task matmul ({{b[0-9]+, w[0-9]+}}, [[S]]+384, {{.*}} // fc
// PRODUCT-NEXT: task kernel {{.*}} ([[S]], {{b[0-9]+}}) // read
// PRODUCT: states 768 bytes, 192 written, 192 moved

// Rows of 32 bytes would take 64, to be aligned.
// NARROW: state "cache" {{.*}} in b{{[0-9]+$}}
// NARROW: states 192 bytes, 192 written, 0 moved

// Those of 160 bytes take 192.
// WIDE: store {{.*}} f16 strides [{{.*}}] offset 576
// WIDE: state "cache" {{.*}} in b{{[0-9]+}} rolls by 1 of 12 rows along dim 1
// WIDE: states 4608 bytes, 320 written, 384 moved

// Rows come before the old ones.
// OTHER: state "cache" {{.*}} in b{{[0-9]+$}}
// OTHER: states 384 bytes, 384 written, 0 moved

//--- grow.mlir
func.func @main(%x: tensor<2x32xf32> {graph.name = "x"}, %past: tensor<2x2x6x16xf32> {graph.name = "past", dist.state = #dist.state<"cache">})
    -> (tensor<2x2x16xf32> {graph.name = "sum"}, tensor<2x2x6x16xf32> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %twice = graph.add %x, %x : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32> loc("twice")
  %new = graph.reshape %twice : (tensor<2x32xf32>) -> tensor<2x2x1x16xf32> loc("heads")
  %both = graph.concat %past, %new {axis = 2 : i64} : (tensor<2x2x6x16xf32>, tensor<2x2x1x16xf32>) -> tensor<2x2x7x16xf32> loc("both")
  %sum = graph.reduce %both {axes = array<i64: 2>, kind = #graph.reduce<sum>} : (tensor<2x2x7x16xf32>) -> tensor<2x2x16xf32> loc("read")
  %present = graph.slice %both {starts = array<i64: 0, 0, 1, 0>, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x2x7x16xf32>) -> tensor<2x2x6x16xf32>
  return %sum, %present : tensor<2x2x16xf32>, tensor<2x2x6x16xf32>
}
//--- shift.mlir
func.func @main(%x: tensor<2x2x2x16xf32> {graph.name = "x"}, %past: tensor<2x2x6x16xf32> {graph.name = "past", dist.state = #dist.state<"cache">})
    -> (tensor<2x2x16xf32> {graph.name = "sum"}, tensor<2x2x16xf32> {graph.name = "most"}, tensor<2x2x6x16xf32> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %new = graph.add %x, %x : (tensor<2x2x2x16xf32>, tensor<2x2x2x16xf32>) -> tensor<2x2x2x16xf32> loc("twice")
  %both = graph.concat %past, %new {axis = -2 : i64} : (tensor<2x2x6x16xf32>, tensor<2x2x2x16xf32>) -> tensor<2x2x8x16xf32> loc("both")
  %sum = graph.reduce %both {axes = array<i64: 2>, kind = #graph.reduce<sum>} : (tensor<2x2x8x16xf32>) -> tensor<2x2x16xf32> loc("read")
  %kept = graph.slice %past {starts = array<i64: 0, 0, 2, 0>, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x2x6x16xf32>) -> tensor<2x2x4x16xf32>
  %present = graph.concat %kept, %new {axis = 2 : i64} : (tensor<2x2x4x16xf32>, tensor<2x2x2x16xf32>) -> tensor<2x2x6x16xf32> loc("shifted")
  %most = graph.reduce %present {axes = array<i64: 2>, kind = #graph.reduce<max>} : (tensor<2x2x6x16xf32>) -> tensor<2x2x16xf32> loc("read again")
  return %sum, %most, %present : tensor<2x2x16xf32>, tensor<2x2x16xf32>, tensor<2x2x6x16xf32>
}
//--- product.mlir
func.func @main(%x: tensor<3x8xf32> {graph.name = "x"}, %past: tensor<1x6x16xf32> {graph.name = "past", dist.state = #dist.state<"cache">})
    -> (tensor<1x16xf32> {graph.name = "sum"}, tensor<1x6x16xf32> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %w = graph.weight "w" : tensor<8x16xf32>
  %y = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<3x8xf32>, tensor<8x16xf32>) -> tensor<3x16xf32> loc("fc")
  %heads = graph.reshape %y : (tensor<3x16xf32>) -> tensor<3x1x16xf32>
  %new = graph.transpose %heads {permutation = array<i64: 1, 0, 2>} : (tensor<3x1x16xf32>) -> tensor<1x3x16xf32>
  %both = graph.concat %past, %new {axis = 1 : i64} : (tensor<1x6x16xf32>, tensor<1x3x16xf32>) -> tensor<1x9x16xf32> loc("both")
  %sum = graph.reduce %both {axes = array<i64: 1>, kind = #graph.reduce<sum>} : (tensor<1x9x16xf32>) -> tensor<1x16xf32> loc("read")
  %present = graph.slice %both {starts = array<i64: 0, 3, 0>, steps = array<i64: 1, 1, 1>} : (tensor<1x9x16xf32>) -> tensor<1x6x16xf32>
  return %sum, %present : tensor<1x16xf32>, tensor<1x6x16xf32>
}
//--- narrow.mlir
func.func @main(%x: tensor<1x8xf32> {graph.name = "x"}, %past: tensor<6x8xf32> {graph.name = "past", dist.state = #dist.state<"cache">})
    -> (tensor<7x8xf32> {graph.name = "both"}, tensor<6x8xf32> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %both = graph.concat %past, %x {axis = 0 : i64} : (tensor<6x8xf32>, tensor<1x8xf32>) -> tensor<7x8xf32>
  %present = graph.slice %both {starts = array<i64: 1, 0>, steps = array<i64: 1, 1>} : (tensor<7x8xf32>) -> tensor<6x8xf32>
  return %both, %present : tensor<7x8xf32>, tensor<6x8xf32>
}
//--- wide.mlir
func.func @main(%x: tensor<2x80xf16> {graph.name = "x"}, %past: tensor<2x6x80xf16> {graph.name = "past", dist.state = #dist.state<"cache">})
    -> (tensor<2x80xf16> {graph.name = "sum"}, tensor<2x6x80xf16> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %twice = graph.add %x, %x : (tensor<2x80xf16>, tensor<2x80xf16>) -> tensor<2x80xf16> loc("twice")
  %new = graph.reshape %twice : (tensor<2x80xf16>) -> tensor<2x1x80xf16> loc("heads")
  %both = graph.concat %past, %new {axis = 1 : i64} : (tensor<2x6x80xf16>, tensor<2x1x80xf16>) -> tensor<2x7x80xf16> loc("both")
  %sum = graph.reduce %both {axes = array<i64: 1>, kind = #graph.reduce<sum>} : (tensor<2x7x80xf16>) -> tensor<2x80xf16> loc("read")
  %present = graph.slice %both {starts = array<i64: 0, 1, 0>, steps = array<i64: 1, 1, 1>} : (tensor<2x7x80xf16>) -> tensor<2x6x80xf16>
  return %sum, %present : tensor<2x80xf16>, tensor<2x6x80xf16>
}
//--- other.mlir
func.func @main(%x: tensor<1x16xf32> {graph.name = "x"}, %past: tensor<6x16xf32> {graph.name = "past", dist.state = #dist.state<"cache">})
    -> (tensor<7x16xf32> {graph.name = "both"}, tensor<6x16xf32> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %both = graph.concat %x, %past {axis = 0 : i64} : (tensor<1x16xf32>, tensor<6x16xf32>) -> tensor<7x16xf32>
  %present = graph.slice %both {starts = array<i64: 0, 0>, steps = array<i64: 1, 1>} : (tensor<7x16xf32>) -> tensor<6x16xf32>
  return %both, %present : tensor<7x16xf32>, tensor<6x16xf32>
}
// A state that becomes its own rows in another order is copied on the way.
//--- turned.mlir
func.func @main(%x: tensor<16xf32> {graph.name = "x"}, %past: tensor<6x16xf32> {graph.name = "past", dist.state = #dist.state<"cache">})
    -> (tensor<6x16xf32> {graph.name = "y"}, tensor<6x16xf32> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %y = graph.add %past, %x : (tensor<6x16xf32>, tensor<16xf32>) -> tensor<6x16xf32>
  %turned = graph.slice %past {starts = array<i64: 5, 0>, steps = array<i64: -1, 1>} : (tensor<6x16xf32>) -> tensor<6x16xf32>
  return %y, %turned : tensor<6x16xf32>, tensor<6x16xf32>
}
