//===- Passes.td - Code for GPUs ----------------------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_CODEGEN_NVPTX_PASSES
#define PARTITA_PASSES_CODEGEN_NVPTX_PASSES

include "mlir/Pass/PassBase.td"

def EmitPtxPass : Pass<"partita-emit-ptx", "::mlir::ModuleOp"> {
  let summary = "Write the kernels of a partitioned function as PTX";
  let description = [{
    Forms the tasks of `@main`, or of all programs of a module of level L4, and writes every
    distinct kernel as an entry point for a grid of blocks of 256 threads: blocks go over
    the outer points, the threads of a block share a row. The manifest says how each is
    called. No bundle has them yet: this shows that what kernels compute is written for no
    processor in particular. Prints how many kernels there are; the module is not changed.
  }];
  let options = [
    Option<"out", "out", "std::string", "\"\"", "File to write; without, nothing is kept">,
    Option<"manifest", "manifest", "std::string", "\"\"",
           "File to write: the kernels' sources, grids and arguments, as JSON">,
    Option<"architecture", "architecture", "std::string", "\"sm_90\"", "GPU architecture">,
  ];
  let dependentDialects = [
    "::partita::comm::CommDialect", "::partita::graph::GraphDialect",
    "::partita::task_ir::TaskDialect",
  ];
}

#endif // PARTITA_PASSES_CODEGEN_NVPTX_PASSES
