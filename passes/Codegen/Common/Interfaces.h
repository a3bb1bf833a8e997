//===- Interfaces.h - How ops become tasks ----------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_INTERFACES_H
#define PARTITA_PASSES_CODEGEN_COMMON_INTERFACES_H

#include "partita/Base/Bundle/TaskTable.h"
#include "passes/Codegen/Common/View.h"

#include "mlir/IR/OpDefinition.h"

#include <optional>

namespace partita::codegen {
class TaskFormer;
class KernelEmitter;
} // namespace partita::codegen

#include "passes/Codegen/Common/CodegenInterfaces.h.inc"

namespace partita::codegen {
/// Attaches the models of this folder (views, engine calls, collectives) to the ops of
/// the graph and comm dialects, loading them if need be. May be called again.
void attachTaskModels(mlir::MLIRContext &context);
} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_INTERFACES_H
