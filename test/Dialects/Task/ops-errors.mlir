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

// -----

#mesh = #dist.mesh<tp=2>
task.program @a ranks [0, 1] attributes {dist.mesh = #mesh} {
  // expected-error @+1 {{is more than one of input, output and state}}
  task.buffer @x output "x" state "x" in <#mesh, [{4}]> : tensor<4xf32>
}

// -----

#mesh = #dist.mesh<tp=2>
task.program @a ranks [0, 1] attributes {dist.mesh = #mesh} {
  // expected-error @+1 {{has an init and is not a state of one slot}}
  task.buffer @x init "w" in <#mesh, [{4}]> : tensor<4xf32>
}

// -----

#mesh = #dist.mesh<tp=2>
task.program @a ranks [0, 1] attributes {dist.mesh = #mesh} {
  // expected-error @+1 {{is an output or state in a layout with partial axes}}
  task.buffer @x state "x" in <#mesh, [{4}] partial sum {tp}> : tensor<4xf32>
}

// -----

#mesh = #dist.mesh<tp=2>
task.program @a ranks [0, 1] attributes {dist.mesh = #mesh} {
  task.buffer @c in <#mesh, [{2: tp}]> : tensor<1xi1>
  func.func @f() {
    return
  }
  // expected-error @+1 {{runs if @c, which is not a bool that is equal on all ranks}}
  task.segment @s if @c calls @f from [] to []
}

// -----

#mesh = #dist.mesh<>
module attributes {dist.mesh = #mesh} {
  func.func @body(%h: tensor<4xf32>, %x: tensor<2xf32>) -> tensor<4xf32> {
    return %h : tensor<4xf32>
  }
  func.func @main(%h: tensor<4xf32>, %x: tensor<5x2xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{operand 1 is 'tensor<5x2xf32>', expected 'tensor<3x2xf32>'}}
    %r = task.repeat @body trips 3 carried(%h) scanned(%x) : (tensor<4xf32>, tensor<5x2xf32>) -> tensor<4xf32>
    return %r : tensor<4xf32>
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @body(%h: tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{4}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}]>}) {
    return %h : tensor<4xf32>
  }
  func.func @main(%h: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{carries value 0, which goes into @body in another type or layout than it comes out}}
    %r = task.repeat @body trips 3 carried(%h) : (tensor<4xf32>) -> tensor<4xf32>
    return %r : tensor<4xf32>
  }
}

// -----

func.func @main(%h: tensor<4xf32>, %n: tensor<f32>) -> tensor<4xf32> {
  // expected-error @+1 {{has no function @body}}
  %r = task.repeat @body trips 3 carried(%h) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func @main(%c: tensor<2xi1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected one bool as condition, got 'tensor<2xi1>'}}
  %r = task.if %c then @f(%x) : (tensor<2xi1>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

func.func @f() -> tensor<4xf32> {
  %x = graph.constant dense<0.0> : tensor<4xf32>
  return %x : tensor<4xf32>
}
func.func @main(%c: tensor<i1>) -> tensor<4xf32> {
  // expected-error @+1 {{has no operand for result 0 without an else}}
  %r = task.if %c then @f() : (tensor<i1>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

#mesh = #dist.mesh<tp=2>
func.func @main(%r: tensor<1x4xf32>, %c: tensor<2x4xf32>, %n: tensor<i64>) -> tensor<2x4xf32> {
  // expected-error @+1 {{is along dim 0, which is split in}}
  %u = task.update %r into %c at %n along 0 in <#mesh, [{4: tp}, {4}]> : tensor<1x4xf32>, tensor<2x4xf32>, tensor<i64>
  return %u : tensor<2x4xf32>
}

// -----

#mesh = #dist.mesh<tp=2>
func.func @main(%r: tensor<3x4xf32>, %c: tensor<2x4xf32>, %n: tensor<i64>) -> tensor<2x4xf32> {
  // expected-error @+1 {{writes rows of 'tensor<3x4xf32>' into 'tensor<2x4xf32>'}}
  %u = task.update %r into %c at %n along 0 in <#mesh, [{2}, {4}]> : tensor<3x4xf32>, tensor<2x4xf32>, tensor<i64>
  return %u : tensor<2x4xf32>
}

// -----

#mesh = #dist.mesh<tp=2>
func.func @main(%c: tensor<2x4xf32>, %n: tensor<f32>) -> tensor<2x4xf32> {
  // expected-error @+1 {{expected an i32 or i64, got 'tensor<f32>'}}
  %u = task.keep %c count %n along 0 in <#mesh, [{2}, {4}]> : tensor<2x4xf32>, tensor<f32>
  return %u : tensor<2x4xf32>
}

// -----

func.func @kinds(%x: tensor<4xf32>, %y: tensor<2xf32>) {
  // expected-error @+1 {{expected all-reduces, reduce-scatters or all-gathers in one group and with one reduction as a bucket}}
  %h = task.start : !task.handle<tensor<4xf32>, tensor<4xf32>> {
    %0 = comm.all_reduce %x from <#dist.mesh<tp=2>, [{4}] partial sum {tp}> to <#dist.mesh<tp=2>, [{4}]> : (tensor<4xf32>) -> tensor<4xf32>
    // expected-note @+1 {{not one with the first}}
    %1 = comm.all_gather %y from <#dist.mesh<tp=2>, [{4: tp}]> to <#dist.mesh<tp=2>, [{4}]> : (tensor<2xf32>) -> tensor<4xf32>
    task.yield %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// -----

func.func @reductions(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected all-reduces, reduce-scatters or all-gathers in one group and with one reduction as a bucket}}
  %h = task.start : !task.handle<tensor<4xf32>, tensor<4xf32>> {
    %0 = comm.all_reduce %x from <#dist.mesh<tp=2>, [{4}] partial sum {tp}> to <#dist.mesh<tp=2>, [{4}]> : (tensor<4xf32>) -> tensor<4xf32>
    // expected-note @+1 {{not one with the first}}
    %1 = comm.all_reduce %x from <#dist.mesh<tp=2>, [{4}] partial max {tp}> to <#dist.mesh<tp=2>, [{4}]> : (tensor<4xf32>) -> tensor<4xf32>
    task.yield %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// -----

func.func @yields(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected to yield the results of its ops, of the handle's types}}
  %h = task.start : !task.handle<tensor<4xf32>, tensor<4xf32>> {
    %0 = comm.all_reduce %x from <#dist.mesh<tp=2>, [{4}] partial sum {tp}> to <#dist.mesh<tp=2>, [{4}]> : (tensor<4xf32>) -> tensor<4xf32>
    task.yield %0, %0 : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// -----

func.func @waits(%h: !task.handle<tensor<4xf32>, tensor<2xf32>>) {
  // expected-error @+1 {{gives 'tensor<4xf32>' for '!task.handle<tensor<4xf32>, tensor<2xf32>>'}}
  %0 = task.wait %h : !task.handle<tensor<4xf32>, tensor<2xf32>> -> tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{expected tensors as what a handle gives}}
func.func private @handles(!task.handle<i32>)
