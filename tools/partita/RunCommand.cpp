//===- RunCommand.cpp - partita run ---------------------------------------===//
//
// What partita-run does, and --export, which needs the model's format.
//
//===----------------------------------------------------------------------===//
#include "Commands.h"

#include "common/RunCommand.h"
#include "partita/Base/Files/Aside.h"
#include "passes/Pipelines/Export.h"

#include <filesystem>
#include <memory>

using namespace partita;

namespace {
struct Options {
  RunCommandLine run;
  ExportOptions exported;
};
} // namespace

/// Exports from the states of the run, which are kept in a folder for a while if the user
/// does not want them.
static int runAndExport(Options &options) {
  RunCommandLine &line = options.run;
  options.exported.weightsDir = line.run.weights.folder;
  if (!runtime::mpiRank()) { // else this was done where the run was started
    if (auto ok = makeFolderOf(options.exported.file); !ok)
      return fail(ok.error().message);
    if (auto ok = prepareExport(line.run.bundle, options.exported); !ok)
      return fail(ok.error().message);
  }
  std::string own;
  if (line.run.stateDir.empty())
    own = line.run.stateDir = asideName(options.exported.file + ".states");
  line.then = [&]() -> Expected<void> {
    auto count = exportStates(line.run.bundle, options.exported,
                              line.run.stateDir + "/state.safetensors");
    if (!count)
      return makeError(count.error().message + "; the states are in '" +
                       line.run.stateDir + "'");
    if (!line.json)
      std::printf("%zu trained tensors in %s\n", *count, options.exported.file.c_str());
    return {};
  };
  int status = runCommand(line, {"run", "--export", options.exported.file, "--model",
                                 options.exported.model});
  std::error_code ignored;
  // What took hours is not thrown away because its export failed.
  bool isKept =
      status != 0 && std::filesystem::exists(own + "/state.safetensors", ignored);
  if (!own.empty() && !isKept)
    std::filesystem::remove_all(own, ignored);
  return status;
}

void partita::addRunCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<Options>();
  CLI::App *command = app.add_subcommand("run", "Run a bundle on its ranks");
  addRunOptions(*command, "partita run", options->run);
  auto named = [](const std::string &file) {
    return file.empty() ? std::string("the file has no name") : std::string();
  };
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
    status = options->exported.file.empty() ? runCommand(options->run, {"run"})
                                            : runAndExport(*options);
  });
}
