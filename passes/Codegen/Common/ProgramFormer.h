//===- ProgramFormer.h - From a scheduled program to tasks ------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H
#define PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H

#include "dialects/Task/Task.h"
#include "partita/Runtime/Engine.h"
#include "passes/Codegen/Common/Program.h"

namespace partita::codegen {

/// Forms every program of a module of level L4 that has passed its gate: buffers become
/// storages, the functions of segments tasks, products and windows calls of `engine`. A
/// failure has been reported.
llvm::LogicalResult formPrograms(mlir::ModuleOp module, const engine::Engine &engine,
                                 TeamPlan team, std::vector<Program> &programs);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H
