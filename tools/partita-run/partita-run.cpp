//===- partita-run.cpp - Run a compiled bundle ----------------------------===//
#include "common/RunCommand.h"

int main(int argc, char **argv) {
  CLI::App app("Runs a bundle that `partita compile` wrote.\n\n"
               "  partita-run bundle --input x=x.npy --outputs-dir out\n"
               "  partita-run bundle --inputs-dir test_data_set_0 --repeat 10 --profile\n"
               "  mpirun -n 4 partita-run bundle --inputs-dir test_data_set_0",
               "partita-run");
  partita::runtime::RunOptions options;
  partita::addRunOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  return partita::runCommand(options);
}
