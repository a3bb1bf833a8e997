//===- Emit.cpp - The last stage of a compile -----------------------------===//
#include "passes/Pipelines/Compiler.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Onnx/StatedHashes.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "passes/Codegen/Bundle/EmitBundle.h"
#include "passes/Codegen/Targets/Targets.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA1.h"

#include <filesystem>
#include <map>
#include <set>

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

/// A file of external data, relative to the model's folder.
static std::string locationOf(const std::string &file, const Request &request) {
  return relativePath(file,
                      std::filesystem::path(request.model.file).parent_path().string());
}

/// External data stays where it is, unless it is to be copied; tensors inside the model
/// file are copied, so that the bundle does not need the model.
static Expected<codegen::WeightData>
dataOf(const WeightTable &weights, const std::string &name, const Request &request) {
  auto found = weights.find(name);
  if (found == weights.end())
    return makeError("the model has no tensor of this name");
  const onnx_model::Tensor &tensor = found->second;
  codegen::WeightData data{tensor.type, tensor.shape, {},          {},
                           0,           tensor.bytes, tensor.owner};
  // Elements of less than a byte are not in the file as the program reads them.
  bool isExternal = !tensor.file.empty() && tensor.file != request.model.file;
  if (isExternal && !request.emission.copyWeights && bitWidth(tensor.type) >= 8) {
    data.file = absolutePath(tensor.file);
    data.location = locationOf(tensor.file, request);
    data.fileOffset = tensor.offset;
  }
  return data;
}

/// The SHA-1 that the model states of its files of external data.
static Expected<void> checkStatedHashes(const Request &request) {
  auto stated = onnx_model::statedHashes(request.model.file, request.model.dataFolders);
  if (!stated)
    return tl::unexpected(stated.error());
  for (const auto &[location, said] : *stated) {
    auto bytes = said.file->bytes();
    llvm::SHA1 hasher;
    hasher.update(
        llvm::ArrayRef(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()));
    std::string has = llvm::toHex(hasher.final(), /*LowerCase=*/true);
    if (!llvm::StringRef(has).equals_insensitive(said.checksum))
      return makeError("'" + request.model.file + "': the external data '" + location +
                       "' has the SHA-1 " + has + ", the model says " + said.checksum);
  }
  return {};
}

/// The compiler and the request must outlive what they are given to.
static codegen::EmitEntry entryOf(Compiler &compiler, const std::string &name,
                                  const Request &request) {
  codegen::EmitEntry entry;
  entry.name = name;
  entry.module = *compiler.module;
  entry.dims = compiler.dims;
  entry.sizes = compiler.sizes;
  entry.flags = compiler.flags;
  entry.weights = [&compiler, &request](const std::string &weight) {
    return dataOf(compiler.weights, weight, request);
  };
  return entry;
}

/// Adds what the programs of an entry need.
static void addMemory(PlanEntry &entry, const std::vector<PlanMemory> &memory) {
  entry.stages.resize(std::max(entry.stages.size(), memory.size()));
  // A program is a group of ranks; the first of its stages tells of all of them.
  std::set<std::vector<int64_t>> told;
  std::map<int64_t, PlanStage *> programs; // by first rank
  for (PlanStage &stage : entry.stages)
    if (stage.ranks.empty() || told.insert(stage.ranks).second)
      programs[stage.ranks.empty() ? static_cast<int64_t>(programs.size())
                                   : stage.ranks[0]] = &stage;
  size_t next = 0;
  for (auto &[rank, stage] : programs)
    if (next < memory.size())
      stage->memory = memory[next++];
  // Bytes that the program takes, not those that were expected.
  if (entry.certificate && memory.size() == 1)
    entry.certificate->memoryPerDevice =
        memory[0].arena + memory[0].weights + memory[0].packed + memory[0].states;
}

