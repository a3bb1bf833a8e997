//===- Model.cpp - Problems with the structure of sharded models ----------===//
#include "Model.h"

#include <cmath>

using namespace partita;
using namespace partita::solver;
using namespace partita::solver::bench;

int Model::add(Node node) {
  int n = static_cast<int>(nodes.size());
  chooseStrategies(node);
  node.lastUse = n;
  for (const Node::Operand &o : node.operands)
    nodes[o.node].lastUse = n;
  nodes.push_back(std::move(node));
  return n;
}

std::vector<int64_t> Model::shape(int node) const {
  std::vector<int64_t> result;
  for (int f : nodes[node].out)
    result.push_back(nodes[node].factors[f]);
  return result;
}

static std::vector<int> iota(size_t count) {
  std::vector<int> result(count);
  for (size_t i = 0; i < count; ++i)
    result[i] = static_cast<int>(i);
  return result;
}

int Model::weight(std::vector<int64_t> shape) {
  Node node;
  node.out = iota(shape.size());
  node.factors = std::move(shape);
  node.isWeight = true;
  weights.push_back(add(std::move(node)));
  return weights.back();
}

int Model::einsum(std::vector<int64_t> factors, Dims out,
                  std::vector<Node::Operand> operands) {
  Node node;
  node.factors = std::move(factors);
  node.out = std::move(out);
  node.operands = std::move(operands);
  return add(std::move(node));
}

/// An op over operands of one shape.
int Model::elementwise(std::vector<int> operands) {
  std::vector<int64_t> s = shape(operands[0]);
  std::vector<Node::Operand> list;
  for (int o : operands)
    list.push_back({o, iota(s.size())});
  return einsum(s, iota(s.size()), std::move(list));
}

/// Mean over the last dim, and its use: two small ops and a scale as exporters write.
int Model::norm(int x) {
  std::vector<int64_t> s = shape(x);
  Dims all = iota(s.size()), outer(all.begin(), all.end() - 1);
  int square = elementwise({x});
  int mean = einsum(s, outer, {{square, all}});
  int scaled = einsum(s, all, {{x, all}, {mean, outer}});
  int gain = weight({s.back()});
  return einsum(s, all, {{scaled, all}, {gain, {all.back()}}});
}

/// x[…, k] · w[k, n]
int Model::linear(int x, int64_t width) {
  std::vector<int64_t> s = shape(x);
  size_t rank = s.size();
  int w = weight({s.back(), width});
  Dims in = iota(rank), out(in.begin(), in.end() - 1);
  out.push_back(static_cast<int>(rank));
  s.push_back(width);
  return einsum(s, out,
                {{x, in}, {w, {static_cast<int>(rank) - 1, static_cast<int>(rank)}}});
}

int Model::transformerLayer(int x) {
  int64_t width = hidden / heads;
  int y = norm(x);
  // x[b, s, e] · w[e, h, d], the projections of attention.
  auto project = [&] {
    int w = weight({hidden, heads, width});
    return einsum({batch, length, heads, width, hidden}, {0, 1, 2, 3},
                  {{y, {0, 1, 4}}, {w, {4, 2, 3}}});
  };
  int q = project(), k = project(), v = project();
  std::vector<int64_t> loops{batch, heads, length, length, width};
  std::vector<int64_t> square{batch, heads, length, length};
  int scores = einsum(loops, {0, 1, 2, 3}, {{q, {0, 2, 1, 4}}, {k, {0, 3, 1, 4}}});
  int exponent = elementwise({elementwise({scores})});
  int sum = einsum(square, {0, 1, 2}, {{exponent, {0, 1, 2, 3}}});
  int share = einsum(square, {0, 1, 2, 3}, {{exponent, {0, 1, 2, 3}}, {sum, {0, 1, 2}}});
  int mixed = einsum(loops, {0, 2, 1, 4}, {{share, {0, 1, 2, 3}}, {v, {0, 3, 1, 4}}});
  int w = weight({heads, width, hidden});
  int joined = einsum({batch, length, hidden, heads, width}, {0, 1, 2},
                      {{mixed, {0, 1, 3, 4}}, {w, {3, 4, 2}}});
  x = elementwise({x, joined});
  int up = linear(norm(x), 4 * hidden), gate = elementwise({elementwise({up}), up});
  return elementwise({x, linear(gate, hidden)});
}

/// x[n, c, h, w] with a kernel of 3×3; the spatial halo costs nothing here.
int Model::convolution(int x, int64_t channels) {
  std::vector<int64_t> s = shape(x);
  int w = weight({channels, s[1], 3, 3});
  std::vector<int64_t> loops{s[0], channels, s[2], s[3], s[1], 3, 3};
  int y = einsum(loops, {0, 1, 2, 3}, {{x, {0, 4, 2, 3}}, {w, {1, 4, 5, 6}}});
  int bias = weight({channels});
  std::vector<int64_t> t{s[0], channels, s[2], s[3]};
  int sum = einsum(t, {0, 1, 2, 3}, {{y, {0, 1, 2, 3}}, {bias, {1}}});
  return elementwise({elementwise({sum}), sum});
}

