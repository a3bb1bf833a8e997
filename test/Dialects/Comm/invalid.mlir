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

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_buffer(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{expected a result of shape [6, 2] for the windows of [{8: sp}, {2}], got 'tensor<4x2xf32>'}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {2}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<4x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_operand(%x: tensor<8x2xf32>) {
    // expected-error@+1 {{expected an operand of local shape [4, 2] for layout [{8: sp}, {2}], got 'tensor<8x2xf32>'}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {2}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<8x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_lengths(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{has 'strides', 'reach' and 'low' of other lengths than 'dims', which has 1 entries}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {2}]", dims = array<i64: 0>, strides = array<i64: 1, 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_dim(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{has a window of dim 2 of a tensor of rank 2}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {2}]", dims = array<i64: 2>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_reach(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: window of dim 0: stride 1, reach 0 and low 1 are out of range}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {2}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 0>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_none(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: there is no window}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {2}]", dims = array<i64>, strides = array<i64>, reach = array<i64>, low = array<i64>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_cut(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: window of dim 0: its positions have 2 factors instead of one}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{2: sp}*{4}, {2}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_sizes(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: dim 1 has size 2 in the source and 3 in the result}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {3}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_partial(%x: tensor<8x2xf32>) {
    // expected-error@+1 {{is inconsistent: the source and the positions have different partial axes}}
    %0 = comm.halo %x {from = "[{8}, {2}] partial sum {sp}", positions = "[{8: sp}, {2}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<8x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_layout(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{has bad 'positions': }}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: tp}, {2}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_kind(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{has unknown kind "mean"}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {2}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "mean", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

module attributes {dist.mesh = "sp=2"} {
  func.func @halo_type(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{changes the element type}}
    %0 = comm.halo %x {from = "[{8: sp}, {2}]", positions = "[{8: sp}, {2}]", dims = array<i64: 0>, strides = array<i64: 1>, reach = array<i64: 3>, low = array<i64: 1>, kind = "sum", received = 0 : i64} : (tensor<4x2xf32>) -> tensor<6x2xf16>
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
