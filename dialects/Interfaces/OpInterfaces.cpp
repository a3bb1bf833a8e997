//===- OpInterfaces.cpp - What every shardable op states ------------------===//
#include "dialects/Interfaces/OpInterfaces.h"
#include "dialects/Interfaces/Notes.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace partita;

#include "dialects/Interfaces/OpInterfaces.cpp.inc"

std::optional<double> partita::uniformOf(Value value) {
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) ||
      (!elements.isSplat() && elements.getNumElements() != 1))
    return std::nullopt;
  Attribute first = *elements.getValues<Attribute>().begin();
  if (auto number = dyn_cast<FloatAttr>(first))
    return number.getValueAsDouble();
  auto number = cast<IntegerAttr>(first);
  if (number.getType().isInteger(1))
    return number.getValue().getBoolValue();
  return number.getType().isUnsignedInteger()
             ? static_cast<double>(number.getValue().getZExtValue())
             : static_cast<double>(number.getValue().getSExtValue());
}

kernels::OpFacts partita::kernelFactsOf(Operation *op) {
  auto shardable = dyn_cast<ShardingRuleOpInterface>(op);
  if (!shardable)
    return {};
  kernels::OpFacts facts = shardable.getKernelFacts();
  if (!facts.isFusable() || facts.kind == kernels::OpKind::Pointwise)
    return facts;
  // Steps of row and indexed ops, by what they count as operations.
  int64_t points = elementCount(shapeOf(op->getResult(0)));
  if (facts.kind == kernels::OpKind::Row)
    points = std::max(points, elementCount(shapeOf(op->getOperand(0))));
  if (points != 0)
    facts.steps = std::max(1.0, static_cast<double>(shardable.getFlops()) /
                                    static_cast<double>(points));
  return facts;
}

std::vector<int64_t> partita::shapeOf(Value value) {
  auto shape = cast<RankedTensorType>(value.getType()).getShape();
  return {shape.begin(), shape.end()};
}

std::vector<std::vector<int64_t>> partita::shapesOf(ValueRange values) {
  std::vector<std::vector<int64_t>> shapes;
  for (Value value : values)
    shapes.push_back(shapeOf(value));
  return shapes;
}

int64_t partita::elementBytesOf(Value value) {
  auto type = dtypeOf(cast<ShapedType>(value.getType()).getElementType());
  return type ? static_cast<int64_t>(byteWidth(*type)) : 4;
}

static std::optional<DType> smallFloatOf(Type type) {
  if (isa<Float8E4M3FNType>(type))
    return DType::F8E4M3FN;
  if (isa<Float8E4M3FNUZType>(type))
    return DType::F8E4M3FNUZ;
  if (isa<Float8E5M2Type>(type))
    return DType::F8E5M2;
  if (isa<Float8E5M2FNUZType>(type))
    return DType::F8E5M2FNUZ;
  if (isa<Float8E8M0FNUType>(type))
    return DType::F8E8M0;
  if (isa<Float4E2M1FNType>(type))
    return DType::F4E2M1;
  return std::nullopt;
}

std::optional<DType> partita::dtypeOf(Type type) {
  if (type.isF32())
    return DType::F32;
  if (type.isF64())
    return DType::F64;
  if (type.isF16())
    return DType::F16;
  if (type.isBF16())
    return DType::BF16;
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer)
    return smallFloatOf(type);
  bool isUnsigned = integer.isUnsigned();
  switch (integer.getWidth()) {
  case 1:
    return DType::Bool;
  case 2:
    return isUnsigned ? DType::U2 : DType::I2;
  case 4:
    return isUnsigned ? DType::U4 : DType::I4;
  case 8:
    return isUnsigned ? DType::U8 : DType::I8;
  case 16:
    return isUnsigned ? DType::U16 : DType::I16;
  case 32:
    return isUnsigned ? DType::U32 : DType::I32;
  case 64:
    return isUnsigned ? DType::U64 : DType::I64;
  default:
    return std::nullopt;
  }
}

Type partita::elementTypeOf(MLIRContext *context, DType type) {
  switch (type) {
  case DType::F32:
    return Float32Type::get(context);
  case DType::F64:
    return Float64Type::get(context);
  case DType::F16:
    return Float16Type::get(context);
  case DType::BF16:
    return BFloat16Type::get(context);
  case DType::Bool:
    return IntegerType::get(context, 1);
  case DType::F8E4M3FN:
    return Float8E4M3FNType::get(context);
  case DType::F8E4M3FNUZ:
    return Float8E4M3FNUZType::get(context);
  case DType::F8E5M2:
    return Float8E5M2Type::get(context);
  case DType::F8E5M2FNUZ:
    return Float8E5M2FNUZType::get(context);
  case DType::F8E8M0:
    return Float8E8M0FNUType::get(context);
  case DType::F4E2M1:
    return Float4E2M1FNType::get(context);
  default:
    break;
  }
  return IntegerType::get(context, static_cast<unsigned>(bitWidth(type)),
                          isUnsigned(type) ? IntegerType::Unsigned
                                           : IntegerType::Signless);
}

RankedTensorType partita::tensorType(MLIRContext *context, DType type,
                                     const std::vector<int64_t> &shape) {
  return RankedTensorType::get(shape, elementTypeOf(context, type));
}

Operation *partita::detail::cloneWithTypes(Operation *op, OpBuilder &builder,
                                           ValueRange operands, TypeRange results) {
  OperationState state(op->getLoc(), op->getName(), operands, results, op->getAttrs());
  return builder.create(state);
}

int64_t partita::detail::defaultFlops(Operation *op, int64_t perPoint) {
  RuleRef facts = ruleOf(op);
  const ShardingRule &rule = *facts->rule;
  auto isInResult = [&](size_t factor) {
    return llvm::any_of(rule.results, [&](const TensorFactors &tensor) {
      return llvm::any_of(tensor, [&](const auto &dim) {
        return llvm::is_contained(dim, static_cast<int32_t>(factor));
      });
    });
  };
  // A loop over an operand alone that reduces nothing is no work: what a pad reads.
  int64_t points = 1;
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (rule.factors[f].kind() != FactorKind::Replicate || isInResult(f))
      points *= rule.factors[f].size;
  return points * perPoint;
}

LogicalResult partita::detail::verifyShardingRule(Operation *op) {
  for (Value value : op->getOperands()) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || !type.hasStaticShape())
      return noteOrigin(op->emitOpError("expected operands of static shape, got ")
                            << value.getType(),
                        value);
  }
  RuleRef facts = ruleOf(op);
  if (!facts->rule)
    return noteOperands(op->emitOpError(facts->rule.error().message), op);
  if (!facts->misfit.empty())
    return noteOperands(op->emitOpError(facts->misfit), op);
  return success();
}

bool partita::isRun(Operation *module, Operation *function) {
  WalkResult found = module->walk([&](CallingOpInterface op) {
    return llvm::is_contained(op.getCallees(), function) ? WalkResult::interrupt()
                                                         : WalkResult::advance();
  });
  return found.wasInterrupted();
}
