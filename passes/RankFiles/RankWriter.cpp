//===- RankWriter.cpp - ONNX nodes of one rank's program ------------------===//
#include "passes/RankFiles/RankWriter.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Compute.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Base/Layout/Reshard.h"
#include "partita/Reference/Kernels.h"

#include "llvm/ADT/StringExtras.h"

#include <cstring>

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;
using onnx_model::Tensor;

int64_t rank_files::fromFront(uint64_t axis, Value value) {
  const auto d = static_cast<int64_t>(axis);
  return d < 0 ? d + static_cast<int64_t>(shapeOf(value).size()) : d;
}

DType rank_files::typeOf(Value value) {
  return *dtypeOf(getElementTypeOrSelf(value.getType()));
}

HostTensor rank_files::neutralScalar(DType type, ReduceKind kind) {
  HostTensor tensor = HostTensor::zeros(type, {});
  fillNeutral(tensor, kind);
  return tensor;
}

HostTensor rank_files::vectorOf(const std::vector<int64_t> &values) {
  return reference::tensor<int64_t>(DType::I64, {static_cast<int64_t>(values.size())},
                                    values);
}

HostTensor rank_files::boolsOf(const std::vector<bool> &values,
                               std::vector<int64_t> shape) {
  HostTensor tensor = HostTensor::zeros(DType::Bool, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i)
    tensor.bytes[i] = std::byte{values[i]};
  return tensor;
}

std::string RankWriter::fail(std::string message) {
  if (!error)
    error = Error{.message = "'" + current + "' " + std::move(message)};
  return "";
}

//===-- Names -------------------------------------------------------------===//

void RankWriter::begin(Operation *op) {
  current = dist::nodeName(op);
  written = op;
}

void RankWriter::begin(std::string name) {
  current = std::move(name);
  written = nullptr;
}

std::string RankWriter::reserve(const std::string &wanted) {
  std::string name = wanted;
  for (int number = 2; !taken.insert(name).second; ++number)
    name = wanted + "_" + std::to_string(number);
  return name;
}

std::string RankWriter::name(Value value) {
  // Written where it is read first: whoever reads a part may write that alone.
  Operation *op = value.getDefiningOp();
  if (op && isa<graph::WeightOp, graph::ConstantOp>(op))
    return source(op);
  return values.lookup(value);
}

Names RankWriter::names(ValueRange list) {
  Names result;
  for (Value value : list)
    result.push_back(name(value));
  return result;
}

void RankWriter::define(Value value, std::string name) {
  values[value] = std::move(name);
}

//===-- Nodes -------------------------------------------------------------===//

/// Tells whether a name ends as a node of this operator is called: "fc1/MatMul", "Add_2".
static bool endsAs(StringRef name, StringRef op) {
  name = name.substr(name.rfind('/') + 1);
  return name.consume_front(op) &&
         (name.empty() || (name.consume_front("_") && !name.empty() &&
                           llvm::all_of(name, [](char c) { return llvm::isDigit(c); })));
}

Names RankWriter::nodes(StringRef op, size_t outputs, Names inputs, Attributes attributes,
                        StringRef domain) {
  onnx_model::Node node;
  const std::string name = part + current;
  node.name = node.origin = reserve(endsAs(name, op) ? name : name + "/" + op.str());
  node.opType = op.str();
  node.domain = domain.str();
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  // A node's name says where it comes from. Values are read several times, and long names
  // of them would be most of a small file.
  for (size_t i = 0; i < outputs; ++i)
    node.outputs.push_back(reserve(op.str() + "_" + std::to_string(++made[op])));
  model.graph.nodes.push_back(std::move(node));
  return model.graph.nodes.back().outputs;
}

std::string RankWriter::node(StringRef op, Names inputs, Attributes attributes,
                             StringRef domain) {
  return nodes(op, 1, std::move(inputs), std::move(attributes), domain).front();
}

std::string RankWriter::laterNode(int since, StringRef op, Names inputs,
                                  Attributes attributes) {
  std::string output = node(op, std::move(inputs), std::move(attributes));
  model.graph.nodes.back().sinceVersion = since;
  return output;
}

//===-- Initializers ------------------------------------------------------===//

std::string RankWriter::keep(Tensor tensor, const std::string &wanted) {
  tensor.name = reserve(wanted);
  tensor.isInitializer = true;
  model.graph.initializers.push_back(std::move(tensor));
  return model.graph.initializers.back().name;
}

std::string RankWriter::initializer(const HostTensor &tensor, const std::string &wanted) {
  auto kept = std::make_shared<HostTensor>(tensor);
  Tensor made;
  made.type = kept->type;
  made.shape = kept->shape;
  made.bytes = kept->bytes;
  made.owner = kept;
  return keep(std::move(made), wanted);
}

