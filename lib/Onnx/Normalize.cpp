//===- Normalize.cpp - One canonical form per operator: the driver --------===//
#include "Normalizer.h"

#include <cstring>

using namespace partita;
using namespace partita::onnx_model;

const std::unordered_map<std::string, Normalizer::Rule> &Normalizer::rules() {
  using N = Normalizer;
  static const std::unordered_map<std::string, Rule> table = {
      {"ReduceSum", &N::reduce},
      {"ReduceMean", &N::reduce},
      {"ReduceMax", &N::reduce},
      {"ReduceMin", &N::reduce},
      {"ReduceProd", &N::reduce},
      {"ReduceL1", &N::composedReduce},
      {"ReduceL2", &N::composedReduce},
      {"ReduceLogSum", &N::composedReduce},
      {"ReduceSumSquare", &N::composedReduce},
      {"ReduceLogSumExp", &N::logSumExp},
      {"Sum", &N::variadic},
      {"Mean", &N::variadic},
      {"Max", &N::variadic},
      {"Min", &N::variadic},
      {"Squeeze", &N::squeeze},
      {"Unsqueeze", &N::squeeze},
      {"Split", &N::split},
      {"DFT", &N::dft},
      {"Slice", &N::slice},
      {"Pad", &N::pad},
      {"Resize", &N::resize},
      {"Upsample", &N::upsample},
      {"Reshape", &N::reshape},
      {"Shape", &N::shapeOf},
      {"Transpose", &N::transpose},
      {"TopK", &N::topK},
      {"Scatter", &N::scatter},
      {"Softmax", &N::softmax},
      {"LogSoftmax", &N::softmax},
      {"Hardmax", &N::softmax},
      {"Dropout", &N::dropout},
      {"BatchNormalization", &N::batchNormalization},
      {"LayerNormalization", &N::dropUnusedOutputs},
      {"Clip", &N::clip},
      {"Conv", &N::convolution},
      {"ConvTranspose", &N::convolution},
      {"MaxPool", &N::pool},
      {"AveragePool", &N::pool},
      {"LpPool", &N::pool},
      {"RoiAlign", &N::roiAlign},
  };
  return table;
}

Normalizer::Normalizer(Graph &graph, Types types)
    : graph(graph), source(graph.nodes), types(std::move(types)) {
  for (const Node &node : source)
    for (const std::string &output : node.outputs)
      producers[output] = &node;
  for (size_t i = 0; i < graph.initializers.size(); ++i) {
    constants[graph.initializers[i].name] = i;
    valueNames.reserve(graph.initializers[i].name);
  }
  for (const ValueInfo &input : graph.inputs)
    valueNames.reserve(input.name);
  used.insert(graph.outputs.begin(), graph.outputs.end());
  for (const auto &[initializer, value] : graph.updates)
    used.insert(value);
  for (const Node &node : graph.nodes) {
    nodeNames.reserve(node.name);
    for (const std::string &output : node.outputs)
      valueNames.reserve(output);
    used.insert(node.inputs.begin(), node.inputs.end());
  }
}

Expected<void> Normalizer::run() {
  std::vector<Node> nodes = std::move(graph.nodes);
  // Sources come first, so each step of this walk finds its operands' ranks noted: the
  // recursion of rank() stays one deep, however deep the model is.
  for (const Node &node : source)
    for (const std::string &output : node.outputs)
      rank(output);
  for (Node &node : nodes) {
    auto rule = rules().find(node.opType);
    if (!node.domain.empty() || rule == rules().end()) {
      emit(std::move(node));
      continue;
    }
    if (auto done = (this->*rule->second)(std::move(node)); !done)
      return done;
  }
  removeIdentities();
  graph.nodes = std::move(out);
  return {};
}

