// Products, what moves and what is pointwise between narrow values are narrow; all else is
// f32, and a cast stands where a value is stored.
// RUN: partita-opt %s --split-input-file --partita-narrow=compute=bf16 --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s
// RUN: partita-opt %s --split-input-file --partita-narrow=compute=f16 | FileCheck %s --check-prefix=HALF
// RUN: partita-opt %s --split-input-file --partita-narrow="compute=bf16 keep=fc*" | FileCheck %s --check-prefix=KEEP

// The weight is narrow, and so is the bias, which the product's call may add; the casts have
// the names of the nodes that make the values; the function of real numbers is f32, and a
// number that has no narrow form.
// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>
// CHECK: %[[W:.*]] = graph.weight "w" : tensor<8x6xbf16> loc("w")
// CHECK: %[[B:.*]] = graph.weight "b" : tensor<6xbf16>
// CHECK: %[[XN:.*]] = graph.cast %[[X]] {to = bf16} {{.*}}loc("x")
// CHECK: %[[Y:.*]] = graph.contract %[[XN]], %[[W]] {{.*}} -> tensor<4x6xbf16> loc("fc1"("y"))
// CHECK: %[[A:.*]] = graph.add %[[Y]], %[[B]] {{.*}}xbf16>
// CHECK: %[[AW:.*]] = graph.cast %[[A]] {to = f32} {{.*}} loc("bias")
// CHECK: %[[C:.*]] = graph.constant dense<3.535500e-01> : tensor<f32>
// CHECK: %[[S:.*]] = graph.mul %[[AW]], %[[C]] {{.*}}xf32>
// CHECK: %[[G:.*]] = graph.gelu %[[S]] {{.*}}xf32>
// CHECK: return %[[G]]
// HALF-LABEL: func.func @main
// HALF: graph.weight "w" : tensor<8x6xf16>
// KEEP-LABEL: func.func @main
// KEEP-NOT: bf16
// KEEP: return
func.func @main(%x: tensor<4x8xf32> {graph.name = "x"}) -> (tensor<4x6xf32> {graph.name = "z"}) {
  %w = graph.weight "w" : tensor<8x6xf32> loc("w")
  %b = graph.weight "b" : tensor<6xf32> loc("b")
  %y = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32> loc("fc1"("y"))
  %a = graph.add %y, %b : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> loc("bias")
  %c = graph.constant dense<0.35355> : tensor<f32>
  %s = graph.mul %a, %c : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32> loc("scale")
  %g = graph.gelu %s : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("gelu")
  return %g : tensor<4x6xf32>
}

// -----

