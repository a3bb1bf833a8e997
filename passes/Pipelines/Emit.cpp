//===- Emit.cpp - The last stage of a compile -----------------------------===//
#include "passes/Pipelines/Compiler.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "partita/Base/Files/TensorProto.h"
#include "passes/Codegen/CPU/EmitBundle.h"

#include <filesystem>

using namespace mlir;
using namespace partita;

/// What no machine can hold is no program, whatever the machine that it is compiled for:
/// the first value of a rank with more than 16 TiB.
static Expected<void> checkValues(ModuleOp module) {
  std::string message;
  module.walk([&](Operation *op) {
    for (Type type : op->getResultTypes()) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      if (!tensor)
        continue;
      auto bytes = byteCount(*dtypeOf(tensor.getElementType()), tensor.getShape().vec(),
                             "node '" + dist::nodeName(op) + "'");
      if (bytes && *bytes <= uint64_t(1) << 44)
        continue;
      message = bytes ? "node '" + dist::nodeName(op) + "' gives a tensor of " +
                            std::to_string(*bytes) +
                            " bytes on each rank, more than any machine holds"
                      : bytes.error().message;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return message.empty() ? Expected<void>() : makeError(message);
}

/// External data stays where it is; tensors inside the model file are copied, so that the
/// bundle does not need the model.
Expected<void> Compiler::emit() {
  if (auto ok = checkValues(*module); !ok)
    return ok;
  progress("generating code");
  codegen::EmitOptions emit;
  emit.out = options.output;
  emit.target = options.target;
  emit.targetCpu = options.targetCpu;
  emit.threads = options.threads;
  emit.inputs = inputNames;
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
  emit.plan = [&](const std::vector<PlanMemory> &memory) {
    plan.stages.resize(std::max(plan.stages.size(), memory.size()));
    for (size_t i = 0; i < memory.size(); ++i)
      plan.stages[i].memory = memory[i];
    // What the program takes, not what was expected of it.
    if (plan.certificate && memory.size() == 1)
      plan.certificate->memoryPerDevice =
          memory[0].arena + memory[0].weights + memory[0].packed + memory[0].states;
    return plan.json();
  };
  auto made = codegen::emitBundle(*module, emit, source);
  if (!made)
    return tl::unexpected(error.empty() ? made.error() : Error{error});
  report.arenaBytes = static_cast<int64_t>(made->arenaBytes);
  report.weightBytesPerRank = static_cast<int64_t>(made->weightBytes);
  report.packedBytes = static_cast<int64_t>(made->packedBytes);
  report.stateBytes = static_cast<int64_t>(made->stateBytes);
  report.numKernels = static_cast<int64_t>(made->numKernels);
  report.numTasks = static_cast<int64_t>(made->numTasks);
  return {};
}
