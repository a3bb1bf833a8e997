//===- KernelCompiler.h - From kernels to an object file --------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_CPU_KERNELCOMPILER_H
#define PARTITA_PASSES_CODEGEN_CPU_KERNELCOMPILER_H

#include "partita/Base/Error.h"
#include "passes/Codegen/Common/Program.h"
#include "passes/Codegen/Common/TargetModel.h"
#include "passes/Codegen/Emit/LowerKernels.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SmallVector.h"

namespace partita::codegen {

/// The CPU that code is generated for. Equal on every machine with this CPU.
struct CpuTarget {
  std::string triple, cpu, features;
  /// All features that code may use (partita/Base/CpuFeatures.h), on x86; the runtime
  /// checks them when it loads the bundle.
  std::vector<std::string> required;
};
/// `cpu`: LLVM's name; empty or "native" for the host.
Expected<CpuTarget> cpuTarget(const std::string &cpu);
/// Every name that cpuTarget takes.
Expected<std::vector<std::string>> targetCpuNames();

/// What the CPU's vectors of f32 are like: for loops that are written in vectors.
struct VectorUnit {
  int64_t lanes = 4, registers = 16;
};
VectorUnit vectorUnit(const CpuTarget &target);

/// One function per kernel, as loops (scf, arith, math). `context` has the kernel
/// dialects loaded; it need not be the one of the kernels' ops.
mlir::OwningOpRef<mlir::ModuleOp> emitKernels(mlir::MLIRContext &context,
                                              const std::vector<KernelSpec> &kernels,
                                              VectorUnit unit);
/// The object file: kernels at -O3, and the task table. The text is LLVM IR, before
/// anything is optimized.
Expected<llvm::SmallVector<char, 0>> compileKernels(mlir::ModuleOp lowered,
                                                    const CpuTarget &target,
                                                    const std::string &table,
                                                    TargetModel::StageCode &told);
/// An error that names a symbol which the runtime does not have: what LLVM makes a call
/// of where the CPU has no instruction for it.
Expected<void> verifyObject(llvm::ArrayRef<char> object, const CpuTarget &target);
/// Links an object into a shared library, in this process.
Expected<void> linkStage(llvm::ArrayRef<char> object, const std::string &path);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_KERNELCOMPILER_H
