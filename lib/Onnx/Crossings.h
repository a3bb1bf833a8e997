//===- Crossings.h - Nodes that send and receive ----------------*- C++ -*-===//
#ifndef PARTITA_LIB_ONNX_CROSSINGS_H
#define PARTITA_LIB_ONNX_CROSSINGS_H

#include "partita/Base/Error.h"
#include "partita/Onnx/Model.h"

#include <string>
#include <string_view>
#include <vector>

namespace partita::onnx_model {

/// Tells whether two tensors have one type, shape and bytes.
bool isEqual(const Tensor &a, const Tensor &b);

/// Tells whether the node is a Send or Receive (`op`) between ranks of several programs.
bool isCrossing(const Node &node, std::string_view op);

/// An error that names the model's file and the node.
Error errorAt(const Model &model, const Node &node, const std::string &what);

/// The name of the value that a Send or Receive is about; an error if the node has none,
/// or not one output, or is a Send without its one input.
Expected<std::string> crossingValue(const Model &model, const Node &node);

/// The type and shape that a Receive says, without a name.
Expected<ValueInfo> receivedType(const Model &model, const Node &node);

/// An error if the node's list `ranks`, which it need not have, has others than `wanted`,
/// those at the other end, which "send" or "receive" (`what`).
Expected<void> checkOtherEnd(const Model &model, const Node &node,
                             std::vector<int64_t> wanted, const char *what);

} // namespace partita::onnx_model

#endif // PARTITA_LIB_ONNX_CROSSINGS_H
