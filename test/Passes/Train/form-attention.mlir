// Softmax between two products is one op before a step is differentiated, with what stands
// between product and softmax as a payload; where it is only just none, a remark says why.
// RUN: split-file %s %t
// RUN: partita-opt %t/found.mlir --partita-form-attention --cse --mlir-print-local-scope --mlir-print-debuginfo | FileCheck %s --check-prefix=FOUND
// RUN: partita-opt %t/found.mlir --partita-form-attention="inner=scores" 2>&1 | FileCheck %s --check-prefix=NAMED
// RUN: partita-opt %t/found.mlir --partita-form-attention="parts=scores" 2>&1 | FileCheck %s --check-prefix=NAMED
// RUN: partita-opt %t/found.mlir --partita-form-attention="parts=*" 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: partita-opt %t/groups.mlir --partita-form-attention | FileCheck %s --check-prefix=GROUPS
// RUN: partita-opt %t/narrow.mlir --partita-form-attention | FileCheck %s --check-prefix=NARROW
// RUN: partita-opt %t/narrow.mlir --partita-form-attention --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/apart.mlir --partita-form-attention -o /dev/null 2>&1 | FileCheck %s --check-prefix=APART
// What it computes stays.
// RUN: partita-opt %t/found.mlir --partita-form-attention --partita-check-bundle -o /dev/null

// The order of q's dims becomes the op's, and the result's that of the second product;
// positions are compared in the payload.
// FOUND-NOT: graph.softmax
// FOUND: %[[Q:.*]] = graph.transpose %arg0 {permutation = array<i64: 0, 2, 1, 3>}
// FOUND: %[[Y:.*]], %{{.*}}, %{{.*}} = graph.attention %[[Q]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {payload = #graph.payload<"select({{[yz]}} <= {{[yz]}}, tanh(x), -1.0{{.*}}e+30)">, scale = 2.5{{.*}} : f64}
// FOUND-SAME: loc("mix")
// FOUND: graph.transpose %[[Y]] {permutation = array<i64: 0, 2, 1, 3>}
// FOUND-SAME: loc("mix"("mixed"))

// NAMED: remark: {{.*}}softmax 'weights': its attention is two products, with a tensor of queries × keys: hints or recompute name a part of it
// NAMED: graph.softmax
// WHOLE-NOT: graph.softmax
// WHOLE: graph.attention

// Three heads of queries read one of keys.
// GROUPS: graph.attention %{{.*}}, %{{.*}}, %{{.*}} {{.*}} : (tensor<2x3x5x4xf32>, tensor<2x1x6x4xf32>, tensor<2x1x6x4xf32>) -> (tensor<2x3x5x4xf32>, tensor<2x3x5xf32>, tensor<2x3x5xf32>)

// Products of bf16 with a softmax in f32: scores and weights are not rounded.
// NARROW-NOT: graph.cast
// NARROW: graph.attention {{.*}}payload = #graph.payload<"select(y, x, {{.*}})">, scale = 5.000000e-01 : f64} : (tensor<3x5x4xbf16>, tensor<3x6x4xbf16>, tensor<3x6x4xbf16>, tensor<5x6xi1>) -> (tensor<3x5x4xbf16>, tensor<3x5xf32>, tensor<3x5xf32>)
// NARROW-NOT: graph.softmax

// APART-DAG: remark: {{.*}}softmax 'read': {{.*}}: something else reads the weights
// APART-DAG: remark: {{.*}}softmax 'biased': {{.*}}: what is added to or multiplied with its scores trains
// APART-DAG: remark: {{.*}}softmax 'mixed': {{.*}}: its products are of different types
// APART-DAG: remark: {{.*}}softmax 'gated': {{.*}}: 'gate' (graph.mul) stands behind it

