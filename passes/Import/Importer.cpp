//===- Importer.cpp - What op imports work with ---------------------------===//
#include "passes/Import/Importer.h"

#include "dialects/Graph/SeenPairs.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Reference/Kernels.h"
#include "passes/Import/InputBehind.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <array>
#include <cstring>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// Folding stops here: larger results are computed when the model runs (or absorbed by
/// their user, like the transpose of a weight).
static constexpr int64_t maxFoldedElements = 1 << 22;
/// Masks of more elements than this are no constants.
static constexpr int64_t largeMask = 1 << 16;

Value Importer::input(const Node &node, size_t i) const {
  return node.hasInput(i) ? lookup(node.inputs[i]) : Value();
}

/// The head of a language model multiplies by the transpose of the token table. Folded,
/// it would be a second table, which a plan could split in another way than the first.
static bool isTransposeOfShared(Operation *op) {
  return isa<graph::TransposeOp>(op) &&
         op->getOperand(0).getDefiningOp<graph::WeightOp>() &&
         !op->getOperand(0).hasOneUse();
}

Expected<void> import::checkSize(RankedTensorType type) {
  auto bytes = byteCount(*dtypeOf(type.getElementType()), type.getShape().vec(), "");
  if (bytes && *bytes <= uint64_t(1) << 60)
    return {};
  std::string text;
  for (int64_t extent : type.getShape())
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return makeError("its result of shape [" + text + "] has more than 2^60 bytes");
}

/// Positions compared with positions: a mask of a sequence's length squared. Where it is
/// read, it takes less time to compute than to load, and no memory.
static bool isLargeMask(Operation *op) {
  if (!isa<graph::LessOp, graph::LessEqualOp, graph::GreaterOp, graph::GreaterEqualOp>(
          op))
    return false;
  auto elements = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getNumElements();
  };
  int64_t made = elements(op->getResult(0));
  return made > largeMask && llvm::all_of(op->getOperands(), [&](Value operand) {
           return elements(operand) <= made / 64;
         });
}

Expected<Values> Importer::foldOrKeep(Operation *op) {
  int64_t elements = 0;
  for (Value result : op->getResults()) {
    auto type = cast<RankedTensorType>(result.getType());
    if (auto ok = checkSize(type); !ok) {
      op->erase();
      return tl::unexpected(ok.error());
    }
    elements = std::max(elements, type.getNumElements());
  }
  Values kept(op->result_begin(), op->result_end());
  bool foldable = true;
  for (Value operand : op->getOperands()) {
    Operation *from = operand.getDefiningOp();
    foldable &= from && isa<graph::ConstantOp, graph::WeightOp>(from);
    elements =
        std::max(elements, cast<RankedTensorType>(operand.getType()).getNumElements());
  }
  if (!foldable || elements > maxFoldedElements || isTransposeOfShared(op) ||
      isLargeMask(op))
    return kept;
  if (llvm::any_of(op->getOperands(), [&](Value v) { return isExternal(v); }))
    return foldExternal(op);
  std::vector<HostTensor> tensors;
  for (Value operand : op->getOperands()) {
    auto value = constantValue(operand);
    if (!value)
      return kept;
    tensors.push_back(std::move(*value));
  }
  std::vector<const HostTensor *> operands;
  for (const HostTensor &tensor : tensors)
    operands.push_back(&tensor);
  auto folded = cast<EvaluateOpInterface>(op).evaluate(operands);
  if (!folded)
    return tl::unexpected(folded.error());
  op->erase();
  Values values;
  for (const HostTensor &tensor : *folded)
    values.push_back(constant(tensor, nodeName + "/folded"));
  return values;
}

bool Importer::isExternal(Value value) const {
  auto weight = value.getDefiningOp<graph::WeightOp>();
  return weight && external.contains(weight.getName());
}

/// The results are weights, whatever their values would be: what the program is must not
/// depend on whether they are at hand.
Expected<Values> Importer::foldExternal(Operation *op) {
  std::vector<HostTensor> tensors;
  std::vector<const HostTensor *> operands;
  for (Value operand : op->getOperands())
    if (auto value = constantValue(operand))
      tensors.push_back(std::move(*value));
  for (const HostTensor &tensor : tensors)
    operands.push_back(&tensor);
  std::vector<HostTensor> folded;
  if (operands.size() == op->getNumOperands()) {
    auto results = cast<EvaluateOpInterface>(op).evaluate(operands);
    if (!results)
      return tl::unexpected(results.error());
    folded = std::move(*results);
  }
  Values values;
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    auto type = cast<RankedTensorType>(result.getType());
    onnx_model::Tensor entry;
    entry.type = *dtypeOf(type.getElementType());
    entry.shape = type.getShape().vec();
    if (!folded.empty()) {
      auto owner = std::make_shared<std::vector<std::byte>>(std::move(folded[i].bytes));
      entry.bytes = *owner;
      entry.owner = owner;
    }
    values.push_back(addWeight(std::move(entry), nodeName + "/folded"));
    external.insert(values.back().getDefiningOp<graph::WeightOp>().getName());
  }
  op->erase();
  return values;
}

