//===- Main.cpp - partita: the command ------------------------------------===//
#include "Commands.h"

#include "common/RunCommand.h"

static constexpr char about[] =
    "Spreads an ONNX model over a mesh of devices and runs it.\n\n"
    "  partita inspect model.onnx --shape x=1,3,640,640\n"
    "  partita compile model.onnx -o bundle --mesh dp=2,tp=2\n"
    "  partita run bundle --inputs-dir test_data_set_0 --outputs-dir out\n";

int main(int argc, char **argv) {
  CLI::App app(about, "partita");
  app.require_subcommand(1);
  app.set_version_flag("--version", "partita " PARTITA_VERSION);
  int status = 0;
  partita::addCompileCommand(app, status);
  partita::addPlanCommand(app, status);
  partita::addInspectCommand(app, status);
  partita::addVerifyCommand(app, status);
  partita::addReportCommand(app, status);
  partita::addCalibrateCommand(app, status);
  partita::runtime::RunOptions run;
  CLI::App *runApp = app.add_subcommand("run", "Run a bundle on its ranks");
  partita::addRunOptions(*runApp, "partita run", run);
  runApp->callback([&] { status = partita::runCommand(run, {"run"}); });
  app.failure_message([&](const CLI::App *, const CLI::Error &failure) {
    // The parser sees a wrong word only as the lack of a command.
    std::string what = failure.what();
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-')
      what = "there is no command '" + std::string(argv[1]) + "'";
    return "error: " + what + "; see partita --help\n";
  });
  CLI11_PARSE(app, argc, argv);
  return status;
}
