//===- ConvertCommand.cpp - partita convert -------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "common/Interrupt.h"
#include "common/OutputFile.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Files/File.h"
#include "partita/Comm/StepText.h"
#include "partita/Onnx/Export.h"
#include "partita/Runtime/Checkpoint.h"
#include "passes/Pipelines/RankFiles.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

using namespace partita;

namespace {
struct Options {
  std::string checkpoint, safetensors, onnx, model, weightsDir, schedule;
  std::string ranks, dialect = "partita", entry;
};
} // namespace

static void tell(std::string_view text) {
  std::fprintf(stderr, "note: %.*s\n", static_cast<int>(text.size()), text.data());
}

/// Writes the model with the weights of a checkpoint, by way of a file of whole states
/// that is aside for a while.
static Expected<void> convertToOnnx(const Options &options) {
  auto aside = Aside::folder(options.onnx + ".states");
  if (!aside)
    return tl::unexpected(aside.error());
  std::string states = aside->path() + "/state.safetensors";
  auto manifest = runtime::writeWholeStates(options.checkpoint, states, tell);
  if (!manifest)
    return tl::unexpected(manifest.error());
  std::string model = options.model.empty() ? manifest->run.modelFile : options.model;
  std::error_code unreadable;
  if (model.empty() || !std::filesystem::exists(model, unreadable))
    return makeError("the model '" + model + "' of '" + options.checkpoint +
                     "' is not there; --model says where it is now");
  if (auto ok = onnx_model::checkExport(model, options.onnx); !ok)
    return ok;
  std::vector<std::string> folders;
  if (!options.weightsDir.empty())
    folders.push_back(options.weightsDir);
  std::vector<std::string> weights;
  for (const runtime::Manifest::State &state : manifest->states)
    if (state.isWeight)
      weights.push_back(state.name);
  auto count = onnx_model::exportModel(model, states, options.onnx, folders, weights);
  if (!count)
    return tl::unexpected(count.error());
  std::printf("%zu trained tensors of step %lld in %s\n", *count,
              static_cast<long long>(manifest->step), options.onnx.c_str());
  return {};
}

/// Writes the order in which the stages of a bundle's step, or of a plan's, run.
static Expected<void> writeSchedule(const Options &options) {
  std::error_code unreadable;
  auto file = std::filesystem::is_directory(options.checkpoint, unreadable)
                  ? planFile(options.checkpoint, "")
                  : Expected<std::string>(options.checkpoint);
  auto plan = file.and_then(readAnyPlan);
  if (!plan)
    return tl::unexpected(plan.error());
  auto step = stepOf(plan->entry());
  if (!step)
    return makeError("'" + options.checkpoint +
                     "' is no training step of several stages: it has no schedule");
  if (auto ok = writeFile(options.schedule, stepText(*step)); !ok)
    return ok;
  std::printf("%lld stages, %lld micro-batches in %s\n",
              static_cast<long long>(step->stages()),
              static_cast<long long>(step->microBatches), options.schedule.c_str());
  return {};
}

/// Writes what each rank of a bundle computes.
static Expected<void> writeRanks(const Options &options) {
  auto dialect = rankDialectFromName(options.dialect);
  if (!dialect)
    return makeError("'" + options.dialect +
                     "' is no dialect of files per rank; there are partita, ort and "
                     "tensorrt");
  RemovedOnInterrupt removed;
  auto written = writeRankFiles(options.checkpoint,
                                {options.model, options.entry, options.weightsDir},
                                *dialect, options.ranks);
  if (!written)
    return tl::unexpected(written.error());
  std::printf("%lld files of %lld nodes, %lld of them collectives, %lld bytes in %s\n",
              static_cast<long long>(written->files),
              static_cast<long long>(written->nodes),
              static_cast<long long>(written->collectives),
              static_cast<long long>(written->bytes), options.ranks.c_str());
  return {};
}

