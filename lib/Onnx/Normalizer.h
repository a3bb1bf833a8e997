//===- Normalizer.h - One canonical form per operator -----------*- C++ -*-===//
//
// Private to this folder. A rule rewrites one node of any version into the newest
// operator's form, or into simpler operators; docs/onnx-forms.md lists what comes out.
// ONNX's own version converter is not used: it drops annotations and knows fewer steps.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_ONNX_NORMALIZER_H
#define PARTITA_LIB_ONNX_NORMALIZER_H

#include "Internal.h"

#include <unordered_set>

namespace partita::onnx_model {

class Normalizer {
public:
  Normalizer(Graph &graph, Types types);
  Expected<void> run();

  using Rule = Expected<void> (Normalizer::*)(Node node);
  static const std::unordered_map<std::string, Rule> &rules();

private:
  // Reductions and variadic operators (NormalizeReduce.cpp).
  Expected<void> reduce(Node node);
  Expected<void> composedReduce(Node node);
  Expected<void> logSumExp(Node node);
  Expected<void> variadic(Node node);

  // Shapes and data movement (NormalizeShape.cpp).
  Expected<void> squeeze(Node node);
  Expected<void> split(Node node);
  Expected<void> dft(Node node);
  Expected<void> slice(Node node);
  Expected<void> pad(Node node);
  Expected<void> resize(Node node);
  Expected<void> upsample(Node node);
  Expected<void> reshape(Node node);
  Expected<void> shapeOf(Node node);
  Expected<void> transpose(Node node);
  Expected<void> topK(Node node);
  Expected<void> scatter(Node node);

  // Neural-network operators (NormalizeNN.cpp).
  Expected<void> softmax(Node node);
  Expected<void> dropout(Node node);
  Expected<void> batchNormalization(Node node);
  Expected<void> dropUnusedOutputs(Node node);
  Expected<void> clip(Node node);
  Expected<void> convolution(Node node);
  Expected<void> pool(Node node);
  Expected<void> roiAlign(Node node);
  void fillWindow(Node &node, size_t spatialRank);

  void removeIdentities();

  /// Appends a finished node.
  void emit(Node node) { out.push_back(std::move(node)); }
  /// A node that `from` stands for in part: "<from>/<op>", with one fresh output. The
  /// reference is valid until the next one is made.
  Node &helper(const Node &from, const std::string &op, std::vector<std::string> inputs);
  /// Appends a helper and returns its output.
  std::string emitHelper(const Node &from, const std::string &op,
                         std::vector<std::string> inputs);
  /// New constants; the name starts with the node's.
  std::string constant(const Node &from, const std::string &what, HostTensor values);
  std::string intsConstant(const Node &from, const std::string &what,
                           const std::vector<int64_t> &values);
  /// A scalar of the element type of `like` (f32 if unknown).
  std::string scalarConstant(const Node &from, const std::string &what, double value,
                             const std::string &like);
  /// Moves an integer-list attribute into input `index`, if it is there.
  void attributeToInput(Node &node, const std::string &key, size_t index);
  /// Removes an attribute and returns it, if it is there with this type.
  template <typename T> std::optional<T> take(Node &node, const std::string &key) {
    const T *value = node.attribute<T>(key);
    if (!value)
      return std::nullopt;
    T copy = *value;
    node.attributes.erase(key);
    return copy;
  }
  void setDefault(Node &node, const std::string &key, Attribute value) {
    node.attributes.try_emplace(key, std::move(value));
  }

  const Tensor *findConstant(const std::string &name) const;
  /// A constant without elements: how older opsets left an input out.
  bool isEmptyConstant(const Node &node, size_t index) const;
  /// The number of dims, from ONNX's inference or, where computed shapes stop that, from
  /// the operators on the way (Ranks.cpp).
  std::optional<size_t> rank(const std::string &name);
  std::optional<size_t> rankFrom(const Node &producer, size_t output);
  std::optional<size_t> vectorLength(const std::string &name) const;
  const std::vector<int64_t> *shape(const std::string &name) const;
  DType typeOf(const std::string &name) const;
  tl::unexpected<Error> error(const Node &node, const std::string &message) const;

  Graph &graph;
  /// The nodes as they came.
  const std::vector<Node> source;
  std::unordered_map<std::string, const Node *> producers;
  std::unordered_map<std::string, std::optional<size_t>> ranks;
  Types types;
  std::unordered_map<std::string, size_t> constants;
  std::unordered_set<std::string> used;
  UniqueNames nodeNames, valueNames;
  std::vector<Node> out;
};

} // namespace partita::onnx_model

#endif // PARTITA_LIB_ONNX_NORMALIZER_H
