// Softmax between two products is one kernel where nobody else reads the scores: with
// scale, soft cap and mask in it, views and groups of heads as strides, and no buffer of
// queries times keys. Otherwise it stays two products and a kernel.
// RUN: split-file %s %t
// RUN: partita-opt %t/causal.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=CAUSAL
// RUN: partita-opt %t/groups.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=GROUPS
// RUN: partita-opt %t/apart.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=APART

// They compute what the ops do: groups in f32, as bf16 is rounded behind every op there
// and once here.
// RUN: partita-opt %t/causal.mlir --partita-check-bundle -o /dev/null
// RUN: sed s/bf16/f32/g %t/groups.mlir | partita-opt --partita-check-bundle="threads=3 work-per-part=1" -o /dev/null

// The mask is computed of positions where it is needed; scales of both operands are one.
// 4 MiB of scores and 1 MiB of mask are in no buffer: inputs and result have 384 KiB.
// CAUSAL:      kernel @kernel_0
// CAUSAL-NEXT:   domain [2, 32, 32, 1024, 1024] row dims 4 scratch {{[0-9]+}} attention scale 2.5{{.*}} of %[[LOGITS:[0-9]+]] in blocks of 210 by 256 hidden unless %[[SEEN:[0-9]+]]
// CAUSAL-NEXT:   #0 = f32 strides [32768, 1, 0, 32, 0]
// CAUSAL-NEXT:   #1 = f32 strides [32768, 1, 0, 0, 32]
// CAUSAL-NEXT:   #2 = f32 strides [32768, 0, 1, 0, 32]
// CAUSAL-NEXT:   #3 = i64 strides [0, 0, 0, 0, 1]
// CAUSAL-NEXT:   #4 = i64 strides [0, 0, 0, 1, 0]
// CAUSAL-NEXT:   %0 = score : f32
// CAUSAL:        %[[SEEN]] = graph.less_equal
// CAUSAL:        %[[LOGITS]] = graph.where
// CAUSAL-NEXT:   store attention to #5 f32 strides [32768, 0, 1, 32, 0]
// CAUSAL-NOT:  kernel @kernel_1
// CAUSAL:      task kernel @kernel_0
// CAUSAL-NOT:  task
// CAUSAL:      arena 1{{[0-9][0-9][0-9][0-9][0-9][0-9]}} bytes

// Three heads of queries share one of keys: stride 0. Positions of a batch and a bias are
// added; where a query sees no key, PyTorch's exporter writes 0.
// GROUPS:      attention scale 1.0{{.*}} of %{{[0-9]+}} in blocks of {{[0-9]+}} by 50 zero for NaN hidden by the sum of %{{[0-9]+}} %{{[0-9]+}}
// GROUPS-NEXT: #0 = bf16 strides [3840, 1920, 640, 1, 0, 16, 0]
// GROUPS-NEXT: #1 = bf16 strides [1600, 800, 0, 1, 0, 0, 16]
// GROUPS-NEXT: #2 = bf16 strides [2400, 1200, 0, 0, 1, 0, 24]
// GROUPS:      graph.tanh
// GROUPS:      store attention to #5 bf16 strides [5760, 72, 24, 0, 1, 144, 0]
// GROUPS-NOT:  task matmul

// Somebody reads the weights.
// APART-COUNT-2: task matmul
// APART: note graph.softmax: its attention is two products: something else reads the weights

