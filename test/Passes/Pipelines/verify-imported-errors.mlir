// The gate of level L0.
// RUN: partita-opt %s --split-input-file --verify-diagnostics --partita-verify-imported

module {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error@+1 {{does not belong in an imported program}}
    %0 = arith.addf %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2>
// expected-error@+1 {{carries "dist.mesh" in an imported program}}
module attributes {dist.mesh = #mesh} {
}
