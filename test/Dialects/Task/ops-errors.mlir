// Ops that do not fit what they name.
// RUN: partita-opt %s --split-input-file --verify-diagnostics

#mesh = #dist.mesh<tp=2>
// expected-error @+1 {{has 1 ranks, its mesh "tp=2" has 2}}
task.program @a ranks [0] attributes {dist.mesh = #mesh} {
}

// -----

#mesh = #dist.mesh<tp=2>
task.program @a ranks [0, 1] attributes {dist.mesh = #mesh} {
  // expected-error @+1 {{expected the local shape [2] of its layout, got 'tensor<4xf32>'}}
  task.buffer @x in <#mesh, [{4: tp}]> : tensor<4xf32>
}

// -----

#mesh = #dist.mesh<>
task.program @a ranks [0] attributes {dist.mesh = #mesh} {
  // expected-note @+1 {{the buffer is 'tensor<4xf32>' in [{4}]}}
  task.buffer @x in <#mesh, [{4}]> : tensor<4xf32>
  func.func @f(%x: tensor<5xf32>) -> tensor<5xf32> {
    return %x : tensor<5xf32>
  }
  // expected-error @+1 {{passes buffer @x as argument 0 of @f of another type or layout}}
  task.segment @s calls @f from [@x] to [@x]
}

// -----

#mesh = #dist.mesh<>
// expected-note@+1 {{of this program}}
task.program @a ranks [0] attributes {dist.mesh = #mesh} {
  task.schedule {
    // expected-error @+1 {{has no segment @s}}
    task.run @s 0
  }
}

// -----

#mesh = #dist.mesh<>
#two = #dist.mesh<tp=2>
task.program @a ranks [0] attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the source is here}}
  task.buffer @x in <#mesh, [{4}]> : tensor<4xf32>
}
task.program @b ranks [1, 2] attributes {dist.mesh = #two} {
  // expected-note@+1 {{the target is here}}
  task.buffer @x in <#two, [{6: tp}]> : tensor<3xf32>
}
// expected-error @+1 {{is not possible: the two layouts have different shapes}}
task.transfer @t from @a::@x to @b::@x
