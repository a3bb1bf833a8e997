//===- Graph.h - The graph dialect ------------------------------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_GRAPH_H
#define PARTITA_DIALECTS_GRAPH_GRAPH_H

#include "dialects/Interfaces/OpInterfaces.h"
#include "partita/Rule/Scalar/Payload.h"
#include "partita/Rule/Sharding/Equation.h"
#include "partita/Rule/Sharding/Families.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace partita::graph {
/// An array attribute's values as the type that lib/ speaks.
inline std::vector<int64_t> vec(llvm::ArrayRef<int64_t> values) {
  return {values.begin(), values.end()};
}
/// A list of one: tensors are not copied into initializer lists.
inline std::vector<HostTensor> oneResult(HostTensor tensor) {
  std::vector<HostTensor> results;
  results.push_back(std::move(tensor));
  return results;
}
} // namespace partita::graph

namespace partita::graph::detail {

/// Adds the sets of an op's definition (Linear.td) to `rule` (an error passes through),
/// but for those that name operands the op does not have (they belong to optional ones),
/// or that sum or multiply booleans: partial booleans are only any or all.
Expected<ShardingRule> withLinearSets(Expected<ShardingRule> rule,
                                      const std::vector<LinearSet> &sets,
                                      mlir::Operation *op);

/// Whether a cast commutes with sums and products: to wider floats, or to integers that
/// wrap no later.
bool isAdditiveCast(mlir::Operation *op);
/// Whether a cast keeps the order, infinities included.
bool isMonotoneCast(mlir::Operation *op);

/// Result types from a rule and the element type of each result; reports the rule's error
/// at `location`.
llvm::LogicalResult inferTypes(std::optional<mlir::Location> location,
                               llvm::StringRef opName, const Expected<ShardingRule> &rule,
                               llvm::ArrayRef<mlir::Type> elementTypes,
                               llvm::SmallVectorImpl<mlir::Type> &types);

/// Facts of an op whose rows are along an axis of its operand, or along all dims from the
/// axis on.
kernels::OpFacts rowFacts(mlir::Operation *op, uint64_t axis, bool toEnd = false);
kernels::OpFacts reductionFacts(mlir::Operation *op);
kernels::OpFacts scatterFacts(mlir::Operation *op);
kernels::OpFacts suppressFacts();
kernels::OpFacts treesFacts(mlir::Operation *op);
kernels::OpFacts maxPoolBackwardFacts(mlir::Operation *op);
/// The element type of the taps of such windows: i8, or i32 where it is too small.
mlir::Type tapType(mlir::MLIRContext *context, llvm::ArrayRef<int64_t> window);
/// Tells whether the gradient of a maximum over such windows is max_pool_backward, where
/// every element looks at the windows that cover it. Of larger windows, which cover
/// an element many times, each gives its cotangent to one element.
bool areFewTaps(llvm::ArrayRef<int64_t> window);
/// The most windows of `taps` elements that cover an element of the dim.
int64_t windowsPerElement(int64_t taps, int64_t stride, int64_t dilation);
kernels::OpFacts softmaxFacts(mlir::Operation *op);
kernels::OpFacts contractFacts(mlir::Operation *op);
kernels::OpFacts joinFacts(mlir::Operation *op);
/// Facts of a pad; those of one that mirrors say nothing of its copies.
kernels::OpFacts padFacts(mlir::Operation *op);
kernels::OpFacts pointwiseFacts(mlir::Operation *op, kernels::OpRole role,
                                kernels::Post post, double alpha = 0, double beta = 0);
/// Kernel steps of an op in which each element of a row waits for the one before.
int64_t runningSteps(mlir::Value result);

/// Vector instructions per element of an op with a payload (Payload::steps).
int64_t payloadSteps(mlir::Operation *op);

std::vector<double> payloadAttributes(mlir::Operation *op, const Payload &payload);

Expected<std::vector<HostTensor>>
evaluatePayload(mlir::Operation *op, llvm::ArrayRef<const HostTensor *> operands);

/// Sums pass through operands in which the form of the payload shows that it is linear.
std::vector<LinearSet> linearSetsOf(const Payload &payload);

/// DifferentiableOpInterface of an elementwise op: by `text`, of the cotangent x, the
/// operand y and the result z of an op of one operand, or, where that is empty, by the
/// payload's derivatives.
Expected<std::vector<mlir::Value>>
payloadGradients(mlir::Operation *op, llvm::StringRef text, mlir::OpBuilder &builder,
                 llvm::ArrayRef<mlir::Value> cotangents, const std::vector<bool> &wanted);

/// The element type of row statistics of an attention on tensors of this type: f32, of
/// f64 f64.
mlir::Type statisticType(mlir::Type type);

/// The pads of the op that one rank runs on operand 0: none where it reads a window
/// buffer, which has the pads in it.
llvm::SmallVector<int64_t> localPads(const ShardingRule &rule, const Strategy &strategy,
                                     llvm::ArrayRef<int64_t> pads);

} // namespace partita::graph::detail

#include "dialects/Graph/GraphInterfaces.h.inc"

#include "dialects/Graph/GraphDialect.h.inc"

#include "dialects/Graph/GraphEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Graph/GraphAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/Graph/GraphOps.h.inc"

namespace partita::graph {

/// On the function of a training step: how parameters are kept, a dictionary of level,
/// threshold (bytes) and shard_size.
inline constexpr char optimizerParallelAttr[] = "graph.optimizer_parallel";

/// Creates the op `name` with inferred result types, or an error (the op's own words,
/// without the op name).
Expected<mlir::Operation *>
createInferred(mlir::OpBuilder &builder, mlir::Location location, llvm::StringRef name,
               mlir::ValueRange operands,
               llvm::ArrayRef<mlir::NamedAttribute> attrs = {});

/// Creates an op of one result whose shape is part of the program, of operand 0's element
/// type, or an error (that of its rule).
Expected<mlir::Operation *> createShaped(mlir::OpBuilder &builder,
                                         mlir::Location location, llvm::StringRef name,
                                         mlir::ValueRange operands, const Shape &result,
                                         llvm::ArrayRef<mlir::NamedAttribute> attrs = {});

/// Between dense attributes and host tensors (a splat expands).
HostTensor toHostTensor(mlir::ElementsAttr attr);
mlir::DenseElementsAttr toAttribute(mlir::MLIRContext *context, const HostTensor &tensor);

} // namespace partita::graph

#endif // PARTITA_DIALECTS_GRAPH_GRAPH_H
