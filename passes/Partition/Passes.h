//===- Passes.h - From global to local --------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PARTITION_PASSES_H
#define PARTITA_PASSES_PARTITION_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Partition/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Partition/Passes.h.inc"

/// What the pass `partita-verify-partitioned` checks of functions of level L3, wherever
/// they are; those without a body are passed over. A failure has been reported.
llvm::LogicalResult verifyPartitioned(
    llvm::iterator_range<mlir::Block::op_iterator<mlir::func::FuncOp>> functions);

} // namespace partita

#endif // PARTITA_PASSES_PARTITION_PASSES_H
