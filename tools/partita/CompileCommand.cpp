//===- CompileCommand.cpp - partita compile -------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "common/CommandOptions.h"
#include "common/Interrupt.h"
#include "passes/Pipelines/Worlds.h"

#include <cstdio>
#include <memory>

using namespace partita;

static void print(const Request &request, const CompileReport &report) {
  for (const std::string &note : report.notes)
    std::printf("note: %s\n", note.c_str());
  if (request.levels.to >= Level::L3)
    std::printf("%s", summaryText(report.collectives).c_str());
  if (request.levels.to >= Level::L3 && report.work && !request.meshes.empty())
    std::printf("%s", workText(*report.work).c_str());
  if (request.levels.to == Level::L5)
    std::printf("memory per rank: %lld B of weights as the model stores them, %lld B as "
                "repacked for engines, %lld B of arena\n",
                static_cast<long long>(report.weightBytesPerRank),
                static_cast<long long>(report.packedBytes),
                static_cast<long long>(report.arenaBytes));
  if (request.levels.to == Level::L5 && report.stateBytes != 0)
    std::printf("states per rank: %lld B\n", static_cast<long long>(report.stateBytes));
  std::printf("compiled %lld ops", static_cast<long long>(report.numOps));
  if (request.levels.to == Level::L5)
    std::printf(" to %lld tasks and %lld kernels",
                static_cast<long long>(report.numTasks),
                static_cast<long long>(report.numKernels));
  std::printf(" in %.2f s\n", report.seconds);
  for (const auto &[stage, seconds] : report.stages)
    std::printf("  %-12s %.3f s\n", stage.c_str(), seconds);
}

static int compileCommand(const Request &request) {
  RemovedOnInterrupt interrupt;
  auto progress = [](const std::string &line) {
    std::fprintf(stderr, "%s…\n", line.c_str());
  };
  auto worlds = compileWorlds(request, progress);
  if (!worlds)
    return fail(worlds.error().message);
  for (const WorldReport &world : *worlds) {
    if (worlds->size() > 1)
      std::printf("world of %lld ranks, %s:\n", static_cast<long long>(world.ranks),
                  world.mesh.c_str());
    print(request, world.report);
  }
  return 0;
}

void partita::refuseBlankMesh(CLI::App &command) {
  command.get_option("--mesh")->check([](const std::string &mesh) -> std::string {
    // A variable of a script that was never set would otherwise mean one rank.
    bool isBlank = mesh.find_first_not_of(" \t\n") == std::string::npos;
    return isBlank ? "the mesh is empty; leave --mesh out for one rank" : "";
  });
}

/// "--cluster and --memory … would have no effect"; empty: the options go together.
static std::string contradiction(const Request &request) {
  const Levels &levels = request.levels;
  const bool isDecided = request.hints || request.plan;
  if (levels.from > Level::L0 && levels.dump.empty())
    return "--from needs --dump-dir, the folder of an earlier run whose files to begin "
           "with";
  if (levels.from > Level::L0 && (isDecided || !request.told.explain.empty()))
    return "--from L" + std::to_string(static_cast<int>(levels.from)) +
           " takes its strategies from --dump-dir: --hints, --plan and --explain would "
           "have no effect";
  bool searches =
      request.mode == ShardMode::Auto && levels.from == Level::L0 && !isDecided;
  // A training step may compute something again, however it is planned.
  bool chooses = levels.from == Level::L0 && request.train;
  if (levels.from == Level::L4 &&
      (request.hierarchical || request.commReuse || request.commInFlight))
    return "--from L4 has its calls as they are: --hierarchical, --comm-reuse and "
           "--comm-in-flight would have no effect";
  // A cluster file has a memory, which does not count where only its levels do.
  const bool isMemoryAsked = request.machine.isExact || !request.hierarchical;
  if (!searches && !chooses && request.machine.memory && isMemoryAsked)
    return "--cluster and --memory are for the search of mode auto without hints or a "
           "plan: they would have no effect";
  if (std::string wrong = refusalOfWorlds(request); !wrong.empty())
    return wrong;
  const std::string &output = request.emission.output;
  if (output.empty() && levels.to == Level::L5)
    return "--output is required (or --to L3, which stops before code generation)";
  if (!output.empty() && levels.to < Level::L5)
    return "--output names a bundle, which --to stops before; --dump-dir is where the "
           "levels are written";
  return "";
}

void partita::addCompileCommand(CLI::App &app, int &status) {
  CLI::App *command =
      app.add_subcommand("compile", "Compile a model into a bundle for a mesh of ranks");
  struct Options {
    Request request;
    CommandOptions set;
  };
  auto options = std::make_shared<Options>(Request(), CommandOptions(*command));
  Request &request = options->request;
  command->footer(
      "Examples:\n"
      "  partita compile gpt2.onnx -o gpt2.bundle --mesh dp=2,tp=4\n"
      "  partita compile gpt2.onnx -o g --mesh tp=2 --hints hints.json\n"
      "  partita compile bert.onnx -o b --mesh tp=4 --hints megatron "
      "--shape batch=2 --shape sequence=32\n"
      "  partita compile det.onnx -o d --shape x=1,3,640,640 --mesh dp=2\n"
      "  partita compile gpt2.onnx --to L3 --dump-dir ir --mesh tp=2\n"
      "  partita compile model.onnx -o e --train step.json --mesh dp=2 --mesh "
      "dp=4\n"
      "  partita compile ranks/rank-*.onnx -o g --mesh tp=4 --mode manual");
  command
      ->add_option_function<std::vector<std::string>>(
          "model",
          [&request](const std::vector<std::string> &files) {
            request.model.file = files.front();
            request.model.others.assign(files.begin() + 1, files.end());
          },
          "The ONNX file; of a program written per rank the file of each rank, in their "
          "order (docs/rank-files.md)")
      ->required();
  CommandOptions &set = options->set;
  set.text("output", into(request.emission.output), "The bundle, a new folder");
  addCompile(set, request);
  refuseBlankMesh(*command);
  command->get_option("--state")->allow_extra_args(false);
  command->get_option("--target-cpu")->envname("PARTITA_TARGET_CPU");
  set.text("explain", into(request.told.explain),
           "Say where the strategy of this node (or glob) came from");
  auto levelOf = [](const std::string &word) {
    return Expected<Level>(static_cast<Level>(word[1] - '0'));
  };
  set.word(
      "from", {"L0", "L2", "L3", "L4"}, into(request.levels.from, levelOf),
      "Begin with what an earlier run with --dump-dir has written there (and you may "
      "have changed): L2 keeps its strategies, L3 its program, L4 its schedules");
  set.word("to", {"L0", "L2", "L3", "L4", "L5"}, into(request.levels.to, levelOf),
           "Stop at this level: L0 imported, L2 with strategies, L3 one rank's program, "
           "L4 scheduled, L5 bundle (docs/architecture.md)");
  command->get_option("--to")->default_str("L5");
  command->callback([options, &status] {
    std::string wrong = contradiction(options->request);
    status = !wrong.empty()       ? fail(wrong, usageStatus)
             : options->set.error ? fail(options->set.error->message)
                                  : compileCommand(options->request);
  });
}
