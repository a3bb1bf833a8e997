//===- LowerKernels.cpp - A partitioned function as kernels ---------------===//
#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/CPU/KernelCompiler.h"
#include "passes/Codegen/Common/Memory.h"
#include "passes/Codegen/Common/ProgramFormer.h"
#include "passes/Codegen/Common/ProgramText.h"
#include "passes/Codegen/Emit/KernelEmitter.h"
#include "passes/Codegen/Targets/Passes.h"
#include "passes/Codegen/Targets/Targets.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_LOWERKERNELSPASS
#include "passes/Codegen/Targets/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
struct LowerKernelsPass : partita::impl::LowerKernelsPassBase<LowerKernelsPass> {
  using LowerKernelsPassBase::LowerKernelsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    attachKernelModels(getContext());
    auto function = module.lookupSymbol<func::FuncOp>("main");
    bool isScheduled = !module.getOps<task_ir::ProgramOp>().empty();
    if (!function && !isScheduled) {
      module.emitError("has no function @main");
      return signalPassFailure();
    }
    std::vector<Program> programs;
    OwningOpRef<ModuleOp> straight;
    if (!isScheduled)
      straight = task_ir::straightProgram(function);
    auto made = targetNamed(target);
    if (!made) {
      module.emitError(made.error().message);
      return signalPassFailure();
    }
    auto calls = (*made)->calls();
    if (failed(formPrograms(isScheduled ? module : *straight, **made, *calls,
                            TeamPlan{threads}, programs)))
      return signalPassFailure();
    const Program &program = programs[0];
    if (print) {
      Memory memory = placeStorages(program);
      llvm::outs() << programText(program) << "arena " << memory.arenaBytes
                   << " bytes, at least " << memory.arenaLowerBound << "\n";
      if (memory.stateBytes != 0)
        llvm::outs() << "states " << memory.stateBytes << " bytes, "
                     << stateBytesWritten(program) << " written, "
                     << stateBytesMoved(program) << " moved\n";
    }
    auto host = cpuTarget("");
    OwningOpRef<ModuleOp> kernels = emitKernels(getContext(), program.kernels,
                                                host ? vectorUnit(*host) : VectorUnit());
    if (lower && failed(lowerKernels(*kernels)))
      return signalPassFailure();
    module.getBody()->clear();
    module.getBody()->getOperations().splice(module.getBody()->end(),
                                             kernels->getBody()->getOperations());
  }
};
} // namespace
