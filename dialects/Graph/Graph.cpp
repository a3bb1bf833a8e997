//===- Graph.cpp - The graph dialect: registration and shared parts -------===//
#include "dialects/Graph/Graph.h"

#include "partita/Reference/Kernels.h"

#include "mlir/IR/DialectImplementation.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

#include "dialects/Graph/GraphDialect.cpp.inc"
#include "dialects/Graph/GraphEnums.cpp.inc"
#include "dialects/Graph/GraphInterfaces.cpp.inc"

namespace partita {
static llvm::hash_code hash_value(const Equation &equation) {
  return llvm::hash_value(equation.str());
}
static llvm::hash_code hash_value(const Payload &payload) {
  return llvm::hash_value(payload.str());
}
} // namespace partita

#define GET_ATTRDEF_CLASSES
#include "dialects/Graph/GraphAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/Graph/GraphOps.cpp.inc"

void GraphDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/Graph/GraphOps.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Graph/GraphAttrs.cpp.inc"
      >();
  addInterfaces<RuleCache>();
}

/// `<"text">`, where `Value::parse` reads the text.
template <typename Attr, typename Value> static Attribute parseQuoted(AsmParser &parser) {
  std::string text;
  if (parser.parseLess())
    return {};
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseString(&text) || parser.parseGreater())
    return {};
  if (auto value = Value::parse(text))
    return Attr::get(parser.getContext(), *value);
  else
    parser.emitError(location, value.error().message);
  return {};
}

Attribute EquationAttr::parse(AsmParser &parser, Type) {
  return parseQuoted<EquationAttr, Equation>(parser);
}

void EquationAttr::print(AsmPrinter &printer) const {
  printer << "<\"" << getValue().str() << "\">";
}

Attribute PayloadAttr::parse(AsmParser &parser, Type) {
  return parseQuoted<PayloadAttr, Payload>(parser);
}

void PayloadAttr::print(AsmPrinter &printer) const {
  printer << "<\"" << getValue().str() << "\">";
}

Attribute ReduceKindAttr::parse(AsmParser &parser, Type) {
  StringRef word;
  if (parser.parseLess())
    return {};
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseKeyword(&word) || parser.parseGreater())
    return {};
  if (auto kind = reduceKindFromName(std::string_view(word)))
    return get(parser.getContext(), *kind);
  parser.emitError(location, "expected sum, max, min or prod, got ") << word;
  return {};
}

