//===- BySpec.cpp - A program made of @main by a specification ------------===//
#include "passes/Train/BySpec.h"

using namespace mlir;
using namespace partita;
using namespace partita::train;

LogicalResult
train::bySpec(ModuleOp module, const std::optional<Spec> &given, const std::string &path,
              const std::string &ofFile,
              const std::function<Expected<void>(func::FuncOp, Spec &)> &derive) {
  auto main = module.lookupSymbol<func::FuncOp>("main");
  if (!main)
    return module.emitError("the module has no function 'main'");
  auto read = given ? Expected<Spec>(*given) : readSpec(path);
  if (!read)
    return main.emitError(read.error().message);
  if (read->trainingInfo)
    return main.emitError("\"training_info\" names a step that the model's file has")
           << ofFile;
  if (auto ok = derive(main, *read); !ok)
    return main.emitError(ok.error().message);
  return success();
}
