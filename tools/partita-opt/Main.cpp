//===- Main.cpp - partita-opt: run passes on textual IR -------------------===//
#include "partita/Runtime/RunBundle.h"
#include "passes/Pipelines/Passes.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

int main(int argc, char **argv) {
  llvm::cl::SetVersionPrinter(
      [](llvm::raw_ostream &out) { out << "partita-opt " PARTITA_VERSION "\n"; });
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllPasses();
  partita::registerPartitaDialects(registry);
  partita::registerPartitaPasses(partita::runtime::runBundle);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Partita optimizer driver\n", registry));
}
