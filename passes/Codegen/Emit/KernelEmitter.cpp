//===- KernelEmitter.cpp - A kernel as loops ------------------------------===//
#include "passes/Codegen/Emit/KernelEmitter.h"
#include "passes/Codegen/Emit/SmallFloats.h"

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// How an element lies in memory. bf16 is moved as bits: not every CPU can convert it.
static Type storageType(MLIRContext *context, DType type) {
  if (byteWidth(type) == 1)
    return IntegerType::get(context, 8);
  if (type == DType::BF16)
    return IntegerType::get(context, 16);
  Type element = elementTypeOf(context, type);
  if (auto integer = dyn_cast<IntegerType>(element))
    return IntegerType::get(context, integer.getWidth());
  return element;
}

Type KernelEmitter::computeType(DType type) const {
  MLIRContext *context = builder.getContext();
  if (type == DType::Bool)
    return IntegerType::get(context, 1);
  if (isFloat(type))
    return type == DType::F64 ? Type(Float64Type::get(context))
                              : Type(Float32Type::get(context));
  return IntegerType::get(context, static_cast<unsigned>(bitWidth(type)));
}

Value KernelEmitter::integer(int64_t value) {
  return arith::ConstantIntOp::create(builder, location, value, 64);
}

Value KernelEmitter::constant(Type type, double value) {
  if (auto real = dyn_cast<FloatType>(type))
    return arith::ConstantOp::create(builder, location, FloatAttr::get(real, value));
  return arith::ConstantOp::create(builder, location,
                                   IntegerAttr::get(type, static_cast<int64_t>(value)));
}

/// Round to nearest even by integer arithmetic; a NaN stays one.
static Value bfloatBits(OpBuilder &b, Location at, Value value) {
  Type i32 = b.getI32Type(), i16 = b.getIntegerType(16);
  auto number = [&](int64_t v) -> Value {
    return arith::ConstantIntOp::create(b, at, v, 32);
  };
  Value bits = arith::BitcastOp::create(b, at, i32, value);
  Value high = arith::ShRUIOp::create(b, at, bits, number(16));
  Value odd = arith::AndIOp::create(b, at, high, number(1));
  Value bias = arith::AddIOp::create(b, at, odd, number(0x7fff));
  Value rounded =
      arith::ShRUIOp::create(b, at, arith::AddIOp::create(b, at, bits, bias), number(16));
  Value isNaN = arith::CmpFOp::create(b, at, arith::CmpFPredicate::UNO, value, value);
  Value quiet = arith::OrIOp::create(b, at, high, number(0x40));
  Value chosen = arith::SelectOp::create(b, at, isNaN, quiet, rounded);
  return arith::TruncIOp::create(b, at, i16, chosen);
}

/// An element as it lies in memory as one of the compute type.
Value KernelEmitter::decoded(Value element, DType type) {
  Type f32 = builder.getF32Type(), i32 = builder.getI32Type();
  switch (type) {
  case DType::Bool: {
    Value zero = arith::ConstantIntOp::create(builder, location, 0, 8);
    return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::ne, element,
                                 zero);
  }
  case DType::F16:
    return arith::ExtFOp::create(builder, location, f32, element);
  case DType::BF16: {
    Value wide = arith::ExtUIOp::create(builder, location, i32, element);
    Value sixteen = arith::ConstantIntOp::create(builder, location, 16, 32);
    Value bits = arith::ShLIOp::create(builder, location, wide, sixteen);
    return arith::BitcastOp::create(builder, location, f32, bits);
  }
  default:
    break;
  }
  if (smallFloat(type))
    return emitFromSmallFloat(builder, location, type, element);
  if (bitWidth(type) < 8)
    return arith::TruncIOp::create(builder, location, computeType(type), element);
  return element;
}