/// The value of an op of one result.
static Expected<Value> only(Expected<Values> values) {
  if (!values)
    return tl::unexpected(values.error());
  assert(values->size() == 1 && "an op of several results is emitted by emitAll");
  return values->front();
}

Expected<Value> Importer::emit(StringRef op, ValueRange operands,
                               ArrayRef<NamedAttribute> attrs) {
  return only(emitAll(op, operands, attrs));
}

Expected<Values> Importer::emitAll(StringRef op, ValueRange operands,
                                   ArrayRef<NamedAttribute> attrs) {
  auto created = graph::createInferred(builder, location, op, operands, attrs);
  if (!created)
    return tl::unexpected(created.error());
  return hasCounts(*created) ? followCounts(*created) : foldOrKeep(*created);
}

Expected<Value> Importer::emitShaped(StringRef op, ValueRange operands,
                                     const Shape &shape, ArrayRef<NamedAttribute> attrs) {
  auto created = graph::createShaped(builder, location, op, operands, shape, attrs);
  if (!created)
    return tl::unexpected(created.error());
  return only(hasCounts(*created) ? followCounts(*created) : foldOrKeep(*created));
}

Expected<Value> Importer::reshape(Value value, const Shape &shape) {
  if (shapeOf(value) == shape)
    return value;
  return emitShaped("graph.reshape", value, shape);
}

Value Importer::constant(const HostTensor &tensor, const std::string &name) {
  auto attr = graph::toAttribute(builder.getContext(), tensor);
  if (tensor.size() <= maxConstantElements || attr.isSplat())
    return graph::ConstantOp::create(builder, location, attr);
  return weight(tensor, name);
}

/// The first number and the step of integers along one dim that ascend or descend evenly.
static std::optional<std::array<int64_t, 2>> progressionOf(const HostTensor &tensor) {
  const int64_t size = elementCount(tensor.shape);
  if (tensor.type != DType::I64 || size < 2 ||
      std::ranges::count(tensor.shape, 1) + 1 !=
          static_cast<int64_t>(tensor.shape.size()))
    return std::nullopt;
  const std::vector<int64_t> numbers = reference::values<int64_t>(tensor);
  const int64_t step = numbers[1] - numbers[0];
  for (size_t i = 1; i < numbers.size(); ++i)
    if (numbers[i] - numbers[i - 1] != step)
      return std::nullopt;
  return std::array{numbers[0], step};
}

Value Importer::weight(const HostTensor &tensor, const std::string &name) {
  auto owner = std::make_shared<std::vector<std::byte>>(tensor.bytes);
  Value made = addWeight({"", tensor.type, tensor.shape, "", 0, *owner, owner}, name);
  if (auto progression = progressionOf(tensor))
    made.getDefiningOp()->setAttr(graph::detail::progressionAttr,
                                  builder.getDenseI64ArrayAttr(*progression));
  return made;
}

Value Importer::addWeight(onnx_model::Tensor tensor, const std::string &name) {
  std::string unique = name;
  for (int i = 2; weights.count(unique); ++i)
    unique = name + "_" + std::to_string(i);
  tensor.name = unique;
  Type type = tensorType(builder.getContext(), tensor.type, tensor.shape);
  weights.emplace(unique, std::move(tensor));
  return graph::WeightOp::create(builder, location, type, builder.getStringAttr(unique));
}

Value Importer::initializer(const onnx_model::Tensor &tensor, bool isExternal) {
  if (elementCount(tensor.shape) <= maxConstantElements && !isExternal) {
    HostTensor host{tensor.type, tensor.shape, {}};
    host.bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
    return constant(host, tensor.name);
  }
  if (isExternal)
    external.insert(tensor.name);
  return addWeight(tensor, tensor.name);
}

Value Importer::derivedWeight(Value from, RankedTensorType type,
                              llvm::function_ref<HostTensor(const HostTensor &)> make) {
  onnx_model::Tensor entry;
  entry.type = *dtypeOf(type.getElementType());
  entry.shape = type.getShape().vec();
  if (auto known = constantValue(from)) {
    auto owner = std::make_shared<std::vector<std::byte>>(make(*known).bytes);
    entry.bytes = *owner;
    entry.owner = owner;
  }
  Value made = addWeight(std::move(entry), nodeName + "/packed");
  if (isExternal(from))
    external.insert(made.getDefiningOp<graph::WeightOp>().getName());
  return made;
}

Value Importer::knownWeight(StringRef name) {
  const onnx_model::Tensor &tensor = weights.find(name.str())->second;
  return graph::WeightOp::create(
      builder, location, tensorType(builder.getContext(), tensor.type, tensor.shape),
      builder.getStringAttr(name));
}

