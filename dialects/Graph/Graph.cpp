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

/// Whether values of `from` become values of `to` unchanged.
static bool isWidening(Type from, Type to) {
  if (from == to)
    return true;
  if (isa<FloatType>(from) && isa<FloatType>(to))
    return to.isF64() || (to.isF32() && !from.isF64());
  // A signed integer does not fit an unsigned one; a boolean fits everything.
  return from.isInteger(1) ||
         (from.isSignlessInteger() && to.isSignlessInteger() && !to.isInteger(1) &&
          from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth());
}

/// One condition of a linear set, see Graph.h.
static bool holds(StringRef condition, Operation *op) {
  Type to = getElementTypeOrSelf(op->getResult(0).getType());
  if (condition == "float")
    return isa<FloatType>(to);
  Type from = getElementTypeOrSelf(op->getOperand(0).getType());
  if (condition == "additive")
    return isa<FloatType>(from)
               ? isWidening(from, to) && isa<FloatType>(to)
               : isa<IntegerType>(to) && !to.isInteger(1) &&
                     to.getIntOrFloatBitWidth() <= from.getIntOrFloatBitWidth();
  if (condition == "monotone")
    return isWidening(from, to) || isa<FloatType>(to);
  auto [name, zero] = condition.split(" > ");
  assert(zero == "0" && "an unknown condition of a linear set");
  return cast<FloatAttr>(*op->getInherentAttr(name)).getValueAsDouble() > 0;
}

static bool isBool(Value value) {
  return getElementTypeOrSelf(value.getType()).isInteger(1);
}

static bool applies(const LinearSet &set, Operation *op) {
  if (llvm::any_of(set.operands, [&](int32_t o) {
        return o >= static_cast<int32_t>(op->getNumOperands());
      }))
    return false;
  if (set.kind == ReduceKind::Max || set.kind == ReduceKind::Min)
    return true;
  return !isBool(op->getResult(0)) && llvm::none_of(set.operands, [&](int32_t o) {
    return isBool(op->getOperand(static_cast<unsigned>(o)));
  });
}

Expected<ShardingRule> graph::detail::withLinearSets(Expected<ShardingRule> rule,
                                                     StringRef sets, Operation *op) {
  if (!rule)
    return rule;
  SmallVector<StringRef> entries, conditions;
  sets.split(entries, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef entry : entries) {
    auto [text, condition] = entry.split(" if ");
    conditions.clear();
    condition.split(conditions, " and ", /*MaxSplit=*/-1, /*KeepEmpty=*/false);
    if (!llvm::all_of(conditions, [&](StringRef c) { return holds(c, op); }))
      continue;
    auto parsed = parseLinearSets(text.str());
    if (!parsed)
      return tl::unexpected(parsed.error());
    rule->linear.insert(rule->linear.end(), parsed->begin(), parsed->end());
  }
  llvm::erase_if(rule->linear, [&](const LinearSet &set) { return !applies(set, op); });
  auto shardable = cast<ShardingRuleOpInterface>(op);
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    if (auto kind = shardable.getPaddingFill(i))
      rule->fills.push_back({*kind, static_cast<int32_t>(i)});
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

SmallVector<int64_t> graph::detail::localPads(const ShardingRule &rule,
                                              const Strategy &strategy,
                                              ArrayRef<int64_t> pads) {
  SmallVector<int64_t> local(pads);
  if (auto halo = operandHalo(rule, strategy, 0))
    for (const HaloWindow &window : halo->windows) {
      auto spatial = static_cast<size_t>(window.dim) - 2;
      local[spatial] = local[pads.size() / 2 + spatial] = 0;
    }
  return local;
}