Value KernelEmitter::encoded(Value value, DType type) {
  Type stored = storageType(builder.getContext(), type);
  if (type == DType::Bool)
    return arith::ExtUIOp::create(builder, location, stored, value);
  if (type == DType::F16)
    return arith::TruncFOp::create(builder, location, stored, value);
  if (type == DType::BF16)
    return bfloatBits(builder, location, value);
  if (smallFloat(type))
    return emitToSmallFloat(builder, location, type, value);
  if (bitWidth(type) < 8 && isUnsigned(type))
    return arith::ExtUIOp::create(builder, location, stored, value);
  if (bitWidth(type) < 8)
    return arith::ExtSIOp::create(builder, location, stored, value);
  return value;
}

Value KernelEmitter::reinterpret(Value value, DType from, DType to) {
  Value bits = encoded(value, from);
  Type stored = storageType(builder.getContext(), to);
  if (bits.getType() != stored)
    bits = arith::BitcastOp::create(builder, location, stored, bits);
  return decoded(bits, to);
}

Value KernelEmitter::load(Value pointer, Value offset, DType type) {
  Type stored = storageType(builder.getContext(), type);
  Value address = LLVM::GEPOp::create(builder, location, pointer.getType(), stored,
                                      pointer, ValueRange{offset});
  return decoded(LLVM::LoadOp::create(builder, location, stored, address), type);
}

void KernelEmitter::store(Value pointer, Value offset, DType type, Value value) {
  Type stored = storageType(builder.getContext(), type);
  Value address = LLVM::GEPOp::create(builder, location, pointer.getType(), stored,
                                      pointer, ValueRange{offset});
  LLVM::StoreOp::create(builder, location, encoded(value, type), address);
}

Value KernelEmitter::linear(int64_t offset, ArrayRef<int64_t> strides) {
  Value sum;
  for (auto [index, stride] : llvm::zip_equal(point, strides)) {
    if (stride == 0)
      continue;
    Value term = index;
    if (stride != 1)
      term = arith::MulIOp::create(builder, location, index, integer(stride));
    sum = sum ? arith::AddIOp::create(builder, location, sum, term).getResult() : term;
  }
  if (!sum)
    return integer(offset);
  return offset == 0
             ? sum
             : arith::AddIOp::create(builder, location, sum, integer(offset)).getResult();
}

Value KernelEmitter::loadAt(int operand, ArrayRef<Value> index) {
  const KernelOperand &from = spec.operands[static_cast<size_t>(operand)];
  Value offset = integer(from.view.offset);
  for (auto [d, parts] : llvm::enumerate(from.view.dims)) {
    Value rest = index[d];
    for (size_t p = parts.size(); p-- > 0;) {
      Value digit = rest;
      if (p != 0) {
        Value size = integer(parts[p].size);
        digit = arith::RemUIOp::create(builder, location, rest, size);
        rest = arith::DivUIOp::create(builder, location, rest, size);
      }
      Value term =
          arith::MulIOp::create(builder, location, digit, integer(parts[p].stride));
      offset = arith::AddIOp::create(builder, location, offset, term);
    }
  }
  return load(pointers[static_cast<size_t>(operand)], offset, from.type);
}

