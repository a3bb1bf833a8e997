//===- partita-run.cpp - Run a compiled bundle ----------------------------===//
#include "common/RunCommand.h"

int main(int argc, char **argv) {
  CLI::App app("Runs a bundle that `partita compile` wrote.", "partita-run");
  app.set_version_flag("--version", "partita-run " PARTITA_VERSION);
  partita::RunCommandLine options;
  partita::addRunOptions(app, "partita-run", options);
  if (auto done = partita::parse(app, argc, argv))
    return *done;
  return partita::finish(partita::runCommand(options));
}