// A norm of many ops is f32 from its first sum to its last product, the residual that others
// read is narrow. The least f32 is no infinity in a narrower type.
// CHECK-LABEL: func.func @main
// CHECK: %[[LEAST:.*]] = graph.constant dense<-3.38{{.*}}e+38> : tensor<bf16>
// CHECK: %[[Y:.*]] = graph.contract {{.*}} -> tensor<4x8xbf16>
// CHECK: %[[R:.*]] = graph.add %{{.*}}, %[[Y]] {{.*}}xbf16>
// CHECK: %[[RW:.*]] = graph.cast %[[R]] {to = f32}
// CHECK: graph.reduce %[[RW]] {{.*}}xf32>
// CHECK: graph.sub %[[RW]], %{{.*}}xf32>
// CHECK: graph.mul {{.*}}xf32>
// CHECK: %[[M:.*]] = graph.max %[[R]], %[[LEAST]] {{.*}}xbf16>
// CHECK: graph.contract %{{.*}}, %[[M]]
// HALF-LABEL: func.func @main
// HALF: graph.constant dense<-6.550400e+04> : tensor<f16>
// KEEP-LABEL: func.func @main
func.func @main(%x: tensor<4x8xf32>, %other: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>) {
  %n = graph.constant dense<8.0> : tensor<f32>
  %least = graph.constant dense<0xFF7FFFFF> : tensor<f32>
  %y = graph.contract %x, %other {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("fc")
  %r = graph.add %x, %y : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("r")
  %s = graph.reduce %r {axes = array<i64: 1>, keep_dims = true, kind = #graph.reduce<sum>} : (tensor<4x8xf32>) -> tensor<4x1xf32> loc("s")
  %mean = graph.div %s, %n : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32> loc("mean")
  %d = graph.sub %r, %mean : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32> loc("d")
  %q = graph.mul %d, %d : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("q")
  %m = graph.max %r, %least : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32> loc("m")
  %z = graph.contract %r, %m {equation = #graph.equation<"m k, m n -> k n">} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> loc("z")
  return %q, %z : tensor<4x8xf32>, tensor<8x8xf32>
}

// -----

// Positions times frequencies are no sum: they stay f32 up to the cosine. A table that is
// looked up is narrow.
// CHECK-LABEL: func.func @main
// CHECK: graph.weight "table" : tensor<9x6xbf16>
// CHECK: graph.gather {{.*}}bf16
// CHECK: graph.contract {{.*}}(tensor<4x1xf32>, tensor<1x6xf32>) -> tensor<4x6xf32>
// CHECK: graph.cos {{.*}}f32
// CHECK: graph.mul {{.*}}bf16
// HALF-LABEL: func.func @main
// KEEP-LABEL: func.func @main
func.func @main(%at: tensor<4x1xi64>, %ids: tensor<4xi64>) -> tensor<4x4xf32> {
  %table = graph.weight "table" : tensor<9x6xf32> loc("table")
  %rates = graph.weight "rates" : tensor<1x6xf32> loc("rates")
  %h = graph.gather %table, %ids {axis = 0 : i64} : (tensor<9x6xf32>, tensor<4xi64>) -> tensor<4x6xf32> loc("h")
  %p = graph.cast %at {to = f32} : (tensor<4x1xi64>) -> tensor<4x1xf32> loc("p")
  %f = graph.contract %p, %rates {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x1xf32>, tensor<1x6xf32>) -> tensor<4x6xf32> loc("f")
  %c = graph.cos %f : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("c")
  %t = graph.mul %h, %c : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("t")
  %z = graph.contract %t, %t {equation = #graph.equation<"m k, n k -> m n">} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32> loc("fc")
  return %z : tensor<4x4xf32>
}

// -----

// A cache is a narrow state, a running mean is none; a parameter, which is only read, is cast.
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<6x8xbf16> {dist.state = #dist.state<"past">}
// CHECK-SAME: tensor<8xf32> {dist.state = #dist.state<"mean">}
// CHECK-SAME: [[P:%arg[0-9]+]]: tensor<8x8xf32> {dist.state = #dist.state<"p" from "p">}
// CHECK-SAME: -> (tensor<4x8xf32>{{.*}}, tensor<6x8xbf16>{{.*}}, tensor<8xf32>
// CHECK: graph.cast [[P]] {to = bf16}
// CHECK: graph.concat {{.*}}bf16
// HALF-LABEL: func.func @main
// KEEP-LABEL: func.func @main
func.func @main(%x: tensor<4x8xf32> {graph.name = "x"},
                %past: tensor<6x8xf32> {dist.state = #dist.state<"past">},
                %mean: tensor<8xf32> {dist.state = #dist.state<"mean">},
                %p: tensor<8x8xf32> {dist.state = #dist.state<"p" from "p">})
    -> (tensor<4x8xf32> {graph.name = "y"}, tensor<6x8xf32> {dist.state = #dist.state<"past">},
        tensor<8xf32> {dist.state = #dist.state<"mean">}) {
  %y = graph.contract %x, %p {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("fc")
  %all = graph.concat %past, %y {axis = 0 : i64} : (tensor<6x8xf32>, tensor<4x8xf32>) -> tensor<10x8xf32> loc("all")
  %last = graph.slice %all {starts = array<i64: 4, 0>, steps = array<i64: 1, 1>} : (tensor<10x8xf32>) -> tensor<6x8xf32> loc("last")
  %s = graph.reduce %y {axes = array<i64: 0>, keep_dims = false, kind = #graph.reduce<sum>} : (tensor<4x8xf32>) -> tensor<8xf32> loc("s")
  %next = graph.add %mean, %s : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32> loc("next")
  return %y, %last, %next : tensor<4x8xf32>, tensor<6x8xf32>, tensor<8xf32>
}

// -----

// In a loop: what the trips share has the type of its readers, what they carry is f32.
// CHECK-LABEL: func.func private @body
// CHECK-SAME: tensor<2x8xf32>{{.*}}, %{{.*}}: tensor<2x8xbf16>{{.*}}, %{{.*}}: tensor<8x8xbf16>{{.*}} -> tensor<2x8xf32>
// CHECK-LABEL: func.func @main
// CHECK: %[[W:.*]] = graph.weight "w" : tensor<8x8xbf16>
// CHECK: graph.repeat @body {{.*}}(tensor<2x8xf32>, tensor<3x2x8xbf16>, tensor<8x8xbf16>) -> tensor<2x8xf32>
// HALF-LABEL: func.func @main
// KEEP-LABEL: func.func @main
func.func private @body(%h: tensor<2x8xf32>, %x: tensor<2x8xf32>, %w: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %a = graph.contract %h, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32> loc("fc")
  %b = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32> loc("fc2")
  %c = graph.add %a, %b : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32> loc("sum")
  %t = graph.tanh %c : (tensor<2x8xf32>) -> tensor<2x8xf32> loc("tanh")
  return %t : tensor<2x8xf32>
}
func.func @main(%h: tensor<2x8xf32>, %x: tensor<3x2x8xf32>) -> tensor<2x8xf32> {
  %w = graph.weight "w" : tensor<8x8xf32> loc("w")
  %y = graph.repeat @body trips 3 carried(%h) scanned(%x) with(%w) : (tensor<2x8xf32>, tensor<3x2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32> loc("loop")
  return %y : tensor<2x8xf32>
}

// -----

// A norm that a product reads by way of a reshape is rounded before it is moved; one that
// something else reads is not.
// CHECK-LABEL: func.func @moved
// CHECK: %[[N:.*]] = graph.softmax {{.*}}xf32>
// CHECK: %[[NN:.*]] = graph.cast %[[N]] {to = bf16}
// CHECK: %[[M:.*]] = graph.reshape %[[NN]] {{.*}}tensor<6x8xbf16>
// CHECK: graph.contract %[[M]],
// CHECK: %[[R:.*]] = graph.reshape %[[N]] {{.*}}tensor<8x6xf32>
// CHECK: return {{.*}}, %[[R]]
func.func @moved(%x: tensor<2x3x8xf32> {graph.name = "x"}) -> (tensor<6x4xf32> {graph.name = "y"}, tensor<8x6xf32> {graph.name = "r"}) {
  %w = graph.weight "w" : tensor<8x4xf32>
  %n = graph.softmax %x {axis = 2 : i64} : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %m = graph.reshape %n : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
  %y = graph.contract %m, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32> loc("fc1")
  %r = graph.reshape %n : (tensor<2x3x8xf32>) -> tensor<8x6xf32>
  return %y, %r : tensor<6x4xf32>, tensor<8x6xf32>
}
