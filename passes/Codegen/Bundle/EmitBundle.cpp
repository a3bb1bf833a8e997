//===- EmitBundle.cpp - From a partitioned module to a bundle -------------===//
#include "passes/Codegen/Bundle/EmitBundle.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Compute.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Files/SafeTensors.h"
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
/// The programs of one entry.
struct Formed {
  const EmitEntry &entry;
  std::vector<Program> programs = {};
};

/// Finds the bytes of every weight and says in the programs where they will be.
class WeightWriter {
public:
  explicit WeightWriter(std::vector<Formed> &entries) : entries(entries) {}

  Expected<void> collect() {
    for (Formed &formed : entries)
      for (Program &program : formed.programs)
        for (TensorEntry &tensor : program.tensors)
          if (tensor.spec.role == Role::Weight || !tensor.initial.empty())
            if (auto ok = collect(tensor, formed.entry.weights); !ok)
              return makeError("weight '" + tensor.bytesOf() +
                               "': " + ok.error().message);
    return {};
  }

  /// Writes what is not referred to; the bundle gets its files and the program its
  /// offsets.
  Expected<void> write(BundleWriter &writer, const EmitOptions &options, Bundle &bundle) {
    for (const External &external : files) {
      auto file = referTo(external.path, external.location,
                          options.place.empty() ? options.out : options.place);
      if (!file)
        return tl::unexpected(file.error());
      auto opened = InputFile::open(external.path);
      if (!opened)
        return tl::unexpected(opened.error());
      auto blocks =
          hashBlocks(**opened, options.hashWeights ? allBlocks((*opened)->size())
                                                   : sampledBlocks((*opened)->size()));
      if (!blocks)
        return tl::unexpected(blocks.error());
      if (auto ok = add(*file, *blocks, writer, bundle); !ok)
        return ok;
    }
    if (copies.empty())
      return {};
    SafeTensorsWriter out;
    for (const auto &[name, copy] : copies)
      out.declare(name, copy.type, copy.data.shape);
    auto entries = out.begin(writer.path(weightFileName));
    if (!entries)
      return tl::unexpected(entries.error());
    std::map<std::string, uint64_t> offsets;
    for (const SafeTensorEntry &entry : *entries)
      offsets[entry.name] = entry.offset;
    for (const auto &[name, copy] : copies)
      if (auto ok = copy.type == copy.data.type
                        ? out.append(copy.data.bytes)
                        : out.append(narrowed(copy.data.bytes, copy.type));
          !ok)
        return ok;
    auto blocks = out.finish();
    if (!blocks)
      return tl::unexpected(blocks.error());
    for (const auto &[tensor, name] : copied) {
      tensor->spec.file = static_cast<uint32_t>(bundle.weightFiles.size());
      tensor->spec.fileOffset = offsets[name];
    }
    return add({weightFileName, blocks->fileBytes}, *blocks, writer, bundle);
  }

private:
  /// Bytes that the bundle has, in the program's type: rounded when they are written.
  struct Copy {
    WeightData data;
    DType type;
  };
  /// A file of the model that the bundle refers to.
  struct External {
    std::string path, location;
    friend bool operator==(const External &, const External &) = default;
  };

  static Expected<void> add(WeightFile file, const BlockList &blocks,
                            BundleWriter &writer, Bundle &bundle) {
    file.blocks = "weights-" + std::to_string(bundle.weightFiles.size()) + ".blocks";
    bundle.weightFiles.push_back(file);
    return writeFile(writer.path(file.blocks), blocks.text());
  }

