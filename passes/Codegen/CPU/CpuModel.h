//===- CpuModel.h - Targets whose kernels run on a CPU ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_CPU_CPUMODEL_H
#define PARTITA_PASSES_CODEGEN_CPU_CPUMODEL_H

#include "partita/Runtime/Engine.h"
#include "passes/Codegen/CPU/KernelCompiler.h"
#include "passes/Codegen/Common/TargetModel.h"

namespace partita::codegen {

/// Kernels are machine code in a shared library, calls an engine's of the runtime, which
/// finds it by the target's name. Such targets differ in their engines, and in what these
/// can do.
class CpuModel : public TargetModel {
public:
  CpuModel(std::string name, const kernels::Target &kernels, const engine::Engine &engine,
           CpuTarget code)
      : TargetModel(kernels), name(std::move(name)), engine(engine),
        code(std::move(code)) {}

  std::unique_ptr<Calls> calls() const override;
  int threadsPerRank(int64_t ranks) const override;
  void divideAttention(KernelSpec &spec, int threads) const override;
  void describe(Bundle &bundle) const override;
  Expected<void> writeStage(const std::vector<KernelSpec> &kernels,
                            const std::string &table, const std::string &path,
                            StageCode &told) const override;

private:
  const std::string name; ///< in bundle.json
  const engine::Engine &engine;
  const CpuTarget code;
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_CPUMODEL_H
