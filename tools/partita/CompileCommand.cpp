//===- CompileCommand.cpp - partita compile -------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "common/Interrupt.h"
#include "passes/Pipelines/Compile.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

using namespace partita;

static int compileCommand(const CompileOptions &options) {
  RemovedOnInterrupt interrupt;
  auto progress = [](const std::string &line) {
    std::fprintf(stderr, "%s…\n", line.c_str());
  };
  auto report = compileModel(options, progress);
  if (!report) {
    return fail(report.error().message);
  }
  for (const std::string &note : report->notes)
    std::printf("note: %s\n", note.c_str());
  if (options.to >= Level::L3)
    std::printf("%s", summaryText(report->collectives).c_str());
  if (options.to >= Level::L3 && report->work && !options.mesh.empty())
    std::printf("%s", workText(*report->work).c_str());
  if (options.to == Level::L5)
    std::printf("memory per rank: %lld B of weights as the model stores them, %lld B as "
                "repacked for engines, %lld B of arena\n",
                static_cast<long long>(report->weightBytesPerRank),
                static_cast<long long>(report->packedBytes),
                static_cast<long long>(report->arenaBytes));
  if (options.to == Level::L5 && report->stateBytes != 0)
    std::printf("states per rank: %lld B\n", static_cast<long long>(report->stateBytes));
  std::printf("compiled %lld ops", static_cast<long long>(report->numOps));
  if (options.to == Level::L5)
    std::printf(" to %lld tasks and %lld kernels",
                static_cast<long long>(report->numTasks),
                static_cast<long long>(report->numKernels));
  std::printf(" in %.2f s\n", report->seconds);
  for (const auto &[stage, seconds] : report->stages)
    std::printf("  %-12s %.3f s\n", stage.c_str(), seconds);
  return 0;
}

void partita::addBindingOptions(CLI::App &command, CompileOptions &options) {
  command.add_option(
      "--shape", options.shapes,
      "NAME=1,128: shape of an input, or extent of a symbolic dim; several "
      "times for one name: an entry for each (docs/entries.md)");
  command.add_option("--const", options.constants,
                     "NAME=FILE: fix an input to the value in a .npy or .pb file; the "
                     "program then has no such input");
}

void partita::addModelOptions(CLI::App &command, CompileOptions &options) {
  command
      .add_option("--mesh", options.mesh,
                  "Named axes and their sizes, e.g. dp=2,tp=4 (default: one rank)")
      ->check([](const std::string &mesh) -> std::string {
        // A variable of a script that was never set would otherwise mean one rank.
        bool isBlank = mesh.find_first_not_of(" \t\n") == std::string::npos;
        return isBlank ? "the mesh is empty; leave --mesh out for one rank" : "";
      });
  command
      .add_option(
          "--mode", options.mode,
          "auto: search the fastest plan, or with hints spread them; data-parallel: "
          "split the batch; semi-auto: split what hints ask for, and no more")
      ->check(CLI::IsMember({"auto", "data-parallel", "semi-auto"}))
      ->capture_default_str();
  command.add_option("--hints", options.hints,
                     "Hints file (docs/hints.md), or a rule that finds the model's "
                     "blocks: megatron[:axis], megatron-sp[:axis], megatron-ep[:axis], "
                     "fsdp; mode auto then "
                     "spreads them and does not search");
  command.add_option(
      "--cluster", options.cluster,
      "Cluster file (docs/topology.md) for mode auto; default: this host's "
      "cores, a level of shared memory per mesh axis");
  command.add_option(
      "--memory", options.memory,
      "Bytes that a device may use in mode auto, exactly, e.g. 16GiB (default: those "
      "of the cluster file's device, less what its preset keeps)");
  command.add_option("--plan", options.plan,
                     "Use the strategies of this plan.json instead of deciding");
  command.add_option("--train", options.train,
                     "The training step of the model that this file describes: loss, "
                     "optimizer, what trains (JSON, docs/training.md)");
  command.add_flag_callback(
      "--no-all-to-all", [&options] { options.allToAll = false; },
      "Reshard by slices, gathers and reductions only");
  addBindingOptions(command, options);
}

