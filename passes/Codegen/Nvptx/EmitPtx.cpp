//===- EmitPtx.cpp - The kernels of a program as PTX ----------------------===//
#include "dialects/Comm/Comm.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"
#include "passes/Codegen/Common/ProgramFormer.h"
#include "passes/Codegen/Emit/KernelEmitter.h"
#include "passes/Codegen/Nvptx/Manifest.h"
#include "passes/Codegen/Nvptx/NvptxCompiler.h"
#include "passes/Codegen/Nvptx/Passes.h"

namespace partita {
#define GEN_PASS_DEF_EMITPTXPASS
#include "passes/Codegen/Nvptx/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// Forms kernels alone: the runtime has no calls for GPUs, so there are no stages, and
/// calls need nothing.
class NvptxModel : public TargetModel {
public:
  NvptxModel() : TargetModel(nvptxKernels) {}

  std::unique_ptr<Calls> calls() const override {
    struct None : Calls {
      Expected<CallNeeds> needsOf(const std::string &, const task::Params &,
                                  const std::string &, int) override {
        return CallNeeds();
      }
    };
    return std::make_unique<None>();
  }
  /// Blocks are those of the tile program, whose scratch is shared memory.
  void divideAttention(KernelSpec &spec, int) const override {
    const std::vector<TileDim> dims = tileAttention(spec, "").program.dims;
    spec.attention->queryBlock = dims[dims.size() - 2].tile;
    spec.attention->keyBlock = dims.back().tile;
  }
  void describe(Bundle &bundle) const override { bundle.target = "nvptx"; }
  Expected<void> writeStage(const std::vector<KernelSpec> &, const std::string &,
                            const std::string &, StageCode &) const override {
    return makeError("the runtime has no calls for GPUs: a stage of kernels for nvptx "
                     "cannot be written, only their PTX (partita-emit-ptx)");
  }
};

/// Kernels of programs and products, each once, and the nodes that each comes from.
struct Collected {
  GpuKernels all;
  std::vector<std::vector<std::string>> ofKernels, ofProducts;

  void add(const Program &program) {
    std::vector<size_t> numbers;
    for (const KernelSpec &kernel : program.kernels) {
      auto known = llvm::find(all.kernels, kernel);
      numbers.push_back(static_cast<size_t>(known - all.kernels.begin()));
      if (known == all.kernels.end())
        all.kernels.push_back(kernel);
    }
    ofKernels.resize(all.kernels.size());
    for (const Task &task : program.tasks) {
      if (auto *kernel = std::get_if<task::Kernel>(&task.params))
        note(ofKernels[numbers[static_cast<size_t>(kernel->kernel)]], task.source);
      auto *product = std::get_if<task::MatMul>(&task.params);
      if (product && isTileProduct(*product))
        note(ofProducts[numberOf(*product)], task.source);
    }
  }

  std::vector<std::vector<std::string>> sources() const {
    std::vector<std::vector<std::string>> names = ofKernels;
    llvm::append_range(names, ofProducts);
    return names;
  }

private:
  static void note(std::vector<std::string> &names, const std::string &source) {
    if (!llvm::is_contained(names, source))
      names.push_back(source);
  }
  size_t numberOf(const task::MatMul &product) {
    TileKernel made = tileProduct(product, tilesFor(product),
                                  "product_" + std::to_string(all.products.size()));
    auto known = llvm::find_if(all.products, [&](const TileKernel &other) {
      return other.kernel == made.kernel;
    });
    auto number = static_cast<size_t>(known - all.products.begin());
    if (known == all.products.end()) {
      all.products.push_back(std::move(made));
      ofProducts.emplace_back();
    }
    return number;
  }
};

struct EmitPtxPass : partita::impl::EmitPtxPassBase<EmitPtxPass> {
  using EmitPtxPassBase::EmitPtxPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    attachKernelModels(getContext());
    OwningOpRef<ModuleOp> straight;
    if (module.getOps<task_ir::ProgramOp>().empty()) {
      auto function = module.lookupSymbol<func::FuncOp>("main");
      if (!function) {
        module.emitError("has no function @main");
        return signalPassFailure();
      }
      straight = task_ir::straightProgram(function);
    }
    std::vector<Program> programs;
    NvptxModel target;
    auto calls = target.calls();
    if (failed(formPrograms(straight ? *straight : module, target, *calls, TeamPlan(),
                            programs)))
      return signalPassFailure();
    Collected collected;
    for (Program &program : programs)
      collected.add(program);
    auto ptx = compileToPtx(collected.all, architecture);
    if (!ptx) {
      module.emitError(ptx.error().message);
      return signalPassFailure();
    }
    const std::pair<std::string, std::string> files[] = {
        {out, *ptx},
        {manifest, manifestOf(collected.all, collected.sources(), architecture)}};
    for (const auto &[path, text] : files)
      if (auto ok = path.empty() ? Expected<void>() : writeFile(path, text); !ok) {
        module.emitError(ok.error().message);
        return signalPassFailure();
      }
    llvm::outs() << collected.all.size() << " kernels\n";
  }
};
} // namespace