void Importer::keepWeight(const onnx_model::Tensor &tensor) {
  weights.emplace(tensor.name, tensor);
}

Value Importer::scalar(Type elementType, double value) {
  return constant(reference::tensor<double>(*dtypeOf(elementType), {}, {value}), "");
}

Value Importer::empty(RankedTensorType type) {
  return graph::ConstantOp::create(builder, location,
                                   DenseElementsAttr::get(type, ArrayRef<Attribute>()));
}

std::optional<HostTensor> Importer::constantValue(Value value) const {
  Operation *op = value ? value.getDefiningOp() : nullptr;
  if (auto constant = dyn_cast_or_null<graph::ConstantOp>(op))
    return constant.getValue().getNumElements() > maxFoldedElements
               ? std::nullopt // uniform, and too many to write out
               : std::optional(graph::toHostTensor(constant.getValue()));
  auto weight = dyn_cast_or_null<graph::WeightOp>(op);
  if (!weight)
    return std::nullopt;
  auto it = weights.find(weight.getName().str());
  if (it == weights.end())
    return std::nullopt;
  const onnx_model::Tensor &tensor = it->second;
  HostTensor result = HostTensor::zeros(tensor.type, tensor.shape);
  if (tensor.bytes.size() != result.bytes.size())
    return std::nullopt;
  std::memcpy(result.bytes.data(), tensor.bytes.data(), result.bytes.size());
  return result;
}

bool Importer::knows(Value value) {
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<graph::ConstantOp, graph::WeightOp>(op) || sizes.read(value);
}

static bool isReal(BlockArgument argument) {
  return isa<FloatType>(getElementTypeOrSelf(argument.getType()));
}

static std::string nameOf(BlockArgument argument) {
  auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto name =
      function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "graph.name");
  return name ? name.str() : "";
}

/// The first input that a value depends on, integers before all others, for
/// tensors of numbers do not say how a program looks.
static BlockArgument inputBehind(Value value) {
  SmallVector<Value> work = {value};
  llvm::SmallDenseSet<Value> seen;
  BlockArgument found;
  auto rank = [](BlockArgument argument) {
    return std::pair(isReal(argument), argument.getArgNumber());
  };
  while (!work.empty()) {
    Value at = work.pop_back_val();
    if (!at || !seen.insert(at).second)
      continue;
    // What the body of a loop sees is no input of the model.
    auto argument = dyn_cast<BlockArgument>(at);
    if (argument && !nameOf(argument).empty() && (!found || rank(argument) < rank(found)))
      found = argument;
    if (Operation *op = at.getDefiningOp())
      llvm::append_range(work, op->getOperands());
  }
  return found;
}

std::string import::pictureBehind(Value value) {
  BlockArgument found = value ? inputBehind(value) : BlockArgument();
  return found && isReal(found) && found != value ? nameOf(found) : "";
}

/// How a value that depends on inputs could become a constant.
static std::string boundBy(Value value) {
  BlockArgument found = inputBehind(value);
  if (!found)
    return "";
  std::string name = nameOf(found);
  return "; it depends on the model's input '" + name + "', which --const " + name +
         "=FILE.npy binds";
}

Expected<HostTensor> Importer::requiredValue(const Node &node, size_t i) const {
  Value operand = input(node, i);
  if (auto value = constantValue(operand))
    return std::move(*value);
  std::string what = "input " + std::to_string(i) + " '" +
                     (i < node.inputs.size() ? node.inputs[i] : "") + "'";
  if (operand && isExternal(operand))
    return makeError(what + " must be known at compile time, and its external data is"
                            " not there");
  return makeError(what + " must be known at compile time" + boundBy(operand));
}

Expected<std::vector<int64_t>> Importer::constantIntegers(const Node &node,
                                                          size_t i) const {
  auto value = requiredValue(node, i);
  if (!value)
    return tl::unexpected(value.error());
  return reference::values<int64_t>(*value);
}

int64_t import::intAttr(const Node &node, std::string_view name, int64_t fallback) {
  const auto *value = node.attribute<int64_t>(name);
  return value ? *value : fallback;
}
double import::floatAttr(const Node &node, std::string_view name, double fallback) {
  const auto *value = node.attribute<float>(name);
  return value ? *value : fallback;
}
std::string import::stringAttr(const Node &node, std::string_view name,
                               const std::string &fallback) {
  const auto *value = node.attribute<std::string>(name);
  return value ? *value : fallback;
}
std::vector<int64_t> import::intsAttr(const Node &node, std::string_view name,
                                      std::vector<int64_t> fallback) {
  const auto *value = node.attribute<std::vector<int64_t>>(name);
  return value ? *value : std::move(fallback);
}

Expected<Values> import::single(Expected<Value> value) {
  if (!value)
    return tl::unexpected(value.error());
  return Values{*value};
}
