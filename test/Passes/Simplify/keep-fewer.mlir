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

// Results of a branch: the first 20 of what either function gives, and the number as
// min(number, 20).
// CHECK-LABEL: func.func private @kept
// CHECK: graph.suppress {{.*}}most = 20
func.func private @kept(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> (tensor<50xi64>, tensor<i64>) {
  %zero = graph.constant dense<0> : tensor<i64>
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  %1 = graph.greater_equal %0, %zero : (tensor<1x1x50xi64>, tensor<i64>) -> tensor<1x1x50xi1>
  %2 = graph.cast %1 {to = i64} : (tensor<1x1x50xi1>) -> tensor<1x1x50xi64>
  %3 = graph.reduce %2 {axes = array<i64: 0, 1, 2>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<1x1x50xi64>) -> tensor<i64>
  %4 = graph.reshape %0 : (tensor<1x1x50xi64>) -> tensor<50xi64>
  return %4, %3 : tensor<50xi64>, tensor<i64>
}
func.func private @none(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> (tensor<50xi64>, tensor<i64>) {
  %places = graph.constant dense<0> : tensor<50xi64>
  %zero = graph.constant dense<0> : tensor<i64>
  return %places, %zero : tensor<50xi64>, tensor<i64>
}
func.func @branch(%if: tensor<i1>, %s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> (tensor<20xi64>, tensor<i64>) {
  %most = graph.constant dense<20> : tensor<i64>
  %0:2 = graph.if %if then @kept else @none(%s, %c, %b, %t) : (tensor<i1>, tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> (tensor<50xi64>, tensor<i64>)
  %1 = graph.slice %0#0 {starts = array<i64: 0>, steps = array<i64: 1>} : (tensor<50xi64>) -> tensor<20xi64>
  %2 = graph.min %0#1, %most : (tensor<i64>, tensor<i64>) -> tensor<i64>
  return %1, %2 : tensor<20xi64>, tensor<i64>
}

// A function of two branches, one of which is read as a whole.
// CHECK-LABEL: func.func private @twice
// CHECK: graph.suppress {{.*}}most = 50
func.func private @twice(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> tensor<1x1x50xi64> {
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  return %0 : tensor<1x1x50xi64>
}
func.func private @never(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> tensor<1x1x50xi64> {
  %places = graph.constant dense<0> : tensor<1x1x50xi64>
  return %places : tensor<1x1x50xi64>
}
func.func @branches(%if: tensor<i1>, %s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> (tensor<1x1x20xi64>, tensor<1x1x50xi64>) {
  %0 = graph.if %if then @twice else @never(%s, %c, %b, %t) : (tensor<i1>, tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  %1 = graph.slice %0 {starts = array<i64: 0, 0, 0>, steps = array<i64: 1, 1, 1>} : (tensor<1x1x50xi64>) -> tensor<1x1x20xi64>
  %2 = graph.if %if then @never else @twice(%s, %c, %b, %t) : (tensor<i1>, tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  return %1, %2 : tensor<1x1x20xi64>, tensor<1x1x50xi64>
}

// The places of all that were kept, masked behind their number, of which 20 are read; a
// branch may say that there are none.
// CHECK-LABEL: func.func @masked
// CHECK: graph.suppress {{.*}}most = 20
func.func @masked(%none: tensor<i1>, %s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> (tensor<20xi64>, tensor<i64>) {
  %zero = graph.constant dense<0> : tensor<i64>
  %most = graph.constant dense<20> : tensor<i64>
  %places = graph.weight "places_below_50" {graph.progression = array<i64: 0, 1>} : tensor<50xi64>
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  %1 = graph.greater_equal %0, %zero : (tensor<1x1x50xi64>, tensor<i64>) -> tensor<1x1x50xi1>
  %2 = graph.cast %1 {to = i64} : (tensor<1x1x50xi1>) -> tensor<1x1x50xi64>
  %3 = graph.reduce %2 {axes = array<i64: 0, 1, 2>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<1x1x50xi64>) -> tensor<i64>
  %4 = graph.reshape %0 : (tensor<1x1x50xi64>) -> tensor<50xi64>
  %5 = graph.less %places, %3 : (tensor<50xi64>, tensor<i64>) -> tensor<50xi1>
  %6 = graph.where %5, %4, %zero : (tensor<50xi1>, tensor<50xi64>, tensor<i64>) -> tensor<50xi64>
  %7 = graph.slice %6 {starts = array<i64: 0>, steps = array<i64: 1>} : (tensor<50xi64>) -> tensor<20xi64>
  %8 = graph.where %none, %zero, %3 : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
  %9 = graph.min %8, %most : (tensor<i64>, tensor<i64>) -> tensor<i64>
  return %7, %9 : tensor<20xi64>, tensor<i64>
}

// Numbers of another weight may tell 21 boxes from 20.
// CHECK-LABEL: func.func @compared
// CHECK: graph.suppress {{.*}}most = 50
func.func @compared(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> (tensor<20xi64>, tensor<20xi1>) {
  %zero = graph.constant dense<0> : tensor<i64>
  %numbers = graph.weight "numbers" : tensor<50xi64>
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  %1 = graph.greater_equal %0, %zero : (tensor<1x1x50xi64>, tensor<i64>) -> tensor<1x1x50xi1>
  %2 = graph.cast %1 {to = i64} : (tensor<1x1x50xi1>) -> tensor<1x1x50xi64>
  %3 = graph.reduce %2 {axes = array<i64: 0, 1, 2>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<1x1x50xi64>) -> tensor<i64>
  %4 = graph.reshape %0 : (tensor<1x1x50xi64>) -> tensor<50xi64>
  %5 = graph.less %numbers, %3 : (tensor<50xi64>, tensor<i64>) -> tensor<50xi1>
  %6 = graph.slice %4 {starts = array<i64: 0>, steps = array<i64: 1>} : (tensor<50xi64>) -> tensor<20xi64>
  %7 = graph.slice %5 {starts = array<i64: 0>, steps = array<i64: 1>} : (tensor<50xi1>) -> tensor<20xi1>
  return %6, %7 : tensor<20xi64>, tensor<20xi1>
}

// Places along the last dim, of which 40 are read; so are they where the number has dims.
// CHECK-LABEL: func.func @row
// CHECK: graph.suppress {{.*}}most = 40
func.func @row(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> tensor<1x40xi1> {
  %zero = graph.constant dense<0> : tensor<i64>
  %places = graph.weight "places_below_50" {graph.progression = array<i64: 0, 1>} : tensor<1x50xi64>
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  %1 = graph.greater_equal %0, %zero : (tensor<1x1x50xi64>, tensor<i64>) -> tensor<1x1x50xi1>
  %2 = graph.cast %1 {to = i64} : (tensor<1x1x50xi1>) -> tensor<1x1x50xi64>
  %3 = graph.reduce %2 {axes = array<i64: 0, 1, 2>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<1x1x50xi64>) -> tensor<i64>
  %5 = graph.less %places, %3 : (tensor<1x50xi64>, tensor<i64>) -> tensor<1x50xi1>
  %6 = graph.slice %5 {starts = array<i64: 0, 0>, steps = array<i64: 1, 1>} : (tensor<1x50xi1>) -> tensor<1x40xi1>
  return %6 : tensor<1x40xi1>
}
// CHECK-LABEL: func.func @wide_number
// CHECK: graph.suppress {{.*}}most = 30
func.func @wide_number(%s: tensor<1x1x50xf32>, %c: tensor<1x1x50xi1>, %b: tensor<1x50x4xf32>, %t: tensor<f32>) -> tensor<1x30xi1> {
  %zero = graph.constant dense<0> : tensor<i64>
  %places = graph.weight "places_below_50" {graph.progression = array<i64: 0, 1>} : tensor<50xi64>
  %0 = graph.suppress %s, %c, %b, %t {most = 50} : (tensor<1x1x50xf32>, tensor<1x1x50xi1>, tensor<1x50x4xf32>, tensor<f32>) -> tensor<1x1x50xi64>
  %1 = graph.greater_equal %0, %zero : (tensor<1x1x50xi64>, tensor<i64>) -> tensor<1x1x50xi1>
  %2 = graph.cast %1 {to = i64} : (tensor<1x1x50xi1>) -> tensor<1x1x50xi64>
  %3 = graph.reduce %2 {axes = array<i64: 0, 1, 2>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<1x1x50xi64>) -> tensor<i64>
  %4 = graph.reshape %3 : (tensor<i64>) -> tensor<1x1xi64>
  %5 = graph.less %places, %4 : (tensor<50xi64>, tensor<1x1xi64>) -> tensor<1x50xi1>
  %6 = graph.slice %5 {starts = array<i64: 0, 0>, steps = array<i64: 1, 1>} : (tensor<1x50xi1>) -> tensor<1x30xi1>
  return %6 : tensor<1x30xi1>
}
