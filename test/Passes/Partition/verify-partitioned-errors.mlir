// The gate of level L3: what types cannot show is followed through the program.
// RUN: partita-opt %s --split-input-file --verify-diagnostics --partita-verify-partitioned

// expected-error@+1 {{is not partitioned: no enclosing op has a dist.mesh attribute}}
func.func @mesh(%x: tensor<4xf32>) {
  return
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @rule(%x: tensor<2xf32> {dist.layout = #dist.layout<#mesh, [{4: tp}]>}) {
    // expected-error@+1 {{has no dist.rule}}
    %0 = graph.relu %x {dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<2xf32>) -> tensor<2xf32>
    return
  }
}

// -----

// Two axes of equal size: dp for tp.
#mesh = #dist.mesh<dp=2, tp=2>
#rule = #dist.rule<"a -> a {a=4} linear max(0), min(0)">
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @axes(%x: tensor<2xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}]>}) {
    // expected-error@+1 {{operand 0: expected layout [{4: tp}], got layout [{4: dp}]}}
    %0 = graph.relu %x {dist.rule = #rule, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<2xf32>) -> tensor<2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @gather(%x: tensor<2xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}]>}) {
    // expected-error@+1 {{expected an operand in layout [{4: tp}], got layout [{4: dp}]}}
    %0 = comm.all_gather %x from <#mesh, [{4: tp}]> to <#mesh, [{4}]> : (tensor<2xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// Nothing has reduced the sum.
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @partial(%x: tensor<4x4xf32> {dist.layout = #dist.layout<#mesh, [{4}, {8: tp}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4}]>}) {
    // expected-note@+1 {{the value comes from here}}
    %0 = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.rule = #dist.rule<"a b -> a {a=4, b=8 sum} linear sum(0)">, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x4xf32>) -> tensor<4xf32>
    // expected-error@+1 {{result 0: expected layout [{4}], got layout [{4}] partial sum {tp}}}
    return %0 : tensor<4xf32>
  }
}

// -----

// Padding that is summed must be zero.
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @mask(%x: tensor<4x4xf32> {dist.layout = #dist.layout<#mesh, [{4}, {7/8: tp}]>}) {
    // expected-error@+1 {{operand 0: expected the neutral element of sum in the padding of dim 1, got anything}}
    %0 = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.rule = #dist.rule<"a b -> a {a=4, b=7 sum} linear sum(0)">, dist.strategy = #dist.strategy<#mesh, {b: {7/8: tp}}>} : (tensor<4x4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @other_kind(%x: tensor<4x4xf32> {dist.layout = #dist.layout<#mesh, [{4}, {7/8: tp}]>}) {
    // expected-note@+1 {{the value comes from here}}
    %m = comm.mask %x dims [1] with <max> in <#mesh, [{4}, {7/8: tp}]> : (tensor<4x4xf32>) -> tensor<4x4xf32>
    // expected-error@+1 {{operand 0: expected the neutral element of sum in the padding of dim 1, got max}}
    %0 = graph.reduce %m {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.rule = #dist.rule<"a b -> a {a=4, b=7 sum} linear sum(0)">, dist.strategy = #dist.strategy<#mesh, {b: {7/8: tp}}>} : (tensor<4x4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// The rule is not believed: on one rank it would be another than the op's.
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @other_rule(%x: tensor<4x4xf32> {dist.layout = #dist.layout<#mesh, [{4}, {8: tp}]>}) {
    // expected-error@+1 {{has a dist.rule that is not its own: on one rank it would be a b -> a {a=4, b=4 max} linear max(0), but the op's is a b -> a {a=4, b=4 sum} linear sum(0)}}
    %0 = graph.reduce %x {kind = #graph.reduce<sum>, axes = array<i64: 1>, dist.rule = #dist.rule<"a b -> a {a=4, b=8 max} linear max(0)">, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// Indices of a split table are places in the rank's block.
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @indices(%t: tensor<4x3xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}, {3}]>}, %i: tensor<5xi64> {dist.layout = #dist.layout<#mesh, [{5}]>}) {
    // expected-error@+1 {{operand 1: expected indices that are places in the rank's block}}
    %0 = graph.gather %t, %i {axis = 0 : i64, masked, dist.rule = #dist.rule<"b c, a -> a c {a=5, b=8 sum index(1), c=3} linear sum(0), max(0), min(0), prod(0) fill sum(1)">, dist.strategy = #dist.strategy<#mesh, {b: tp}>} : (tensor<4x3xf32>, tensor<5xi64>) -> tensor<5x3xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @weight() {
    // expected-error@+1 {{has no dist.layout}}
    %0 = graph.weight "w" : tensor<4xf32>
    return
  }
}

// -----

// Ops of other dialects are admitted. A comm op takes their values at its word, a graph op
// does not.
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @foreign(%x: tensor<2xf32> {dist.layout = #dist.layout<#mesh, [{4: tp}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4}]>}) {
    // expected-note@+1 {{the value comes from here}}
    %0 = arith.addf %x, %x : tensor<2xf32>
    %1 = comm.all_gather %0 from <#mesh, [{4: tp}]> to <#mesh, [{4}]> : (tensor<2xf32>) -> tensor<4xf32>
    // expected-error@+1 {{operand 0: expected layout [{4: tp}], got a value of unknown layout}}
    %2 = graph.relu %0 {dist.rule = #dist.rule<"a -> a {a=4} linear max(0), min(0)">, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<2xf32>) -> tensor<2xf32>
    return %1 : tensor<4xf32>
  }
}
