// The gate of level L2: every operand is in the layout that its op's strategy asks for.
// RUN: partita-opt %s --split-input-file --verify-diagnostics --partita-verify-planned

// expected-error@+1 {{is not planned: no enclosing op has a dist.mesh attribute}}
func.func @mesh(%x: tensor<4xf32>) {
  return
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-error@+1 {{argument 0 has no dist.layout}}
  func.func @argument(%x: tensor<4xf32>) -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4}]>}) {
    return %x : tensor<4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @strategy(%x: tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4}]>}) {
    // expected-error@+1 {{has no dist.strategy}}
    %0 = graph.relu %x : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#whole = #dist.layout<#mesh, [{4}, {8}]>
module attributes {dist.mesh = #mesh} {
  func.func @operand(%x: tensor<4x8xf32> {dist.layout = #whole}) {
    // expected-note@+1 {{the value comes from here}}
    %0 = graph.relu %x {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // expected-error@+1 {{operand 0: expected layout [{4: tp}, {8}], got [{4}, {8}]}}
    %1 = graph.relu %0 {dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

// Two axes of equal size: shapes of parts would be the same.
#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @axes(%x: tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}]>}) {
    // expected-error@+1 {{operand 0: expected layout [{4: tp}], got [{4: dp}]}}
    %0 = graph.relu %x {dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// A partial sum may not meet an op that does not let it pass.
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @partial(%x: tensor<4x8xf32> {dist.layout = #dist.layout<#mesh, [{4}, {8: tp}]>}, %w: tensor<8x6xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}, {6}]>}) {
    // expected-note@+1 {{the value comes from here}}
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: tp}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    // expected-error@+1 {{operand 0: expected layout [{4}, {6}], got [{4}, {6}] partial sum {tp}}}
    %1 = graph.relu %0 {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
#whole = #dist.layout<#mesh, [{1}, {2}, {8}]>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @windows(%x: tensor<1x2x8xf32> {dist.layout = #whole}) {
    // expected-error@+1 {{operand 0 is read through split windows: expected a dist.window to #dist.windows<#dist.layout<#dist.mesh<sp=2>, [{1}, {2}, {8: sp}]>, dim 2 stride 1 kernel_extent 3 low 1, fill max>, got layout [{1}, {2}, {8}]}}
    %0 = graph.pool %x {kind = #graph.pool<max>, window = array<i64: 3>, strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {b: sp}>} : (tensor<1x2x8xf32>) -> tensor<1x2x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
#whole = #dist.layout<#mesh, [{1}, {2}, {8}]>
module attributes {dist.mesh = #mesh} {
  func.func @buffer(%x: tensor<1x2x8xf32> {dist.layout = #whole}) {
    // expected-note@+1 {{the value comes from here}}
    %0 = dist.window %x to <#dist.layout<#mesh, [{1}, {2}, {8: sp}]>, dim 2 stride 1 kernel_extent 3 low 1, fill max> : tensor<1x2x8xf32>
    // expected-error@+1 {{operand 0 is a window buffer, expected layout [{1}, {2}, {8: sp}]}}
    %1 = graph.relu %0 {dist.strategy = #dist.strategy<#mesh, {b: sp}>} : (tensor<1x2x8xf32>) -> tensor<1x2x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#whole = #dist.layout<#mesh, [{4}]>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @identity(%x: tensor<4xf32> {dist.layout = #whole}) {
    // expected-error@+1 {{leads to the layout that the value has, [{4}]}}
    %0 = dist.reshard %x to #whole : tensor<4xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#whole = #dist.layout<#mesh, [{4}]>
module attributes {dist.mesh = #mesh} {
  func.func @twice(%x: tensor<4xf32> {dist.layout = #whole}) {
    // expected-note@+1 {{the first conversion is here}}
    %0 = dist.reshard %x to <#mesh, [{4: tp}]> : tensor<4xf32>
    %1 = dist.reshard %x to <#mesh, [{4: tp}]> epoch 1 : tensor<4xf32>
    // expected-error@+1 {{converts a value again that already has this form in epoch 0}}
    %2 = dist.reshard %x to <#mesh, [{4: tp}]> : tensor<4xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @result(%x: tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4: tp}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4}]>}) {
    // expected-error@+1 {{result 0: expected layout [{4}], got [{4: tp}]}}
    return %x : tensor<4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#whole = #dist.layout<#mesh, [{4}]>
module attributes {dist.mesh = #mesh} {
  func.func @nobody(%x: tensor<4xf32> {dist.layout = #whole}) -> (tensor<4xf32> {dist.layout = #whole}) {
    // expected-error@+1 {{is computed again for nobody: all that read it are of the forward pass}}
    %0 = graph.exp %x {dist.recompute = #dist.recompute<before first>, dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4xf32>) -> tensor<4xf32>
    // expected-note@+1 {{a reader is here}}
    %1 = graph.sin %0 {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#whole = #dist.layout<#mesh, [{4}]>
module attributes {dist.mesh = #mesh} {
  func.func @state(%x: tensor<4xf32> {dist.layout = #whole, dist.state = #dist.state<"s">})
      -> (tensor<4xf32> {dist.layout = #whole}, tensor<4xf32> {dist.layout = #whole, dist.state = #dist.state<"s">}) {
    // expected-error@+1 {{gives a state and cannot be computed again}}
    %0 = graph.exp %x {dist.recompute = #dist.recompute<before first>, dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = graph.sin %0 {dist.phase = #dist.phase<backward>, dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4xf32>) -> tensor<4xf32>
    return %1, %0 : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#whole = #dist.layout<#mesh, [{4}]>
#halves = #dist.layout<#mesh, [{4: tp}]>
module attributes {dist.mesh = #mesh} {
  func.func @phase(%x: tensor<4xf32> {dist.layout = #halves}) -> (tensor<4xf32> {dist.layout = #whole}) {
    // expected-note@+1 {{made here}}
    %0 = dist.reshard %x to <#mesh, [{4}]> {dist.phase = #dist.phase<backward>} : tensor<4xf32>
    // expected-error@+1 {{is in phase forward and reads 'dist.reshard' of phase backward}}
    %1 = graph.sin %0 {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