//--- found.mlir
func.func @main(%q: tensor<2x5x3x8xf32>, %k: tensor<2x3x6x8xf32>, %v: tensor<2x3x6x8xf32>) -> tensor<2x5x3x8xf32> {
  %quarter = graph.constant dense<0.25> : tensor<f32>
  %low = graph.constant dense<-1.0e30> : tensor<f32>
  %i = graph.constant dense<[[0], [1], [2], [3], [4]]> : tensor<5x1xi64>
  %j = graph.constant dense<[[0, 1, 2, 3, 4, 5]]> : tensor<1x6xi64>
  %seen = graph.less_equal %j, %i : (tensor<1x6xi64>, tensor<5x1xi64>) -> tensor<5x6xi1>
  %s = graph.contract %q, %k {equation = #graph.equation<"b m h d, b h n d -> b h m n">} : (tensor<2x5x3x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x3x5x6xf32> loc("scores")
  %t = graph.mul %s, %quarter : (tensor<2x3x5x6xf32>, tensor<f32>) -> tensor<2x3x5x6xf32>
  %c = graph.tanh %t : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x6xf32>
  %l = graph.where %seen, %c, %low : (tensor<5x6xi1>, tensor<2x3x5x6xf32>, tensor<f32>) -> tensor<2x3x5x6xf32>
  %p = graph.softmax %l {axis = 3 : i64} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x6xf32> loc("weights")
  %y = graph.contract %v, %p {equation = #graph.equation<"b h n e, b h m n -> b m h e">} : (tensor<2x3x6x8xf32>, tensor<2x3x5x6xf32>) -> tensor<2x5x3x8xf32> loc("mix"("mixed"))
  return %y : tensor<2x5x3x8xf32>
}
//--- groups.mlir
func.func @main(%q: tensor<2x3x5x4xf32>, %k: tensor<2x6x4xf32>, %v: tensor<2x6x4xf32>) -> tensor<2x3x5x4xf32> {
  %s = graph.contract %q, %k {equation = #graph.equation<"h g m d, h n d -> h g m n">} : (tensor<2x3x5x4xf32>, tensor<2x6x4xf32>) -> tensor<2x3x5x6xf32>
  %p = graph.softmax %s {axis = -1 : i64} : (tensor<2x3x5x6xf32>) -> tensor<2x3x5x6xf32>
  %y = graph.contract %p, %v {equation = #graph.equation<"h g m n, h n e -> h g m e">} : (tensor<2x3x5x6xf32>, tensor<2x6x4xf32>) -> tensor<2x3x5x4xf32>
  return %y : tensor<2x3x5x4xf32>
}
//--- narrow.mlir
func.func @main(%q: tensor<3x5x4xbf16>, %k: tensor<3x6x4xbf16>, %seen: tensor<5x6xi1>) -> tensor<3x5x4xbf16> {
  %quarter = graph.constant dense<0.25> : tensor<bf16>
  %two = graph.constant dense<2.0> : tensor<f32>
  %low = graph.constant dense<-1.0e30> : tensor<f32>
  %s = graph.contract %q, %k {equation = #graph.equation<"h m d, h n d -> h m n">} : (tensor<3x5x4xbf16>, tensor<3x6x4xbf16>) -> tensor<3x5x6xbf16>
  %t = graph.mul %s, %quarter : (tensor<3x5x6xbf16>, tensor<bf16>) -> tensor<3x5x6xbf16>
  %w = graph.cast %t {to = f32} : (tensor<3x5x6xbf16>) -> tensor<3x5x6xf32>
  %u = graph.mul %w, %two : (tensor<3x5x6xf32>, tensor<f32>) -> tensor<3x5x6xf32>
  %l = graph.where %seen, %u, %low : (tensor<5x6xi1>, tensor<3x5x6xf32>, tensor<f32>) -> tensor<3x5x6xf32>
  %p = graph.softmax %l {axis = -1 : i64} : (tensor<3x5x6xf32>) -> tensor<3x5x6xf32>
  %n = graph.cast %p {to = bf16} : (tensor<3x5x6xf32>) -> tensor<3x5x6xbf16>
  %y = graph.contract %n, %k {equation = #graph.equation<"h m n, h n e -> h m e">} : (tensor<3x5x6xbf16>, tensor<3x6x4xbf16>) -> tensor<3x5x4xbf16>
  return %y : tensor<3x5x4xbf16>
}
//--- apart.mlir
func.func @main(%q: tensor<3x5x4xf32>, %k: tensor<3x6x4xf32>, %bias: tensor<5x6xf32> {dist.state = #dist.state<"bias" from "bias">})
    -> (tensor<3x5x4xf32>, tensor<3x5x6xf32>, tensor<3x5x4xf32>, tensor<3x5x4xf32>, tensor<3x5x4xbf16>) {
  %s = graph.contract %q, %k {equation = #graph.equation<"h m d, h n d -> h m n">} : (tensor<3x5x4xf32>, tensor<3x6x4xf32>) -> tensor<3x5x6xf32>
  %p = graph.softmax %s {axis = -1 : i64} : (tensor<3x5x6xf32>) -> tensor<3x5x6xf32> loc("read")
  %y = graph.contract %p, %k {equation = #graph.equation<"h m n, h n e -> h m e">} : (tensor<3x5x6xf32>, tensor<3x6x4xf32>) -> tensor<3x5x4xf32>
  %s2 = graph.contract %k, %q {equation = #graph.equation<"h n d, h m d -> h m n">} : (tensor<3x6x4xf32>, tensor<3x5x4xf32>) -> tensor<3x5x6xf32>
  %b2 = graph.add %s2, %bias : (tensor<3x5x6xf32>, tensor<5x6xf32>) -> tensor<3x5x6xf32>
  %p2 = graph.softmax %b2 {axis = -1 : i64} : (tensor<3x5x6xf32>) -> tensor<3x5x6xf32> loc("biased")
  %y2 = graph.contract %p2, %k {equation = #graph.equation<"h m n, h n e -> h m e">} : (tensor<3x5x6xf32>, tensor<3x6x4xf32>) -> tensor<3x5x4xf32>
  %g = graph.constant dense<[[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]]> : tensor<1x6xf32>
  %s3 = graph.contract %q, %k {equation = #graph.equation<"h m d, h n d -> h m n">} : (tensor<3x5x4xf32>, tensor<3x6x4xf32>) -> tensor<3x5x6xf32>
  %p3 = graph.softmax %s3 {axis = -1 : i64} : (tensor<3x5x6xf32>) -> tensor<3x5x6xf32> loc("gated")
  %m3 = graph.mul %p3, %g : (tensor<3x5x6xf32>, tensor<1x6xf32>) -> tensor<3x5x6xf32> loc("gate")
  %y3 = graph.contract %m3, %k {equation = #graph.equation<"h m n, h n e -> h m e">} : (tensor<3x5x6xf32>, tensor<3x6x4xf32>) -> tensor<3x5x4xf32>
  %k16 = graph.cast %k {to = bf16} : (tensor<3x6x4xf32>) -> tensor<3x6x4xbf16>
  %s4 = graph.contract %q, %k {equation = #graph.equation<"h m d, h n d -> h m n">} : (tensor<3x5x4xf32>, tensor<3x6x4xf32>) -> tensor<3x5x6xf32>
  %p4 = graph.softmax %s4 {axis = -1 : i64} : (tensor<3x5x6xf32>) -> tensor<3x5x6xf32> loc("mixed")
  %n4 = graph.cast %p4 {to = bf16} : (tensor<3x5x6xf32>) -> tensor<3x5x6xbf16>
  %y4 = graph.contract %n4, %k16 {equation = #graph.equation<"h m n, h n e -> h m e">} : (tensor<3x5x6xbf16>, tensor<3x6x4xbf16>) -> tensor<3x5x4xbf16>
  return %y, %p, %y2, %y3, %y4 : tensor<3x5x4xf32>, tensor<3x5x6xf32>, tensor<3x5x4xf32>, tensor<3x5x4xf32>, tensor<3x5x4xbf16>
}
