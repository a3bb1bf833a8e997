//===- partita-run.cpp - Run a compiled bundle ----------------------------===//
#include "common/RunCommand.h"

int main(int argc, char **argv) {
  CLI::App app("Runs a bundle that `partita compile` wrote.", "partita-run");
  partita::runtime::RunOptions options;
  partita::addRunOptions(app, "partita-run", options);
  app.failure_message([](const CLI::App *, const CLI::Error &failure) {
    return "error: " + std::string(failure.what()) + "; see partita-run --help\n";
  });
  CLI11_PARSE(app, argc, argv);
  return partita::runCommand(options);
}
