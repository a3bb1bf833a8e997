//===- SupportVectors.cpp - Import of support vector machines -------------===//
#include "passes/Import/MachineLearning.h"

#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// Kernel values [rows, vectors] of rows and `count` support vectors.
static Value similarities(Compose &c, const Node &node, Value x, int64_t count) {
  auto kind =
      wordAttr(node, "kernel_type", {"LINEAR", "POLY", "RBF", "SIGMOID"}, "LINEAR");
  if (!kind)
    return c.fail(kind.error().message);
  std::vector<double> vectors = realsAttr(node, "support_vectors");
  std::vector<double> more = realsAttr(node, "kernel_params");
  more.resize(3, 0);
  Value products = affine(c, x, vectors, {}, count);
  if (c.failed() || *kind == 0)
    return products;
  if (*kind == 2) {
    // |x - v|² = |x|² + |v|² - 2·x·v, one product for all pairs.
    size_t width = vectors.size() / static_cast<size_t>(count);
    std::vector<double> squares(static_cast<size_t>(count));
    for (size_t i = 0; i < vectors.size(); ++i)
      squares[i / width] += vectors[i] * vectors[i];
    Value both = c.add(c.sum(c.mul(x, x), {1}), c.tensor(c.type(x), {count}, squares));
    Value distance = c.max(c.sub(both, c.mul(products, 2)), 0);
    return c.op("exp", c.mul(distance, -more[0]));
  }
  Value inner = c.add(c.mul(products, more[0]), more[1]);
  return *kind == 3 ? c.op("tanh", inner) : c.pow(inner, more[2]);
}

static Expected<Values> importRegressor(Importer &importer, const Node &node) {
  Compose c(importer);
  std::vector<double> weights = realsAttr(node, "coefficients");
  std::vector<double> rho = realsAttr(node, "rho");
  Value x = c.cast(features(c, importer.input(node, 0)), realType(c, node));
  if (int64_t count = intAttr(node, "n_supports", 0))
    x = similarities(c, node, x, count);
  rho.resize(1, 0);
  Value y = affine(c, x, weights, rho, 1);
  if (intAttr(node, "one_class", 0) != 0)
    y = c.select(c.op("greater", {y, c.like(y, 0)}), c.like(y, 1), c.like(y, -1));
  return c.results({y});
}

namespace {
/// A machine for each pair of classes. A positive decision is one for the first.
class Pairs {
public:
  Pairs(Compose &c, const Node &node, std::vector<int64_t> supports)
      : c(c), node(node), supports(std::move(supports)),
        classes(static_cast<int64_t>(this->supports.size())) {}

  /// [rows, pairs]
  Value decisions(Value x);
  /// [rows, classes]: of how many of its pairs each class is the outcome.
  Value votes(Value decisions);
  /// [rows, classes], from the chances of each pair by a sigmoid of its decision.
  Value chances(Value decisions);

private:
  template <typename Visit> void forPairs(Visit visit) {
    size_t pair = 0;
    for (int64_t i = 0; i < classes; ++i)
      for (int64_t j = i + 1; j < classes; ++j)
        visit(i, j, pair++);
  }
  Values improved(const Values &carried, const std::vector<Values> &q);
  Value column(Value y, int64_t i) { return c.slice(y, 1, i, i + 1); }

  Compose &c;
  const Node &node;
  std::vector<int64_t> supports;
  int64_t classes;
};
} // namespace

Value Pairs::decisions(Value x) {
  std::vector<double> given = realsAttr(node, "coefficients");
  std::vector<double> rho = realsAttr(node, "rho");
  int64_t count = std::accumulate(supports.begin(), supports.end(), int64_t(0));
  auto all = static_cast<size_t>(count);
  if (given.size() != static_cast<size_t>(classes - 1) * all)
    return c.fail(std::to_string(given.size()) + " coefficients for " +
                  std::to_string(classes) + " classes and " + std::to_string(count) +
                  " support vectors");
  int64_t pairs = classes * (classes - 1) / 2;
  std::vector<double> weights(static_cast<size_t>(pairs) * all);
  std::vector<int64_t> first(1, 0);
  for (int64_t of : supports)
    first.push_back(first.back() + of);
  forPairs([&](int64_t i, int64_t j, size_t pair) {
    auto take = [&](int64_t of, int64_t row) {
      for (auto v = first[of]; v < first[of + 1]; ++v)
        weights[pair * all + static_cast<size_t>(v)] =
            given[static_cast<size_t>(row) * all + static_cast<size_t>(v)];
    };
    take(i, j - 1), take(j, i);
  });
  return affine(c, similarities(c, node, x, count), weights, rho, pairs);
}

Value Pairs::votes(Value decisions) {
  int64_t pairs = classes * (classes - 1) / 2;
  std::vector<double> won(static_cast<size_t>(classes * pairs)), base(classes);
  forPairs([&](int64_t i, int64_t j, size_t pair) {
    won[static_cast<size_t>(i * pairs) + pair] = 1;
    won[static_cast<size_t>(j * pairs) + pair] = -1;
    base[static_cast<size_t>(j)] += 1;
  });
  Value isFirst = c.op("greater", {decisions, c.like(decisions, 0)});
  return affine(c, c.cast(isFirst, c.type(decisions)), won, base, classes);
}

