//===- RandomProgram.h - Small programs with every kind of rule -*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_SEARCH_RANDOMPROGRAM_H
#define PARTITA_TEST_UNIT_SEARCH_RANDOMPROGRAM_H

#include "../Rule/FlowProgram.h"

#include "partita/Topology/Placement.h"

#include <set>

namespace partita::test {

/// Real rules in small shapes: contractions, sums, reshapes, transposes, slices, softmax,
/// windows; values with several users; uneven sizes.
class RandomProgram {
public:
  explicit RandomProgram(uint64_t seed) : random(seed) {}

  Program make(size_t most) {
    size_t arguments = 1 + below(2);
    for (size_t i = 0; i < arguments; ++i) {
      Shape shape(2 + below(2));
      for (int64_t &dim : shape)
        dim = sizes[below(sizes.size())];
      std::string name = "x" + std::to_string(i);
      program.argument(name, shape);
      remember(name, shape);
    }
    size_t ops = 1 + below(most);
    for (size_t i = 0; i < ops; ++i)
      addOp("v" + std::to_string(i));
    addStates(arguments);
    finish();
    return std::move(program);
  }

  /// A training step of one or two products with weights that are states: forward,
  /// backward, and updates of weights and, for some, of a moment.
  Program step() {
    Shape in{sizes[below(sizes.size())], sizes[below(sizes.size())]};
    program.argument("x", in);
    std::vector<std::string> inputs{"x"};
    std::vector<Shape> weights;
    size_t layers = 1 + below(2);
    for (size_t l = 0; l < layers; ++l) {
      weights.push_back({in[1], sizes[below(sizes.size())]});
      std::string n = std::to_string(l);
      program.argument("w" + n, weights[l]);
      program.contract("y" + n, inputs.back(), "w" + n, "m k, k n -> m n");
      program.work("y" + n, 2 * in[0] * elementCount(weights[l]));
      in[1] = weights[l][1];
      inputs.push_back("y" + n);
    }
    program.elementwise("loss", {inputs.back()});
    std::string back = "loss";
    for (size_t l = layers; l-- > 0;) {
      std::string n = std::to_string(l);
      program.contract("dw" + n, inputs[l], back, "m k, m n -> k n");
      program.work("dw" + n, 2 * in[0] * elementCount(weights[l]));
      program.elementwise("w" + n + "'", {"w" + n, "dw" + n},
                          {{ReduceKind::Sum, {0, 1}}});
      program.update("w" + n, "w" + n + "'");
      if (l == 0)
        break;
      program.contract("dy" + n, back, "w" + n, "m n, k n -> m k");
      program.work("dy" + n, 2 * in[0] * elementCount(weights[l]));
      back = "dy" + n;
    }
    return std::move(program);
  }

  void finish() {
    for (const auto &[name, shape] : values)
      if (!used.count(name))
        program.result(name);
  }

  size_t below(size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  }

  /// Constants between which compute, traffic, latency and bandwidth all matter.
  Topology topology(const Mesh &mesh) {
    auto pick = [&](std::initializer_list<double> list) {
      return std::data(list)[below(list.size())];
    };
    Device device;
    device.name = "test";
    device.peak = {{DType::F32, pick({1e8, 1e9, 1e10})}};
    device.memory = 1 << 20;
    device.memoryBandwidth = pick({1e9, 1e10});
    device.launch = pick({0, 1e-8, 1e-7});
    device.matmul.functionsApart = below(2) != 0;
    LinkLevel level;
    level.bandwidth = pick({1e8, 1e9, 1e10});
    level.latency = pick({0, 1e-8, 1e-7});
    return topologyOfMesh(mesh, device, level, Host{});
  }

private:
  /// Some arguments become what is computed in their shape.
  void addStates(size_t arguments) {
    for (size_t i = 0; i < arguments; ++i)
      for (size_t v = values.size(); v-- > arguments;)
        if (values[v].second == values[i].second && below(2)) {
          program.update(values[i].first, values[v].first);
          used.insert(values[i].first);
          used.insert(values[v].first);
          break;
        }
  }
  void remember(const std::string &name, const Shape &shape) {
    values.emplace_back(name, shape);
  }
  const std::pair<std::string, Shape> &take() {
    // Late values more often, so that programs are deep; early ones again, so that
    // values have several users.
    size_t at = below(2) ? values.size() - 1 : below(values.size());
    used.insert(values[at].first);
    return values[at];
  }

  void addContraction(const std::string &name, const std::string &in, Shape shape) {
    int64_t columns = sizes[below(sizes.size())];
    program.source(name + ".w", {shape.back(), columns});
    program.contract(name, in, name + ".w",
                     shape.size() == 2 ? "m k, k n -> m n" : "b m k, k n -> b m n");
    program.work(name, 2 * elementCount(shape) * columns);
    shape.back() = columns;
    remember(name, shape);
  }

  void addSum(const std::string &name, const std::string &in, const Shape &shape) {
    std::vector<std::string> same;
    for (const auto &[other, its] : values)
      if (its == shape)
        same.push_back(other);
    const std::string &other = same[below(same.size())];
    used.insert(other);
    program.elementwise(name, {in, other}, {{ReduceKind::Sum, {0, 1}}});
    if (below(2)) // for fusion alone: the program has no values
      program.function(name);
    remember(name, shape);
  }

  void addOp(const std::string &name) {
    auto [in, shape] = take();
    auto last = static_cast<int64_t>(shape.size()) - 1;
    switch (below(8)) {
    case 0:
    case 1:
      return addContraction(name, in, shape);
    case 2:
      return addSum(name, in, shape);
    case 3: {
      std::vector<int64_t> turned(shape.size());
      std::iota(turned.begin(), turned.end(), 0);
      std::swap(turned[0], turned.back());
      program.transpose(name, in, turned);
      std::swap(shape[0], shape.back());
      return remember(name, shape);
    }
    case 4: {
      Shape flat{elementCount(shape) / shape.back(), shape.back()};
      if (shape.size() == 2)
        flat = {1, shape[0], shape[1]};
      program.reshape(name, in, flat);
      return remember(name, flat);
    }
    case 5:
      program.rows(name, in);
      program.work(name, 4 * elementCount(shape));
      return remember(name, shape);
    case 6:
      if (shape[static_cast<size_t>(last)] >= 3) {
        program.windows(name, in, 3, 1, 1, 1);
        program.work(name, 3 * elementCount(shape));
        return remember(name, shape);
      }
      [[fallthrough]];
    default:
      if (below(2))
        program.elementwise(name, {in}, {{ReduceKind::Sum, {0}}});
      else
        program.elementwise(name, {in});
      program.work(name, elementCount(shape));
      return remember(name, shape);
    }
  }

  const std::vector<int64_t> sizes{2, 3, 4, 5, 6, 8, 12};
  std::mt19937_64 random;
  Program program;
  std::vector<std::pair<std::string, Shape>> values;
  std::set<std::string> used;
};

} // namespace partita::test

#endif // PARTITA_TEST_UNIT_SEARCH_RANDOMPROGRAM_H
