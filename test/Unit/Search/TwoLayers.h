//===- TwoLayers.h - A step of two layers that may repeat values *- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_SEARCH_TWOLAYERS_H
#define PARTITA_TEST_UNIT_SEARCH_TWOLAYERS_H

#include "RandomProgram.h"

#include <set>

namespace partita::test {

/// Two products with an elementwise op behind each, their gradients, and weights with a
/// moment. What the backward pass reads of `repeated` values (y0, h0, y1) it computes
/// again.
class TwoLayers {
public:
  TwoLayers(Shape sizes, std::set<std::string> repeated)
      : rows(sizes[0]), in(sizes[1]), hidden(sizes[2]), out(sizes[3]),
        repeated(std::move(repeated)) {}

  Program make() {
    p.argument("x", {rows, in});
    p.argument("w0", {in, hidden});
    p.argument("m0", {in, hidden});
    p.argument("w1", {hidden, out});
    contract("y0", "x", "w0", "m k, k n -> m n", rows * in * hidden);
    pointwise("h0", {"y0"}, rows * hidden);
    contract("y1", "h0", "w1", "m k, k n -> m n", rows * hidden * out);
    pointwise("dy1", {again("y1")}, rows * out);
    p.backward("loss", "dy1");
    contract("dw1", again("h0"), "dy1", "m k, m n -> k n", rows * hidden * out);
    p.backward("y1", "dw1", Phase::Weight);
    contract("dh0", "dy1", "w1", "m n, k n -> m k", rows * hidden * out);
    p.backward("y1", "dh0");
    pointwise("dy0", {"dh0", again("y0")}, rows * hidden);
    p.backward("h0", "dy0");
    contract("dw0", "x", "dy0", "m k, m n -> k n", rows * in * hidden);
    p.backward("y0", "dw0", Phase::Weight);
    update("m0", {"m0", "dw0"});
    update("w0", {"w0", "m0'"});
    update("w1", {"w1", "dw1"});
    return std::move(p);
  }

private:
  void contract(const std::string &name, const std::string &a, const std::string &b,
                const std::string &equation, int64_t points) {
    p.contract(name, a, b, equation);
    p.work(name, 2 * points);
  }
  void pointwise(const std::string &name, const std::vector<std::string> &operands,
                 int64_t points) {
    p.elementwise(name, operands);
    p.work(name, points);
  }
  void update(const std::string &state, const std::vector<std::string> &operands) {
    p.elementwise(state + "'", operands, {{ReduceKind::Sum, {0, 1}}});
    p.backward(state, state + "'", Phase::Update);
    p.update(state, state + "'");
  }
  /// The value as the backward pass finds it.
  std::string again(const std::string &value) {
    if (!repeated.count(value))
      return value;
    std::string copy = value + "r";
    if (!made.insert(copy).second)
      return copy;
    if (value == "y0")
      contract(copy, "x", "w0", "m k, k n -> m n", rows * in * hidden);
    else if (value == "y1")
      contract(copy, again("h0"), "w1", "m k, k n -> m n", rows * hidden * out);
    else
      pointwise(copy, {again("y0")}, rows * hidden);
    p.recomputed(value, copy);
    p.repeats(copy, value);
    return copy;
  }

  int64_t rows, in, hidden, out;
  std::set<std::string> repeated, made;
  Program p;
};
/// Sizes of TwoLayers.
inline Shape randomSizes(RandomProgram &random) {
  const std::vector<int64_t> sizes{4, 6, 8, 12, 32};
  Shape shape;
  for (int i = 0; i < 4; ++i)
    shape.push_back(sizes[random.below(sizes.size())]);
  return shape;
}

} // namespace partita::test

#endif // PARTITA_TEST_UNIT_SEARCH_TWOLAYERS_H
