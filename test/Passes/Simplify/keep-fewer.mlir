// A suppression keeps no more boxes than are read.
// RUN: partita-opt %s --partita-simplify | FileCheck %s

// The first 30 of at most 50, and their number as min(number, 30).
// CHECK-LABEL: func.func @first
// CHECK: graph.suppress {{.*}}most = 30
func.func @first(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>, %x: tensor<50x3xf32>) -> (tensor<30x3xf32>, tensor<i64>) {
  %zero = graph.constant dense<0> : tensor<i64>
  %most = graph.constant dense<30> : tensor<i64>
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  %1 = graph.greater_equal %0, %zero : (tensor<1x1x50xi64>, tensor<i64>) -> tensor<1x1x50xi1>
  %2 = graph.reshape %1 : (tensor<1x1x50xi1>) -> tensor<50x1xi1>
  %3 = graph.cast %2 {to = i64} : (tensor<50x1xi1>) -> tensor<50x1xi64>
  %4 = graph.reduce %3 {axes = array<i64: 0, 1>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<50x1xi64>) -> tensor<i64>
  %5 = graph.min %4, %most : (tensor<i64>, tensor<i64>) -> tensor<i64>
  %6 = graph.reshape %0 : (tensor<1x1x50xi64>) -> tensor<50xi64>
  %7 = graph.max %6, %zero : (tensor<50xi64>, tensor<i64>) -> tensor<50xi64>
  %8 = graph.slice %7 {starts = array<i64: 0>, steps = array<i64: 1>} : (tensor<50xi64>) -> tensor<30xi64>
  %9 = graph.gather %x, %8 {axis = 0 : i64} : (tensor<50x3xf32>, tensor<30xi64>) -> tensor<30x3xf32>
  return %9, %5 : tensor<30x3xf32>, tensor<i64>
}

// All of them are counted; the last one is read.
// CHECK-LABEL: func.func @counted
// CHECK: graph.suppress {{.*}}most = 50
func.func @counted(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> (tensor<1x1x30xi64>, tensor<i64>) {
  %zero = graph.constant dense<0> : tensor<i64>
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  %1 = graph.greater_equal %0, %zero : (tensor<1x1x50xi64>, tensor<i64>) -> tensor<1x1x50xi1>
  %2 = graph.cast %1 {to = i64} : (tensor<1x1x50xi1>) -> tensor<1x1x50xi64>
  %3 = graph.reduce %2 {axes = array<i64: 0, 1, 2>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<1x1x50xi64>) -> tensor<i64>
  %4 = graph.slice %0 {starts = array<i64: 0, 0, 0>, steps = array<i64: 1, 1, 1>} : (tensor<1x1x50xi64>) -> tensor<1x1x30xi64>
  return %4, %3 : tensor<1x1x30xi64>, tensor<i64>
}

// CHECK-LABEL: func.func @last
// CHECK: graph.suppress {{.*}}most = 50
func.func @last(%s: tensor<1x2x50xf32>, %c: tensor<1x2x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> tensor<1x2x25xi64> {
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x2x50xf32>, tensor<1x2x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x2x50xi64>
  %1 = graph.slice %0 {starts = array<i64: 0, 0, 1>, steps = array<i64: 1, 1, 2>} : (tensor<1x2x50xi64>) -> tensor<1x2x25xi64>
  return %1 : tensor<1x2x25xi64>
}
