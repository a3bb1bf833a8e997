//===- Graph.cpp - The graph dialect: registration and shared parts -------===//
#include "dialects/Graph/Graph.h"

#include "partita/Reference/Kernels.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

#include "dialects/Graph/GraphDialect.cpp.inc"
#include "dialects/Graph/GraphInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/Graph/GraphOps.cpp.inc"

void GraphDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/Graph/GraphOps.cpp.inc"
      >();
}

Expected<ShardingRule> graph::detail::withLinearSets(Expected<ShardingRule> rule,
                                                     StringRef sets) {
  if (!rule)
    return rule;
  auto parsed = parseLinearSets(sets.str());
  if (!parsed)
    return tl::unexpected(parsed.error());
  for (LinearSet &set : *parsed)
    if (llvm::all_of(set.operands, [&](int32_t o) {
          return o < static_cast<int32_t>(rule->operands.size());
        }))
      rule->linear.push_back(std::move(set));
  return rule;
}

LogicalResult graph::detail::inferTypes(std::optional<Location> location,
                                        StringRef opName,
                                        const Expected<ShardingRule> &rule,
                                        Type elementType, SmallVectorImpl<Type> &types) {
  if (!rule)
    return emitOptionalError(location, "'", opName, "' op ", rule.error().message);
  for (const TensorFactors &result : rule->results)
    types.push_back(RankedTensorType::get(rule->shape(result), elementType));
  return success();
}

std::vector<double> graph::detail::payloadAttributes(Operation *op,
                                                     const Payload &payload) {
  std::vector<double> values;
  for (const std::string &name : payload.attributeNames())
    values.push_back(cast<FloatAttr>(*op->getInherentAttr(name)).getValueAsDouble());
  return values;
}

Expected<std::vector<HostTensor>>
graph::detail::evaluatePayload(Operation *op, ArrayRef<const HostTensor *> operands) {
  auto payload = cast<PayloadOpInterface>(op);
  DType type = *dtypeOf(getElementTypeOrSelf(op->getResult(0).getType()));
  return std::vector<HostTensor>{
      reference::elementwise(payload.getPayload(), payload.getPayloadAttributes(),
                             {operands.begin(), operands.end()}, type)};
}

Expected<Operation *> graph::createInferred(OpBuilder &builder, Location location,
                                            StringRef name, ValueRange operands,
                                            ArrayRef<NamedAttribute> attrs) {
  // The op exists first, with a type to be replaced: its attributes are then where
  // inference reads them.
  OperationState state(location, name, operands,
                       TypeRange(NoneType::get(builder.getContext())), attrs);
  Operation *op = Operation::create(state);
  auto infer = dyn_cast<InferTypeOpInterface>(op);
  if (!infer) {
    op->destroy();
    return makeError("'" + name.str() + "' does not infer its result type");
  }
  // The op's message arrives as a diagnostic; hand it on as a value.
  std::string message;
  ScopedDiagnosticHandler handler(builder.getContext(), [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  SmallVector<Type> types;
  if (failed(infer.inferReturnTypes(builder.getContext(), location, op->getOperands(),
                                    op->getAttrDictionary(), op->getPropertiesStorage(),
                                    {}, types))) {
    op->destroy();
    return makeError(message);
  }
  op->getResult(0).setType(types[0]);
  builder.insert(op);
  return op;
}
