//===- RankFiles.cpp - A bundle as an ONNX file per rank ------------------===//
#include "passes/Pipelines/RankFiles.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Compute.h"
#include "partita/Base/Files/Aside.h"
#include "partita/Base/Files/SafeTensors.h"
#include "partita/Onnx/MergeStages.h"
#include "partita/Onnx/Write.h"
#include "passes/Pipelines/CompileStages.h"
#include "passes/Pipelines/Recompute.h"

#include <filesystem>

using namespace partita;
namespace fs = std::filesystem;

static Expected<void> checkFolder(const std::string &folder) {
  std::error_code unreadable;
  if (fs::exists(folder, unreadable))
    return makeError("'" + folder +
                     "' is there already; files per rank are written to a new folder");
  return {};
}

/// A place is known to be bad before the work, and not after it. A slash behind the
/// place would name something inside the folder.
static Expected<Aside> openFolder(const std::string &given) {
  fs::path place = given;
  if (!place.has_filename())
    place = place.parent_path();
  const std::string folder = place.string();
  if (auto ok = checkFolder(folder); !ok)
    return tl::unexpected(ok.error());
  std::error_code failure;
  fs::path parent = place.parent_path();
  if (!parent.empty())
    fs::create_directories(parent, failure);
  if (failure)
    return makeError("cannot write '" + folder + "': " + failure.message());
  return Aside::folder(folder);
}

static std::string fileName(int64_t rank, int64_t ranks) {
  std::string number = std::to_string(rank);
  const size_t digits = std::to_string(ranks - 1).size();
  return "rank-" + std::string(digits - number.size(), '0') + number + ".onnx";
}

static bool exchanges(const onnx_model::Node &node) {
  return node.opType == "DistCollective" ||
         (!node.domain.empty() && node.opType != "ToLocal" && node.opType != "ToGlobal" &&
          !onnx_model::isAroundPart(node));
}

namespace {
/// A state as --state-dir has it: whole.
struct WholeState {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  std::string weight; ///< with which it begins; empty: with zeros
};
} // namespace

static std::vector<WholeState> wholeStates(mlir::func::FuncOp function) {
  std::vector<WholeState> states;
  for (const dist::StateEnds &ends : dist::statesOf(function)) {
    if (ends.argument < 0)
      continue;
    const auto i = static_cast<unsigned>(ends.argument);
    auto type = mlir::cast<mlir::RankedTensorType>(function.getArgumentTypes()[i]);
    dist::LayoutAttr layout = dist::argumentLayout(function, i);
    states.push_back({ends.state.getName().str(), *dtypeOf(type.getElementType()),
                      layout ? layout.getLayout().globalShape() : type.getShape().vec(),
                      ends.state.getInit() ? ends.state.getInit().str() : ""});
  }
  return states;
}

static Expected<void> appendState(SafeTensorsWriter &writer, const WholeState &state,
                                  const WeightTensor &weights) {
  if (state.weight.empty())
    return writer.append(HostTensor::zeros(state.type, state.shape).bytes);
  auto weight = weights(state.weight);
  if (!weight)
    return makeError("state '" + state.name + "' " + weight.error().message);
  const onnx_model::Tensor &tensor = **weight;
  return writer.append(tensor.type == state.type ? tensor.bytes
                                                 : narrowed(tensor.bytes, state.type));
}

/// States of all groups of a training step's ranks.
static std::vector<WholeState> statesOfGroups(mlir::ModuleOp module) {
  std::vector<WholeState> states;
  module.walk([&](task_ir::BufferOp buffer) {
    if (auto name = buffer.getState())
      states.push_back({name->str(), *dtypeOf(buffer.getTensorType().getElementType()),
                        buffer.getLayout().getLayout().globalShape(),
                        buffer.getInit().value_or("").str()});
  });
  return states;
}

/// Writes what states begin with as --state-dir reads it, if some begin as weights.
static Expected<void> writeStates(const std::vector<WholeState> &states,
                                  const WeightTensor &weights,
                                  const std::string &folder) {
  if (llvm::all_of(states, [](const WholeState &it) { return it.weight.empty(); }))
    return {};
  SafeTensorsWriter writer;
  for (const WholeState &state : states)
    writer.declare(state.name, state.type, state.shape);
  if (auto begun = writer.begin(folder + "/state.safetensors"); !begun)
    return tl::unexpected(begun.error());
  for (const WholeState &state : states)
    if (auto ok = appendState(writer, state, weights); !ok)
      return ok;
  return writer.finish().map([](const BlockList &) {});
}

