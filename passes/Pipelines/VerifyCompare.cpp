//===- VerifyCompare.cpp - Which differences are rounding -----------------===//
#include "passes/Pipelines/VerifyCompare.h"

#include "partita/Base/Units.h"
#include "partita/Reference/Kernels.h"
#include "passes/Reference/Evaluate.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace partita;

std::string Distance::str() const {
  return formatted("largest difference %.3g, rms %.3g, at rms %.3g", largest, rms, scale);
}

Distance partita::distance(const HostTensor &actual, const HostTensor &expected) {
  auto x = reference::values<double>(actual), y = reference::values<double>(expected);
  Distance result;
  for (size_t i = 0; i < x.size(); ++i) {
    // Nothing differs where both are the same infinity, or no number.
    double difference = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))
                            ? 0
                            : std::abs(x[i] - y[i]);
    result.largest = std::max(result.largest, difference);
    result.rms += difference * difference;
    if (std::isfinite(y[i]))
      result.scale += y[i] * y[i];
  }
  double count = static_cast<double>(std::max<size_t>(x.size(), 1));
  result.rms = std::sqrt(result.rms / count);
  result.scale = std::sqrt(result.scale / count);
  return result;
}

HostTensor partita::toF64(const HostTensor &tensor) {
  if (!isFloat(tensor.type) || smallFloat(tensor.type))
    return tensor;
  return reference::tensor<double>(DType::F64, tensor.shape,
                                   reference::values<double>(tensor));
}

double partita::unitRoundoff(DType type) {
  switch (type) {
  case DType::F64:
    return 0x1p-53;
  case DType::F32:
    return 0x1p-24;
  case DType::F16:
    return 0x1p-11;
  case DType::BF16:
    return 0x1p-8;
  default:
    return 0;
  }
}

/// Compares the errors against the tensor in f64: an error unless the errors are those of
/// roundings.
static Expected<std::string> judge(const HostTensor &actual, const HostTensor &expected,
                                   const HostTensor &truth) {
  if (truth.shape != expected.shape)
    return makeError("in f64 the model gives another number of elements");
  Distance ours = distance(actual, truth), theirs = distance(expected, truth);
  std::string text = formatted("errors against f64: largest %.3g and rms %.3g, those of "
                               "what it is compared with %.3g and %.3g",
                               ours.largest, ours.rms, theirs.largest, theirs.rms);
  const double least = unitRoundoff(expected.type) * ours.scale;
  if (ours.rms > 3 * theirs.rms || ours.largest > 3 * theirs.largest ||
      theirs.rms > 30 * std::max(ours.rms, least))
    return makeError(text);
  return text;
}

Expected<void> partita::compareOne(const std::string &where, const HostTensor &actual,
                                   const HostTensor &expected, const Tolerance &tolerance,
                                   const std::function<Expected<HostTensor>()> &truth,
                                   std::vector<std::string> &lines) {
  auto ok = compareTensors(actual, expected, tolerance.rtol, tolerance.atol);
  if (!ok && (expected.type != DType::F32 || !tolerance.byErrors))
    return makeError(where + ": " + ok.error().message);
  lines.push_back(where + ": " + distance(actual, expected).str());
  if (ok)
    return {};
  auto judged = truth().and_then(
      [&](const HostTensor &exact) { return judge(actual, expected, exact); });
  if (!judged)
    return makeError(where + ": " + ok.error().message + "; " + judged.error().message);
  lines.push_back(where + ": " + *judged);
  return {};
}

void partita::moveToNeighbours(HostTensor &tensor) {
  const bool isSigned = tensor.type == DType::I8;
  if ((tensor.type != DType::U8 && !isSigned) || tensor.size() == 0)
    return;
  std::mt19937_64 random(static_cast<uint64_t>(tensor.size()));
  for (int64_t i = 0; i < std::max<int64_t>(1, tensor.size() / 1000); ++i) {
    auto &byte = tensor.bytes[random() % tensor.bytes.size()];
    const int least = isSigned ? -128 : 0;
    const int value = isSigned ? static_cast<int8_t>(byte) : static_cast<int>(byte);
    const int step = value == least || (value < least + 255 && random() % 2) ? 1 : -1;
    byte = static_cast<std::byte>(value + step);
  }
}

Expected<std::string> partita::judgeBytes(const HostTensor &actual,
                                          const HostTensor &definition,
                                          const HostTensor &truth,
                                          const HostTensor &moved) {
  if (truth.shape != actual.shape || definition.shape != actual.shape)
    return makeError("in f64 the model gives another number of elements");
  const Distance ours = distance(actual, truth), theirs = distance(definition, truth),
                 flips = distance(moved, truth);
  std::string text = formatted("errors against f64: largest %.3g and rms %.3g, those of "
                               "the definition in f32 %.3g and %.3g, of a thousandth of "
                               "bytes at a neighbour %.3g and %.3g",
                               ours.largest, ours.rms, theirs.largest, theirs.rms,
                               flips.largest, flips.rms);
  if (!isFloat(actual.type)) {
    auto is = reference::values<int64_t>(actual),
         wanted = reference::values<int64_t>(definition);
    int64_t differing = 0;
    for (size_t i = 0; i < is.size(); ++i)
      differing += is[i] != wanted[i];
    text += "; " + std::to_string(differing) + " of " + std::to_string(is.size()) +
            " integers differ";
  }
  if (ours.rms > 3 * theirs.rms + 2 * flips.rms ||
      ours.largest > 3 * theirs.largest + 2 * flips.largest)
    return makeError(text);
  return text;
}