/// Features of nodes to edges, a small network, and back by a sum over the edges.
int Model::graphStep(int x) {
  int64_t edges = length * 4, width = shape(x)[1];
  int gathered = einsum({edges, width, length}, {0, 1}, {{x, {2, 1}}});
  int y = linear(elementwise({linear(gathered, width)}), width);
  int back = einsum({length, width, edges}, {0, 1}, {{norm(y), {2, 1}}});
  return elementwise({x, back});
}

void Model::forward() {
  int target = spec.training ? spec.nodes * 2 / 7 : spec.nodes - 10;
  auto full = [&] { return static_cast<int>(nodes.size()) >= target; };
  if (spec.kind == ModelKind::Transformer) {
    int ids = weight({batch, length, hidden});
    int x = elementwise({ids});
    while (!full())
      x = transformerLayer(x);
    backward(linear(norm(x), 32 * hidden));
    return;
  }
  if (spec.kind == ModelKind::Graph) {
    int x = weight({length, hidden / 8});
    while (!full())
      x = graphStep(x);
    backward(linear(x, 64));
    return;
  }
  // Down and up again, with the results of the way down joined on the way up.
  int64_t size = 64;
  int x = weight({batch, 64, size, size});
  std::vector<int> skipped;
  int perLevel = std::max(1, target / (8 * 10));
  for (int level = 0; level < 4; ++level) {
    for (int i = 0; i < perLevel && !full(); ++i)
      x = elementwise({x, convolution(x, shape(x)[1])});
    skipped.push_back(x);
    std::vector<int64_t> s = shape(x);
    x = einsum({s[0], s[1], s[2] / 2, s[3] / 2}, {0, 1, 2, 3}, {{x, {0, 1, 2, 3}}});
    x = convolution(x, s[1] * 2);
  }
  for (int level = 3; level >= 0; --level) {
    std::vector<int64_t> s = shape(skipped[level]);
    x = convolution(x, s[1]);
    x = einsum({s[0], s[1], s[2], s[3]}, {0, 1, 2, 3}, {{x, {0, 1, 2, 3}}});
    x = elementwise({x, skipped[level]});
    for (int i = 0; i < perLevel; ++i)
      x = elementwise({x, convolution(x, shape(x)[1])});
  }
  backward(x);
}

/// For every forward op and operand the gradient: the same loops, the operand's dims as
/// result. Gradients that meet are added.
void Model::backward(int last) {
  if (!spec.training)
    return;
  std::vector<int> gradient(nodes.size(), -1);
  gradient[last] = elementwise({last});
  for (int n = last; n >= 0; --n) {
    if (gradient[n] < 0 || nodes[n].operands.empty())
      continue;
    for (size_t i = 0; i < nodes[n].operands.size(); ++i) {
      Node::Operand target = nodes[n].operands[i];
      std::vector<Node::Operand> read{{gradient[n], nodes[n].out}};
      bool product = nodes[n].operands.size() > 1 && nodes[n].factors.size() > 1;
      for (size_t j = 0; product && j < nodes[n].operands.size(); ++j)
        if (j != i)
          read.push_back(nodes[n].operands[j]);
      int g = einsum(nodes[n].factors, target.dims, read);
      int &sum = gradient[target.node];
      sum = sum < 0 ? g : elementwise({sum, g});
    }
  }
  for (int w : weights)
    gradients.push_back(gradient[w]);
  update();
}

/// Momentum and the new weight, laid out as the weight is.
void Model::update() {
  std::vector<int> all = weights;
  for (size_t i = 0; i < all.size(); ++i) {
    if (gradients[i] < 0)
      continue;
    int momentum = weight(shape(all[i]));
    nodes[momentum].tiedTo = all[i];
    int next = elementwise({all[i], momentum, gradients[i]});
    nodes[next].tiedTo = all[i];
  }
}

/// All ways to give each axis to a factor that it divides, or to none.
void Model::chooseStrategies(Node &node) const {
  std::vector<int> now(spec.mesh.size(), -1);
  for (;;) {
    std::vector<int64_t> left = node.factors;
    bool divides = true;
    for (size_t a = 0; a < now.size() && divides; ++a)
      if (now[a] >= 0) {
        divides = left[now[a]] % spec.mesh[a] == 0;
        left[now[a]] /= spec.mesh[a];
      }
    if (divides && static_cast<int>(node.strategies.size()) < spec.choices)
      node.strategies.push_back(now);
    size_t a = 0;
    while (a < now.size() && ++now[a] == static_cast<int>(node.factors.size()))
      now[a++] = -1;
    if (a == now.size())
      return;
  }
}

/// The dim that an axis splits, or -1.
int Model::axisOfDim(const Node &, const Dims &dims, const std::vector<int> &strategy,
                     size_t axis) const {
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] == strategy[axis])
      return static_cast<int>(d);
  return -1;
}

