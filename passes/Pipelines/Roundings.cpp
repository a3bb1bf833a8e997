//===- Roundings.cpp - What a narrower type makes of a model --------------===//
#include "passes/Pipelines/Roundings.h"

#include "partita/Base/Units.h"
#include "partita/Reference/Kernels.h"
#include "passes/Pipelines/VerifyCompare.h"

#include <algorithm>
#include <cmath>

using namespace partita;

/// Digits of the significand.
static int digitsOf(Compute type) { return type == Compute::F16 ? 11 : 8; }

void partita::roundDigits(HostTensor &tensor, Compute type) {
  if (tensor.type != DType::F64)
    return;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    double &value = tensor.data<double>()[i];
    if (!std::isfinite(value))
      continue;
    int exponent = 0;
    const double part = std::frexp(value, &exponent);
    const int digits = digitsOf(type);
    value = std::ldexp(std::nearbyint(std::ldexp(part, digits)), exponent - digits);
  }
}

/// Judges integers: an element that the roundings of the type leave must be right.
static Expected<std::string> judgeIntegers(const HostTensor &actual,
                                           const HostTensor &exact,
                                           const HostTensor &rounded) {
  auto is = reference::values<int64_t>(actual),
       wanted = reference::values<int64_t>(exact);
  auto free = reference::values<int64_t>(rounded);
  int64_t differing = 0, moved = 0;
  for (size_t i = 0; i < is.size(); ++i) {
    moved += free[i] != wanted[i];
    differing += is[i] != wanted[i];
    if (is[i] != wanted[i] && free[i] == wanted[i])
      return makeError("element " + std::to_string(i) + " is " + std::to_string(is[i]) +
                       ", expected " + std::to_string(wanted[i]) +
                       ", which roundings do not change");
  }
  return std::to_string(differing) + " of " + std::to_string(is.size()) +
         " integers differ, " + std::to_string(moved) + " by roundings alone";
}

Expected<std::string> partita::judgeRoundings(const HostTensor &actual,
                                              const HostTensor &exact,
                                              const HostTensor &rounded, Compute type) {
  if (actual.shape != exact.shape || actual.shape != rounded.shape)
    return makeError("in f64 the model gives another number of elements");
  if (!isFloat(actual.type))
    return judgeIntegers(actual, exact, rounded);
  const Distance ours = distance(actual, exact), roundings = distance(rounded, exact);
  double largest = 0;
  for (double value : reference::values<double>(exact))
    if (std::isfinite(value))
      largest = std::max(largest, std::abs(value));
  const double unit =
      largest == 0 ? 0 : std::ldexp(1, std::ilogb(largest) + 1 - digitsOf(type));
  std::string text = ours.str() + ", of roundings alone " +
                     formatted("%.3g and %.3g", roundings.largest, roundings.rms);
  const bool isRight = ours.rms <= 2 * roundings.rms + unit &&
                       ours.largest <= 2 * roundings.largest + 4 * unit;
  if (!isRight)
    return makeError(text + ": more than twice that");
  return text;
}