void ReduceKindAttr::print(AsmPrinter &printer) const {
  printer << "<" << partita::name(getValue()) << ">";
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

static std::pair<Type, Type> castTypes(Operation *op) {
  return {getElementTypeOrSelf(op->getOperand(0).getType()),
          getElementTypeOrSelf(op->getResult(0).getType())};
}

/// Types that are storage only: nothing is reduced in them.
static bool isStorage(Type type) {
  DType dtype = *dtypeOf(type);
  return smallFloat(dtype) || bitWidth(dtype) < 8;
}

bool graph::detail::isAdditiveCast(Operation *op) {
  auto [from, to] = castTypes(op);
  if (isStorage(from) || isStorage(to))
    return false;
  if (isa<FloatType>(from))
    return isWidening(from, to) && isa<FloatType>(to);
  return isa<IntegerType>(to) && !to.isInteger(1) &&
         to.getIntOrFloatBitWidth() <= from.getIntOrFloatBitWidth();
}

bool graph::detail::isMonotoneCast(Operation *op) {
  auto [from, to] = castTypes(op);
  if (isStorage(from) || isStorage(to))
    return false;
  return isWidening(from, to) || isa<FloatType>(to);
}

static bool isBool(Value value) {
  return getElementTypeOrSelf(value.getType()).isInteger(1);
}

static bool hasStorageResult(Operation *op) {
  return llvm::any_of(op->getResultTypes(),
                      [](Type type) { return isStorage(getElementTypeOrSelf(type)); });
}

/// What passes through the op passes to all of its results.
static bool applies(const LinearSet &set, Operation *op) {
  if (llvm::any_of(set.operands, [&](int32_t o) {
        return o >= static_cast<int32_t>(op->getNumOperands());
      }))
    return false;
  if (hasStorageResult(op))
    return false;
  if (set.kind == ReduceKind::Max || set.kind == ReduceKind::Min)
    return true;
  return llvm::none_of(op->getResults(), isBool) &&
         llvm::none_of(set.operands, [&](int32_t o) {
           return isBool(op->getOperand(static_cast<unsigned>(o)));
         });
}

Expected<ShardingRule> graph::detail::withLinearSets(Expected<ShardingRule> rule,
                                                     const std::vector<LinearSet> &sets,
                                                     Operation *op) {
  if (!rule)
    return rule;
  rule->linear.insert(rule->linear.end(), sets.begin(), sets.end());
  llvm::erase_if(rule->linear, [&](const LinearSet &set) { return !applies(set, op); });
  if (hasStorageResult(op))
    for (Factor &factor : rule->factors)
      if (factor.reduction())
        factor.what = loop::Replicate{};
  auto shardable = cast<ShardingRuleOpInterface>(op);
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    if (auto kind = shardable.getPaddingFill(i))
      rule->fills.push_back({*kind, static_cast<int32_t>(i)});
  return rule;
}

LogicalResult graph::detail::inferTypes(std::optional<Location> location,
                                        StringRef opName,
                                        const Expected<ShardingRule> &rule,
                                        ArrayRef<Type> elementTypes,
                                        SmallVectorImpl<Type> &types) {
  if (!rule)
    return emitOptionalError(location, "'", opName, "' op ", rule.error().message);
  for (auto [result, elementType] : llvm::zip_equal(rule->results, elementTypes))
    types.push_back(RankedTensorType::get(rule->shape(result), elementType));
  return success();
}

int64_t graph::detail::payloadSteps(Operation *op) {
  std::vector<std::optional<double>> known;
  for (Value operand : op->getOperands())
    known.push_back(uniformOf(operand));
  return cast<PayloadOpInterface>(op).getPayload().steps(known);
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

std::vector<LinearSet> graph::detail::linearSetsOf(const Payload &payload) {
  std::vector<LinearSet> sets;
  for (int32_t operand : payload.operandsRead())
    if (payload.isLinearIn(operand))
      sets.push_back({ReduceKind::Sum, {operand}});
  return sets;
}

LogicalResult graph::MapOp::verify() {
  int32_t count = getPayload().numOperands();
  if (count > static_cast<int32_t>(getNumOperands()))
    return emitOpError("has ") << getNumOperands() << " operands, its payload reads "
                               << count;
  if (auto names = getPayload().attributeNames(); !names.empty())
    return emitOpError("has no attribute '") << names.front() << "'";
  for (const ScalarNode &node : getPayload().nodes())
    if (node.op == ScalarOp::Bits)
      return emitOpError("cannot read bits: graph.bitcast does");
  return success();
}

LogicalResult graph::BitcastOp::verify() {
  auto [from, to] = castTypes(*this);
  if (bitWidth(*dtypeOf(from)) == bitWidth(*dtypeOf(to)))
    return success();
  return emitOpError("reads elements of ")
         << bitWidth(*dtypeOf(from)) << " bits as ones of " << bitWidth(*dtypeOf(to));
}

Expected<Operation *> graph::createInferred(OpBuilder &builder, Location location,
                                            StringRef name, ValueRange operands,
                                            ArrayRef<NamedAttribute> attrs) {
  // An op exists first, with a type that it cannot have: its attributes are then where
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
  op->destroy();
  state.types.assign(types.begin(), types.end());
  return builder.create(state);
}

Expected<Operation *> graph::createShaped(OpBuilder &builder, Location location,
                                          StringRef name, ValueRange operands,
                                          const Shape &shape,
                                          ArrayRef<NamedAttribute> attrs) {
  Type element = getElementTypeOrSelf(operands[0].getType());
  OperationState state(location, name, operands, RankedTensorType::get(shape, element),
                       attrs);
  Operation *created = builder.create(state);
  RuleRef facts = ruleOf(created);
  if (facts->rule)
    return created;
  created->erase();
  return tl::unexpected(facts->rule.error());
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
