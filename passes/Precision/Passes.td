//===- Passes.td - Programs in narrower types ---------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_PRECISION_PASSES
#define PARTITA_PASSES_PRECISION_PASSES

include "mlir/Pass/PassBase.td"

def NarrowPass : Pass<"partita-narrow", "::mlir::ModuleOp"> {
  let summary = "Makes an f32 program compute in bf16 or f16";
  let description = [{
    Products and convolutions take operands of the narrower type and give results of it;
    what moves elements, and pointwise ops between narrow values, follow. Norms, softmax,
    exponentials, reductions and all else stay f32. Pointwise ops do too where an operand
    is a statistic of the data or a number that the narrower type does not have, where
    every operand is f32, or where the one reader is: the casts then stand at the few
    values that are stored. See docs/precision.md.

    A weight or constant that is read in the narrower type has it itself; bundles have its
    bytes converted. Inputs and outputs keep their types, a state that is made of narrow
    values becomes narrow, one that is only read is cast where it is read. Functions that
    ops run are narrowed likewise; what is carried between their trips stays f32.

    Before:
    ```mlir
    %w = graph.weight "fc1.weight" : tensor<64x256xf32>
    %y = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">}
         : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32>
    %z = graph.gelu %y : (tensor<8x256xf32>) -> tensor<8x256xf32>
    ```
    After, with `compute=bf16`:
    ```mlir
    %w = graph.weight "fc1.weight" : tensor<64x256xbf16>
    %x2 = graph.cast %x {to = bf16} : (tensor<8x64xf32>) -> tensor<8x64xbf16>
    %y = graph.contract %x2, %w {equation = #graph.equation<"m k, k n -> m n">}
         : (tensor<8x64xbf16>, tensor<64x256xbf16>) -> tensor<8x256xbf16>
    %y2 = graph.cast %y {to = f32} : (tensor<8x256xbf16>) -> tensor<8x256xf32>
    %z = graph.gelu %y2 : (tensor<8x256xf32>) -> tensor<8x256xf32>
    ```
  }];
  let options = [
    Option<"compute", "compute", "std::string", "\"bf16\"", "bf16 or f16">,
    ListOption<"keep", "keep", "std::string",
               "Names or globs of nodes that compute in f32">];
  let dependentDialects = ["::partita::graph::GraphDialect"];
}

def AccuracyLevelPass : Pass<"partita-accuracy-level", "::mlir::ModuleOp"> {
  let summary = "Says how exact products with weights of few bits are";
  let description = [{
    Gives every `graph.contract_blocks` the level that a request asks for, whatever the
    model says. At level 4 rows are rounded to 8 bits by blocks; other levels compute in
    f32. See docs/few-bits.md. An error if there is no such product.

    Before:
    ```mlir
    %y = graph.contract_blocks %x, %w, %s {block = 32}
         : (tensor<1x64xf32>, tensor<48x2x16xui8>, tensor<2x48xf32>) -> tensor<1x48xf32>
    ```
    After, with `level=4`:
    ```mlir
    %y = graph.contract_blocks %x, %w, %s {accuracy_level = 4, block = 32}
         : (tensor<1x64xf32>, tensor<48x2x16xui8>, tensor<2x48xf32>) -> tensor<1x48xf32>
    ```
  }];
  let options = [Option<"level", "level", "int64_t", "4", "0 to 4">];
  let dependentDialects = ["::partita::graph::GraphDialect"];
}

#endif // PARTITA_PASSES_PRECISION_PASSES