  Expected<void> collect(TensorEntry &entry, const WeightSource &source) {
    TensorSpec &spec = entry.spec;
    WeightData data;
    if (entry.literal) {
      auto tensor = std::make_shared<HostTensor>(graph::toHostTensor(
          cast<DenseElementsAttr>(cast<graph::ConstantOp>(entry.literal).getValue())));
      data = {tensor->type, tensor->shape, {}, {}, 0, tensor->bytes, tensor};
    } else {
      auto found = source(entry.bytesOf());
      if (!found)
        return tl::unexpected(found.error());
      data = std::move(*found);
    }
    const bool isRounded =
        data.type == DType::F32 && (spec.type == DType::F16 || spec.type == DType::BF16);
    if ((data.type != spec.type && !isRounded) || data.shape != spec.layout.globalShape())
      return makeError("the model's files hold another type or shape than the program");
    const auto count = static_cast<uint64_t>(elementCount(data.shape));
    spec.fileBytes = count * byteWidth(spec.type);
    if (data.file.empty() || isRounded) {
      if (data.bytes.size() != count * byteWidth(data.type))
        return makeError("expected " + std::to_string(count * byteWidth(data.type)) +
                         " bytes, got " + std::to_string(data.bytes.size()));
      copied.emplace_back(&entry, copy(entry.bytesOf(), {std::move(data), spec.type}));
      // A weight is found in the file by its name.
      if (spec.role == Role::Weight)
        spec.name = copied.back().second;
      return {};
    }
    External external{data.file, data.location};
    auto at = llvm::find(files, external);
    spec.file = static_cast<uint32_t>(at - files.begin());
    spec.fileOffset = data.fileOffset;
    if (at == files.end())
      files.push_back(external);
    return {};
  }

  /// The name under which the bytes are written. Equal ones are there once; another
  /// entry's of the same name (what importing folds may depend on shapes) get another.
  std::string copy(const std::string &name, const Copy &made) {
    std::string own = name;
    for (int k = 2;; ++k) {
      auto [known, added] = copies.try_emplace(own, made);
      const WeightData &data = known->second.data;
      if (added || (data.shape == made.data.shape && data.type == made.data.type &&
                    known->second.type == made.type &&
                    std::ranges::equal(data.bytes, made.data.bytes)))
        return own;
      own = name + " " + std::to_string(k);
    }
  }

  std::vector<Formed> &entries;
  std::vector<External> files;
  std::map<std::string, Copy> copies;
  std::vector<std::pair<TensorEntry *, std::string>> copied; ///< with the copy's name
};
} // namespace

static bool hasPrograms(ModuleOp module) {
  return !module.getOps<task_ir::ProgramOp>().empty();
}

namespace {
/// An entry at level L4.
struct Scheduled {
  ModuleOp module;
  std::shared_ptr<OwningOpRef<ModuleOp>> owner; ///< of one that was not there yet
};
} // namespace

static Expected<Scheduled> scheduled(const EmitEntry &entry, const EmitOptions &options) {
  ModuleOp module = entry.module;
  attachKernelModels(*module.getContext());
  if (hasPrograms(module))
    return Scheduled{module, nullptr};
  auto function = module.lookupSymbol<func::FuncOp>(options.function);
  if (!function || function.isExternal() || !function.getBody().hasOneBlock())
    return makeError("the module has no function @" + options.function);
  auto made = std::make_shared<OwningOpRef<ModuleOp>>(task_ir::straightProgram(function));
  return Scheduled{**made, made};
}

static Expected<std::vector<Program>>
formAll(const Scheduled &entry, const TargetModel &target, TargetModel::Calls &calls,
        const EmitOptions &options, const RollingStates &rolling,
        const std::string &prefix) {
  ModuleOp module = entry.module;
  std::string message;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    if (message.empty())
      message = diagnostic.str();
    return failure(); // others print it
  });
  std::vector<Program> programs;
  if (failed(formPrograms(module, target, calls, {options.threads, options.workPerPart},
                          programs, prefix, &rolling)))
    return makeError(message.empty() ? "the program cannot be compiled" : message);
  // Kernels and constants refer to ops of the module.
  if (entry.owner)
    programs[0].owner = entry.owner;
  return programs;
}

