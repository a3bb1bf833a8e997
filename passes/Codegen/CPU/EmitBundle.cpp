//===- EmitBundle.cpp - From a partitioned module to a bundle -------------===//
#include "passes/Codegen/CPU/EmitBundle.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Files/SafeTensors.h"
#include "passes/Codegen/CPU/KernelCompiler.h"
#include "passes/Codegen/CPU/Target.h"
#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/Memory.h"
#include "passes/Codegen/Common/ProgramFormer.h"
#include "passes/Codegen/Emit/KernelEmitter.h"

#include "mlir/IR/Diagnostics.h"

#include <map>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

static constexpr const char *weightFileName = "weights.safetensors";

namespace {
/// Finds the bytes of every weight and says in the program where they will be.
class WeightWriter {
public:
  WeightWriter(std::vector<Program> &programs, const WeightSource &source)
      : programs(programs), source(source) {}

  Expected<void> collect() {
    for (TensorEntry *entry : weights())
      if (auto ok = collect(*entry); !ok)
        return makeError("weight '" + entry->bytesOf() + "': " + ok.error().message);
    return {};
  }

  /// Writes what is not referred to; the bundle gets its files and the program its
  /// offsets.
  Expected<void> write(BundleWriter &writer, Bundle &bundle) {
    for (const std::string &path : files) {
      auto file = referTo(path);
      if (!file)
        return tl::unexpected(file.error());
      bundle.weightFiles.push_back(*file);
    }
    if (copies.empty())
      return {};
    SafeTensorsWriter out;
    for (const auto &[name, data] : copies)
      out.declare(name, data.type, data.shape);
    auto entries = out.begin(writer.path(weightFileName));
    if (!entries)
      return tl::unexpected(entries.error());
    std::map<std::string, uint64_t> offsets;
    for (const SafeTensorEntry &entry : *entries)
      offsets[entry.name] = entry.offset;
    for (const auto &[name, data] : copies)
      if (auto ok = out.append(data.bytes); !ok)
        return ok;
    if (auto ok = out.finish(); !ok)
      return ok;
    auto written = MappedFile::open(writer.path(weightFileName));
    if (!written)
      return tl::unexpected(written.error());
    for (TensorEntry *entry : weights())
      if (copies.count(entry->bytesOf())) {
        entry->spec.file = static_cast<uint32_t>(bundle.weightFiles.size());
        entry->spec.fileOffset = offsets[entry->bytesOf()];
      }
    bundle.weightFiles.push_back({weightFileName, (*written)->bytes().size(), 0});
    return {};
  }

private:
  /// Of all programs; several may read one.
  std::vector<TensorEntry *> weights() {
    std::vector<TensorEntry *> out;
    for (Program &program : programs)
      for (TensorEntry &entry : program.tensors)
        if (entry.spec.role == Role::Weight || !entry.initial.empty())
          out.push_back(&entry);
    return out;
  }

  Expected<void> collect(TensorEntry &entry) {
    TensorSpec &spec = entry.spec;
    WeightData data;
    if (entry.literal) {
      auto tensor = std::make_shared<HostTensor>(graph::toHostTensor(
          cast<DenseElementsAttr>(cast<graph::ConstantOp>(entry.literal).getValue())));
      data = {tensor->type, tensor->shape, {}, 0, tensor->bytes, tensor};
    } else {
      auto found = source(entry.bytesOf());
      if (!found)
        return tl::unexpected(found.error());
      data = std::move(*found);
    }
    if (data.type != spec.type || data.shape != spec.layout.globalShape())
      return makeError("the model's files hold another type or shape than the program");
    spec.fileBytes = static_cast<uint64_t>(elementCount(spec.layout.globalShape())) *
                     byteWidth(spec.type);
    if (data.file.empty()) {
      if (data.bytes.size() != spec.fileBytes)
        return makeError("expected " + std::to_string(spec.fileBytes) + " bytes, got " +
                         std::to_string(data.bytes.size()));
      copies.try_emplace(entry.bytesOf(), std::move(data));
      return {};
    }
    auto at = llvm::find(files, data.file);
    spec.file = static_cast<uint32_t>(at - files.begin());
    spec.fileOffset = data.fileOffset;
    if (at == files.end())
      files.push_back(data.file);
    return {};
  }

  std::vector<Program> &programs;
  const WeightSource &source;
  std::vector<std::string> files;
  std::map<std::string, WeightData> copies;
};
} // namespace

static bool hasPrograms(ModuleOp module) {
  return !module.getOps<task_ir::ProgramOp>().empty();
}

