//===- Signals.cpp - Import of Fourier transforms -------------------------===//
//
// A transform of n points is a product with the n × n matrix of the roots of unity: for
// the lengths of audio models (400 to 1,024) a contraction like any other, which splits
// along everything.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Compose.h"

#include "partita/Reference/Kernels.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// cos and ∓sin of 2π·j·k/n for j < rows, k < columns; `window` per row.
static std::pair<std::vector<double>, std::vector<double>>
rootsOfUnity(int64_t rows, int64_t columns, int64_t n, bool isInverse) {
  std::vector<double> real, imaginary;
  for (int64_t j = 0; j < rows; ++j)
    for (int64_t k = 0; k < columns; ++k) {
      double angle = 2 * M_PI * static_cast<double>(j * k % n) / static_cast<double>(n);
      real.push_back(std::cos(angle));
      imaginary.push_back(isInverse ? std::sin(angle) : -std::sin(angle));
    }
  return {real, imaginary};
}

namespace {
/// [rows, inner] of one part of a complex signal; `im` is null for a real one.
struct Signal {
  Value re, im;
};
} // namespace

/// Transforms the last dim of [outer, rows] into `columns` frequencies.
static Signal transformed(Compose &c, const Signal &x, int64_t columns, int64_t n,
                          bool isInverse) {
  if (!x.re)
    return x;
  int64_t rows = c.shape(x.re)[1];
  auto [cosine, sine] = rootsOfUnity(rows, columns, n, isInverse);
  Value re = c.tensor(c.type(x.re), {rows, columns}, cosine);
  Value im = c.tensor(c.type(x.re), {rows, columns}, sine);
  const char *equation = "m j, j k -> m k";
  Signal y{c.contract(x.re, re, equation), c.contract(x.re, im, equation)};
  if (x.im) {
    y.re = c.sub(y.re, c.contract(x.im, im, equation));
    y.im = c.add(y.im, c.contract(x.im, re, equation));
  }
  return y;
}

static Expected<Values> importDft(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Shape shape = c.shape(x);
  int64_t axis = -2;
  if (node.hasInput(2)) {
    auto given = importer.constantIntegers(node, 2);
    if (!given)
      return tl::unexpected(given.error());
    axis = (*given)[0];
  }
  size_t d = c.axis(axis, x), last = shape.size() - 1;
  if (shape.size() < 2 || d == last || shape[last] > 2)
    return makeError("DFT along dim " + std::to_string(axis));
  int64_t length = shape[d];
  if (node.hasInput(1)) {
    auto given = importer.constantIntegers(node, 1);
    if (!given)
      return tl::unexpected(given.error());
    length = (*given)[0];
  }
  bool isInverse = intAttr(node, "inverse", 0) != 0;
  bool isOneSided = intAttr(node, "onesided", 0) != 0, isComplex = shape[last] == 2;
  // Rows are the axis, at the end; points beyond the length are cut off, missing ones 0.
  std::vector<int64_t> order, back(last + 1);
  for (size_t i = 0; i < last; ++i)
    if (i != d)
      order.push_back(static_cast<int64_t>(i));
  order.push_back(static_cast<int64_t>(d));
  order.push_back(static_cast<int64_t>(last));
  Value all = c.transpose(c.slice(x, d, 0, std::min(length, shape[d])), order);
  Shape moved = c.shape(all);
  auto part = [&](int64_t i) {
    Value one = c.slice(all, last, i, i + 1);
    int64_t points = moved[last - 1];
    return c.reshape(one, {elementCount(moved) / (points * moved[last]), points});
  };
  Signal signal{part(0), isComplex ? part(1) : Value()};
  Signal y;
  if (isInverse && isOneSided) {
    // Of a real signal: the other half is the conjugate. Here every point of the half
    // counts twice but for those that are their own mirror.
    int64_t given = moved[last - 1], n = node.hasInput(1) ? length : 2 * (given - 1);
    std::vector<double> weights;
    for (int64_t k = 0; k < given; ++k)
      weights.push_back(k == 0 || 2 * k == n ? 1 : 2);
    Value twice = c.tensor(c.type(x), {given}, weights);
    signal.re = c.mul(signal.re, twice);
    if (signal.im)
      signal.im = c.mul(signal.im, twice);
    y = transformed(c, signal, n, n, true);
    y.re = c.div(y.re, static_cast<double>(n));
    moved[last - 1] = n;
    moved[last] = 1;
    y.im = nullptr;
  } else {
    int64_t columns = isOneSided ? length / 2 + 1 : length;
    y = transformed(c, signal, columns, length, isInverse);
    if (isInverse) {
      y.re = c.div(y.re, static_cast<double>(length));
      y.im = c.div(y.im, static_cast<double>(length));
    }
    moved[last - 1] = columns;
    moved[last] = 2;
  }
  Shape one = moved;
  one[last] = 1;
  Value result = c.reshape(y.re, one);
  if (y.im)
    result = c.concat({result, c.reshape(y.im, one)}, static_cast<int64_t>(last));
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return c.results({c.transpose(result, back)});
}

