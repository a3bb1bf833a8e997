//===- Passes.td - Passes that need several stages ----------*- tablegen -*-===//
#ifndef PARTITA_PASSES_PIPELINES_PASSES
#define PARTITA_PASSES_PIPELINES_PASSES

include "mlir/Pass/PassBase.td"

def CheckSpmdPass : Pass<"partita-check-spmd", "::mlir::ModuleOp"> {
  let summary = "Prove on virtual ranks that the partitioned program equals the original";
  let description = [{
    Plans (where that is not done) and partitions a copy of every function with strategies, evaluates both on the same random
    inputs and weights, on as many virtual ranks as the mesh has, with garbage in all
    padding, and compares. An error names the first difference; the module is not changed.
  }];
  let options = [
    Option<"seed", "seed", "uint64_t", "1", "Seed of the random inputs">,
    Option<"rtol", "rtol", "double", "1e-4", "Relative tolerance for floats">,
    Option<"atol", "atol", "double", "1e-5", "Absolute tolerance for floats">,
  ];
}

def CheckBundlePass : Pass<"partita-check-bundle", "::mlir::ModuleOp"> {
  let summary = "Prove by running it that the compiled program equals the original";
  let description = [{
    Partitions a copy of the module if it has a mesh, compiles every function into a bundle
    in a temporary folder, runs it on as many ranks as the mesh has (threads of this
    process) with random inputs and weights, and compares with the reference evaluator. An
    error names the first difference of each function; the module is not changed.

    The linker resets the command-line options of the process, so this does not go together
    with `--split-input-file`.
  }];
  let dependentDialects = ["::partita::comm::CommDialect", "::partita::graph::GraphDialect"];
  let options = [
    Option<"seed", "seed", "uint64_t", "1", "Seed of the random inputs">,
    Option<"rtol", "rtol", "double", "1e-4", "Relative tolerance for floats">,
    Option<"atol", "atol", "double", "1e-5", "Absolute tolerance for floats">,
    Option<"threads", "threads", "int", "1", "Threads per rank">,
    Option<"keep", "keep", "std::string", "\"\"", "Write the bundle here and keep it">,
    Option<"repeat", "repeat", "int", "1", "Requests to run; prints the seconds of each if more than one">,
    Option<"compare", "compare", "bool", "true", "Compare with the evaluator">,
  ];
}

def VerifyImportedPass : Pass<"partita-verify-imported", "::mlir::ModuleOp"> {
  let summary = "Gate of level L0: graph ops only, nothing said about devices";
  let description = [{
    Fails at an op that is not of the graph dialect (functions and returns aside), and at
    anything that carries a `dist` attribute. Shapes are static by the ops' own types.
  }];
}

#endif // PARTITA_PASSES_PIPELINES_PASSES
