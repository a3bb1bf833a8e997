// A float of one byte inside a kernel has the precision of its type: the cast to it and back
// is one kernel, on both targets, and equals the evaluator.
// RUN: partita-opt %s --partita-lower-kernels=print 2>&1 | FileCheck %s
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-check-bundle=target=plain -o /dev/null
// RUN: partita-opt %s --partita-shard="mesh=tp=2 mode=data-parallel" --partita-check-bundle -o /dev/null

// CHECK: kernel @kernel_0
// CHECK: %1 = graph.cast {to = f8E4M3FN} %0 : f8e4m3fn
// CHECK: %2 = graph.cast {to = f32} %1 : f32
// CHECK-NOT: kernel @kernel_1
module {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.cast %x {to = f8E4M3FN} : (tensor<4x8xf32>) -> tensor<4x8xf8E4M3FN> loc("to_f8")
    %1 = graph.cast %0 {to = f32} : (tensor<4x8xf8E4M3FN>) -> tensor<4x8xf32> loc("back")
    return %1 : tensor<4x8xf32>
  }
}
