//===- Passes.td - Code for targets -------------------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_CODEGEN_TARGETS_PASSES
#define PARTITA_PASSES_CODEGEN_TARGETS_PASSES

include "mlir/Pass/PassBase.td"

def LowerKernelsPass : Pass<"partita-lower-kernels", "::mlir::ModuleOp"> {
  let summary = "Turn a partitioned function into its kernels, as loops";
  let description = [{
    Forms the tasks of `@main`, or of the first program of a module of level L4, prints kernels, tensors and tasks if `print` is set, and
    replaces the module's contents by one function per distinct kernel.

    Before:
    ```mlir
    func.func @main(%x: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
      %s = graph.add %x, %b : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
      %y = graph.relu %s : (tensor<4x8xf32>) -> tensor<4x8xf32>
      return %y : tensor<4x8xf32>
    }
    ```
    Printed:
    ```
    kernel @kernel_0
      domain [4, 8]
      #0 = f32 strides [8, 1]
      #1 = f32 strides [0, 1]
      %0 = load #0 : f32
      %1 = load #1 : f32
      %2 = graph.add %0 %1 : f32
      %3 = graph.relu %2 : f32
      store %3 to #2 f32 strides [8, 1]
    …
    task kernel @kernel_0 (b0, b1, b2)
    ```
    After: `@kernel_0` with two loops, and `@kernel_0_body`.
  }];
  let options = [
    Option<"print", "print", "bool", "false", "Print kernels, tensors and tasks">,
    Option<"lower", "lower", "bool", "false", "Go on to the LLVM dialect">,
    Option<"threads", "threads", "int", "1", "Threads per rank">,
    Option<"target", "target", "std::string", "\"cpu\"", "cpu, or plain: without an engine">,
  ];
  let dependentDialects = [
    "::partita::comm::CommDialect", "::partita::graph::GraphDialect",
    "::partita::task_ir::TaskDialect",
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
  ];
}

#endif // PARTITA_PASSES_CODEGEN_TARGETS_PASSES
