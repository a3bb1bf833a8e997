//===- ProgramFormer.h - From a scheduled program to tasks ------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H
#define PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H

#include "dialects/Task/Task.h"
#include "passes/Codegen/Common/Program.h"
#include "passes/Codegen/Common/Rolling.h"

#include <string>

namespace partita::codegen {

/// Forms every program of a module of level L4 that has passed its gate, for a target
/// that outlives the programs and with its calls: buffers become storages, the functions
/// of segments tasks, products and windows calls. `prefix` tells the constants of this
/// module from those of others of a bundle, and `rolling` has the states of all of them;
/// null: the module is alone. A failure has been reported.
llvm::LogicalResult formPrograms(mlir::ModuleOp module, const TargetModel &target,
                                 TargetModel::Calls &calls, TeamPlan team,
                                 std::vector<Program> &programs,
                                 const std::string &prefix = "",
                                 const RollingStates *rolling = nullptr);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_PROGRAMFORMER_H