Value KernelEmitter::scalar(int number, int which) {
  Type i64 = builder.getI64Type();
  Value address =
      LLVM::GEPOp::create(builder, location, scalars.getType(), i64, scalars,
                          ArrayRef<LLVM::GEPArg>{node(number).scalar + which});
  return LLVM::LoadOp::create(builder, location, i64, address);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Value KernelEmitter::value(int number) {
  for (auto &scope : llvm::reverse(scopes)) {
    auto found = scope.find(number);
    if (found != scope.end())
      return found->second;
  }
  Value result = evaluate(number);
  scopes.back()[number] = result;
  return result;
}

/// A float of one byte is an f32 in registers. Without this, a cast to one and back in
/// the same kernel would leave the number as it was.
Value KernelEmitter::roundedTo(DType type, Value value) {
  if (!smallFloat(type))
    return value;
  return decoded(encoded(value, type), type);
}

Value KernelEmitter::evaluate(int number) {
  const KernelNode &n = node(number);
  if (auto found = rowValues.find({number, 0}); found != rowValues.end())
    return found->second();
  switch (n.kind) {
  case KernelNode::Load: {
    const KernelOperand &from = spec.operands[static_cast<size_t>(n.operand)];
    return load(pointers[static_cast<size_t>(n.operand)],
                linear(from.offset, from.strides), from.type);
  }
  case KernelNode::Constant:
    return constantOf(n);
  case KernelNode::Payload:
    return roundedTo(n.type, emitPayload(*this, n));
  case KernelNode::Row:
    llvm_unreachable("a row op before its program");
  case KernelNode::Indexed:
    return evaluateIndexed(number);
  case KernelNode::Score:
    return score(number);
  case KernelNode::Result:
    if (node(n.args[0]).kind == KernelNode::Row)
      return rowValues[{n.args[0], n.result}]();
    value(n.args[0]); // sets this one
    for (auto &scope : llvm::reverse(scopes))
      if (auto found = scope.find(number); found != scope.end())
        return found->second;
    break;
  }
  return nullptr;
}

void KernelEmitter::setElement(int number, int result, Value element) {
  for (auto [i, n] : llvm::enumerate(spec.nodes))
    if (n.kind == KernelNode::Result && n.args[0] == number && n.result == result)
      scopes.back()[static_cast<int>(i)] = element;
}

Value KernelEmitter::constantOf(const KernelNode &n) {
  auto value = cast<DenseElementsAttr>(cast<graph::ConstantOp>(n.op).getValue());
  Attribute first = *value.getValues<Attribute>().begin();
  Type type = computeType(n.type);
  if (auto real = dyn_cast<FloatAttr>(first))
    return constant(type, real.getValueAsDouble());
  APInt bits = cast<IntegerAttr>(first).getValue();
  return arith::ConstantOp::create(builder, location, IntegerAttr::get(type, bits));
}

/// The node's own index: dims of size 1 are at 0, leading dims it lacks are dropped.
KernelEmitter::Values KernelEmitter::indexOf(int number) {
  const KernelNode &n = node(number);
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(n.op->getResult(0).getType()).getShape();
  size_t skip = spec.originalDims.size() - shape.size();
  Values index;
  for (auto [d, size] : llvm::enumerate(shape)) {
    Value sum = integer(0);
    if (size != 1)
      for (const KernelSpec::IndexTerm &term : spec.originalDims[skip + d]) {
        Value at = point[static_cast<size_t>(term.dim)];
        if (!at) {
          sum = nullptr;
          break;
        }
        Value part = arith::MulIOp::create(builder, location, at, integer(term.weight));
        sum = arith::AddIOp::create(builder, location, sum, part);
      }
    index.push_back(sum);
  }
  return index;
}

Value KernelEmitter::evaluateIndexed(int number) {
  return cast<IndexedOpInterface>(node(number).op)
      .emitElement(*this, number, indexOf(number));
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

void KernelEmitter::define(int number, std::function<Value()> atPoint, int result) {
  rowValues[{number, result}] = std::move(atPoint);
}

Value KernelEmitter::rowPosition() {
  Value position = integer(0);
  for (size_t d = numOuter(); d < spec.domain.size(); ++d) {
    Value scaled =
        arith::MulIOp::create(builder, location, position, integer(spec.domain[d]));
    position = arith::AddIOp::create(builder, location, scaled, point[d]);
  }
  return position;
}

void KernelEmitter::goTo(Value place) {
  scopes.emplace_back();
  for (size_t d = spec.domain.size(); d-- > numOuter();) {
    point[d] = place;
    if (d == numOuter())
      break;
    Value size = integer(spec.domain[d]);
    point[d] = arith::RemUIOp::create(builder, location, place, size);
    place = arith::DivUIOp::create(builder, location, place, size);
  }
}

void KernelEmitter::leavePlace() {
  for (size_t d = numOuter(); d < spec.domain.size(); ++d)
    point[d] = nullptr;
  scopes.pop_back();
}

void KernelEmitter::atPlace(Value place, llvm::function_ref<void()> body) {
  goTo(place);
  body();
  leavePlace();
}

/// In elements of `type`. The layout is that of KernelBuilder::reserveScratch.
Value KernelEmitter::scratchOffset(int number, int64_t slot, Value place, Type type) {
  auto begin =
      static_cast<int64_t>(spec.scratchOffset(static_cast<size_t>(number), slot));
  int64_t width = std::max<int64_t>(1, type.getIntOrFloatBitWidth() / 8);
  return arith::AddIOp::create(builder, location, place, integer(begin / width));
}

static DType plainType(Type type) {
  return type.isF32()         ? DType::F32
         : type.isF64()       ? DType::F64
         : type.isInteger(1)  ? DType::Bool
         : type.isInteger(2)  ? DType::I2
         : type.isInteger(4)  ? DType::I4
         : type.isInteger(8)  ? DType::I8
         : type.isInteger(16) ? DType::I16
         : type.isInteger(32) ? DType::I32
                              : DType::I64;
}

void KernelEmitter::storeRow(int number, int64_t slot, Value element) {
  storeRowAt(number, slot, rowPosition(), element);
}

Value KernelEmitter::loadRow(int number, int64_t slot, Type type) {
  return loadRowAt(number, slot, rowPosition(), type);
}

void KernelEmitter::storeRowAt(int number, int64_t slot, Value place, Value element) {
  store(pointers.back(), scratchOffset(number, slot, place, element.getType()),
        plainType(element.getType()), element);
}

Value KernelEmitter::loadRowAt(int number, int64_t slot, Value place, Type type) {
  return load(pointers.back(), scratchOffset(number, slot, place, type), plainType(type));
}

Value KernelEmitter::scratchAddress(int number, int64_t slot, Value place,
                                    VectorType type) {
  Type element = type.getElementType();
  return LLVM::GEPOp::create(builder, location, pointers.back().getType(), element,
                             pointers.back(),
                             ValueRange{scratchOffset(number, slot, place, element)});
}

/// A row has the alignment of its elements alone.
static unsigned alignmentOf(VectorType type) { return type.getElementTypeBitWidth() / 8; }

void KernelEmitter::storeRowVector(int number, int64_t slot, Value place, Value vector) {
  auto type = cast<VectorType>(vector.getType());
  LLVM::StoreOp::create(builder, location, vector,
                        scratchAddress(number, slot, place, type), alignmentOf(type));
}

Value KernelEmitter::loadRowVector(int number, int64_t slot, Value place,
                                   VectorType type) {
  return LLVM::LoadOp::create(builder, location, type,
                              scratchAddress(number, slot, place, type),
                              alignmentOf(type));
}

bool KernelEmitter::changesInPlace(int number) const {
  return spec.changesInPlace(number);
}

Value KernelEmitter::outputOffset(Value place) {
  point[numOuter()] = place;
  Value offset = linear(spec.outputs[0].offset, spec.outputs[0].strides);
  point[numOuter()] = nullptr;
  return offset;
}

void KernelEmitter::storeOutputAt(Value place, Value element) {
  store(pointers[spec.operands.size()], outputOffset(place), spec.outputs[0].type,
        element);
}

Value KernelEmitter::loadOutputAt(Value place) {
  return load(pointers[spec.operands.size()], outputOffset(place), spec.outputs[0].type);
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

/// All are computed before the first is stored: an operand may lie in the place of one.
void KernelEmitter::storeOutputs(bool perRow) {
  SmallVector<Value> elements;
  for (const KernelOperand &output : spec.outputs)
    elements.push_back(output.perRow == perRow ? value(output.node) : Value());
  for (auto [i, output] : llvm::enumerate(spec.outputs))
    if (elements[i])
      storeOutput(i, elements[i]);
}

void KernelEmitter::storeOutput(size_t number, Value element) {
  const KernelOperand &output = spec.outputs[number];
  store(pointers[spec.operands.size() + number], linear(output.offset, output.strides),
        output.type, element);
}

llvm::SmallVector<bool> KernelEmitter::variesAlongRow() const {
  llvm::SmallVector<bool> varies(spec.nodes.size(), false);
  auto alongRow = [&](const KernelOperand &operand) {
    return llvm::any_of(
        llvm::ArrayRef(operand.strides).take_back(static_cast<size_t>(spec.rowDims)),
        [](int64_t stride) { return stride != 0; });
  };
  for (auto [i, n] : llvm::enumerate(spec.nodes)) {
    if (n.kind == KernelNode::Load)
      varies[i] = alongRow(spec.operands[static_cast<size_t>(n.operand)]);
    else if (n.kind == KernelNode::Payload)
      varies[i] =
          llvm::any_of(n.args, [&](int arg) { return varies[static_cast<size_t>(arg)]; });
    else if (n.kind == KernelNode::Row)
      varies[i] = !kernelFactsOf(n.op).reducesRow;
    else
      varies[i] = n.kind != KernelNode::Constant;
  }
  return varies;
}

void KernelEmitter::reduceRows(llvm::ArrayRef<Reduction> list) {
  for (const Reduction &reduction : list) {
    Value result = reduceRow(reduction.neutral, reduction.element, reduction.combine);
    define(reduction.number, [result] { return result; });
  }
}

void KernelEmitter::emitRows() {
  rowValues.clear();
  llvm::SmallVector<bool> isEmitted(spec.nodes.size(), false);
  while (true) {
    // Nodes that need a Row node whose program is not there yet.
    llvm::SmallVector<bool> waits(spec.nodes.size(), false);
    SmallVector<int> ready;
    for (auto [i, n] : llvm::enumerate(spec.nodes)) {
      waits[i] =
          llvm::any_of(n.args, [&](int arg) { return waits[static_cast<size_t>(arg)]; });
      auto number = static_cast<int>(i);
      if (n.kind != KernelNode::Row || isEmitted[i] || isDefined(number))
        continue;
      if (!waits[i])
        ready.push_back(number);
      waits[i] = true;
    }
    keepPerRow();
    if (ready.empty())
      return;
    for (int number : ready) {
      isEmitted[static_cast<size_t>(number)] = true;
      cast<RowOpInterface>(node(number).op).emitRow(*this, number);
    }
    if (!reductions.empty())
      reduceRows(std::exchange(reductions, {}));
  }
}

void KernelEmitter::rowBody() {
  if (spec.rowDims == 0 && spec.rowElements() == 1 &&
      llvm::none_of(spec.nodes,
                    [](const KernelNode &n) { return n.kind == KernelNode::Row; }))
    return storeOutputs(false);
  emitRows();
  for (size_t i = 0; i < spec.nodes.size(); ++i)
    if (changesInPlace(static_cast<int>(i)))
      return;
  if (llvm::any_of(spec.outputs, [](const KernelOperand &o) { return !o.perRow; }))
    mapFirst(spec.storedPoints < 0 ? rowElements() : spec.storedPoints,
             [&] { storeOutputs(false); });
  oncePerRow([&] { storeOutputs(true); });
}

void KernelEmitter::emitAllChecks() {
  for (auto [i, n] : llvm::enumerate(spec.nodes))
    if (isChecked(n) && n.kind == KernelNode::Row)
      cast<RowOpInterface>(n.op).emitChecks(*this, static_cast<int>(i));
    else if (isChecked(n))
      cast<IndexedOpInterface>(n.op).emitChecks(*this, static_cast<int>(i));
}

void KernelEmitter::checkIndices(int number, size_t which,
                                 llvm::function_ref<Value(ValueRange)> sizeOf) {
  int operand = node(number).reads[which];
  const View &view = spec.operands[static_cast<size_t>(operand)].view;
  // In the order of memory.
  auto strideOf = [&](size_t d) {
    return view.dims[d].empty() ? int64_t(0) : view.dims[d].back().stride;
  };
  SmallVector<size_t> order(view.dims.size());
  std::iota(order.begin(), order.end(), size_t(0));
  llvm::sort(order, [&](size_t a, size_t b) {
    return std::pair(-strideOf(a), a) < std::pair(-strideOf(b), b);
  });
  Shape shape = view.shape(), ordered;
  for (size_t d : order)
    ordered.push_back(shape[d]);
  checkLoop(ordered, [&](ValueRange place) {
    SmallVector<Value> at(place.size());
    for (auto [d, coordinate] : llvm::zip_equal(order, place))
      at[d] = coordinate;
    Value index = loadAt(operand, at), size = sizeOf(at);
    if (index.getType().getIntOrFloatBitWidth() < 64)
      index = arith::ExtSIOp::create(builder, location, builder.getI64Type(), index);
    // -size … size-1 is 0 … 2·size-1, to which a larger or smaller one does not come.
    Value moved = arith::AddIOp::create(builder, location, index, size);
    Value both = arith::AddIOp::create(builder, location, size, size);
    Value isOutside =
        arith::CmpIOp::create(builder, location, arith::CmpIPredicate::uge, moved, both);
    auto branch = scf::IfOp::create(builder, location, isOutside, /*withElse=*/false);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&branch.getThenRegion().front());
    leaveWord(number, index, size);
  });
}

void KernelEmitter::onlyIf(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(builder, location, condition, /*withElse=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&branch.getThenRegion().front());
  scopes.emplace_back();
  body();
  scopes.pop_back();
}

/// The members of partita_status, unless there is a finding already.
void KernelEmitter::leaveWord(int number, Value index, Value size) {
  Type i64 = builder.getI64Type();
  auto member = [&](int32_t at) -> Value {
    return LLVM::GEPOp::create(builder, location, status.getType(), i64, status,
                               ArrayRef<LLVM::GEPArg>{at});
  };
  auto branch =
      scf::IfOp::create(builder, location, claimStatus(status), /*withElse=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&branch.getThenRegion().front());
  auto before = ArrayRef(spec.nodes).take_front(static_cast<size_t>(number));
  Value values[] = {integer(PARTITA_STATUS_INDEX), index, size,
                    integer(llvm::count_if(before, isChecked))};
  for (auto [i, value] : llvm::enumerate(values))
    LLVM::StoreOp::create(builder, location, value, member(static_cast<int32_t>(i)));
}

func::FuncOp KernelEmitter::beginFunction(StringRef name, ArrayRef<Type> more) {
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  size_t count =
      spec.operands.size() + spec.outputs.size() + (spec.scratchBytes != 0 ? 1 : 0);
  bool hasScalars = spec.numScalars != 0, checks = llvm::any_of(spec.nodes, isChecked);
  SmallVector<Type> types(count + hasScalars + checks, pointer);
  llvm::append_range(types, more);
  auto function =
      func::FuncOp::create(builder, location, name, builder.getFunctionType(types, {}));
  for (unsigned i = 0; i < count; ++i) {
    function.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(),
                        builder.getUnitAttr());
    function.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                        builder.getI64IntegerAttr(PARTITA_BUFFER_ALIGNMENT));
  }
  Block *block = function.addEntryBlock();
  pointers.assign(block->args_begin(), block->args_end());
  pointers.truncate(types.size() - more.size());
  if (checks)
    status = pointers.pop_back_val();
  if (hasScalars)
    scalars = pointers.pop_back_val();
  // One pointer for both: the compiler must know that they are the same.
  for (auto [i, operand] : llvm::enumerate(spec.operands))
    if (operand.output >= 0)
      pointers[i] = pointers[spec.operands.size() + static_cast<size_t>(operand.output)];
  point.assign(spec.domain.size(), nullptr);
  return function;
}
