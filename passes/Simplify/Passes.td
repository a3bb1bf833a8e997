//===- Passes.td - Rewrites of whole programs ---------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_SIMPLIFY_PASSES
#define PARTITA_PASSES_SIMPLIFY_PASSES

include "mlir/Pass/PassBase.td"

def SimplifyPass : Pass<"partita-simplify", "::mlir::ModuleOp"> {
  let summary = "Remove work that exporters write and no result needs";
  let description = [{
    - A transpose of a contraction's operand is absorbed by its equation.
    - A reshape of a reshape of the same node is one reshape; a reshape, transpose,
      broadcast or slice that changes nothing is removed, as are additions of 0 and products
      with 1 of the same shape.
    - A pad of zeros before a convolution is part of its window. A sum of parts that zeros
      keep apart, as the gradient of a split is, is their concatenation.
    - A slice of a concatenation reads the part in which its range lies. Of a range in
      several parts the slices are joined, if nothing else reads the concatenation and at
      most half of it is wanted.

    Before:
    ```mlir
    %t = graph.transpose %w {permutation = array<i64: 1, 0>} : (tensor<6x8xf32>) -> tensor<8x6xf32>
    %y = graph.contract %x, %t {equation = #graph.equation<"m k, k n -> m n">} : …
    ```
    After:
    ```mlir
    %y = graph.contract %x, %w {equation = #graph.equation<"m k, n k -> m n">} : …
    ```
  }];
  let dependentDialects = ["::partita::graph::GraphDialect"];
}

#endif // PARTITA_PASSES_SIMPLIFY_PASSES
