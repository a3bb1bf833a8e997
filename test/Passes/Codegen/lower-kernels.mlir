// Kernels are fused, share code where they are equal, and take views instead of copies.
// RUN: partita-opt %s --partita-lower-kernels=print=1 | FileCheck %s
// RUN: partita-opt %s --partita-lower-kernels=lower=1 | FileCheck %s --check-prefix=LLVM

// A chain is one kernel; the domain is merged where all operands are contiguous.
// CHECK:      kernel @kernel_0
// CHECK-NEXT:   domain [4, 48]
// CHECK-NEXT:   #0 = f32 strides [48, 1]
// CHECK-NEXT:   #1 = f32 strides [1, 0]
// CHECK-NEXT:   %0 = load #0 : f32
// CHECK-NEXT:   %1 = load #1 : f32
// CHECK-NEXT:   %2 = graph.add %0 %1 : f32
// CHECK-NEXT:   %3 = graph.tanh %2 : f32
// CHECK-NEXT:   store %3 to #2 f32 strides [48, 1]

// A normalization takes the difference before it and the product behind it into its rows.
// CHECK:      kernel @kernel_1
// CHECK-NEXT:   domain [4, 48] row dims 1 scratch 384
// CHECK:        graph.sub
// CHECK:        graph.softmax
// CHECK-NEXT:   %{{[0-9]+}} = constant 2.000000e+00 : f32
// CHECK-NEXT:   graph.mul
// CHECK-NOT:  kernel @

// The second chain is the first kernel again.
// CHECK: task kernel @kernel_0
// CHECK: task kernel @kernel_0
// CHECK: task kernel @kernel_1

// Heads are strides of the operands: one product per head, no transpose. Row strides of
// 48 are those of the fused projection, 16·4 bytes the offset of its second third.
// CHECK: task matmul (b[[QKV:[0-9]+]], b[[QKV]]+64, b{{[0-9]+}}, -
// CHECK-SAME: { m: 4, n: 4, k: 8, a_row: 48, a_col: 1, b_row: 1, b_col: 48, c_row: 4,
// CHECK: arena {{[0-9]+}} bytes, at least {{[0-9]+}}

// LLVM: llvm.func @kernel_0_body(%{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.noalias}
// LLVM: llvm.func @kernel_0(%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64)
func.func @main(%x: tensor<4x48xf32>, %b: tensor<4x1xf32>, %c: tensor<4x1xf32>)
    -> (tensor<4x48xf32>, tensor<4x48xf32>, tensor<4x48xf32>, tensor<2x4x4xf32>) {
  %0 = graph.add %x, %b : (tensor<4x48xf32>, tensor<4x1xf32>) -> tensor<4x48xf32>
  %1 = graph.tanh %0 : (tensor<4x48xf32>) -> tensor<4x48xf32>
  %2 = graph.add %x, %c : (tensor<4x48xf32>, tensor<4x1xf32>) -> tensor<4x48xf32>
  %3 = graph.tanh %2 : (tensor<4x48xf32>) -> tensor<4x48xf32>
  %4 = graph.sub %x, %b : (tensor<4x48xf32>, tensor<4x1xf32>) -> tensor<4x48xf32>
  %5 = graph.softmax %4 {axis = 1 : i64} : (tensor<4x48xf32>) -> tensor<4x48xf32>
  %two = graph.constant dense<2.0> : tensor<f32>
  %6 = graph.mul %5, %two : (tensor<4x48xf32>, tensor<f32>) -> tensor<4x48xf32>
  %7 = graph.slice %6 {starts = array<i64: 0, 0>, steps = array<i64: 1, 1>} : (tensor<4x48xf32>) -> tensor<4x16xf32>
  %8 = graph.slice %6 {starts = array<i64: 0, 16>, steps = array<i64: 1, 1>} : (tensor<4x48xf32>) -> tensor<4x16xf32>
  %9 = graph.reshape %7 : (tensor<4x16xf32>) -> tensor<4x2x8xf32>
  %10 = graph.reshape %8 : (tensor<4x16xf32>) -> tensor<4x2x8xf32>
  %11 = graph.transpose %9 {permutation = array<i64: 1, 0, 2>} : (tensor<4x2x8xf32>) -> tensor<2x4x8xf32>
  %12 = graph.transpose %10 {permutation = array<i64: 1, 2, 0>} : (tensor<4x2x8xf32>) -> tensor<2x8x4xf32>
  %13 = graph.contract %11, %12 {equation = #graph.equation<"h q d, h d k -> h q k">} : (tensor<2x4x8xf32>, tensor<2x8x4xf32>) -> tensor<2x4x4xf32>
  return %1, %3, %6, %13 : tensor<4x48xf32>, tensor<4x48xf32>, tensor<4x48xf32>, tensor<2x4x4xf32>
}
