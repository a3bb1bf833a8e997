// The gate of level L2.
// RUN: partita-opt %s --split-input-file --verify-diagnostics --partita-verify-annotated

// expected-error@+1 {{is not annotated: no enclosing op has a dist.mesh attribute}}
module {
}

// -----

module attributes {dist.mesh = "tp=2"} {
  // expected-error@+1 {{argument 0 has no dist.layout}}
  func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32> {dist.layout = "[{4}]"}) {
    return %x : tensor<4xf32>
  }
}

// -----

module attributes {dist.mesh = "tp=2"} {
  func.func @f(%x: tensor<4xf32> {dist.layout = "[{4}]"}) -> (tensor<4xf32> {dist.layout = "[{4}]"}) {
    // expected-error@+1 {{has no dist.strategy}}
    %0 = graph.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
