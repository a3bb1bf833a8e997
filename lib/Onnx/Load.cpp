//===- Load.cpp - Reading ONNX models -------------------------------------===//
#include "Internal.h"

#include <exception>

using namespace partita;
using namespace partita::onnx_model;

std::set<std::string> onnx_model::defaultKeptOps() {
  return {// Pointwise: one op each, with a payload.
          "Clip", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "ThresholdedRelu",
          "Gelu", "HardSigmoid", "HardSwish", "Mish", "Softplus", "Softsign", "Swish",
          "GreaterOrEqual", "LessOrEqual",
          // Normalisations: kernels that are worth keeping whole.
          "Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization",
          // Its body is a Loop, which would only be worse.
          "Range",
          // The normaliser writes these in terms of ReduceSum, whatever the opset.
          "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"};
}

static Expected<Model> load(const std::string &path, const LoadOptions &options) {
  auto file = readModelFile(path);
  if (!file)
    return tl::unexpected(file.error());
  auto opsets = checkVersions(**file);
  if (!opsets)
    return tl::unexpected(opsets.error());
  auto fail = [&](const Error &error) {
    // Tensors say the file themselves: they may lie in another one.
    bool saysFile = error.message.starts_with("'" + path + "': ");
    return makeError(saysFile ? error.message : "'" + path + "': " + error.message);
  };
  onnx::ModelProto &proto = (*file)->proto;
  if (auto bound = bindShapes(proto, options.shapes); !bound)
    return fail(bound.error());
  auto expanded = expandFunctions(proto, *opsets, options.kept);
  if (!expanded)
    return fail(expanded.error());
  Types types = std::move(expanded->types);
  TensorReader reader(**file, options.weights);
  auto graph = convertGraph(**file, std::move(*expanded), reader);
  if (!graph)
    return fail(graph.error());
  if (auto sorted = sortGraph(*graph); !sorted)
    return fail(sorted.error());
  if (auto normal = normalizeGraph(*graph, std::move(types)); !normal)
    return fail(normal.error());
  // The normaliser leaves constants behind that nothing uses any more.
  if (auto sorted = sortGraph(*graph); !sorted)
    return fail(sorted.error());

  Model model;
  model.path = path;
  model.producer = proto.producer_name();
  if (!proto.producer_version().empty())
    model.producer += " " + proto.producer_version();
  model.irVersion = proto.ir_version();
  model.opsets = std::move(*opsets);
  model.graph = std::move(*graph);
  return model;
}

/// The bytes of the UTF-8 sequence at the front of `text`, 0 if it is none.
static size_t sequenceLength(std::string_view text) {
  auto lead = static_cast<unsigned char>(text[0]);
  size_t length = lead < 0x80                    ? 1
                  : lead >= 0xc2 && lead <= 0xdf ? 2
                  : lead >= 0xe0 && lead <= 0xef ? 3
                  : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                 : 0;
  if (length > text.size())
    return 0;
  for (size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80)
      return 0;
  return length;
}

/// Messages quote names from the file, and a broken file may have anything there: bytes
/// that would upset a terminal are written as \xNN, and what is too long is cut.
static std::string printable(std::string_view text) {
  constexpr size_t longest = 1000;
  std::string result;
  while (!text.empty() && result.size() < longest) {
    auto lead = static_cast<unsigned char>(text[0]);
    size_t length = sequenceLength(text);
    if (length == 0 || lead < 0x20 || lead == 0x7f) {
      static constexpr char digits[] = "0123456789abcdef";
      result += {'\\', 'x', digits[lead >> 4], digits[lead & 15]};
      length = 1;
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return text.empty() ? result : result + "…";
}

Expected<Model> onnx_model::loadModel(const std::string &path,
                                      const LoadOptions &options) {
  try {
    auto model = load(path, options);
    return model ? std::move(model) : makeError(printable(model.error().message));
  } catch (const std::exception &error) {
    return makeError(printable("'" + path + "': " + error.what()));
  }
}
