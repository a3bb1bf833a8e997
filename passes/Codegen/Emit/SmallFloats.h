//===- SmallFloats.h - Conversions of floats of one byte --------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_EMIT_SMALLFLOATS_H
#define PARTITA_PASSES_CODEGEN_EMIT_SMALLFLOATS_H

#include "partita/Base/DType.h"

#include "mlir/IR/Builders.h"

namespace partita::codegen {

/// f32 of the i8 `bits`, as smallToFloat.
mlir::Value emitFromSmallFloat(mlir::OpBuilder &builder, mlir::Location location,
                               DType type, mlir::Value bits);
/// i8 of an f32, as floatToSmall.
mlir::Value emitToSmallFloat(mlir::OpBuilder &builder, mlir::Location location,
                             DType type, mlir::Value value);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_EMIT_SMALLFLOATS_H
