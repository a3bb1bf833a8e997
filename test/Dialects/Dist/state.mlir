// The ends of a state say so on a function, and fit.
// RUN: partita-opt %s --split-input-file --verify-diagnostics | FileCheck %s
// RUN: partita-opt %s --split-input-file --verify-diagnostics | partita-opt --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: @step
// CHECK-SAME: %arg0: tensor<4xf32> {dist.state = #dist.state<"w" from "fc.weight">}
// CHECK-SAME: -> (tensor<4xf32> {dist.state = #dist.state<"w">}, tensor<2xf32> {dist.state = #dist.state<"only out">})
func.func @step(%w: tensor<4xf32> {dist.state = #dist.state<"w" from "fc.weight">}, %x: tensor<2xf32>)
    -> (tensor<4xf32> {dist.state = #dist.state<"w">}, tensor<2xf32> {dist.state = #dist.state<"only out">}) {
  return %w, %x : tensor<4xf32>, tensor<2xf32>
}

// -----

// expected-error@+1 {{state "w": argument 0 is of type 'tensor<4xf32>', result 0 of type 'tensor<2xf32>'}}
func.func @types(%w: tensor<4xf32> {dist.state = #dist.state<"w">}, %x: tensor<2xf32>)
    -> (tensor<2xf32> {dist.state = #dist.state<"w">}) {
  return %x : tensor<2xf32>
}

// -----

// expected-error@+1 {{state "w" is argument 0 and 1}}
func.func @twice(%a: tensor<4xf32> {dist.state = #dist.state<"w">}, %b: tensor<4xf32> {dist.state = #dist.state<"w">}) {
  return
}

// -----

// expected-error@+1 {{state "w" is result 0 and 1}}
func.func @out_twice(%a: tensor<4xf32>)
    -> (tensor<4xf32> {dist.state = #dist.state<"w">}, tensor<4xf32> {dist.state = #dist.state<"w">}) {
  return %a, %a : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error@+1 {{state "w" says what it begins as on result 0, expected it on its argument}}
func.func @from(%a: tensor<4xf32> {dist.state = #dist.state<"w">})
    -> (tensor<4xf32> {dist.state = #dist.state<"w" from "x">}) {
  return %a : tensor<4xf32>
}

// -----

// expected-error@+1 {{expected dist.state on argument 0 to be a #dist.state attribute, got "w"}}
func.func @text(%a: tensor<4xf32> {dist.state = "w"}) {
  return
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-error@+1 {{state "w": it comes in layout [{4: tp}] and goes in layout [{4}], but stays in its place}}
  func.func @layouts(%a: tensor<4xf32> {dist.state = #dist.state<"w">, dist.layout = #dist.layout<#mesh, [{4: tp}]>})
      -> (tensor<4xf32> {dist.state = #dist.state<"w">, dist.layout = #dist.layout<#mesh, [{4}]>}) {
    return %a : tensor<4xf32>
  }
}
