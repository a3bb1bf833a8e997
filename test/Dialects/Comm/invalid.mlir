// A collective whose types are not its layouts' local shapes is refused.
// RUN: partita-opt %s --split-input-file --verify-diagnostics

module attributes {dist.mesh = "tp=4"} {
  func.func @shape(%x: tensor<8xf32>) {
    // expected-error@+1 {{expected a result of local shape [2] for layout [{8: tp}], got 'tensor<4xf32>'}}
    %0 = comm.slice %x {axes = ["tp"], from = "[{8}]", place = array<i64: 0, 0, -1, -1>, received = 0 : i64, to = "[{8: tp}]"} : (tensor<8xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "tp=4"} {
  func.func @axis(%x: tensor<8xf32>) {
    // expected-error@+1 {{has bad axes}}
    %0 = comm.all_reduce %x {axes = ["dp"], from = "[{8}]", kind = "sum", place = array<i64: -1, -1, -1, -1>, received = 0 : i64, to = "[{8}]"} : (tensor<8xf32>) -> tensor<8xf32>
    return
  }
}

// -----

func.func @mesh(%x: tensor<8xf32>) {
  // expected-error@+1 {{no enclosing op has a dist.mesh attribute}}
  %0 = comm.all_reduce %x {axes = ["tp"], from = "[{8}]", kind = "sum", place = array<i64: -1, -1, -1, -1>, received = 0 : i64, to = "[{8}]"} : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

module attributes {dist.mesh = "tp=4"} {
  func.func @place(%x: tensor<8xf32>) {
    // expected-error@+1 {{has a place outside its layouts}}
    %0 = comm.slice %x {axes = ["tp"], from = "[{8}]", place = array<i64: 3, 0, -1, -1>, received = 0 : i64, to = "[{8: tp}]"} : (tensor<8xf32>) -> tensor<2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "tp=4"} {
  func.func @dims(%x: tensor<8xi64>) {
    // expected-error@+1 {{expected the layout of one dim without partial axes, got [{8: tp}, {4}]}}
    %0 = comm.local_index %x {layout = "[{8: tp}, {4}]"} : tensor<8xi64>
    return
  }
}

// -----

module attributes {dist.mesh = "tp=4"} {
  func.func @padding(%x: tensor<8xi64>) {
    // expected-error@+1 {{has a bad layout}}
    %0 = comm.local_index %x {layout = "[{7: tp}]"} : tensor<8xi64>
    return
  }
}

// -----

module attributes {dist.mesh = "tp=4"} {
  func.func @element(%x: tensor<8xf32>) {
    // expected-error@+1 {{expected integer indices, got 'tensor<8xf32>'}}
    %0 = comm.local_index %x {layout = "[{8: tp}]"} : tensor<8xf32>
    return
  }
}
