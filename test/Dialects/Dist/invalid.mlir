// Strategies and layouts are checked against the op they stand on.
// RUN: partita-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{has a bad dist.mesh}}
module attributes {dist.mesh = "tp=0"} {
}

// -----

module attributes {dist.mesh = "tp=2"} {
  func.func @twice(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{axis tp is used twice}}
    %0 = graph.relu %x {dist.strategy = "[{4: tp}, {6: tp}]"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "tp=2"} {
  func.func @replicate(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{factor 1 (replicate) may not be split}}
    %0 = graph.softmax %x {axis = 1 : i64, dist.strategy = "[{4}, {6: tp}]"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "tp=2"} {
  func.func @factors(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{expected 2 factors, got 1}}
    %0 = graph.relu %x {dist.strategy = "[{4}]"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}
