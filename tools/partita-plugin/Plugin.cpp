//===- Plugin.cpp - Dialects and passes for stock mlir-opt ----------------===//
#include "partita/Runtime/RunBundle.h"
#include "passes/Pipelines/Passes.h"

#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Config/llvm-config.h"

extern "C" LLVM_ATTRIBUTE_WEAK mlir::DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "Partita", LLVM_VERSION_STRING,
          [](mlir::DialectRegistry *registry) {
            partita::registerPartitaDialects(*registry);
          }};
}

extern "C" LLVM_ATTRIBUTE_WEAK mlir::PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "Partita", LLVM_VERSION_STRING,
          [] { partita::registerPartitaPasses(partita::runtime::runBundle); }};
}