static Expected<std::vector<Program>> formAll(ModuleOp module,
                                              const EmitOptions &options) {
  auto target = targetNamed(options.target);
  if (!target)
    return tl::unexpected(target.error());
  attachKernelModels(*module.getContext());
  OwningOpRef<ModuleOp> straight;
  if (!hasPrograms(module)) {
    auto function = module.lookupSymbol<func::FuncOp>(options.function);
    if (!function || function.isExternal() || !function.getBody().hasOneBlock())
      return makeError("the module has no function @" + options.function);
    straight = task_ir::straightProgram(function);
    module = *straight;
  }
  std::string message;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    if (message.empty())
      message = diagnostic.str();
    return failure(); // others print it
  });
  std::vector<Program> programs;
  if (failed(formPrograms(module, *target->engine, {options.threads, options.workPerPart},
                          programs)))
    return makeError(message.empty() ? "the program cannot be compiled" : message);
  // Kernels and constants refer to ops of the module.
  if (straight)
    programs[0].owner = std::make_shared<OwningOpRef<ModuleOp>>(std::move(straight));
  return programs;
}

static Expected<void> emitStage(const Program &program, const Memory &memory,
                                const CpuTarget &target, const std::string &path) {
  std::string table = buildTable(program, memory);
  if (auto ok = TaskTable::read(std::as_bytes(std::span(table))); !ok)
    return makeError("the task table is inconsistent: " + ok.error().message);
  // A context of their own: this may run inside a pass, where dialects cannot be loaded.
  DialectRegistry registry;
  registerKernelDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> kernels = emitKernels(context, program.kernels);
  if (failed(lowerKernels(*kernels)))
    return makeError("the kernels cannot be lowered");
  auto object = compileKernels(*kernels, target, table);
  if (!object)
    return tl::unexpected(object.error());
  if (auto ok = verifyObject(*object); !ok)
    return ok;
  return linkStage(*object, path);
}

/// Places, compiles and writes one program.
static Expected<PlanMemory> emitProgram(const Program &program, const CpuTarget &target,
                                        const std::string &path, BundleStage &stage,
                                        EmitReport &report) {
  Memory memory = placeStorages(program);
  if (auto ok = emitStage(program, memory, target, path); !ok)
    return tl::unexpected(ok.error());
  stage.arenaBytes = memory.arenaBytes;
  stage.weightBytes = memory.weightBytes;
  stage.packedBytes = program.packedBytes();
  report.arenaBytes = std::max(report.arenaBytes, memory.arenaBytes);
  report.arenaLowerBound = std::max(report.arenaLowerBound, memory.arenaLowerBound);
  report.weightBytes = std::max(report.weightBytes, memory.weightBytes);
  report.stateBytes = std::max(report.stateBytes, memory.stateBytes);
  report.packedBytes = std::max(report.packedBytes, program.packedBytes());
  report.numTasks += program.tasks.size();
  report.numKernels += program.kernels.size();
  return residentMemory(program, memory);
}

static std::vector<std::string> namesIn(ModuleOp module, StringRef attribute) {
  std::vector<std::string> names;
  if (auto list = module->getAttrOfType<ArrayAttr>(attribute))
    for (auto name : list.getAsRange<StringAttr>())
      names.push_back(name.str());
  return names;
}

Expected<EmitReport> codegen::emitBundle(ModuleOp module, const EmitOptions &options,
                                         const WeightSource &weights) {
  auto target = cpuTarget(options.targetCpu);
  if (!target)
    return tl::unexpected(target.error());
  auto programs = formAll(module, options);
  if (!programs)
    return tl::unexpected(programs.error());
  WeightWriter weightWriter(*programs, weights);
  if (auto ok = weightWriter.collect(); !ok)
    return tl::unexpected(ok.error());
  auto writer = BundleWriter::create(options.out);
  if (!writer)
    return tl::unexpected(writer.error());
  Bundle bundle;
  bundle.target = options.target;
  bundle.targetCpu = target->cpu;
  bundle.cpuFeatures = target->required;
  bundle.threads = programs->front().team.threads;
  bundle.model = options.model;
  bundle.inputs = options.inputs;
  if (programs->size() == 1)
    bundle.mesh = programs->front().mesh;
  for (const Program &program : *programs)
    bundle.ranks += programs->size() == 1 ? 0 : program.mesh.numRanks();
  if (auto ok = weightWriter.write(*writer, bundle); !ok)
    return tl::unexpected(ok.error());
  bundle.entries = {{}};
  bundle.entries[0].sliced = namesIn(module, task_ir::slicedAttr);
  bundle.entries[0].outputs = namesIn(module, task_ir::outputsAttr);
  EmitReport report;
  std::vector<PlanMemory> memory;
  for (const Program &program : *programs) {
    BundleStage &stage = bundle.entries[0].stages.emplace_back();
    stage.file = "stage-" + std::to_string(memory.size()) + ".so";
    auto needs = emitProgram(program, *target, writer->path(stage.file), stage, report);
    if (!needs)
      return tl::unexpected(needs.error());
    memory.push_back(*needs);
  }
  if (options.plan)
    if (auto ok = writeFile(writer->path("plan.json"), options.plan(memory)); !ok)
      return tl::unexpected(ok.error());
  if (auto ok = writer->commit(bundle); !ok)
    return tl::unexpected(ok.error());
  return report;
}