/// All entries of a bundle: they share states.
static Expected<std::vector<Formed>> formEntries(std::span<const EmitEntry> entries,
                                                 const TargetModel &target,
                                                 const EmitOptions &options) {
  std::unique_ptr<TargetModel::Calls> calls = target.calls();
  std::vector<Scheduled> modules;
  RollingStates rolling;
  for (const EmitEntry &entry : entries) {
    auto made = scheduled(entry, options);
    if (!made)
      return tl::unexpected(made.error());
    rolling.add(made->module);
    modules.push_back(std::move(*made));
  }
  std::vector<Formed> formed;
  for (size_t i = 0; i < entries.size(); ++i) {
    std::string prefix = i == 0 ? "" : std::to_string(i) + ":";
    auto programs = formAll(modules[i], target, *calls, options, rolling, prefix);
    if (!programs)
      return tl::unexpected(programs.error());
    formed.push_back({entries[i], std::move(*programs)});
  }
  return formed;
}

namespace {
/// Files that tell of a program; no names: none are written.
struct Dumps {
  std::string arena, kernels;
};
} // namespace

static Expected<void> emitStage(const Program &program, const Memory &memory,
                                const std::string &path, const Dumps &dumps,
                                TargetModel::StageCode &code) {
  std::string table = buildTable(program, memory);
  if (auto ok = TaskTable::read(std::as_bytes(std::span(table))); !ok)
    return makeError("the task table is inconsistent: " + ok.error().message);
  code.wantsText = !dumps.kernels.empty();
  auto written = program.target->writeStage(program.kernels, table, path, code);
  if (!code.text.empty())
    if (auto ok = writeFile(dumps.kernels, code.text); !ok)
      return ok;
  return written;
}

static void addTo(EmitReport &report, const Program &program, const Memory &memory) {
  report.arenaBytes = std::max(report.arenaBytes, memory.arenaBytes);
  report.arenaLowerBound = std::max(report.arenaLowerBound, memory.arenaLowerBound);
  report.weightBytes = std::max(report.weightBytes, memory.weightBytes);
  report.stateBytes = std::max(report.stateBytes, memory.stateBytes);
  report.packedBytes = std::max(report.packedBytes, program.packedBytes());
  report.neededBytes = std::max(
      report.neededBytes, memory.arenaBytes + memory.weightBytes + memory.stateBytes);
  report.numTasks += program.tasks.size();
  report.numKernels += program.kernels.size();
  report.launches.add(launchesOf(program));
  report.memory.push_back(residentMemory(program, memory));
  report.notes.insert(report.notes.end(), program.notes.begin(), program.notes.end());
}

/// Places, compiles and writes one program.
static Expected<void> emitProgram(const Program &program, const std::string &path,
                                  const Dumps &dumps, BundleStage &stage,
                                  EmitReport &report) {
  Memory memory = placeStorages(program);
  if (!dumps.arena.empty())
    if (auto ok = writeFile(dumps.arena, arenaJson(program, memory)); !ok)
      return ok;
  TargetModel::StageCode code;
  if (auto ok = emitStage(program, memory, path, dumps, code); !ok)
    return ok;
  stage.arenaBytes = memory.arenaBytes;
  stage.weightBytes = memory.weightBytes;
  stage.packedBytes = program.packedBytes();
  addTo(report, program, memory);
  llvm::append_range(report.slow, slowNodes(program, code.isScalar));
  return {};
}

static std::vector<std::string> namesIn(ModuleOp module, StringRef attribute) {
  std::vector<std::string> names;
  if (auto list = module->getAttrOfType<ArrayAttr>(attribute))
    for (auto name : list.getAsRange<StringAttr>())
      names.push_back(name.str());
  return names;
}

/// Every entry runs on the same ranks.
static Expected<void> checkRanks(const std::vector<Formed> &entries, Bundle &bundle) {
  for (const Formed &formed : entries) {
    int64_t ranks = 0;
    for (const Program &program : formed.programs)
      ranks += program.mesh.numRanks();
    bool isOne = formed.programs.size() == 1;
    const Mesh mesh = isOne ? formed.programs[0].mesh : Mesh();
    if (&formed == &entries.front()) {
      bundle.mesh = mesh;
      bundle.ranks = isOne ? 0 : ranks;
    } else if (!(mesh == bundle.mesh) || ranks != bundle.numRanks()) {
      return makeError("entry '" + formed.entry.name + "' is for " +
                       std::to_string(ranks) + " ranks (mesh \"" + mesh.str() +
                       "\"), the first for " + std::to_string(bundle.numRanks()) +
                       " (mesh \"" + bundle.mesh.str() + "\")");
    }
  }
  return {};
}