//===-- Files -------------------------------------------------------------===//

namespace {
/// A program of one rank, and the ranks of the bundle that run it.
struct Part {
  std::vector<int64_t> ranks;
  int64_t stage = 0;
  /// Makes the file of each, by the place in its mesh.
  std::function<Expected<onnx_model::Model>(int64_t)> model;
};
} // namespace

static WeightTensor weightsFrom(const WeightTable &weights) {
  return [&weights](llvm::StringRef name) -> Expected<const onnx_model::Tensor *> {
    auto found = weights.find(name.str());
    if (found == weights.end() ||
        (found->second.bytes.empty() && elementCount(found->second.shape) != 0))
      return makeError("reads weight '" + name.str() + "', which has no bytes");
    return &found->second;
  };
}

/// Files are called after ranks, and after stages where a rank has several.
static std::string pathOf(const std::string &folder, const Part &part, size_t rank,
                          const std::vector<Part> &all) {
  int64_t ranks = 0;
  size_t files = 0;
  for (const Part &each : all) {
    ranks = std::max(ranks, each.ranks.back() + 1);
    files += each.ranks.size();
  }
  std::string name = fileName(part.ranks[rank], ranks);
  if (static_cast<int64_t>(files) > ranks)
    name.insert(name.find('.'), "-stage-" + std::to_string(part.stage));
  return folder + "/" + name;
}

/// The files of all ranks; the models are made one after the other, as each has weights.
static Expected<RankFiles> writeAll(const std::vector<Part> &parts,
                                    const std::string &folder) {
  RankFiles written{.stages = static_cast<int64_t>(parts.size())};
  for (const Part &part : parts) {
    int64_t nodes = 0, collectives = 0;
    for (size_t rank = 0; rank < part.ranks.size(); ++rank) {
      auto model = part.model(static_cast<int64_t>(rank));
      if (!model)
        return tl::unexpected(model.error());
      const std::string path = pathOf(folder, part, rank, parts);
      if (auto ok = onnx_model::writeModel(*model, path); !ok)
        return tl::unexpected(ok.error());
      std::error_code unreadable;
      ++written.files;
      written.bytes += static_cast<int64_t>(fs::file_size(path, unreadable));
      nodes = static_cast<int64_t>(model->graph.nodes.size());
      collectives = llvm::count_if(model->graph.nodes, exchanges);
    }
    written.nodes += nodes;
    written.collectives += collectives;
  }
  return written;
}

/// A bundle of one program.
static Expected<RankFiles> writeProgram(const Request &request, RankDialect dialect,
                                        const std::string &folder) {
  Job job(request, [](const std::string &) {});
  takeChoices(job);
  Compiler compiler(job);
  auto ok = compiler.import().and_then([&] { return compiler.annotate(); }).and_then([&] {
    return compiler.partition();
  });
  if (!ok)
    return tl::unexpected(ok.error());
  const WeightTensor weights = weightsFrom(compiler.weights);
  mlir::ModuleOp module = *compiler.module;
  ok = writeStates(wholeStates(compiler.module->lookupSymbol<mlir::func::FuncOp>("main")),
                   weights, folder)
           .and_then([&] { return expandForRanks(module); });
  if (!ok)
    return tl::unexpected(ok.error());
  Part part;
  part.model = [&](int64_t rank) { return rankModel(module, rank, dialect, weights); };
  for (int64_t rank = 0; rank < request.mesh().numRanks(); ++rank)
    part.ranks.push_back(rank);
  return writeAll({part}, folder);
}

static std::string linesOf(const auto &names) {
  std::string lines;
  for (const std::string &name : names)
    lines += name + "\n";
  return lines;
}

/// Properties by which files of programs of one model say its ends.
static std::map<std::string, std::string>
endsOf(const std::vector<std::string> &inputs, const std::vector<std::string> &outputs) {
  return {{std::string(onnx_model::inputsKey), linesOf(inputs)},
          {std::string(onnx_model::outputsKey), linesOf(outputs)}};
}

