// Ops that run functions print, parse and fit them.
// RUN: partita-opt %s --split-input-file --verify-diagnostics | FileCheck %s
// RUN: partita-opt %s --split-input-file --verify-diagnostics | partita-opt --split-input-file --verify-diagnostics | FileCheck %s

func.func private @step(%h: tensor<2x8xf32>, %x: tensor<2x8xf32>, %b: tensor<8xf32>)
    -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %0 = graph.add %h, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = graph.add %0, %b : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  return %1, %0 : tensor<2x8xf32>, tensor<2x8xf32>
}
func.func private @other(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  return %x : tensor<2x8xf32>
}
func.func private @negated(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = graph.neg %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}
// CHECK-LABEL: @main
// CHECK: graph.repeat @step trips 16 carried(%arg0) scanned(%arg1) with(%arg2) : (tensor<2x8xf32>, tensor<16x2x8xf32>, tensor<8xf32>) -> (tensor<2x8xf32>, tensor<16x2x8xf32>)
// CHECK: graph.if %arg3 then @other else @negated(%{{.*}}) : (tensor<i1>, tensor<2x8xf32>) -> tensor<2x8xf32>
func.func @main(%h: tensor<2x8xf32>, %x: tensor<16x2x8xf32>, %b: tensor<8xf32>, %c: tensor<i1>)
    -> (tensor<2x8xf32>, tensor<16x2x8xf32>) {
  %last, %all = graph.repeat @step trips 16 carried(%h) scanned(%x) with(%b)
      : (tensor<2x8xf32>, tensor<16x2x8xf32>, tensor<8xf32>) -> (tensor<2x8xf32>, tensor<16x2x8xf32>)
  %y = graph.if %c then @other else @negated(%last) : (tensor<i1>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %y, %all : tensor<2x8xf32>, tensor<16x2x8xf32>
}

// -----

func.func @main(%h: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{runs a function that is not there}}
  %0 = graph.repeat @nobody trips 4 carried(%h) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func private @body(%h: tensor<2xf32>) -> tensor<2xf32> {
  return %h : tensor<2xf32>
}
func.func @main(%h: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{has 0 trips}}
  %0 = graph.repeat @body trips 0 carried(%h) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func private @body(%h: tensor<2xf32>) -> tensor<2xf32> {
  return %h : tensor<2xf32>
}
func.func @main(%h: tensor<5x2xf32>) -> tensor<4x2xf32> {
  // expected-error@+1 {{operand 0 is 'tensor<5x2xf32>', expected 'tensor<4x2xf32>'}}
  %0 = graph.repeat @body trips 4 scanned(%h) : (tensor<5x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// -----

func.func private @body(%h: tensor<2xf32>) -> tensor<3xf32> {
  %0 = graph.constant dense<0.0> : tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func @main(%h: tensor<2xf32>) -> tensor<3xf32> {
  // expected-error@+1 {{carries value 0, which goes in as 'tensor<2xf32>' and comes out as 'tensor<3xf32>'}}
  %0 = graph.repeat @body trips 4 carried(%h) : (tensor<2xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

func.func private @body(%h: tensor<2xf32>) -> tensor<2xf32> {
  return %h : tensor<2xf32>
}
func.func @main(%c: tensor<2xi1>, %h: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{expected one bool as condition, got 'tensor<2xi1>'}}
  %0 = graph.if %c then @body else @body(%h) : (tensor<2xi1>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