namespace {
/// Compiles and writes the entries one after the other.
class EntryWriter {
public:
  EntryWriter(BundleWriter &writer, std::string dumpDir)
      : writer(writer), dumpDir(std::move(dumpDir)) {}

  Expected<BundleEntry> write(const Formed &formed) {
    BundleEntry out;
    out.name = formed.entry.name;
    out.sliced = namesIn(formed.entry.module, task_ir::slicedAttr);
    out.outputs = namesIn(formed.entry.module, task_ir::outputsAttr);
    out.dims = formed.entry.dims;
    out.sizes = formed.entry.sizes;
    out.flags = formed.entry.flags;
    std::vector<PlanMemory> &own = memory.emplace_back();
    for (const Program &program : formed.programs) {
      BundleStage &stage = out.stages.emplace_back();
      std::string part = std::to_string(files++);
      stage.file = "stage-" + part + ".so";
      Dumps dumps;
      if (!dumpDir.empty())
        dumps = {dumpDir + "/arena-" + part + ".json",
                 dumpDir + "/stage-" + part + ".ll"};
      if (auto ok = emitProgram(program, writer.path(stage.file), dumps, stage, report);
          !ok)
        return tl::unexpected(ok.error());
      own.push_back(report.memory.back());
    }
    return out;
  }

  EmitReport report;
  std::vector<std::vector<PlanMemory>> memory; ///< by entry and program

private:
  BundleWriter &writer;
  std::string dumpDir;
  int files = 0;
};
} // namespace

Expected<EmitReport> codegen::emitBundle(std::span<const EmitEntry> entries,
                                         const TargetModel &target,
                                         const EmitOptions &options) {
  auto made = formEntries(entries, target, options);
  if (!made)
    return tl::unexpected(made.error());
  std::vector<Formed> &formed = *made;
  WeightWriter weightWriter(formed);
  if (auto ok = weightWriter.collect(); !ok)
    return tl::unexpected(ok.error());
  auto writer = BundleWriter::create(options.out);
  if (!writer)
    return tl::unexpected(writer.error());
  Bundle bundle;
  target.describe(bundle);
  bundle.threads = formed[0].programs.front().team.threads;
  bundle.compute = options.compute;
  bundle.model = options.model;
  bundle.inputs = options.inputs;
  if (auto ok = checkRanks(formed, bundle); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = weightWriter.write(*writer, options, bundle); !ok)
    return tl::unexpected(ok.error());
  for (const auto &[name, text] : options.texts)
    if (auto ok = writeFile(writer->path(name), text); !ok)
      return tl::unexpected(ok.error());
  EntryWriter entryWriter(*writer, options.dumpDir);
  for (const Formed &it : formed) {
    auto entry = entryWriter.write(it);
    if (!entry)
      return tl::unexpected(entry.error());
    bundle.entries.push_back(std::move(*entry));
  }
  if (options.plan)
    if (auto ok = writeFile(writer->path("plan.json"), options.plan(entryWriter.memory));
        !ok)
      return tl::unexpected(ok.error());
  if (auto ok = writer->commit(bundle); !ok)
    return tl::unexpected(ok.error());
  return entryWriter.report;
}

Expected<EmitReport> codegen::measureEntry(const EmitEntry &entry,
                                           const TargetModel &target,
                                           const EmitOptions &options) {
  auto formed = formEntries({&entry, 1}, target, options);
  if (!formed)
    return tl::unexpected(formed.error());
  // Where weights lie in files decides which are used in place.
  if (auto ok = WeightWriter(*formed).collect(); !ok)
    return tl::unexpected(ok.error());
  EmitReport report;
  for (const Program &program : formed->front().programs)
    addTo(report, program, placeStorages(program));
  return report;
}
