//===- Emit.cpp - The last stage of a compile -----------------------------===//
#include "passes/Pipelines/Compiler.h"

#include "passes/Codegen/CPU/EmitBundle.h"

#include <filesystem>

using namespace partita;

/// External data stays where it is; tensors inside the model file are copied, so that the
/// bundle does not need the model.
Expected<void> Compiler::emit() {
  progress("generating code");
  codegen::EmitOptions emit;
  emit.out = options.output;
  emit.targetCpu = options.targetCpu;
  emit.threads = options.threads;
  emit.model = std::filesystem::path(options.model).filename().string();
  auto source = [&](const std::string &name) -> Expected<codegen::WeightData> {
    auto found = weights.find(name);
    if (found == weights.end())
      return makeError("the model has no tensor of this name");
    const onnx_model::Tensor &tensor = found->second;
    codegen::WeightData data{tensor.type, tensor.shape, {},
                             0,           tensor.bytes, tensor.owner};
    if (!tensor.file.empty() && tensor.file != options.model) {
      data.file = std::filesystem::absolute(tensor.file).string();
      data.fileOffset = tensor.offset;
    }
    return data;
  };
  emit.plan = [&](const PlanMemory &memory) {
    plan.stages[0].memory = memory;
    return plan.json();
  };
  auto made = codegen::emitBundle(*module, emit, source);
  if (!made)
    return tl::unexpected(error.empty() ? made.error() : Error{error});
  report.arenaBytes = static_cast<int64_t>(made->arenaBytes);
  report.weightBytesPerRank = static_cast<int64_t>(made->weightBytes);
  report.packedBytes = static_cast<int64_t>(made->packedBytes);
  report.numKernels = static_cast<int64_t>(made->numKernels);
  report.numTasks = static_cast<int64_t>(made->numTasks);
  return {};
}
