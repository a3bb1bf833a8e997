//===- EmitBundle.cpp - From a partitioned module to a bundle -------------===//
#include "passes/Codegen/CPU/EmitBundle.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Files/SafeTensors.h"
#include "passes/Codegen/CPU/KernelCompiler.h"
#include "passes/Codegen/CPU/KernelEmitter.h"
#include "passes/Codegen/Common/Memory.h"
#include "passes/Codegen/Common/TaskFormer.h"

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
  WeightWriter(Program &program, const WeightSource &source)
      : program(program), source(source) {}

  Expected<void> collect() {
    for (TensorEntry &entry : program.tensors)
      if (entry.spec.role == Role::Weight)
        if (auto ok = collect(entry); !ok)
          return makeError("weight '" + entry.spec.name + "': " + ok.error().message);
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
    for (TensorEntry &entry : program.tensors)
      if (entry.spec.role == Role::Weight && copies.count(entry.spec.name)) {
        entry.spec.file = static_cast<uint32_t>(bundle.weightFiles.size());
        entry.spec.fileOffset = offsets[entry.spec.name];
      }
    bundle.weightFiles.push_back({weightFileName, (*written)->bytes().size(), 0});
    return {};
  }

private:
  Expected<void> collect(TensorEntry &entry) {
    TensorSpec &spec = entry.spec;
    WeightData data;
    if (entry.literal) {
      auto tensor = std::make_shared<HostTensor>(graph::toHostTensor(
          cast<DenseElementsAttr>(cast<graph::ConstantOp>(entry.literal).getValue())));
      data = {tensor->type, tensor->shape, {}, 0, tensor->bytes, tensor};
    } else {
      auto found = source(spec.name);
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
      copies.try_emplace(spec.name, std::move(data));
      return {};
    }
    auto at = llvm::find(files, data.file);
    spec.file = static_cast<uint32_t>(at - files.begin());
    spec.fileOffset = data.fileOffset;
    if (at == files.end())
      files.push_back(data.file);
    return {};
  }

  Program &program;
  const WeightSource &source;
  std::vector<std::string> files;
  std::map<std::string, WeightData> copies;
};
} // namespace

static Expected<Program> formProgram(ModuleOp module, const EmitOptions &options) {
  attachKernelModels(*module.getContext());
  auto function = module.lookupSymbol<func::FuncOp>(options.function);
  if (!function || function.isExternal() || !function.getBody().hasOneBlock())
    return makeError("the module has no function @" + options.function);
  Program program;
  program.threads = options.threads;
  program.mesh = *Mesh::parse("");
  if (module->hasAttr(dist::meshAttr)) {
    auto mesh = dist::meshOf(module);
    if (!mesh)
      return tl::unexpected(mesh.error());
    program.mesh = *mesh;
  }
  std::string message;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    if (message.empty())
      message = diagnostic.str();
    return failure(); // others print it
  });
  if (failed(TaskFormer(function, program).run()))
    return makeError(message.empty() ? "the program cannot be compiled" : message);
  return program;
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

Expected<EmitReport> codegen::emitBundle(ModuleOp module, const EmitOptions &options,
                                         const WeightSource &weights) {
  auto target = cpuTarget(options.targetCpu);
  if (!target)
    return tl::unexpected(target.error());
  auto program = formProgram(module, options);
  if (!program)
    return tl::unexpected(program.error());
  WeightWriter weightWriter(*program, weights);
  if (auto ok = weightWriter.collect(); !ok)
    return tl::unexpected(ok.error());
  auto writer = BundleWriter::create(options.out);
  if (!writer)
    return tl::unexpected(writer.error());
  Bundle bundle;
  bundle.targetCpu = target->cpu;
  bundle.cpuFeatures = target->required;
  bundle.threads = options.threads;
  bundle.mesh = program->mesh;
  bundle.model = options.model;
  bundle.inputs = options.inputs;
  if (auto ok = weightWriter.write(*writer, bundle); !ok)
    return tl::unexpected(ok.error());
  Memory memory = placeStorages(*program);
  if (auto ok = emitStage(*program, memory, *target, writer->path("stage-0.so")); !ok)
    return tl::unexpected(ok.error());
  bundle.entries = {
      {"main",
       {{"stage-0.so", memory.arenaBytes, memory.weightBytes, program->packedBytes()}}}};
  if (options.plan)
    if (auto ok = writeFile(writer->path("plan.json"),
                            options.plan(residentMemory(*program, memory)));
        !ok)
      return tl::unexpected(ok.error());
  if (auto ok = writer->commit(bundle); !ok)
    return tl::unexpected(ok.error());
  return EmitReport{memory.arenaBytes,     memory.arenaLowerBound,
                    memory.weightBytes,    program->packedBytes(),
                    program->tasks.size(), program->kernels.size()};
}
