//===- NvptxCompiler.cpp - Kernels as PTX ---------------------------------===//
#include "passes/Codegen/Nvptx/NvptxCompiler.h"

#include "passes/Codegen/Emit/LowerKernels.h"
#include "passes/Codegen/Emit/Optimize.h"
#include "passes/Codegen/Nvptx/TileEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

std::optional<TileKernel> GpuKernels::tiles(size_t number) const {
  if (number >= kernels.size())
    return products[number - kernels.size()];
  if (!isTileAttention(kernels[number]))
    return std::nullopt;
  return tileAttention(kernels[number], kernelSymbol(number));
}

static void addShared(OpBuilder &builder, StringRef name, Type type,
                      LLVM::Linkage linkage) {
  LLVM::GlobalOp::create(builder, UnknownLoc::get(builder.getContext()), type,
                         /*isConstant=*/false, linkage, name, Attribute(),
                         /*alignment=*/16, /*addrSpace=*/3);
}

/// Threads of a block, and blocks that a multiprocessor is to hold.
struct BlockBounds {
  int64_t threads = GpuEmitter::threadsPerBlock, resident = 0;
};

static OwningOpRef<ModuleOp> emitForGpu(MLIRContext &context, const GpuKernels &kernels,
                                        llvm::StringMap<BlockBounds> &bounds) {
  Location location = UnknownLoc::get(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(location);
  OpBuilder builder(&context);
  builder.setInsertionPointToEnd(module->getBody());
  addShared(
      builder, GpuEmitter::sharedSymbol,
      LLVM::LLVMArrayType::get(builder.getI64Type(),
                               GpuEmitter::threadsPerBlock / GpuEmitter::threadsPerWarp),
      LLVM::Linkage::Internal);
  addShared(builder, TileEmitter::tilesSymbol,
            LLVM::LLVMArrayType::get(builder.getI8Type(), 0), LLVM::Linkage::External);
  for (size_t i = 0; i < kernels.size(); ++i) {
    builder.setInsertionPointToEnd(module->getBody());
    if (auto tiles = kernels.tiles(i)) {
      bounds[tiles->name] = {tiles->program.threads(), tiles->program.residentBlocks};
      TileEmitter(builder, location, *tiles).emit();
      continue;
    }
    GpuEmitter(builder, location, kernels.kernels[i], kernelSymbol(i)).emit();
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
static Expected<void> makeEntries(llvm::Module &module,
                                  const llvm::StringMap<BlockBounds> &bounds) {
  for (llvm::Function &function : module) {
    if (function.isIntrinsic())
      continue;
    if (function.isDeclaration())
      return makeError("a kernel calls '" + function.getName().str() +
                       "', which no GPU has");
    function.setCallingConv(llvm::CallingConv::PTX_Kernel);
    const BlockBounds bound = bounds.lookup(function.getName());
    function.addFnAttr("nvvm.maxntid", std::to_string(bound.threads));
    if (bound.resident != 0)
      function.addFnAttr("nvvm.minctasm", std::to_string(bound.resident));
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  return {};
}

Expected<std::string> codegen::compileToPtx(const GpuKernels &kernels,
                                            const std::string &architecture) {
  // A context of its own: this may run inside a pass, where dialects cannot be loaded.
  for (const KernelSpec &kernel : kernels.kernels)
    if (kernel.attention && !isTileAttention(kernel))
      return makeError("an attention of " + std::string(name(kernel.operands[0].type)) +
                       " is no tile program");
  DialectRegistry registry;
  registerKernelDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  llvm::StringMap<BlockBounds> bounds;
  OwningOpRef<ModuleOp> emitted = emitForGpu(context, kernels, bounds);
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
  if (auto ok = makeEntries(*module, bounds); !ok)
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