static Expected<void> convert(const Options &options) {
  if (!options.schedule.empty())
    return writeSchedule(options);
  if (!options.ranks.empty())
    return writeRanks(options);
  for (const std::string &file : {options.safetensors, options.onnx})
    if (!file.empty())
      if (auto ok = makeFolderOf(file); !ok)
        return ok;
  RemovedOnInterrupt removed;
  if (!options.safetensors.empty()) {
    auto manifest =
        runtime::writeWholeStates(options.checkpoint, options.safetensors, tell);
    if (!manifest)
      return tl::unexpected(manifest.error());
    std::printf("%zu states of step %lld in %s\n", manifest->states.size(),
                static_cast<long long>(manifest->step), options.safetensors.c_str());
  }
  return options.onnx.empty() ? Expected<void>() : convertToOnnx(options);
}

static CLI::Option *addRankFiles(CLI::App &command, Options &options) {
  CLI::Option *ranks =
      command
          .add_option("--per-rank-onnx", options.ranks,
                      "Of a bundle instead: write what each rank computes as an ONNX "
                      "file into this new folder (docs/rank-files.md)")
          ->type_name("FOLDER");
  command
      .add_option("--dialect", options.dialect,
                  "The operators that stand for collectives there: partita, ort "
                  "(com.microsoft) or tensorrt (DistCollective)")
      ->needs(ranks);
  command
      .add_option("--entry", options.entry,
                  "Which entry point of the bundle (default: the first)")
      ->needs(ranks);
  return ranks;
}

void partita::addConvertCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<Options>();
  CLI::App *command = app.add_subcommand("convert", "Write a checkpoint in another form");
  command->footer(
      "Examples:\n  partita convert checkpoints --safetensors states.safetensors\n"
      "  partita convert checkpoints/step-12 --onnx trained.onnx\n"
      "  partita convert pipeline --schedule-csv schedule.csv\n"
      "  partita convert gpt2.bundle --per-rank-onnx trt-ranks --dialect tensorrt");
  command
      ->add_option("checkpoint", options->checkpoint,
                   "A folder of generations, of which the newest whole one is taken, or "
                   "one of them; with --schedule-csv a bundle or plan.json, with "
                   "--per-rank-onnx a bundle")
      ->required()
      ->check(CLI::ExistingPath);
  CLI::Option *schedule =
      command
          ->add_option("--schedule-csv", options->schedule,
                       "Of a bundle or plan.json instead: write the order in which the "
                       "stages of its step run, as torch.distributed.pipelining reads it")
          ->type_name("FILE.csv");
  CLI::Option *states =
      command
          ->add_option("--safetensors", options->safetensors,
                       "Write all states as whole tensors, as --state-dir has them")
          ->type_name("FILE.safetensors");
  CLI::Option *onnx =
      command
          ->add_option("--onnx", options->onnx,
                       "Write the model with the trained weights in the place of the "
                       "initializers of their names")
          ->type_name("FILE.onnx");
  CLI::Option *ranks = addRankFiles(*command, *options);
  command->add_option("--model", options->model,
                      "The model of the run or bundle, if it has moved");
  command
      ->add_option("--weights-dir", options->weightsDir,
                   "Look here first for the model's external data")
      ->check(CLI::ExistingDirectory);
  schedule->excludes(states)->excludes(onnx);
  ranks->excludes(states)->excludes(onnx)->excludes(schedule);
  command->callback([options, states, onnx, schedule, ranks, &status] {
    if (states->count() + onnx->count() + schedule->count() + ranks->count() == 0) {
      status = fail("convert needs --safetensors, --onnx, --schedule-csv or "
                    "--per-rank-onnx",
                    usageStatus);
      return;
    }
    if (onnx->count() + ranks->count() == 0 &&
        !(options->model + options->weightsDir).empty()) {
      status = fail("--model and --weights-dir are for --onnx and --per-rank-onnx",
                    usageStatus);
      return;
    }
    auto ok = convert(*options);
    status = ok ? 0 : fail(ok.error().message);
  });
}