std::string RankWriter::common(const HostTensor &tensor) {
  std::string key(partita::name(tensor.type));
  for (int64_t extent : tensor.shape)
    key += "," + std::to_string(extent);
  key += ":" + std::string(reinterpret_cast<const char *>(tensor.bytes.data()),
                           tensor.bytes.size());
  std::string &slot = constants[key];
  if (slot.empty())
    slot = initializer(tensor, "constant");
  return slot;
}

std::string RankWriter::ownOfRank(const HostTensor &tensor) {
  const std::string wanted = part + current + "/of_rank";
  if (!written || part.empty())
    return initializer(tensor, wanted);
  // The same op asks for the same in every part of a step.
  std::string &slot = own[{written, asked[{part, written}]++}];
  if (slot.empty())
    slot = initializer(tensor, wanted);
  return slot;
}

std::string RankWriter::ints(const std::vector<int64_t> &list) {
  return common(vectorOf(list));
}

std::string RankWriter::scalar(DType type, double value) {
  return common(reference::tensor<double>(type, {}, {value}));
}

std::string RankWriter::constant(Operation *op) {
  auto elements = cast<graph::ConstantOp>(op).getValue();
  constexpr int64_t maxWritten = 64;
  if (!elements.isSplat() || elements.getNumElements() <= maxWritten)
    return common(graph::toHostTensor(elements));
  HostTensor one = graph::toHostTensor(
      cast<ElementsAttr>(cast<DenseElementsAttr>(elements).resizeSplat(
          cast<RankedTensorType>(elements.getType()).clone(ArrayRef<int64_t>{1}))));
  one.shape = {};
  return node("Expand", {common(one), ints(shapeOf(op->getResult(0)))});
}

std::string RankWriter::weight(Operation *op) {
  auto weight = cast<graph::WeightOp>(op);
  auto found = weights(weight.getName());
  if (!found)
    return fail(found.error().message);
  const Tensor &global = **found;
  const DType type = typeOf(op->getResult(0));
  dist::LayoutAttr layout = dist::sourceLayout(op);
  // Parts of a step have ops of their own for what is one weight.
  std::string &slot =
      slices[{weight.getName().str(), std::string(partita::name(type)) +
                                          (layout ? layout.getLayout().str(mesh) : "")}];
  if (!slot.empty())
    return slot;
  const bool isWhole = !layout || layout.getLayout().canonicalized() ==
                                      Layout::replicated(global.shape).canonicalized();
  if (isWhole && type == global.type) {
    Tensor whole = global;
    return slot = keep(std::move(whole), weight.getName().str());
  }
  const size_t width = byteWidth(global.type);
  HostTensor local = HostTensor::zeros(global.type, shapeOf(op->getResult(0)));
  if (isWhole)
    local.bytes.assign(global.bytes.begin(), global.bytes.end());
  else
    extractLocal(mesh, layout.getLayout(), rank, width, global.bytes.data(),
                 local.bytes.data());
  if (type != global.type) {
    local.bytes = narrowed(local.bytes, type);
    local.type = type;
  }
  return slot = initializer(local, weight.getName().str());
}

std::string RankWriter::source(Operation *op) {
  std::string &slot = sources[op];
  if (slot.empty())
    slot = isa<graph::WeightOp>(op) ? weight(op) : constant(op);
  return slot;
}

//===-- Movements ---------------------------------------------------------===//

std::string RankWriter::reshape(const std::string &x, const std::vector<int64_t> &shape) {
  // Zero is an extent here, and not that of the operand.
  Attributes attributes;
  if (llvm::is_contained(shape, 0))
    attributes["allowzero"] = int64_t(1);
  return node("Reshape", {x, ints(shape)}, std::move(attributes));
}

std::string RankWriter::transpose(const std::string &x,
                                  std::vector<int64_t> permutation) {
  return node("Transpose", {x}, {{"perm", std::move(permutation)}});
}

std::string RankWriter::castTo(const std::string &x, DType to) {
  return node("Cast", {x}, {{"to", int64_t(onnxNumber(to))}});
}

std::string RankWriter::slice(const std::string &x, int64_t d, int64_t from, int64_t to) {
  return node("Slice", {x, ints({from}), ints({to}), ints({d})});
}

std::string RankWriter::padBehind(const std::string &x,
                                  const std::vector<int64_t> &behind,
                                  const std::string &value) {
  std::vector<int64_t> pads(behind.size(), 0);
  pads.insert(pads.end(), behind.begin(), behind.end());
  return node("Pad", {x, ints(pads), value}, {{"mode", std::string("constant")}});
}