/// Frames of the signal, by the window, transformed.
static Expected<Values> importStft(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), window = importer.input(node, 2);
  Shape shape = c.shape(x);
  auto step = importer.constantIntegers(node, 1);
  if (!step)
    return tl::unexpected(step.error());
  int64_t length = window ? c.shape(window)[0] : 0;
  if (node.hasInput(3)) {
    auto given = importer.constantIntegers(node, 3);
    if (!given)
      return tl::unexpected(given.error());
    length = (*given)[0];
  }
  if (shape.size() < 2 || length < 1 || length > shape[1] || (*step)[0] < 1)
    return makeError("frames of " + std::to_string(length) + " points");
  bool isComplex = shape.size() == 3 && shape[2] == 2;
  int64_t frames = (shape[1] - length) / (*step)[0] + 1;
  std::vector<double> places;
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t i = 0; i < length; ++i)
      places.push_back(static_cast<double>(f * (*step)[0] + i));
  Value at = c.tensor(c.i64(), {frames, length}, places);
  auto part = [&](int64_t i) {
    Value one = shape.size() == 3 ? c.slice(x, 2, i, i + 1) : x;
    Value cut = c.gather(c.reshape(one, {shape[0], shape[1]}), at, 1);
    if (window)
      cut = c.mul(cut, window);
    return c.reshape(cut, {shape[0] * frames, length});
  };
  int64_t columns = intAttr(node, "onesided", 1) != 0 ? length / 2 + 1 : length;
  Signal y =
      transformed(c, {part(0), isComplex ? part(1) : Value()}, columns, length, false);
  Shape one{shape[0], frames, columns, 1};
  return c.results({c.concat({c.reshape(y.re, one), c.reshape(y.im, one)}, 3)});
}

/// A constant; all of its operands have to be known.
static Expected<Values> importMelWeights(Importer &importer, const Node &node) {
  Compose c(importer);
  std::vector<double> in;
  for (size_t i = 0; i < 5; ++i) {
    auto value = importer.requiredValue(node, i);
    if (!value)
      return tl::unexpected(value.error());
    in.push_back(reference::values<double>(*value)[0]);
  }
  auto bins = static_cast<int64_t>(in[0]), points = static_cast<int64_t>(in[1]) / 2 + 1;
  auto toMel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  std::vector<int64_t> edges;
  double low = toMel(in[3]), step = (toMel(in[4]) - low) / static_cast<double>(bins + 2);
  for (int64_t i = 0; i < bins + 2; ++i) {
    double hertz = 700 * (std::pow(10, (low + step * static_cast<double>(i)) / 2595) - 1);
    edges.push_back(static_cast<int64_t>(std::floor((in[1] + 1) * hertz / in[2])));
  }
  std::vector<double> weights(static_cast<size_t>(points * bins), 0);
  auto set = [&](int64_t row, int64_t column, double value) {
    if (row >= 0 && row < points)
      weights[static_cast<size_t>(row * bins + column)] = value;
  };
  for (int64_t i = 0; i < bins; ++i) {
    int64_t from = edges[static_cast<size_t>(i)], top = edges[static_cast<size_t>(i + 1)];
    int64_t to = edges[static_cast<size_t>(i + 2)];
    if (top == from)
      set(top, i, 1);
    for (int64_t j = from; j <= top && top != from; ++j)
      set(j, i, static_cast<double>(j - from) / static_cast<double>(top - from));
    for (int64_t j = top; j < to && to != top; ++j)
      set(j, i, static_cast<double>(to - j) / static_cast<double>(to - top));
  }
  auto element = elementTypeOfOnnx(importer, intAttr(node, "output_datatype", 1));
  if (!element)
    return tl::unexpected(element.error());
  return c.results({c.tensor(*element, {points, bins}, weights)});
}

void import::addSignals(HandlerTable &table) {
  table["DFT"] = importDft;
  table["STFT"] = importStft;
  table["MelWeightMatrix"] = importMelWeights;
}
