//===- PlanCommand.cpp - partita plan -------------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "passes/Pipelines/PlanModel.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

using namespace partita;

static int planCommand(const PlanOptions &options) {
  auto progress = [](const std::string &line) {
    std::fprintf(stderr, "%s…\n", line.c_str());
  };
  auto planned = planModel(options, progress);
  if (!planned) {
    return fail(planned.error().message);
  }
  std::printf("%s", planned->text.c_str());
  return 0;
}

void partita::addPlanCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<PlanOptions>();
  CompileOptions &model = options->model;
  model.to = Level::L2; // weights are not read
  CLI::App *command = app.add_subcommand(
      "plan", "Search the fastest plan of a model on a cluster; no weights are needed");
  command->footer("Examples:\n"
                  "  partita plan gpt3.onnx --cluster a100.json -o plan.json\n"
                  "  partita plan gpt3.onnx --cluster a100.json --mesh dp=128,tp=8\n"
                  "  partita compile gpt3.onnx --plan plan.json --mesh dp=128,tp=8 -o b");
  command->add_option("model", model.model, "The ONNX file")->required();
  auto *cluster = command->add_option("--cluster", model.cluster,
                                      "Cluster file, see docs/topology.md");
  auto *mesh = command->add_option("--mesh", model.mesh,
                                   "Named axes and their sizes (default: every mesh of "
                                   "the cluster is tried)");
  command->add_option("--memory", model.memory,
                      "Bytes that a device may use, exactly, e.g. 16GiB (default: the "
                      "cluster's, less what a preset keeps)");
  command->add_option("--hints", model.hints,
                      "Hints file (docs/hints.md): what it asks for is kept");
  command->add_option(
      "--train", model.train,
      "Plan the training step of the model that this file describes (JSON, "
      "docs/training.md)");
  command->add_option("-o,--output", options->output, "Write the plan to this file");
  command->add_option("--as-hints", options->hintsOutput,
                      "Write the shortest hints that lead to the plan to this file");
  command->add_option("--report", options->report,
                      "Write an HTML page about the plan to this file");
  command->add_option("--axes", options->mostAxes, "Axes of the meshes that are tried")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  auto *time =
      command
          ->add_option("--time-limit", options->timeLimit, "Seconds of solving per mesh")
          ->check(CLI::Range(0.001, 1e6))
          ->capture_default_str();
  command
      ->add_option("--work", options->workLimit,
                   "Instead of seconds so much work of the solver per mesh (a second is "
                   "10,000 to 500,000): every machine then has the same plan")
      ->check(CLI::Range(int64_t(1), int64_t(1'000'000'000'000)))
      ->excludes(time);
  command->add_flag("--overlap", options->overlap,
                    "Choose the plan that would be the fastest if collectives were in "
                    "flight while kernels run (simulated; the runtime takes turns)");
  command->add_option("--threads", options->threads, "Threads of the solver")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_flag_callback(
      "--no-all-to-all", [&model] { model.allToAll = false; },
      "Reshard by slices, gathers and reductions only");
  addBindingOptions(*command, model);
  command->callback([options, cluster, mesh, &status] {
    if (cluster->empty() && mesh->empty()) {
      status = fail("plan needs --cluster, or --mesh for this host", usageStatus);
      return;
    }
    status = planCommand(*options);
  });
}
