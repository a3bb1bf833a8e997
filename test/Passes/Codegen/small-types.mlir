// Values of a byte and less are refused: a fused kernel would leave them unrounded.
// RUN: not partita-opt %s --partita-cpu="mesh=tp=2" 2>&1 | FileCheck %s
// CHECK: error: {{.*}}node 'to_f8' has a tensor of f8e4m3fn, an element type that code generation does not have
module {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.cast %x {to = f8E4M3FN} : (tensor<4x8xf32>) -> tensor<4x8xf8E4M3FN> loc("to_f8")
    %1 = graph.cast %0 {to = f32} : (tensor<4x8xf8E4M3FN>) -> tensor<4x8xf32> loc("back")
    return %1 : tensor<4x8xf32>
  }
}
