//===- Comm.h - What crosses devices ----------------------------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_COMM_COMM_H
#define PARTITA_DIALECTS_COMM_COMM_H

#include "dialects/Dist/Dist.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace partita::comm::detail {
partita::Step stepOf(mlir::Operation *op);
llvm::LogicalResult verifyStep(mlir::Operation *op);
/// Of the form on buffers: operand 0 is read, operand 1 written. On tensors none.
void effectsOf(
    mlir::Operation *op,
    llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>>
        &effects);
} // namespace partita::comm::detail

#include "dialects/Comm/CommInterfaces.h.inc"

#include "dialects/Comm/CommDialect.h.inc"

#define GET_OP_CLASSES
#include "dialects/Comm/CommOps.h.inc"

namespace partita::comm {

/// Emits the op for one planned step, on a value of the step's `before` local shape. A
/// View emits nothing.
mlir::Value emitStep(mlir::OpBuilder &builder, mlir::Location location,
                     dist::MeshAttr mesh, const Step &step, mlir::Value input);

/// Emits the op for a halo, on a value of the halo's `before` local shape.
mlir::Value emitHalo(mlir::OpBuilder &builder, mlir::Location location,
                     dist::MeshAttr mesh, const Halo &halo, mlir::Value input);

/// Lets one-shot bufferization turn the ops' forms on tensors into those on buffers.
void registerBufferization(mlir::DialectRegistry &registry);

} // namespace partita::comm

#endif // PARTITA_DIALECTS_COMM_COMM_H
