// A slice of a concatenation reads the parts in which its range lies.
// RUN: partita-opt %s --partita-simplify --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s

// What was stacked and is taken again was never stacked.
// CHECK-LABEL: func.func @stack
// CHECK-SAME: %[[A:.*]]: tensor<2x3xf32>{{.*}}, %[[B:.*]]: tensor<2x3xf32>
func.func @stack(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = graph.reshape %a : (tensor<2x3xf32>) -> tensor<1x2x3xf32>
  %1 = graph.reshape %b : (tensor<2x3xf32>) -> tensor<1x2x3xf32>
  %2 = graph.concat %0, %1 {axis = 0 : i64} : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<2x2x3xf32>
  %3 = graph.slice %2 {starts = array<i64: 1, 0, 0>, steps = array<i64: 1, 1, 1>} : (tensor<2x2x3xf32>) -> tensor<1x2x3xf32>
  %4 = graph.reshape %3 : (tensor<1x2x3xf32>) -> tensor<2x3xf32>
  // CHECK-NEXT: return %[[B]]
  return %4 : tensor<2x3xf32>
}

// A range inside one part, backwards too, whoever else reads the joined value.
// CHECK-LABEL: func.func @one_part
// CHECK-SAME: %[[A:.*]]: tensor<4x3xf32>{{.*}}, %[[B:.*]]: tensor<6x3xf32>
func.func @one_part(%a: tensor<4x3xf32>, %b: tensor<6x3xf32>) -> (tensor<10x3xf32>, tensor<2x3xf32>) {
  // CHECK: %[[J:.*]] = graph.concat
  %0 = graph.concat %a, %b {axis = 0 : i64} : (tensor<4x3xf32>, tensor<6x3xf32>) -> tensor<10x3xf32>
  // CHECK: %[[S:.*]] = graph.slice %[[B]] {starts = array<i64: 5, 0>, steps = array<i64: -3, 1>}{{.*}} loc("node"("value"))
  %1 = graph.slice %0 {starts = array<i64: 9, 0>, steps = array<i64: -3, 1>} : (tensor<10x3xf32>) -> tensor<2x3xf32> loc("node"("value"))
  // CHECK: return %[[J]], %[[S]]
  return %0, %1 : tensor<10x3xf32>, tensor<2x3xf32>
}

// The last row of every cache of a decode step: of the caches themselves nothing is moved.
// CHECK-LABEL: func.func @last_rows
// CHECK-SAME: %{{[^:]*}}: tensor<1x9x4xf32>{{.*}}, %{{[^:]*}}: tensor<1x9x4xf32>{{.*}}, %[[K:.*]]: tensor<1x1x4xf32>{{.*}}, %[[V:.*]]: tensor<1x1x4xf32>
func.func @last_rows(%pk: tensor<1x9x4xf32>, %pv: tensor<1x9x4xf32>, %k: tensor<1x1x4xf32>, %v: tensor<1x1x4xf32>) -> tensor<2x1x1x4xf32> {
  // CHECK-NOT: tensor<{{.*}}10x4xf32>
  %0 = graph.concat %pk, %k {axis = 1 : i64} : (tensor<1x9x4xf32>, tensor<1x1x4xf32>) -> tensor<1x10x4xf32>
  %1 = graph.concat %pv, %v {axis = -2 : i64} : (tensor<1x9x4xf32>, tensor<1x1x4xf32>) -> tensor<1x10x4xf32>
  %2 = graph.reshape %0 : (tensor<1x10x4xf32>) -> tensor<1x1x10x4xf32>
  %3 = graph.reshape %1 : (tensor<1x10x4xf32>) -> tensor<1x1x10x4xf32>
  %4 = graph.concat %2, %3 {axis = 0 : i64} : (tensor<1x1x10x4xf32>, tensor<1x1x10x4xf32>) -> tensor<2x1x10x4xf32>
  // CHECK: %[[R0:.*]] = graph.reshape %[[K]] : {{.*}} loc("last")
  // CHECK: %[[R1:.*]] = graph.reshape %[[V]] : {{.*}} loc("last")
  // CHECK: %[[Y:.*]] = graph.concat %[[R0]], %[[R1]] {axis = 0 : i64} : {{.*}} loc("last"("rows"))
  %5 = graph.slice %4 {starts = array<i64: 0, 0, 9, 0>, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x1x10x4xf32>) -> tensor<2x1x1x4xf32> loc("last"("rows"))
  // CHECK: return %[[Y]]
  return %5 : tensor<2x1x1x4xf32>
}

// A range over the end of one part and the begin of another one.
// CHECK-LABEL: func.func @across
// CHECK-SAME: %[[A:.*]]: tensor<8xf32>{{.*}}, %[[B:.*]]: tensor<8xf32>
func.func @across(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<5xf32> {
  %0 = graph.concat %a, %b {axis = 0 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32>
  // CHECK: %[[X:.*]] = graph.slice %[[A]] {starts = array<i64: 6>, steps = array<i64: 1>} : (tensor<8xf32>) -> tensor<2xf32>
  // CHECK: %[[Y:.*]] = graph.slice %[[B]] {starts = array<i64: 0>, steps = array<i64: 1>} : (tensor<8xf32>) -> tensor<3xf32>
  // CHECK: graph.concat %[[X]], %[[Y]]
  %1 = graph.slice %0 {starts = array<i64: 6>, steps = array<i64: 1>} : (tensor<16xf32>) -> tensor<5xf32>
  return %1 : tensor<5xf32>
}

// What stays: a window that rolls, of which most is wanted; one that others read; every
// second element of two parts; a dim that a reshape has cut.
// CHECK-LABEL: func.func @stay
func.func @stay(%a: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<15xf32>, tensor<5xf32>, tensor<16xf32>, tensor<5xf32>, tensor<1x8xf32>) {
  // CHECK: %[[J:.*]] = graph.concat
  // CHECK: graph.slice %[[J]]
  %0 = graph.concat %a, %b {axis = 0 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32> loc("one")
  %1 = graph.slice %0 {starts = array<i64: 1>, steps = array<i64: 1>} : (tensor<16xf32>) -> tensor<15xf32>
  // CHECK: %[[J:.*]] = graph.concat
  // CHECK: graph.slice %[[J]]
  %2 = graph.concat %b, %a {axis = 0 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32> loc("two")
  %3 = graph.slice %2 {starts = array<i64: 6>, steps = array<i64: 1>} : (tensor<16xf32>) -> tensor<5xf32>
  // CHECK: %[[J:.*]] = graph.concat
  // CHECK: graph.slice %[[J]]
  %4 = graph.concat %a, %a {axis = 0 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32> loc("three")
  %5 = graph.slice %4 {starts = array<i64: 4>, steps = array<i64: 2>} : (tensor<16xf32>) -> tensor<5xf32>
  // CHECK: %[[J:.*]] = graph.concat
  // CHECK: %[[R:.*]] = graph.reshape %[[J]]
  // CHECK: graph.slice %[[R]]
  %6 = graph.concat %b, %b {axis = 0 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32> loc("four")
  %7 = graph.reshape %6 : (tensor<16xf32>) -> tensor<2x8xf32>
  %8 = graph.slice %7 {starts = array<i64: 1, 0>, steps = array<i64: 1, 1>} : (tensor<2x8xf32>) -> tensor<1x8xf32>
  return %1, %3, %2, %5, %8 : tensor<15xf32>, tensor<5xf32>, tensor<16xf32>, tensor<5xf32>, tensor<1x8xf32>
}
