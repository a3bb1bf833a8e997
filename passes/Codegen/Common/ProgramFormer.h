//===- ProgramFormer.h - From a scheduled program to tasks ------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H
#define PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H

#include "dialects/Task/Task.h"
#include "partita/Runtime/Engine.h"
#include "passes/Codegen/Common/Program.h"
#include "passes/Codegen/Common/Rolling.h"

#include <map>
#include <string>

namespace partita::codegen {

/// The calls of an engine, by the name of the program that they are in. Programs of one
/// name run in the same ranks, for several entries of a bundle: a weight that they share
/// is packed in one form for all.
class ProgramCalls {
public:
  explicit ProgramCalls(const engine::Engine &engine) : engine(engine) {}
  engine::Calls &of(const std::string &program) {
    return calls.try_emplace(program, engine).first->second;
  }

private:
  const engine::Engine &engine;
  std::map<std::string, engine::Calls> calls;
};

/// Forms every program of a module of level L4 that has passed its gate: buffers become
/// storages, the functions of segments tasks, products and windows calls of an engine.
/// `prefix` tells the constants of this module from those of others of a bundle, and
/// `rolling` has the states of all of them; null: the module is alone. A failure has been
/// reported.
llvm::LogicalResult formPrograms(mlir::ModuleOp module, ProgramCalls &calls,
                                 TeamPlan team, std::vector<Program> &programs,
                                 const std::string &prefix = "",
                                 const RollingStates *rolling = nullptr);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H
