//===- LowerKernels.cpp - From emitted kernels to the LLVM dialect --------===//
#include "passes/Codegen/Emit/LowerKernels.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace partita;

void codegen::registerKernelDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                  LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                  vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

LogicalResult codegen::lowerKernels(ModuleOp module) {
  PassManager manager(module.getContext());
  // Constants are emitted where they are used: one of each is enough.
  manager.addPass(createCSEPass());
  if (failed(manager.run(module)))
    return failure();
  RewritePatternSet patterns(module.getContext());
  populateMathPolynomialApproximationPatterns(patterns);
  if (failed(applyPatternsGreedily(module, std::move(patterns))))
    return failure();
  PassManager lowering(module.getContext());
  lowering.addPass(createSCFToControlFlowPass());
  lowering.addPass(createConvertMathToLLVMPass());
  lowering.addPass(createConvertVectorToLLVMPass()); // functions of vectors, expanded
  lowering.addPass(createArithToLLVMConversionPass());
  lowering.addPass(createConvertControlFlowToLLVMPass());
  lowering.addPass(createConvertFuncToLLVMPass());
  lowering.addPass(createReconcileUnrealizedCastsPass());
  return lowering.run(module);
}
