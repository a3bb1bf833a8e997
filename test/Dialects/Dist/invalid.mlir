// Strategies and layouts are checked against the op they stand on.
// RUN: partita-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{sizes are at least 1}}
#mesh = #dist.mesh<tp=0>
module attributes {dist.mesh = #mesh} {
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @twice(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{axis tp is used twice}}
    %0 = graph.relu %x {dist.strategy = #dist.strategy<#mesh, {a: tp, b: tp}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @replicate(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{factor 1 (replicate) may not be split}}
    %0 = graph.softmax %x {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @loop(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{has a bad dist.strategy: the op has no loop 'q' (its rule is a b -> a b {a=4, b=6} linear max(0), min(0))}}
    %0 = graph.relu %x {dist.strategy = #dist.strategy<#mesh, {q: tp}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @text(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{expected "dist.strategy" to be a #dist.strategy attribute, got "tp"}}
    %0 = graph.relu %x {dist.strategy = "tp"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#other = #dist.mesh<dp=2>
// expected-note@+1 {{the program's mesh "tp=2" is given here}}
module attributes {dist.mesh = #mesh} {
  func.func @mesh(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{has a dist.strategy for mesh "dp=2", the program is for "tp=2"}}
    %0 = graph.relu %x {dist.strategy = #dist.strategy<#other, {a: dp}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-error@+1 {{has a dist.layout on argument 0, [{8: tp}], that is not one of type 'tensor<6xf32>'}}
  func.func @shape(%x: tensor<6xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}]>}) {
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @conversions(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{expected a layout of shape [4, 6], got [{4: tp}, {8}]}}
    %0 = dist.reshard %x to <#mesh, [{4: tp}, {8}]> : tensor<4x6xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @window(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{is inconsistent: window of dim 2: the tensor has 2 dims}}
    %1 = dist.window %x to <#dist.layout<#mesh, [{4: tp}, {6}]>, dim 2 stride 1 kernel_extent 3 low 1, fill sum> : tensor<4x6xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
// expected-error@+1 {{axis tp is used twice}}
#bad = #dist.layout<#mesh, [{4: tp}, {6: tp}]>

// -----

// expected-error@+1 {{expected }}
#bad = #dist.mesh<tp=2, dp>

// -----

// expected-error@+1 {{loop n has no size}}
#bad = #dist.rule<"m -> n {m=3}">

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @rule(%x: tensor<4x6xf32>) {
    // expected-error@+1 {{has a dist.rule but no dist.strategy}}
    %0 = graph.relu %x {dist.rule = #dist.rule<"a b -> a b {a=4, b=6}">} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return
  }
}

// -----

func.func @phase(%x: tensor<4xf32>) {
  // expected-error@+1 {{says that it is forward, which an op without a phase is}}
  %0 = graph.relu %x {dist.phase = #dist.phase<forward>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @phase(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected forward, backward, weight or update, got before}}
  %0 = graph.relu %x {dist.phase = #dist.phase<before>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @recompute() {
  // expected-error@+1 {{cannot be computed again: only an op that has operands and no region, and runs no function, can}}
  %0 = graph.constant {dist.recompute = #dist.recompute<before first>} dense<1.0> : tensor<4xf32>
  return
}

// -----

func.func @recompute(%x: tensor<4xf32>) {
  // expected-error@+1 {{is of phase backward: only a forward op is computed again}}
  %0 = graph.relu %x {dist.phase = #dist.phase<backward>, dist.recompute = #dist.recompute<before first>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @recompute(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected 'first'}}
  %0 = graph.relu %x {dist.recompute = #dist.recompute<before last>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
#other = #dist.mesh<dp=3>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{leads from mesh "dp=2" to mesh "dp=3"}}
  %0 = dist.manual %x from <#mesh, [{4}]> to <#other, [{4}]> : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{leads from a tensor of shape [4] to one of shape [8]}}
  %0 = dist.manual %x from <#mesh, [{4}]> to <#mesh, [{8: dp}]> : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected an operand of local shape [2] for layout [{4: dp}], got 'tensor<4xf32>'}}
  %0 = dist.manual %x from <#mesh, [{4: dp}]> to <#mesh, [{4}]> : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected a result of local shape [4] for layout [{4}], got 'tensor<8xf32>'}}
  %0 = dist.manual %x from <#mesh, [{4}] partial sum {dp}> to <#mesh, [{4}]> : tensor<4xf32> -> tensor<8xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected dims that are divided evenly, got dim 0 of [{7/8: dp}]}}
  %0 = dist.manual %x from <#mesh, [{7/8: dp}]> to <#mesh, [{7}]> : tensor<4xf32> -> tensor<7xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{changes the element type}}
  %0 = dist.manual %x from <#mesh, [{4}] partial sum {dp}> to <#mesh, [{4}]> : tensor<4xf32> -> tensor<4xf64>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{both enters and leaves}}
  %0 = dist.manual enter leave %x from <#mesh, [{4}]> to <#mesh, [{4}]> : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected the tensor outside to be whole, got [{8: dp}]}}
  %0 = dist.manual enter %x from <#mesh, [{8: dp}]> to <#mesh, [{8}]> : tensor<4xf32> -> tensor<8xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
// expected-note@+1 {{the program's mesh "tp=2" is given here}}
module attributes {dist.mesh = #dist.mesh<tp=2>} {
  func.func @manual(%x: tensor<4xf32>) {
    // expected-error@+1 {{is for mesh "dp=2", the program is for "tp=2"}}
    %0 = dist.manual %x from <#mesh, [{4}] partial sum {dp}> to <#mesh, [{4}]> : tensor<4xf32> -> tensor<4xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected whole tensors around pieces, got [{4}] partial sum {dp} and [{4}]}}
  %0 = dist.manual %x from <#mesh, [{4}] partial sum {dp}> to <#mesh, [{4}]> pieces <#mesh, 0 to 1 [0 to 0 of 4]> : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
#other = #dist.mesh<dp=3>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{has pieces on mesh "dp=3" and layouts on mesh "dp=2"}}
  %0 = dist.manual %x from <#mesh, [{4}]> to <#mesh, [{4}]> pieces <#other, 0 to 1 [0 to 0 of 4]> : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{exchanges pieces of local tensors, and enters or leaves}}
  %0 = dist.manual enter %x from <#mesh, [{4}]> to <#mesh, [{4}]> pieces <#mesh, 0 to 1 [0 to 0 of 4]> : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

#mesh = #dist.mesh<dp=2>
func.func @manual(%x: tensor<4xf32>) {
  // expected-error@+1 {{is inconsistent: the piece from rank 1 to rank 1 and the piece from rank 0 to rank 1 fill the same elements}}
  %0 = dist.manual %x from <#mesh, [{4}]> to <#mesh, [{4}]> pieces <#mesh, 0 to 1 [0 to 0 of 4], 1 to 1 [0 to 3 of 1]> : tensor<4xf32> -> tensor<4xf32>
  return
}
