// A type that is no narrower one, and a pattern that names nothing.
// RUN: not partita-opt %s --partita-narrow=compute=f32 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not partita-opt %s --partita-narrow=compute=bf17 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: not partita-opt %s --partita-narrow="keep=fc,other*" 2>&1 | FileCheck %s --check-prefix=NAME

// TYPE: error: 'f32' is no type to narrow to: expected bf16 or f16
// WORD: error: 'bf17' is no type to narrow to: expected bf16 or f16
// NAME: error: --keep-f32 'other*' names no node of the model
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %y = graph.contract %x, %x {equation = #graph.equation<"m k, n k -> m n">} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32> loc("fc")
  return %y : tensor<4x4xf32>
}
