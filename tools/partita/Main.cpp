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
  int status = 0;
  partita::addCompileCommand(app, status);
  partita::addInspectCommand(app, status);
  partita::addVerifyCommand(app, status);
  partita::addReportCommand(app, status);
  partita::runtime::RunOptions run;
  CLI::App *runApp = app.add_subcommand("run", "Run a bundle on its ranks");
  partita::addRunOptions(*runApp, run);
  runApp->callback([&] { status = partita::runCommand(run, {"run"}); });
  CLI11_PARSE(app, argc, argv);
  return status;
}