/// Users of an Identity read its operand. One that computes an output of the graph stays:
/// the name must.
void Normalizer::removeIdentities() {
  std::unordered_set<std::string> outputs(graph.outputs.begin(), graph.outputs.end());
  for (const auto &[initializer, value] : graph.updates)
    outputs.insert(value);
  std::unordered_map<std::string, std::string> source;
  std::erase_if(out, [&](Node &node) {
    for (std::string &input : node.inputs)
      if (auto it = source.find(input); it != source.end())
        input = it->second;
    if (node.opType != "Identity" || !node.domain.empty() ||
        outputs.contains(node.outputs[0]))
      return false;
    source[node.outputs[0]] = node.inputs[0];
    graph.aliases.emplace_back(node.outputs[0], node.inputs[0]);
    if (node.origin != node.outputs[0])
      graph.aliases.emplace_back(node.origin, node.inputs[0]);
    return true;
  });
}

Expected<void> onnx_model::normalizeGraph(Graph &graph, Types types) {
  return Normalizer(graph, std::move(types)).run();
}

Node &Normalizer::helper(const Node &from, const std::string &op,
                         std::vector<std::string> inputs) {
  Node node;
  node.name = nodeNames.take(from.name + "/" + op);
  node.origin = from.origin;
  node.opType = op;
  node.sinceVersion = from.sinceVersion;
  node.inputs = std::move(inputs);
  node.outputs = {valueNames.take(node.name)};
  out.push_back(std::move(node));
  return out.back();
}

std::string Normalizer::emitHelper(const Node &from, const std::string &op,
                                   std::vector<std::string> inputs) {
  return helper(from, op, std::move(inputs)).outputs[0];
}

std::string Normalizer::constant(const Node &from, const std::string &what,
                                 HostTensor values) {
  std::string name = valueNames.take(from.name + "/" + what);
  types[name] = TypeInfo{values.type, values.shape};
  constants[name] = graph.initializers.size();
  graph.initializers.push_back(memoryTensor(name, std::move(values)));
  return name;
}

std::string Normalizer::intsConstant(const Node &from, const std::string &what,
                                     const std::vector<int64_t> &values) {
  HostTensor tensor =
      HostTensor::zeros(DType::I64, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data<int64_t>());
  return constant(from, what, std::move(tensor));
}

std::string Normalizer::scalarConstant(const Node &from, const std::string &what,
                                       double value, const std::string &like) {
  HostTensor tensor = HostTensor::zeros(typeOf(like), {});
  auto store = [&](auto number) {
    std::memcpy(tensor.bytes.data(), &number, sizeof(number));
  };
  switch (tensor.type) {
  case DType::F32:
    store(static_cast<float>(value));
    break;
  case DType::F64:
    store(value);
    break;
  case DType::F16:
    store(floatToHalf(static_cast<float>(value)));
    break;
  case DType::BF16:
    store(floatToBfloat16(static_cast<float>(value)));
    break;
  default: {
    // Little-endian: the low bytes are the value in every integer width.
    auto number = static_cast<int64_t>(value);
    std::memcpy(tensor.bytes.data(), &number, tensor.bytes.size());
  }
  }
  return constant(from, what, std::move(tensor));
}

void Normalizer::attributeToInput(Node &node, const std::string &key, size_t index) {
  auto values = take<std::vector<int64_t>>(node, key);
  if (!values)
    return;
  if (node.inputs.size() <= index)
    node.inputs.resize(index + 1);
  node.inputs[index] = intsConstant(node, key, *values);
}

const Tensor *Normalizer::findConstant(const std::string &name) const {
  auto it = constants.find(name);
  return it == constants.end() ? nullptr : &graph.initializers[it->second];
}

bool Normalizer::isEmptyConstant(const Node &node, size_t index) const {
  if (!node.hasInput(index))
    return false;
  const Tensor *tensor = findConstant(node.inputs[index]);
  return tensor && elementCount(tensor->shape) == 0;
}

const std::vector<int64_t> *Normalizer::shape(const std::string &name) const {
  auto it = types.find(name);
  return it == types.end() || !it->second.shape ? nullptr : &*it->second.shape;
}

DType Normalizer::typeOf(const std::string &name) const {
  auto it = types.find(name);
  return it == types.end() ? DType::F32 : it->second.type;
}

tl::unexpected<Error> Normalizer::error(const Node &node,
                                        const std::string &message) const {
  return makeError("node '" + node.name + "' (" + node.opType + "): " + message);
}