/// A step of the coupling: carried are the chances and 1 where a row goes on.
Values Pairs::improved(const Values &carried, const std::vector<Values> &q) {
  auto k = static_cast<size_t>(classes);
  Values p, qp(k);
  for (size_t t = 0; t < k; ++t)
    p.push_back(column(carried[0], static_cast<int64_t>(t)));
  Value pqp;
  for (size_t t = 0; t < k; ++t) {
    for (size_t j = 0; j < k; ++j) {
      Value term = c.mul(q[t][j], p[j]);
      qp[t] = j == 0 ? term : c.add(qp[t], term);
    }
    Value term = c.mul(p[t], qp[t]);
    pqp = t == 0 ? term : c.add(pqp, term);
  }
  Value error;
  for (size_t t = 0; t < k; ++t) {
    Value one = c.op("abs", c.sub(qp[t], pqp));
    error = t == 0 ? one : c.max(error, one);
  }
  Value isSmall = c.less(error, 0.005 / static_cast<double>(k));
  Value goesOn = c.min(carried[1], c.cast(c.op("not", isSmall), c.type(error)));
  for (size_t t = 0; t < k; ++t) {
    Value diff = c.div(c.sub(pqp, qp[t]), q[t][t]), more = c.add(diff, 1);
    Value change = c.add(c.mul(diff, q[t][t]), c.mul(qp[t], 2));
    pqp = c.div(c.div(c.add(pqp, c.mul(diff, change)), more), more);
    p[t] = c.add(p[t], diff);
    for (size_t j = 0; j < k; ++j) {
      qp[j] = c.div(c.add(qp[j], c.mul(diff, q[t][j])), more);
      p[j] = c.div(p[j], more);
    }
  }
  Value isOpen = c.less(c.like(goesOn, 0.5), goesOn);
  return {c.select(isOpen, c.concat(p, 1), carried[0]), goesOn};
}

/// Method 2 of Wu, Lin and Weng, as LIBSVM and ONNX Runtime iterate it: at most 100
/// steps, until a row's error is small. A row that has ended keeps what it has.
Value Pairs::chances(Value decisions) {
  std::vector<double> a = realsAttr(node, "prob_a"), b = realsAttr(node, "prob_b");
  auto k = static_cast<size_t>(classes);
  if (a.size() != k * (k - 1) / 2 || b.size() != a.size())
    return c.fail("prob_a and prob_b have not a number per pair of classes");
  std::vector<Values> r(k, Values(k)), q(k, Values(k));
  forPairs([&](int64_t i, int64_t j, size_t pair) {
    Value inner =
        c.add(c.mul(column(decisions, static_cast<int64_t>(pair)), a[pair]), b[pair]);
    Value chance = c.clamp(c.op("sigmoid", c.op("neg", inner)), 1e-7, 1 - 1e-7);
    r[static_cast<size_t>(i)][static_cast<size_t>(j)] = chance;
    r[static_cast<size_t>(j)][static_cast<size_t>(i)] = c.sub(c.like(chance, 1), chance);
  });
  for (size_t t = 0; t < k; ++t)
    for (size_t j = 0; j < k; ++j)
      if (j != t) {
        q[t][j] = c.op("neg", c.mul(r[j][t], r[t][j]));
        Value square = c.mul(r[j][t], r[j][t]);
        q[t][t] = q[t][t] ? c.add(q[t][t], square) : square;
      }
  if (c.failed())
    return nullptr;
  int64_t rows = c.shape(decisions)[0];
  Type type = c.type(decisions);
  Value even = c.broadcast(c.scalar(type, 1 / static_cast<double>(k)), {rows, classes});
  Value open = c.broadcast(c.scalar(type, 1), {rows, 1});
  return c.repeat(std::max<int64_t>(100, classes), {even, open}, {}, 2,
                  [&](const Values &in) { return improved(in, q); })[0];
}

static Expected<Values> importClassifier(Importer &importer, const Node &node) {
  Compose c(importer);
  auto labels = classLabels(node, "classlabels_ints");
  auto post = postTransform(node);
  if (!labels || !post)
    return tl::unexpected(!labels ? labels.error() : post.error());
  Value x = c.cast(features(c, importer.input(node, 0)), realType(c, node));
  std::vector<int64_t> supports = intsAttr(node, "vectors_per_class", {});
  auto classes = static_cast<int64_t>(labels->size());
  if (supports.empty()) {
    std::vector<double> rho = realsAttr(node, "rho");
    rho.resize(static_cast<size_t>(classes), rho.empty() ? 0 : rho[0]);
    return classified(c, affine(c, x, realsAttr(node, "coefficients"), rho, classes),
                      *labels, *post, 0, false);
  }
  if (static_cast<int64_t>(supports.size()) != classes || classes < 2)
    return makeError("SVMClassifier of " + std::to_string(classes) +
                     " labels and vectors of " + std::to_string(supports.size()) +
                     " classes");
  Pairs pairs(c, node, supports);
  Value decisions = pairs.decisions(x);
  bool hasChances = !realsAttr(node, "prob_a").empty();
  auto byVotes = classified(c, pairs.votes(decisions), *labels, None, 0, false);
  if (!byVotes)
    return byVotes;
  Value scores = hasChances ? pairs.chances(decisions) : decisions;
  if (!hasChances && classes == 2)
    scores = c.concat({c.op("neg", decisions), decisions}, 1);
  return c.results({(*byVotes)[0], transformed(c, scores, *post)});
}

void import::addSupportVectors(HandlerTable &table) {
  table["ai.onnx.ml.SVMRegressor"] = importRegressor;
  table["ai.onnx.ml.SVMClassifier"] = importClassifier;
}
