//===- PlanCommand.cpp - partita plan -------------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "common/CommandOptions.h"
#include "passes/Pipelines/PlanModel.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>

using namespace partita;

/// Becomes 1 where the search is to end with what it has found.
static int interrupted = 0;

/// The second interrupt ends the program.
static void interrupt(int) {
  std::atomic_ref<int>(interrupted).store(1, std::memory_order_relaxed);
  std::signal(SIGINT, SIG_DFL);
}

static int planCommand(PlanOptions options) {
  std::signal(SIGINT, interrupt);
  options.enough = StopFlag(&interrupted);
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
  CLI::App *command = app.add_subcommand(
      "plan", "Search the fastest plan of a model on a cluster; no weights are needed");
  struct Options {
    PlanOptions plan;
    CommandOptions set;
  };
  auto options = std::make_shared<Options>(PlanOptions(), CommandOptions(*command));
  Request &request = options->plan.request;
  command->footer("Examples:\n"
                  "  partita plan gpt3.onnx --cluster a100.json -o plan.json\n"
                  "  partita plan gpt3.onnx --cluster a100.json --mesh dp=128,tp=8\n"
                  "  partita compile gpt3.onnx --plan plan.json --mesh dp=128,tp=8 -o b");
  command->add_option("model", request.model.file, "The ONNX file")->required();
  addMesh(options->set, request);
  addPlanning(options->set, request);
  addPlan(options->set, options->plan);
  command->add_flag_callback(
      "--log-search",
      [options] {
        options->plan.log = [](const std::string &line) {
          std::fprintf(stderr, "search: %s\n", line.c_str());
        };
      },
      "Say of each mesh, and form of a training step, its bound, plan and time, and why "
      "it was left out");
  command->get_option("--work")->excludes("--time-limit");
  for (const char *search :
       {"--overlap", "--time-limit", "--work", "--axes", "--log-search"})
    command->get_option("--price")->excludes(search);
  command->callback([options, command, &status] {
    if (command->count("--cluster") + command->count("--mesh") == 0)
      status = fail("plan needs --cluster, or --mesh for this host", usageStatus);
    else
      status = options->set.error ? fail(options->set.error->message)
                                  : planCommand(options->plan);
  });
}
