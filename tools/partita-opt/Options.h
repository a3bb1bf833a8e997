//===- Options.h - The command line of partita-opt --------------*- C++ -*-===//
#ifndef PARTITA_TOOLS_PARTITA_OPT_OPTIONS_H
#define PARTITA_TOOLS_PARTITA_OPT_OPTIONS_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

#include <optional>
#include <string>

namespace partita {

/// What a correct command line asks for.
struct OptOptions {
  std::string input, output;
  mlir::MlirOptMainConfig config;
};

/// Registers LLVM's and MLIR's options and reads the command line. Help and the version
/// end the process. What is wrong, passes and their options included, is said in one
/// line, as other commands say it; then there is no result.
std::optional<OptOptions> readOptions(int argc, char **argv,
                                      mlir::DialectRegistry &registry);

} // namespace partita

#endif // PARTITA_TOOLS_PARTITA_OPT_OPTIONS_H
