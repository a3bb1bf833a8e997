// Where an op is computed is what takes least: in the kernel of its users, there and
// stored for others, again in each of them, or in a kernel of its own.
// RUN: partita-opt %s --split-input-file --partita-lower-kernels=print=1 | FileCheck %s

// A moving average is stored by the kernel that makes the weight of it: each tensor moves
// once.
// CHECK:       graph.mul
// CHECK:       [[SUM:%[0-9]+]] = graph.add
// CHECK:       [[NEW:%[0-9]+]] = graph.sub
// CHECK-NEXT:  store [[NEW]]
// CHECK-NEXT:  store [[SUM]]
// CHECK-COUNT-1: task kernel
// CHECK-NOT:   task kernel
func.func @main(%m: tensor<64x64xf32>, %g: tensor<64x64xf32>, %w: tensor<64x64xf32>)
    -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %keep = graph.constant dense<0.9> : tensor<f32>
  %rate = graph.constant dense<0.1> : tensor<f32>
  %0 = graph.mul %m, %keep : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %1 = graph.add %0, %g : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = graph.mul %1, %rate : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %3 = graph.sub %w, %2 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1, %3 : tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// A residual that is read behind the product: the normalization's kernel stores it.
// CHECK:       [[SUM:%[0-9]+]] = graph.add
// CHECK-NEXT:  [[WEIGHTS:%[0-9]+]] = graph.softmax
// CHECK-NEXT:  store [[WEIGHTS]]
// CHECK-NEXT:  store [[SUM]]
// CHECK:       task kernel @kernel_0 (b0, b1, b3, b4, b5)
// CHECK-NEXT:  task matmul (b3, b2, b6, -, {{[-b0-9]+}}, b4)
func.func @main(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %r = graph.add %a, %b : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %n = graph.softmax %r {axis = 1 : i64} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = graph.contract %n, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %z = graph.add %y, %r : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %z : tensor<64x64xf32>
}

// -----

// Half of a product is computed by both kernels: they load the product instead.
// CHECK:       kernel @kernel_0
// CHECK:       graph.mul
// CHECK:       graph.add
// CHECK:       kernel @kernel_1
// CHECK:       graph.mul
// CHECK:       graph.sub
// CHECK:       task matmul (b0, b1, b[[X:[0-9]+]], -, {{[-b0-9]+}})
// CHECK:       task kernel @kernel_0 (b[[X]], b1, b{{[0-9]+}})
// CHECK:       task kernel @kernel_1 (b{{[0-9]+}}, b[[X]], b{{[0-9]+}})
func.func @main(%a: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %half = graph.constant dense<0.5> : tensor<f32>
  %x = graph.contract %a, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %h = graph.mul %x, %half : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %t = graph.add %h, %w : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = graph.contract %t, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = graph.sub %y, %h : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %e = graph.exp %s : (tensor<64x64xf32>) -> tensor<64x64xf32>
  return %x, %y, %e : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// The exponential of a scale is taken once, not for each point that it scales; that of a
// column, which is one number for each row, is taken there.
// CHECK:       kernel @kernel_0
// CHECK-NEXT:    domain [768]
// CHECK:       kernel @kernel_1
// CHECK-NEXT:    domain [512, 768] row dims 1
// CHECK:         graph.exp
// CHECK:       note graph.exp: it is a kernel of its own: computing it at each of their points takes longer than storing it
func.func @main(%x: tensor<512x768xf32>, %s: tensor<768xf32>, %c: tensor<512x1xf32>) -> tensor<512x768xf32> {
  %s1 = graph.exp %s : (tensor<768xf32>) -> tensor<768xf32>
  %c1 = graph.exp %c : (tensor<512x1xf32>) -> tensor<512x1xf32>
  %n = graph.softmax %x {axis = 1 : i64} : (tensor<512x768xf32>) -> tensor<512x768xf32>
  %y = graph.mul %n, %s1 : (tensor<512x768xf32>, tensor<768xf32>) -> tensor<512x768xf32>
  %z = graph.mul %y, %c1 : (tensor<512x768xf32>, tensor<512x1xf32>) -> tensor<512x768xf32>
  return %z : tensor<512x768xf32>
}

// -----

// Others read the sum before the kernel of its last user has run.
// CHECK-COUNT-2: task kernel
// CHECK:       note graph.add: it is a kernel of its own: others read it before the kernel of its first user has run
func.func @main(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %r = graph.add %a, %b : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = graph.contract %r, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %e = graph.exp %y : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %z = graph.mul %e, %r : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %z : tensor<64x64xf32>
}

// -----

// A mask that an attention could compute, but that another reader finds in memory, is
// loaded: what it is made of is stored nowhere.
// CHECK-NOT:   error
// CHECK:       attention
func.func @main(%q: tensor<64x64xf32>, %k: tensor<64x64xf32>, %v: tensor<64x64xf32>, %i: tensor<64x1xf32>, %pad: tensor<1x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %pad1 = graph.exp %pad : (tensor<1x64xf32>) -> tensor<1x64xf32>
  %m = graph.add %i, %pad1 : (tensor<64x1xf32>, tensor<1x64xf32>) -> tensor<64x64xf32>
  %s = graph.contract %q, %k {equation = #graph.equation<"q d, k d -> q k">} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %a = graph.add %s, %m : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = graph.softmax %a {axis = 1 : i64} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = graph.contract %p, %v {equation = #graph.equation<"q k, k d -> q d">} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %t = graph.tanh %m : (tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y, %t : tensor<64x64xf32>, tensor<64x64xf32>
}
