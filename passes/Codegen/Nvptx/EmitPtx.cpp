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
  void describe(Bundle &bundle) const override { bundle.target = "nvptx"; }
  Expected<void> writeStage(const std::vector<KernelSpec> &, const std::string &,
                            const std::string &, StageCode &) const override {
    return makeError("the runtime has no calls for GPUs: a stage of kernels for nvptx "
                     "cannot be written, only their PTX (partita-emit-ptx)");
  }
};

/// Adds a program's kernels that are not there yet, and the nodes that each comes from.
void collect(const Program &program, std::vector<KernelSpec> &kernels,
             std::vector<std::vector<std::string>> &sources) {
  std::vector<size_t> numbers;
  for (const KernelSpec &kernel : program.kernels) {
    auto known = llvm::find(kernels, kernel);
    numbers.push_back(static_cast<size_t>(known - kernels.begin()));
    if (known == kernels.end())
      kernels.push_back(kernel);
  }
  sources.resize(kernels.size());
  for (const Task &task : program.tasks)
    if (auto *kernel = std::get_if<task::Kernel>(&task.params)) {
      auto &names = sources[numbers[static_cast<size_t>(kernel->kernel)]];
      if (!llvm::is_contained(names, task.source))
        names.push_back(task.source);
    }
}

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
    std::vector<KernelSpec> kernels;
    std::vector<std::vector<std::string>> sources;
    for (Program &program : programs)
      collect(program, kernels, sources);
    auto ptx = compileToPtx(kernels, architecture);
    if (!ptx) {
      module.emitError(ptx.error().message);
      return signalPassFailure();
    }
    const std::pair<std::string, std::string> files[] = {
        {out, *ptx}, {manifest, manifestOf(kernels, sources, architecture)}};
    for (const auto &[path, text] : files)
      if (auto ok = path.empty() ? Expected<void>() : writeFile(path, text); !ok) {
        module.emitError(ok.error().message);
        return signalPassFailure();
      }
    llvm::outs() << kernels.size() << " kernels\n";
  }
};
} // namespace
