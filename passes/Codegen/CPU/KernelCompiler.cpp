//===- KernelCompiler.cpp - From kernels to an object file ----------------===//
#include "passes/Codegen/CPU/KernelCompiler.h"

#include "passes/Codegen/CPU/AttentionGradientEmitter.h"
#include "passes/Codegen/Emit/Optimize.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

OwningOpRef<ModuleOp> codegen::emitKernels(MLIRContext &context,
                                           const std::vector<KernelSpec> &kernels,
                                           VectorUnit unit) {
  Location location = UnknownLoc::get(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(location);
  OpBuilder builder(&context);
  for (auto [i, kernel] : llvm::enumerate(kernels)) {
    builder.setInsertionPointToEnd(module->getBody());
    if (kernel.attention && kernel.attention->isGradient())
      AttentionGradientEmitter(builder, location, kernel, kernelSymbol(i), unit).emit();
    else if (kernel.attention)
      AttentionEmitter(builder, location, kernel, kernelSymbol(i), unit).emit();
    else
      CpuEmitter(builder, location, kernel, kernelSymbol(i)).emit();
  }
  return module;
}

//===----------------------------------------------------------------------===//
// Machine code
//===----------------------------------------------------------------------===//

static void initializeTargets() {
  static bool once = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)once;
}

/// Modes of the code generator, what every x86-64 has, and how fast repeated moves are.
static constexpr llvm::StringLiteral noCapabilities[] = {
    "16bit-mode", "32bit-mode", "64bit-mode", "ermsb", "fsrm", "nopl", "x87"};

/// Instructions of the system, of its clocks and keys, and of tiles of registers, which
/// code has only where its source calls for them, as no kernel does. Virtual machines
/// often hide them.
static constexpr llvm::StringLiteral neverGenerated[] = {
    "amx-avx512", "amx-bf16",  "amx-complex", "amx-fp16", "amx-fp8",    "amx-int8",
    "amx-movrs",  "amx-tf32",  "amx-tile",    "cldemote", "clflushopt", "clwb",
    "clzero",     "enqcmd",    "fsgsbase",    "fxsr",     "hreset",     "invpcid",
    "kl",         "lwp",       "movdir64b",   "movdiri",  "mwaitx",     "pconfig",
    "pku",        "prefetchi", "ptwrite",     "rdpid",    "rdpru",      "rdrnd",
    "rdseed",     "rtm",       "serialize",   "sgx",      "shstk",      "tsxldtrk",
    "uintr",      "usermsr",   "waitpkg",     "wbnoinvd", "widekl",     "xsave",
    "xsavec",     "xsaveopt",  "xsaves"};

/// Every bit of the subtarget that code may use, in LLVM's order. LLVM's table has what a
/// CPU can do apart from how its code is tuned. A bit that nothing here speaks of counts:
/// a runtime that does not know it refuses the bundle.
static std::vector<std::string> requiredFeatures(const llvm::MCSubtargetInfo &info) {
  llvm::FeatureBitset tuning;
  for (const llvm::SubtargetSubTypeKV &cpu : info.getAllProcessorDescriptions())
    tuning |= cpu.TuneImplies.getAsBitset();
  std::vector<std::string> required;
  for (const llvm::SubtargetFeatureKV &feature : info.getAllProcessorFeatures()) {
    llvm::StringRef name(feature.Key);
    if (info.getFeatureBits().test(feature.Value) && !tuning.test(feature.Value) &&
        !llvm::is_contained(noCapabilities, name) &&
        !llvm::is_contained(neverGenerated, name))
      required.push_back(name.str());
  }
  return required;
}

Expected<CpuTarget> codegen::cpuTarget(const std::string &cpu) {
  initializeTargets();
  CpuTarget target;
  target.triple = llvm::sys::getDefaultTargetTriple();
  std::string error;
  llvm::Triple triple(target.triple);
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return makeError("no code generator for " + target.triple + ": " + error);
  bool isHost = cpu.empty() || cpu == "native";
  target.cpu = isHost ? llvm::sys::getHostCPUName().str() : cpu;
  // Asked of no CPU in particular: LLVM prints a line of its own for one it does not
  // know.
  std::unique_ptr<llvm::MCSubtargetInfo> info(
      found->createMCSubtargetInfo(triple, "", ""));
  if (!info || !info->isCPUStringValid(target.cpu))
    return makeError("unknown target CPU '" + target.cpu + "'");
  info.reset(found->createMCSubtargetInfo(triple, target.cpu, ""));
  if (isHost) {
    // A virtual machine may hide features of its CPU.
    std::vector<std::string> features;
    for (const auto &feature : llvm::sys::getHostCPUFeatures())
      features.push_back((feature.getValue() ? "+" : "-") + feature.getKey().str());
    llvm::sort(features);
    target.features = llvm::join(features, ",");
    info.reset(found->createMCSubtargetInfo(triple, target.cpu, target.features));
  }
  if (triple.isX86() && !info->checkFeatures("+sse4.1"))
    return makeError("the target CPU '" + target.cpu +
                     "' has no SSE4.1, by which kernels round; expected one that has, "
                     "such as x86-64-v2");
  if (triple.isX86())
    target.required = requiredFeatures(*info);
  return target;
}

Expected<std::vector<std::string>> codegen::targetCpuNames() {
  initializeTargets();
  std::string error;
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return makeError("no code generator for " + triple.str() + ": " + error);
  std::unique_ptr<llvm::MCSubtargetInfo> info(
      found->createMCSubtargetInfo(triple, "", ""));
  std::vector<std::string> names;
  for (const llvm::SubtargetSubTypeKV &cpu : info->getAllProcessorDescriptions())
    names.emplace_back(cpu.Key);
  return names;
}