double Model::shards(const Node &node, const Dims &dims,
                     const std::vector<int> &strategy) const {
  double result = 1;
  for (size_t a = 0; a < spec.mesh.size(); ++a)
    if (strategy[a] >= 0 && axisOfDim(node, dims, strategy, a) >= 0)
      result *= spec.mesh[a];
  return result;
}

static double product(const std::vector<int64_t> &values) {
  double result = 1;
  for (int64_t v : values)
    result *= static_cast<double>(v);
  return result;
}

Variable Model::variable(int n) const {
  const Node &node = nodes[n];
  Variable result;
  Usage use;
  use.begin = node.isWeight ? 0 : n;
  use.end = node.isWeight ? static_cast<int64_t>(nodes.size()) : node.lastUse + 1;
  double bytes = 4 * product(shape(n));
  for (const std::vector<int> &strategy : node.strategies) {
    double part = shards(node, node.out, strategy);
    double cost = 0;
    if (!node.operands.empty()) {
      double split = 1;
      for (size_t a = 0; a < strategy.size(); ++a)
        split *= strategy[a] >= 0 ? spec.mesh[a] : 1;
      // One byte moved costs as much as 200 multiplications.
      cost = product(node.factors) / split / 200;
      for (size_t a = 0; a < strategy.size(); ++a)
        if (strategy[a] >= 0 && axisOfDim(node, node.out, strategy, a) < 0)
          cost += 2 * bytes / part * (spec.mesh[a] - 1) / spec.mesh[a];
    }
    result.costs.push_back(static_cast<int64_t>(cost / 1000));
    use.bytes.push_back(static_cast<int64_t>(bytes / part));
  }
  result.usages.push_back(std::move(use));
  return result;
}

/// Reshard from the result of `from` to what `to` reads, axis by axis: keeping or slicing
/// is free, gathering moves the other parts, going to another dim moves the own part.
Edge Model::edge(int from, int to, const Dims &dims) {
  const Node &a = nodes[from], &b = nodes[to];
  Edge result;
  result.first = static_cast<uint32_t>(from);
  result.second = static_cast<uint32_t>(to);
  std::vector<int64_t> costs;
  costs.reserve(a.strategies.size() * b.strategies.size());
  double bytes = 4 * product(shape(from));
  for (const std::vector<int> &s : a.strategies) {
    double local = bytes / shards(a, a.out, s);
    for (const std::vector<int> &t : b.strategies) {
      double cost = 0;
      for (size_t axis = 0; axis < spec.mesh.size(); ++axis) {
        int had = s[axis] < 0 ? -1 : axisOfDim(a, a.out, s, axis);
        int wants = t[axis] < 0 ? -1 : axisOfDim(b, dims, t, axis);
        if (had == wants || had < 0)
          continue;
        cost += wants < 0 ? local * (spec.mesh[axis] - 1) : local;
      }
      costs.push_back(static_cast<int64_t>(cost / 1000));
    }
  }
  result.costs = tables.add(std::move(costs));
  return result;
}

Edge Model::tie(int a, int b) {
  Edge result;
  result.first = static_cast<uint32_t>(a);
  result.second = static_cast<uint32_t>(b);
  std::vector<int64_t> costs;
  for (const std::vector<int> &s : nodes[a].strategies)
    for (const std::vector<int> &t : nodes[b].strategies)
      costs.push_back(s == t ? 0 : forbidden);
  result.costs = tables.add(std::move(costs));
  return result;
}

int64_t Model::limit(const Problem &problem, double tightness) {
  size_t end = problem.variables.size() + 1;
  std::vector<double> low(end + 1), high(end + 1);
  for (const Variable &v : problem.variables) {
    const Usage &u = v.usages[0];
    double least = static_cast<double>(*std::min_element(u.bytes.begin(), u.bytes.end()));
    size_t cheapest = static_cast<size_t>(
        std::min_element(v.costs.begin(), v.costs.end()) - v.costs.begin());
    low[u.begin] += least;
    low[u.end] -= least;
    high[u.begin] += static_cast<double>(u.bytes[cheapest]);
    high[u.end] -= static_cast<double>(u.bytes[cheapest]);
  }
  double least = 0, most = 0, sumLow = 0, sumHigh = 0;
  for (size_t t = 0; t < end; ++t) {
    least = std::max(least, sumLow += low[t]);
    most = std::max(most, sumHigh += high[t]);
  }
  return static_cast<int64_t>(least + (most - least) * tightness) + 1;
}

Problem Model::make() {
  batch = int64_t(16) << random() % 3;
  length = int64_t(256) << random() % 3;
  hidden = int64_t(1024) << random() % 2;
  heads = 16;
  forward();
  Problem problem;
  for (size_t n = 0; n < nodes.size(); ++n) {
    problem.variables.push_back(variable(static_cast<int>(n)));
    for (const Node::Operand &o : nodes[n].operands)
      problem.edges.push_back(edge(o.node, static_cast<int>(n), o.dims));
    if (nodes[n].tiedTo >= 0)
      problem.edges.push_back(tie(nodes[n].tiedTo, static_cast<int>(n)));
  }
  problem.memoryLimit = limit(problem, spec.tightness);
  return problem;
}
