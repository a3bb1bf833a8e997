// The gate of level L3.
// RUN: partita-opt %s --split-input-file --verify-diagnostics --partita-verify-partitioned

// expected-error@+1 {{is not partitioned: no enclosing op has a dist.mesh attribute}}
module {
}

// -----

module attributes {dist.mesh = "tp=2"} {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error@+1 {{still has a dist.strategy after partitioning}}
    %0 = graph.relu %x {dist.strategy = "[{4: tp}]"} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {dist.mesh = "tp=2"} {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error@+1 {{does not belong in a partitioned program}}
    %0 = arith.addf %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