//--- causal.mlir
func.func @main(%q: tensor<2x1024x32xf32>, %k: tensor<2x1024x32xf32>, %v: tensor<2x1024x32xf32>,
                %i: tensor<1024x1xi64>, %j: tensor<1x1024xi64>) -> tensor<2x1024x32xf32> {
  %half = graph.constant dense<0.5> : tensor<f32>
  %low = graph.constant dense<-3.4e38> : tensor<f32>
  %t = graph.transpose %k {permutation = array<i64: 0, 2, 1>} : (tensor<2x1024x32xf32>) -> tensor<2x32x1024xf32>
  %a = graph.mul %q, %half : (tensor<2x1024x32xf32>, tensor<f32>) -> tensor<2x1024x32xf32>
  %b = graph.mul %t, %half : (tensor<2x32x1024xf32>, tensor<f32>) -> tensor<2x32x1024xf32>
  %seen = graph.less_equal %j, %i : (tensor<1x1024xi64>, tensor<1024x1xi64>) -> tensor<1024x1024xi1>
  %s = graph.contract %a, %b {equation = #graph.equation<"h m k, h k n -> h m n">} : (tensor<2x1024x32xf32>, tensor<2x32x1024xf32>) -> tensor<2x1024x1024xf32>
  %l = graph.where %seen, %s, %low : (tensor<1024x1024xi1>, tensor<2x1024x1024xf32>, tensor<f32>) -> tensor<2x1024x1024xf32>
  %p = graph.softmax %l {axis = 2 : i64} : (tensor<2x1024x1024xf32>) -> tensor<2x1024x1024xf32>
  %y = graph.contract %p, %v {equation = #graph.equation<"h m k, h k n -> h m n">} : (tensor<2x1024x1024xf32>, tensor<2x1024x32xf32>) -> tensor<2x1024x32xf32>
  return %y : tensor<2x1024x32xf32>
}

//--- groups.mlir
func.func @main(%q: tensor<2x6x40x16xbf16>, %k: tensor<2x2x50x16xbf16>, %v: tensor<2x2x50x24xbf16>,
                %bias: tensor<1x6x40x50xbf16>, %mask: tensor<2x1x1x50xbf16>) -> tensor<2x40x144xbf16> {
  %cap = graph.constant dense<2.0> : tensor<bf16>
  %g = graph.reshape %q : (tensor<2x6x40x16xbf16>) -> tensor<2x2x3x40x16xbf16>
  %s = graph.contract %g, %k {equation = #graph.equation<"b n g s h, b n t h -> b n g s t">} : (tensor<2x2x3x40x16xbf16>, tensor<2x2x50x16xbf16>) -> tensor<2x2x3x40x50xbf16>
  %r = graph.reshape %s : (tensor<2x2x3x40x50xbf16>) -> tensor<2x6x40x50xbf16>
  %t = graph.tanh %r : (tensor<2x6x40x50xbf16>) -> tensor<2x6x40x50xbf16>
  %c = graph.mul %t, %cap : (tensor<2x6x40x50xbf16>, tensor<bf16>) -> tensor<2x6x40x50xbf16>
  %d = graph.add %c, %bias : (tensor<2x6x40x50xbf16>, tensor<1x6x40x50xbf16>) -> tensor<2x6x40x50xbf16>
  %l = graph.add %mask, %d : (tensor<2x1x1x50xbf16>, tensor<2x6x40x50xbf16>) -> tensor<2x6x40x50xbf16>
  %p = graph.softmax %l {axis = -1 : i64} : (tensor<2x6x40x50xbf16>) -> tensor<2x6x40x50xbf16>
  %n = graph.isnan %p : (tensor<2x6x40x50xbf16>) -> tensor<2x6x40x50xi1>
  %zero = graph.constant dense<0.0> : tensor<bf16>
  %w = graph.where %n, %zero, %p : (tensor<2x6x40x50xi1>, tensor<bf16>, tensor<2x6x40x50xbf16>) -> tensor<2x6x40x50xbf16>
  %h = graph.reshape %w : (tensor<2x6x40x50xbf16>) -> tensor<2x2x3x40x50xbf16>
  %y = graph.contract %h, %v {equation = #graph.equation<"b n g s t, b n t h -> b n g s h">} : (tensor<2x2x3x40x50xbf16>, tensor<2x2x50x24xbf16>) -> tensor<2x2x3x40x24xbf16>
  %f = graph.reshape %y : (tensor<2x2x3x40x24xbf16>) -> tensor<2x6x40x24xbf16>
  %o = graph.transpose %f {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x6x40x24xbf16>) -> tensor<2x40x6x24xbf16>
  %m = graph.reshape %o : (tensor<2x40x6x24xbf16>) -> tensor<2x40x144xbf16>
  return %m : tensor<2x40x144xbf16>
}

//--- apart.mlir
func.func @main(%q: tensor<2x64x32xf32>, %k: tensor<2x64x32xf32>, %v: tensor<2x64x32xf32>)
    -> (tensor<2x64x32xf32>, tensor<2x64x64xf32>) {
  %s = graph.contract %q, %k {equation = #graph.equation<"h m k, h n k -> h m n">} : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x64xf32>
  %p = graph.softmax %s {axis = 2 : i64} : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %y = graph.contract %p, %v {equation = #graph.equation<"h m k, h k n -> h m n">} : (tensor<2x64x64xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  return %y, %p : tensor<2x64x32xf32>, tensor<2x64x64xf32>
}
