//===- Main.cpp - partita-opt: run passes on textual IR -------------------===//
#include "Options.h"

#include "common/Status.h"
#include "partita/Runtime/RunBundle.h"
#include "passes/Pipelines/Passes.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace partita;

static int standardError = -1;

/// LLVM's streams end the process where they cannot write, at the latest when it exits:
/// help does so while the errors of the command line are caught.
static void fatalError(void *, const char *reason, bool isCrash) {
  ::dup2(standardError, STDERR_FILENO);
  llvm::StringRef text(reason);
  bool isWrite = text.consume_front("IO failure on output stream: ");
  int status = fail((isWrite ? "cannot write to standard output: " : "") + text.str());
  if (isCrash)
    std::abort();
  _exit(status);
}

static int run(const OptOptions &options, mlir::DialectRegistry &registry) {
  std::string error;
  auto input = mlir::openInputFile(options.input, &error);
  if (!input)
    return fail(error);
  auto output = mlir::openOutputFile(options.output, &error);
  if (!output)
    return fail(error);
  if (failed(mlir::MlirOptMain(output->os(), std::move(input), registry, options.config)))
    return errorStatus;
  output->os().flush();
  if (std::error_code failure = output->os().error()) {
    output->os().clear_error();
    return fail("cannot write to " +
                (options.output == "-" ? "standard output" : "'" + options.output + "'") +
                ": " + failure.message());
  }
  output->keep();
  return 0;
}

int main(int argc, char **argv) {
  standardError = ::dup(STDERR_FILENO);
  llvm::install_fatal_error_handler(fatalError);
  llvm::cl::SetVersionPrinter(
      [](llvm::raw_ostream &out) { out << "partita-opt " PARTITA_VERSION "\n"; });
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllPasses();
  registerPartitaDialects(registry);
  registerPartitaPasses(runtime::runBundle);
  auto options = readOptions(argc, argv, registry);
  if (!options)
    return usageStatus;
  if (options->config.shouldShowDialects()) {
    for (llvm::StringRef name : registry.getDialectNames())
      llvm::outs() << name << "\n";
    return 0;
  }
  if (options->config.shouldListPasses()) {
    mlir::printRegisteredPasses();
    return 0;
  }
  return run(*options, registry);
}
