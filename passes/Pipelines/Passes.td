//===- Passes.td - Passes that need several stages ----------*- tablegen -*-===//
#ifndef PARTITA_PASSES_PIPELINES_PASSES
#define PARTITA_PASSES_PIPELINES_PASSES

include "mlir/Pass/PassBase.td"

def CheckSpmdPass : Pass<"partita-check-spmd", "::mlir::ModuleOp"> {
  let summary = "Check on virtual ranks that the partitioned program equals the original";
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
  let summary = "Check by running it that the compiled program equals the original";
  let description = [{
    In a module of level L4, compiles and runs its programs and compares with the function
    `@reference`, of global shapes, whose arguments and results have the names of inputs
    and outputs (`graph.name`).

    Partitions a copy of the module if it has a mesh and is not of level L3 already, compiles every function into a bundle
    in a temporary folder, runs it on as many ranks as the mesh has (threads of this
    process) with random inputs and weights, and compares with the reference evaluator. An
    error names the first difference of each function; the module is not changed.

    The linker resets the command-line options of the process, so this does not go together
    with `--split-input-file`.
  }];
  let dependentDialects = ["::partita::comm::CommDialect", "::partita::graph::GraphDialect",
                           "::partita::task_ir::TaskDialect"];
  let options = [
    Option<"seed", "seed", "uint64_t", "1", "Seed of the random inputs">,
    Option<"rtol", "rtol", "double", "1e-4", "Relative tolerance for floats">,
    Option<"atol", "atol", "double", "1e-5", "Absolute tolerance for floats">,
    Option<"threads", "threads", "int", "1", "Threads per rank">,
    Option<"target", "target", "std::string", "\"cpu\"", "cpu, or plain: without an engine">,
    Option<"workPerPart", "work-per-part", "int64_t", "10000", "Work of a kernel that is worth a thread">,
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

def VerifyScheduledPass : Pass<"partita-verify-scheduled", "::mlir::ModuleOp"> {
  let summary = "Gate of level L4: the schedules can be run, whatever the timing";
  let description = [{
    Shows, without running, that every segment runs for every micro-batch and every
    transfer happens, once each; that a reading finds its micro-batch in its slot and
    nothing is touched that is in flight; that all ranks of a program come to their
    collectives in one order; that no rank waits forever
    (partita/Base/Bundle/Schedule.h). Then the functions, with communications where they
    start, pass the gate of L3. An error names program, entry, segment and micro-batch.
  }];
}

#endif // PARTITA_PASSES_PIPELINES_PASSES
