//===- OpInterfaces.h - What every shardable op states ----------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_INTERFACES_OPINTERFACES_H
#define PARTITA_DIALECTS_INTERFACES_OPINTERFACES_H

#include "dialects/Interfaces/RuleCache.h"
#include "partita/Base/DType.h"
#include "partita/Kernels/OpFacts.h"
#include "partita/Rule/Sharding/Strategy.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"

namespace partita {

/// The static shape of a ranked tensor value.
std::vector<int64_t> shapeOf(mlir::Value value);
std::vector<std::vector<int64_t>> shapesOf(mlir::ValueRange values);
/// Bytes of one element of a tensor; 4 for types outside DType.
int64_t elementBytesOf(mlir::Value value);

/// Between builtin element types and DType; nullopt for a type outside DType.
std::optional<DType> dtypeOf(mlir::Type elementType);
mlir::Type elementTypeOf(mlir::MLIRContext *context, DType type);
/// tensor<shape x type>.
mlir::RankedTensorType tensorType(mlir::MLIRContext *context, DType type,
                                  const std::vector<int64_t> &shape);
/// The number that every element of a constant is; nothing of other values.
std::optional<double> uniformOf(mlir::Value value);

namespace detail {
mlir::Operation *cloneWithTypes(mlir::Operation *op, mlir::OpBuilder &builder,
                                mlir::ValueRange operands, mlir::TypeRange results);
int64_t defaultFlops(mlir::Operation *op, int64_t perPoint);
llvm::LogicalResult verifyShardingRule(mlir::Operation *op);
} // namespace detail

} // namespace partita

#include "dialects/Interfaces/OpInterfaces.h.inc"

namespace partita {

/// Facts by which a kernel computes the op; OpFacts() for an op without a rule.
kernels::OpFacts kernelFactsOf(mlir::Operation *op);

/// Whether an op in `module` runs `function`, as a loop its body.
bool isRun(mlir::Operation *module, mlir::Operation *function);

} // namespace partita

#endif // PARTITA_DIALECTS_INTERFACES_OPINTERFACES_H