void partita::addCompileCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App *command =
      app.add_subcommand("compile", "Compile a model into a bundle for a mesh of ranks");
  command->footer("Examples:\n"
                  "  partita compile gpt2.onnx -o gpt2.bundle --mesh dp=2,tp=4\n"
                  "  partita compile gpt2.onnx -o g --mesh tp=2 --hints hints.json\n"
                  "  partita compile bert.onnx -o b --mesh tp=4 --hints megatron "
                  "--shape batch=2 --shape sequence=32\n"
                  "  partita compile det.onnx -o d --shape x=1,3,640,640 --mesh dp=2\n"
                  "  partita compile gpt2.onnx --to L3 --dump-dir ir --mesh tp=2");
  command->add_option("model", options->model, "The ONNX file")->required();
  addModelOptions(*command, *options);
  command->add_option("-o,--output", options->output, "The bundle, a new folder");
  command
      ->add_option("--stages", options->stages,
                   "Cut the model into this many stages of a pipeline (docs/stages.md); "
                   "--mesh holds for every stage, or lists one each: \"tp=2;tp=1\"")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--groups", options->groups,
                   "Deal the stages in turn to this many groups of ranks, each with a "
                   "mesh of --mesh (default: a group for each stage)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--schedule", options->schedule,
                   "Order in which ranks run several stages. interleaved: the next stage "
                   "for a few micro-batches; gpipe: all micro-batches of a stage")
      ->check(CLI::IsMember({"interleaved", "gpipe"}))
      ->default_str("interleaved");
  command
      ->add_option("--micro-batches", options->microBatches,
                   "Slices of the batch that go through the stages one after the other")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command
      ->add_option(
          "--state", options->states,
          "INPUT=OUTPUT: a request's output is the input of the next one, and stays in "
          "place; a star means the same text on both sides: 'past.*=present.*' "
          "(repeatable; docs/state.md)")
      ->allow_extra_args(false);
  command->add_flag(
      "--force", options->force,
      "Replace a bundle of that name, in one step, when the new one is done");
  command->add_option(
      "--write-hints", options->hintsOutput,
      "Write the hints to this file, including those that a rule has found");
  command->add_option("--explain", options->explain,
                      "Say where the strategy of this node (or glob) came from");
  command->add_option("--dump-dir", options->dumpDir,
                      "Write the IR of every level into this folder");
  command->add_flag("--copy-weights", options->copyWeights,
                    "Copy the model's external data into the bundle, which then needs "
                    "nothing else (docs/bundle-format.md)");
  command->add_flag("--hash-weights", options->hashWeights,
                    "Hash all of the model's external data, not a sample, and compare it "
                    "with the checksums that the model states");
  command
      ->add_option("--target", options->target,
                   "cpu: with oneDNN; plain: loops only, slow, for reference")
      ->check(CLI::IsMember({"cpu", "plain"}))
      ->capture_default_str();
  command
      ->add_option("--target-cpu", options->targetCpu,
                   "LLVM name of the CPU (default: this one)")
      ->envname("PARTITA_TARGET_CPU");
  command
      ->add_option("--threads", options->threads,
                   "Threads per rank; 0: this machine's cores divided by the ranks")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  static const std::map<std::string, Level> levels = {{"L0", Level::L0},
                                                      {"L2", Level::L2},
                                                      {"L3", Level::L3},
                                                      {"L4", Level::L4},
                                                      {"L5", Level::L5}};
  command
      ->add_option_function<std::string>(
          "--from",
          [options](const std::string &level) { options->from = levels.at(level); },
          "Begin with what an earlier run with --dump-dir has written there (and you may "
          "have changed): L2 keeps its strategies, L3 its program, L4 its schedules")
      ->check(CLI::IsMember({"L0", "L2", "L3", "L4"}))
      ->default_str("L0");
  command
      ->add_option_function<std::string>(
          "--to", [options](const std::string &level) { options->to = levels.at(level); },
          "Stop at this level: L0 imported, L2 with strategies, L3 one rank's program, "
          "L4 scheduled, L5 bundle (docs/architecture.md)")
      ->check(CLI::IsMember({"L0", "L2", "L3", "L4", "L5"}))
      ->default_str("L5");
  command->callback([options, &status] {
    if (options->from > Level::L0 && options->dumpDir.empty()) {
      status =
          fail("--from needs --dump-dir, the folder of an earlier run whose files to "
               "begin with",
               usageStatus);
      return;
    }
    if (options->from > Level::L0 &&
        !(options->hints + options->plan + options->explain).empty()) {
      std::string level = options->from == Level::L2   ? "L2"
                          : options->from == Level::L3 ? "L3"
                                                       : "L4";
      status = fail("--from " + level +
                        " takes its strategies from --dump-dir: --hints, --plan and "
                        "--explain would have no effect",
                    usageStatus);
      return;
    }
    bool searches = options->mode == "auto" && options->from == Level::L0 &&
                    (options->hints + options->plan).empty();
    // A training step may compute something again, however it is planned.
    bool chooses = options->from == Level::L0 && !options->train.empty();
    if (!searches && !chooses && !(options->cluster + options->memory).empty()) {
      status =
          fail("--cluster and --memory are for the search of mode auto without hints "
               "or a plan: they would have no effect",
               usageStatus);
      return;
    }
    if (options->output.empty() && options->to == Level::L5) {
      status =
          fail("--output is required (or --to L3, which stops before code generation)",
               usageStatus);
      return;
    }
    if (!options->output.empty() && options->to < Level::L5) {
      status = fail("--output names a bundle, which --to stops before; --dump-dir is "
                    "where the levels are written",
                    usageStatus);
      return;
    }
    status = compileCommand(*options);
  });
}
