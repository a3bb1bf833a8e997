//===- Passes.td - Passes that need several stages ----------*- tablegen -*-===//
#ifndef PARTITA_PASSES_PIPELINES_PASSES
#define PARTITA_PASSES_PIPELINES_PASSES

include "mlir/Pass/PassBase.td"

def CheckSpmdPass : Pass<"partita-check-spmd", "::mlir::ModuleOp"> {
  let summary = "Prove on virtual ranks that the partitioned program equals the original";
  let description = [{
    Partitions a copy of every annotated function, evaluates both on the same random
    inputs and weights, on as many virtual ranks as the mesh has, with garbage in all
    padding, and compares. An error names the first difference; the module is not changed.
  }];
  let options = [
    Option<"seed", "seed", "uint64_t", "1", "Seed of the random inputs">,
    Option<"rtol", "rtol", "double", "1e-4", "Relative tolerance for floats">,
    Option<"atol", "atol", "double", "1e-5", "Absolute tolerance for floats">,
  ];
}

#endif // PARTITA_PASSES_PIPELINES_PASSES
