//===- NvptxCompiler.cpp - Kernels as PTX ---------------------------------===//
#include "passes/Codegen/Nvptx/NvptxCompiler.h"

#include "passes/Codegen/Emit/LowerKernels.h"
#include "passes/Codegen/Emit/Optimize.h"
#include "passes/Codegen/Nvptx/GpuEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

static OwningOpRef<ModuleOp> emitForGpu(MLIRContext &context,
                                        const std::vector<KernelSpec> &kernels) {
  Location location = UnknownLoc::get(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(location);
  OpBuilder builder(&context);
  builder.setInsertionPointToEnd(module->getBody());
  auto slots = LLVM::LLVMArrayType::get(
      builder.getI64Type(), GpuEmitter::threadsPerBlock / GpuEmitter::threadsPerWarp);
  LLVM::GlobalOp::create(builder, location, slots, /*isConstant=*/false,
                         LLVM::Linkage::Internal, GpuEmitter::sharedSymbol, Attribute(),
                         /*alignment=*/8, /*addrSpace=*/3);
  for (auto [i, kernel] : llvm::enumerate(kernels)) {
    builder.setInsertionPointToEnd(module->getBody());
    GpuEmitter(builder, location, kernel, kernelSymbol(i)).emit();
  }
  return module;
}

static Expected<std::unique_ptr<llvm::TargetMachine>>
machineFor(const std::string &architecture) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  std::string error;
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return makeError("this LLVM has no NVPTX target: " + error);
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      triple, architecture, "+ptx80", llvm::TargetOptions(), std::nullopt, std::nullopt,
      llvm::CodeGenOptLevel::Aggressive));
}

/// Entry points for blocks of the size that the emitter counts on.
static Expected<void> makeEntries(llvm::Module &module) {
  for (llvm::Function &function : module) {
    if (function.isIntrinsic())
      continue;
    if (function.isDeclaration())
      return makeError("a kernel calls '" + function.getName().str() +
                       "', which no GPU has");
    function.setCallingConv(llvm::CallingConv::PTX_Kernel);
    function.addFnAttr("nvvm.maxntid", std::to_string(GpuEmitter::threadsPerBlock));
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  return {};
}

Expected<std::string> codegen::compileToPtx(const std::vector<KernelSpec> &kernels,
                                            const std::string &architecture) {
  // A context of its own: this may run inside a pass, where dialects cannot be loaded.
  DialectRegistry registry;
  registerKernelDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> emitted = emitForGpu(context, kernels);
  if (failed(lowerKernels(*emitted)))
    return makeError("the kernels cannot be lowered");
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> module =
      translateModuleToLLVMIR(*emitted, llvmContext, "kernels");
  if (!module)
    return makeError("the kernels cannot be translated to LLVM IR");
  auto machine = machineFor(architecture);
  if (!machine)
    return tl::unexpected(machine.error());
  module->setTargetTriple((*machine)->getTargetTriple());
  module->setDataLayout((*machine)->createDataLayout());
  if (auto ok = makeEntries(*module); !ok)
    return tl::unexpected(ok.error());
  optimize(*module, **machine, llvm::OptimizationLevel::O2);
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager emission;
  if ((*machine)->addPassesToEmitFile(emission, stream, nullptr,
                                      llvm::CodeGenFileType::AssemblyFile))
    return makeError("the NVPTX target cannot emit text");
  emission.run(*module);
  return std::string(text.begin(), text.end());
}