VectorUnit codegen::vectorUnit(const CpuTarget &target) {
  if (llvm::is_contained(target.required, "avx512f"))
    return {16, 32};
  return {llvm::is_contained(target.required, "avx") ? 8 : 4, 16};
}

/// The blob and its size, as the runtime finds them.
static void embedTable(llvm::Module &module, const std::string &table) {
  llvm::LLVMContext &context = module.getContext();
  auto *bytes = llvm::ConstantDataArray::getString(context, table, /*AddNull=*/false);
  auto *blob = new llvm::GlobalVariable(module, bytes->getType(), true,
                                        llvm::GlobalValue::ExternalLinkage, bytes,
                                        PARTITA_TABLE_SYMBOL);
  blob->setAlignment(llvm::Align(PARTITA_BUFFER_ALIGNMENT));
  auto *type = llvm::Type::getInt64Ty(context);
  new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::ExternalLinkage,
                           llvm::ConstantInt::get(type, table.size()),
                           PARTITA_TABLE_SIZE_SYMBOL);
}

/// Without the instruction LLVM makes a call of the C library of a fused multiply-add,
/// and kernels call nothing. Their polynomials bear the second rounding.
static void splitFusedMultiplyAdds(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
          call && call->getIntrinsicID() == llvm::Intrinsic::fma)
        call->setCalledFunction(llvm::Intrinsic::getOrInsertDeclaration(
            &module, llvm::Intrinsic::fmuladd, call->getType()));
}

/// Tells whether a function has an innermost loop without vectors, which is not the rest
/// of one that has them, nor copies or fills memory by calls.
static bool hasScalarLoop(llvm::Function &function) {
  auto isWide = [](const llvm::Value *value) { return value->getType()->isVectorTy(); };
  auto isVector = [&](const llvm::BasicBlock *block) {
    return llvm::any_of(*block, [&](const llvm::Instruction &each) {
      return isWide(&each) || llvm::any_of(each.operands(), isWide) ||
             llvm::isa<llvm::MemIntrinsic>(each);
    });
  };
  llvm::DominatorTree dominators(function);
  llvm::LoopInfo loops(dominators);
  return llvm::any_of(loops.getLoopsInPreorder(), [&](const llvm::Loop *loop) {
    return loop->isInnermost() &&
           !llvm::getBooleanLoopAttribute(loop, "llvm.loop.isvectorized") &&
           llvm::none_of(loop->blocks(), isVector);
  });
}

/// Scalar loops by kernel, of whose functions the optimizer has left one or two.
static std::vector<bool> scalarKernels(llvm::Module &module) {
  std::vector<bool> scalar;
  for (llvm::Function &function : module) {
    llvm::StringRef name = function.getName();
    size_t number = 0;
    if (function.isDeclaration() || !name.consume_front("kernel_") ||
        name.consumeInteger(10, number))
      continue;
    if (number >= scalar.size())
      scalar.resize(number + 1, false);
    scalar[number] = scalar[number] || hasScalarLoop(function);
  }
  return scalar;
}

Expected<llvm::SmallVector<char, 0>>
codegen::compileKernels(ModuleOp lowered, const CpuTarget &target,
                        const std::string &table, TargetModel::StageCode &told) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module =
      translateModuleToLLVMIR(lowered, context, "stage");
  if (!module)
    return makeError("the kernels cannot be translated to LLVM IR");
  std::string error;
  llvm::Triple triple(target.triple);
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  llvm::TargetOptions options;
  std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
      triple, target.cpu, target.features, options, llvm::Reloc::PIC_, std::nullopt,
      llvm::CodeGenOptLevel::Aggressive));
  module->setTargetTriple(triple);
  module->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", target.cpu);
    function.addFnAttr("target-features", target.features);
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  if (triple.isX86() && !llvm::is_contained(target.required, "fma"))
    splitFusedMultiplyAdds(*module);
  embedTable(*module, table);
  if (told.wantsText) {
    llvm::raw_string_ostream out(told.text);
    module->print(out, nullptr);
  }
  optimize(*module, *machine, llvm::OptimizationLevel::O3);
  told.isScalar = scalarKernels(*module);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr,
                                   llvm::CodeGenFileType::ObjectFile))
    return makeError("the target " + target.triple + " cannot emit objects");
  codegen.run(*module);
  return object;
}

Expected<void> codegen::verifyObject(llvm::ArrayRef<char> object,
                                     const CpuTarget &target) {
  auto file = llvm::object::ObjectFile::createObjectFile(
      llvm::MemoryBufferRef({object.data(), object.size()}, "stage"));
  if (!file)
    return makeError("the object is damaged: " + llvm::toString(file.takeError()));
  for (const llvm::object::SymbolRef &symbol : (*file)->symbols()) {
    auto flags = symbol.getFlags();
    auto symbolName = symbol.getName();
    if (!flags || !symbolName)
      return makeError("the object's symbols are damaged");
    // Copies and fills that the optimizer recognises; the C library has them.
    bool known = *symbolName == "memcpy" || *symbolName == "memset" ||
                 *symbolName == "memmove" || symbolName->empty() ||
                 *symbolName == "_GLOBAL_OFFSET_TABLE_";
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) && !known)
      return makeError(
          "the target CPU '" + target.cpu +
          "' lacks an instruction that the model needs: a kernel calls '" +
          symbolName->str() +
          "', which the runtime does not have; expected a newer CPU, such as "
          "x86-64-v3");
  }
  return {};
}
