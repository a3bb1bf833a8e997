//===- RealFunctions.h - exp, log, erf, tanh, sin, cos ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_EMIT_REALFUNCTIONS_H
#define PARTITA_PASSES_CODEGEN_EMIT_REALFUNCTIONS_H

#include "partita/Rule/Scalar/Payload.h"

#include "mlir/IR/Builders.h"

namespace partita::codegen {

/// Exp, Log, Erf, Tanh, Sin or Cos of an f32 or f64, by arithmetic alone: kernels call no
/// mathematical library. In f32 the first four are math ops, which lowerKernels expands
/// (measured: within 3e-7 relative); the rest is expanded here, in f64, to about 1e-14.
/// Sines lose digits as numbers grow past 2^30; beyond 2^50 they are those of 0.
mlir::Value emitRealFunction(mlir::OpBuilder &builder, mlir::Location location,
                             ScalarOp function, mlir::Value x);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_EMIT_REALFUNCTIONS_H
