//===- RunCommand.cpp - partita run ---------------------------------------===//
//
// What partita-run does, and --export, which needs the model's format.
//
//===----------------------------------------------------------------------===//
#include "Commands.h"

#include "common/RunCommand.h"
#include "partita/Base/Files/Aside.h"
#include "passes/Pipelines/Export.h"
#include "passes/Pipelines/Worlds.h"

#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <memory>

using namespace partita;

namespace {
struct Options {
  RunCommandLine run;
  ExportOptions exported;
  bool replans = false;
};
} // namespace

/// Gives states that are aside a name that stays: FILE.states, or with a number where
/// that is taken. The name; empty: there are none.
static std::string keepStates(const std::string &aside, const std::string &file) {
  std::error_code failed;
  if (aside.empty() || !std::filesystem::exists(aside + "/state.safetensors", failed))
    return {};
  for (int number = 1; number < 1000; ++number) {
    std::string kept =
        file + ".states" + (number > 1 ? "-" + std::to_string(number) : "");
    if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, kept.c_str(), RENAME_NOREPLACE) ==
        0)
      return kept;
  }
  return {};
}

/// Exports from the states of the run, which are aside for a while if the user does not
/// want them.
static int runAndExport(Options &options) {
  RunCommandLine &line = options.run;
  options.exported.weightsDir = line.run.weights.folder;
  const std::string &file = options.exported.file;
  if (!runtime::mpiRank()) { // else this was done where the run was started
    std::error_code absent;
    if (std::filesystem::is_other(std::filesystem::status(file, absent)))
      return fail("cannot write '" + file + "': it is not a regular file");
    if (auto ok = makeFolderOf(file); !ok)
      return fail(ok.error().message);
    if (auto ok = prepareExport(line.run.bundle, options.exported); !ok)
      return fail(ok.error().message);
  }
  Aside aside;
  std::string own;
  // The first of the ranks that the user has started has the states.
  if (line.run.stateDir.empty() && runtime::mpiRank().value_or(0) == 0) {
    auto made = Aside::folder(file + ".states");
    if (!made)
      return fail(made.error().message);
    aside = std::move(*made);
    own = line.run.stateDir = aside.path();
  } else if (line.run.stateDir.empty()) {
    line.run.stateDir = file + ".states";
  }
  // Training of hours is not thrown away because its export failed.
  line.then = [&]() -> Expected<void> {
    auto count = exportStates(line.run.bundle, options.exported,
                              line.run.stateDir + "/state.safetensors");
    if (!count) {
      std::string kept = keepStates(own, file);
      return makeError(count.error().message + "; the states are in '" +
                       (kept.empty() ? line.run.stateDir : kept) + "'");
    }
    if (!line.json)
      std::printf("%zu trained tensors in %s\n", *count, options.exported.file.c_str());
    return {};
  };
  int status = runCommand(line, {"run", "--export", options.exported.file, "--model",
                                 options.exported.model});
  if (status != 0)
    if (std::string kept = keepStates(own, file); !kept.empty())
      std::fprintf(stderr, "note: the states of the run are in '%s'\n", kept.c_str());
  return status;
}

/// Gives an elastic run the compiler.
static void planWorlds(runtime::RunOptions &run) {
  run.planWorld = [&run, bundle = run.bundle](int64_t ranks) -> Expected<std::string> {
    const std::string folder =
        run.data.checkpoints.folder + "/world-" + std::to_string(ranks);
    auto silent = [](const std::string &) {};
    return planWorld(bundle, ranks, folder, run.weights.folder, silent).map([&] {
      return folder;
    });
  };
}

void partita::addRunCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<Options>();
  CLI::App *command = app.add_subcommand("run", "Run a bundle on its ranks");
  addRunOptions(*command, "partita run", options->run);
  auto named = [](const std::string &file) {
    return file.empty() ? std::string("the file has no name") : std::string();
  };
  command
      ->add_flag(
          "--replan", options->replans,
          "Where the bundle has no world of as many ranks as there are places, plan "
          "one from its model, into the folder of the checkpoints")
      ->needs("--elastic");
  CLI::Option *exported =
      command
          ->add_option("--export", options->exported.file,
                       "Write the model with the states that the run leaves in the place "
                       "of the initializers of their names")
          ->type_name("FILE.onnx")
          ->check(named);
  command
      ->add_option("--model", options->exported.model,
                   "The model of the bundle, if it has moved")
      ->needs(exported);
  command->callback([options, &status] {
    if (options->replans)
      planWorlds(options->run.run);
    status = options->exported.file.empty() ? runCommand(options->run, {"run"})
                                            : runAndExport(*options);
  });
}
