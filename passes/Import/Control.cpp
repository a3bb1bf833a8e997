//===- Control.cpp - Branches and loops that the loader left --------------===//
//
// The loader has read branches and unrolls loops whose length it knows. What is left has
// a length that is not known: a constant that import has found meanwhile comes too late,
// but an input can be bound.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Compose.h"
#include "passes/Import/InputBehind.h"

using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// `what`: that which the input says.
static Expected<Values> refuse(Importer &importer, const Node &node, size_t input,
                               const std::string &what, const std::string &otherwise) {
  if (!node.hasInput(input))
    return makeError(otherwise);
  auto value = importer.requiredValue(node, input);
  if (value)
    return makeError(otherwise);
  std::string picture = pictureBehind(importer.input(node, input));
  if (picture.empty())
    return tl::unexpected(value.error());
  return makeError("input " + std::to_string(input) + " '" + node.inputs[input] +
                   "' says " + what +
                   ", follows from the numbers of the model's input '" + picture +
                   "', and cannot be known before it runs");
}

static Expected<Values> importIf(Importer &importer, const Node &node) {
  return refuse(importer, node, 0, "which branch runs",
                "an If whose branches give less than it does");
}

static Expected<Values> importLoop(Importer &importer, const Node &node) {
  if (auto done = refuse(importer, node, 0, "how often the loop runs", "");
      !done && !done.error().message.empty())
    return done;
  auto known = [&](size_t input) -> std::optional<int64_t> {
    if (!node.hasInput(input))
      return std::nullopt;
    auto value = importer.requiredValue(node, input);
    if (!value || value->size() != 1)
      return std::nullopt;
    return value->type == DType::I64 ? std::optional(value->data<int64_t>()[0])
           : value->type == DType::Bool
               ? std::optional(int64_t(value->bytes[0] != std::byte{}))
               : std::nullopt;
  };
  if (known(0).value_or(1) < 1 || known(1) == 0)
    return makeError("a Loop without an iteration, whose collected results have no rows");
  return refuse(importer, node, 1, "whether the loop goes on",
                "a Loop that may end early or has more than 1024 iterations");
}

static Expected<Values> importScan(Importer &, const Node &) {
  return makeError(
      "a Scan of unknown length, of more than 1024 iterations, or of opset 8");
}

void import::addControl(HandlerTable &table) {
  table["If"] = importIf;
  table["Loop"] = importLoop;
  table["Scan"] = importScan;
}
