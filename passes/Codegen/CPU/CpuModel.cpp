//===- CpuModel.cpp - Targets whose kernels run on a CPU ------------------===//
#include "passes/Codegen/CPU/CpuModel.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Runtime/Team.h"
#include "passes/Codegen/CPU/AttentionScratch.h"

#include <map>
#include <pthread.h>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

namespace {
/// An engine prepares calls for the thread that asks, on the machine that compiles.
class EngineCalls : public TargetModel::Calls {
public:
  explicit EngineCalls(const engine::Engine &engine) : engine(engine) {}

  Expected<TargetModel::CallNeeds> needsOf(const std::string &program,
                                           const task::Params &params,
                                           const std::string &weight,
                                           int threads) override {
    runtime::setTeamSize(threads);
    auto call = programs.try_emplace(program, engine).first->second.get(params, weight);
    if (!call)
      return tl::unexpected(call.error());
    engine::Sizes sizes = (*call)->sizes();
    const engine::WeightForm &form = (*call)->form();
    const std::string code = (*call)->implementation();
    return TargetModel::CallNeeds{sizes.scratch, sizes.packed,
                                  std::to_string(form.stored.size()) + ":" + form.stored +
                                      form.packed,
                                  code.starts_with("loops") || code.starts_with("ref")};
  }

private:
  const engine::Engine &engine;
  std::map<std::string, engine::Calls> programs;
};
} // namespace

std::unique_ptr<TargetModel::Calls> CpuModel::calls() const {
  return std::make_unique<EngineCalls>(engine);
}

int CpuModel::threadsPerRank(int64_t ranks) const {
  return runtime::threadsPerRank(ranks);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void CpuModel::divideAttention(KernelSpec &spec, int threads) const {
  codegen::divideAttention(spec, threads);
}

void CpuModel::describe(Bundle &bundle) const {
  bundle.target = name;
  bundle.targetCpu = code.cpu;
  bundle.cpuFeatures = code.required;
}

/// Does the work on a thread of its own, and waits for it. A thread has a heap of its
/// own: passes over deep models leave millions of free pieces between what stays, and
/// LLVM, which allocates all the time, would look through them and work in them.
static void onOwnHeap(llvm::function_ref<void()> work) {
  auto run = [](void *given) -> void * {
    (*static_cast<llvm::function_ref<void()> *>(given))();
    return nullptr;
  };
  // Not by std::thread, which throws where the system has no more threads.
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, run, &work) != 0)
    return work();
  ::pthread_join(thread, nullptr);
}

/// The object file of kernels and their table.
static Expected<llvm::SmallVector<char, 0>>
compiledStage(const std::vector<KernelSpec> &specs, const CpuTarget &target,
              const std::string &table, TargetModel::StageCode &told) {
  // A context of their own: this may run inside a pass, where dialects cannot be loaded.
  DialectRegistry registry;
  registerKernelDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> kernels = emitKernels(context, specs, vectorUnit(target));
  if (failed(lowerKernels(*kernels)))
    return makeError("the kernels cannot be lowered");
  return compileKernels(*kernels, target, table, told);
}

Expected<void> CpuModel::writeStage(const std::vector<KernelSpec> &kernels,
                                    const std::string &table, const std::string &path,
                                    StageCode &told) const {
  Expected<llvm::SmallVector<char, 0>> object;
  onOwnHeap([&] { object = compiledStage(kernels, code, table, told); });
  if (!object)
    return tl::unexpected(object.error());
  if (auto ok = verifyObject(*object, code); !ok)
    return ok;
  return linkStage(*object, path);
}