/// The plan of a bundle of these entries.
static Plan planOf(const std::vector<NamedCompiler> &compilers, const Request &request,
                   const std::vector<std::vector<PlanMemory>> &memory) {
  Plan plan = compilers.front().second->plan;
  const Emission &emission = request.emission;
  plan.modelRelative =
      relativePath(plan.model, emission.place.empty() ? emission.output : emission.place);
  plan.entries.clear();
  for (const auto &[name, compiler] : compilers) {
    plan.entries.push_back(compiler->plan.entry());
    plan.entries.back().name = name;
    addMemory(plan.entries.back(), memory[plan.entries.size() - 1]);
  }
  return plan;
}

Expected<void> partita::emitEntries(const std::vector<NamedCompiler> &compilers,
                                    const Request &request,
                                    const codegen::TargetModel *target) {
  if (request.emission.hashWeights)
    if (auto ok = checkStatedHashes(request); !ok)
      return ok;
  std::vector<codegen::EmitEntry> entries;
  for (const auto &[name, compiler] : compilers) {
    if (auto ok = checkValues(*compiler->module); !ok)
      return ok;
    entries.push_back(entryOf(*compiler, name, request));
  }
  std::unique_ptr<codegen::TargetModel> named;
  if (!target) {
    auto made = codegen::targetNamed(request.target.name, request.target.cpu);
    if (!made)
      return tl::unexpected(made.error());
    named = std::move(*made);
    target = named.get();
  }
  Compiler &first = *compilers.front().second;
  codegen::EmitOptions emit;
  emit.threads = static_cast<int>(request.target.threads);
  emit.out = request.emission.output;
  emit.place = request.emission.place;
  emit.compute = name(computeOf(request));
  emit.dumpDir = request.levels.dump;
  emit.hashWeights = request.emission.hashWeights;
  emit.inputs = first.inputNames;
  emit.plan = [&](const std::vector<std::vector<PlanMemory>> &memory) {
    return planOf(compilers, request, memory).json();
  };
  emit.model = std::filesystem::path(request.model.file).filename().string();
  if (request.train) {
    emit.texts[specificationFileName] = request.train->text;
    emit.texts[completeSpecificationFileName] = train::completeText(request.train->spec);
  }
  auto made = codegen::emitBundle(entries, *target, emit);
  if (!made)
    return tl::unexpected(first.firstError(made.error()));
  CompileReport &report = first.report;
  report.arenaBytes = static_cast<int64_t>(made->arenaBytes);
  report.weightBytesPerRank = static_cast<int64_t>(made->weightBytes);
  report.packedBytes = static_cast<int64_t>(made->packedBytes);
  report.stateBytes = static_cast<int64_t>(made->stateBytes);
  report.neededBytes = static_cast<int64_t>(made->neededBytes);
  report.numKernels = static_cast<int64_t>(made->numKernels);
  report.numTasks = static_cast<int64_t>(made->numTasks);
  for (const auto &[node, why] : made->slow)
    report.notes.push_back("'" + node + "' is slow: " + why);
  for (const auto &[node, why] : made->notes)
    if (!request.told.explain.empty() && matchesGlob(request.told.explain, node))
      report.notes.push_back("'" + node + "': " + why);
  return {};
}

Expected<void> Compiler::emit() {
  job.progress("generating code");
  return emitEntries({{"main", this}}, request);
}

Expected<ProgramNeeds> partita::measureProgram(Compiler &compiler,
                                               const Request &request) {
  auto target = codegen::targetNamed(request.target.name, request.target.cpu);
  if (!target)
    return tl::unexpected(target.error());
  codegen::EmitOptions emit;
  emit.threads = static_cast<int>(request.target.threads);
  auto report = codegen::measureEntry(entryOf(compiler, "main", request), **target, emit);
  if (!report)
    return tl::unexpected(compiler.firstError(report.error()));
  return ProgramNeeds{static_cast<int64_t>(report->neededBytes), report->memory.front(),
                      static_cast<int64_t>(report->numTasks),
                      static_cast<int64_t>(report->numKernels), report->launches};
}