/// The stages of a pipeline, beside their programs.
static std::vector<RankStage> stagesOf(const PartitionedStages &made) {
  auto metadata = endsOf(made.inputs, made.outputs);
  if (made.order.microBatches > 1) {
    metadata[std::string(onnx_model::microBatchesKey)] =
        std::to_string(made.order.microBatches);
    metadata[std::string(onnx_model::slicedKey)] = linesOf(made.sliced);
  }
  std::vector<RankStage> stages(made.program.stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    stages[s].stage = static_cast<int64_t>(s);
    stages[s].stages = static_cast<int64_t>(stages.size());
    stages[s].outputs = {made.outputs.begin(), made.outputs.end()};
    stages[s].metadata = metadata;
  }
  for (const StageCrossing &crossing : made.program.crossings) {
    const auto from = static_cast<size_t>(crossing.from);
    std::vector<int64_t> &receivers = stages[from].sent[crossing.name];
    for (int32_t stage : crossing.to) {
      const auto to = static_cast<size_t>(stage);
      stages[to].received[crossing.name] = made.ranks[from];
      receivers.insert(receivers.end(), made.ranks[to].begin(), made.ranks[to].end());
    }
  }
  return stages;
}

/// A bundle of several stages that infers, of each of which a rank has a file.
static Expected<RankFiles> writeStages(const Request &request, RankDialect dialect,
                                       const std::string &folder) {
  Job job(request, [](const std::string &) {});
  job.request.levels.to = Level::L3;
  auto made = partitionStages(job);
  if (!made)
    return tl::unexpected(made.error());
  const WeightTensor weights = weightsFrom(made->weights);
  const std::vector<RankStage> stages = stagesOf(*made);
  std::vector<Part> parts;
  for (size_t s = 0; s < stages.size(); ++s) {
    const mlir::ModuleOp module = *made->program.stages[s];
    if (auto ok = expandForRanks(module); !ok)
      return tl::unexpected(ok.error());
    parts.push_back({made->ranks[s], stages[s].stage, [&, module, s](int64_t rank) {
                       return rankModel(module, rank, dialect, weights, stages[s]);
                     }});
  }
  return writeAll(parts, folder);
}

/// A training step of several stages, of which a rank has a file for all that it does.
static Expected<RankFiles> writeStep(const Request &request, RankDialect dialect,
                                     const std::string &folder) {
  Job job(request, [](const std::string &) {});
  job.request.levels.to = Level::L4;
  job.feedback.makesBuckets = false; // a file has a node for each collective
  takeChoices(job);
  auto made = scheduleStep(job);
  if (!made)
    return tl::unexpected(made.error());
  const mlir::ModuleOp module = *made->module;
  const WeightTensor weights = weightsFrom(made->weights);
  auto ok =
      checkStep(module).and_then([&] { return expandForRanks(module); }).and_then([&] {
        return writeStates(statesOfGroups(module), weights, folder);
      });
  if (!ok)
    return tl::unexpected(ok.error());
  const auto metadata = endsOf(made->inputs, made->outputs);
  std::vector<Part> parts;
  for (auto program : made->module->getOps<task_ir::ProgramOp>()) {
    const auto group = static_cast<int64_t>(parts.size());
    parts.push_back({program.getRanks().vec(), group, [&, module, group](int64_t rank) {
                       return rankStepModel(module, group, rank, dialect, weights,
                                            metadata);
                     }});
  }
  return writeAll(parts, folder);
}

Expected<RankFiles> partita::writeRankFiles(const std::string &bundle,
                                            const BundleSource &source,
                                            RankDialect dialect,
                                            const std::string &folder) {
  BundleSource whole = source;
  whole.plansStages = true;
  auto request = requestOf(bundle, whole);
  if (!request)
    return tl::unexpected(request.error());
  auto aside = openFolder(folder);
  if (!aside)
    return tl::unexpected(aside.error());
  const bool isPipeline = request->plan->entry().stages.size() > 1;
  auto written = !isPipeline      ? writeProgram(*request, dialect, aside->path())
                 : request->train ? writeStep(*request, dialect, aside->path())
                                  : writeStages(*request, dialect, aside->path());
  if (written)
    if (auto done = aside->commit(); !done)
      return tl::unexpected(done.error());
  return written;
}
