// The level of a request stands in place of the model's, and a model without such products
// is an error.
// RUN: split-file %s %t
// RUN: partita-opt %t/products.mlir --partita-accuracy-level=level=4 | FileCheck %s --check-prefix=FOUR
// RUN: partita-opt %t/products.mlir --partita-accuracy-level=level=0 | FileCheck %s --check-prefix=NONE
// RUN: not partita-opt %t/other.mlir --partita-accuracy-level=level=4 2>&1 | FileCheck %s --check-prefix=OTHER

// FOUR-COUNT-2: graph.contract_blocks {{.*}} {accuracy_level = 4 : i64, block = 32 : i64}
// NONE-COUNT-2: graph.contract_blocks {{.*}} {block = 32 : i64}
// OTHER: error: --accuracy-level 4: the model has no product whose weight has 4 bits in scaled blocks

//--- products.mlir
func.func @main(%x: tensor<2x64xf32>, %w: tensor<64x2x16xui8>, %s: tensor<2x64xf32>) -> tensor<2x64xf32> {
  %y = graph.contract_blocks %x, %w, %s {block = 32 : i64} : (tensor<2x64xf32>, tensor<64x2x16xui8>, tensor<2x64xf32>) -> tensor<2x64xf32>
  %z = graph.contract_blocks %y, %w, %s {block = 32 : i64, accuracy_level = 1 : i64} : (tensor<2x64xf32>, tensor<64x2x16xui8>, tensor<2x64xf32>) -> tensor<2x64xf32>
  return %z : tensor<2x64xf32>
}
//--- other.mlir
func.func @main(%x: tensor<2x64xf32>) -> tensor<2x64xf32> {
  return %x : tensor<2x64xf32>
}
