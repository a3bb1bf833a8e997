//===- Training.cpp - Import of optimizers as operators -------------------===//
//
// ai.onnx.preview.training: learning rate, update count, then as many tensors, gradients
// and states as there are tensors to train.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Compose.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

namespace {
struct TensorStep {
  Value rate, count; ///< f32, i64 scalars
  Value x, gradient; ///< the gradient with the decay of weights
  Values states;
};
/// New x, then new states.
using Update = Values (*)(Compose &, const Node &, const TensorStep &);
} // namespace

/// Calls `update` per tensor; outputs are all tensors, then all first states, and so on.
static Expected<Values> perTensor(Importer &importer, const Node &node, size_t numStates,
                                  Update update) {
  Compose c(importer);
  size_t each = 2 + numStates, tensors = (node.inputs.size() - 2) / each;
  Values results(tensors * (1 + numStates));
  for (size_t t = 0; t < tensors; ++t) {
    auto at = [&](size_t group) { return importer.input(node, 2 + group * tensors + t); };
    TensorStep step{c.reshape(importer.input(node, 0), {}),
                    c.reshape(importer.input(node, 1), {}),
                    at(0),
                    at(1),
                    {}};
    double decay = floatAttr(node, "norm_coefficient", 0);
    step.rate = c.cast(step.rate, c.type(step.x));
    step.gradient = c.add(step.gradient, c.mul(step.x, decay));
    for (size_t s = 0; s < numStates; ++s)
      step.states.push_back(at(2 + s));
    Values made = update(c, node, step);
    for (size_t i = 0; i < made.size(); ++i)
      results[i * tensors + t] = made[i];
  }
  return c.results(results);
}

static Values momentum(Compose &c, const Node &node, const TensorStep &s) {
  double alpha = floatAttr(node, "alpha", 0), beta = floatAttr(node, "beta", 0);
  // The first update takes the gradient whole.
  Value isFirst = c.equal(s.count, 0);
  Value weight = c.select(isFirst, c.like(s.x, 1), c.like(s.x, beta));
  Value v = c.add(c.mul(s.states[0], alpha), c.mul(s.gradient, weight));
  Value direction = v;
  if (stringAttr(node, "mode", "standard") == "nesterov")
    direction = c.add(s.gradient, c.mul(v, alpha));
  return {c.sub(s.x, c.mul(direction, s.rate)), v};
}

static Values adam(Compose &c, const Node &node, const TensorStep &s) {
  double alpha = floatAttr(node, "alpha", 0.9), beta = floatAttr(node, "beta", 0.999);
  Value v = c.add(c.mul(s.states[0], alpha), c.mul(s.gradient, 1 - alpha));
  Value h =
      c.add(c.mul(s.states[1], beta), c.mul(c.mul(s.gradient, s.gradient), 1 - beta));
  Value t = c.cast(s.count, c.type(s.x)), one = c.like(s.x, 1);
  auto missing = [&](double base) {
    return c.sub(one, c.op("pow", {c.like(s.x, base), t}));
  };
  Value corrected = c.div(c.mul(s.rate, c.sqrt(missing(beta))), missing(alpha));
  Value rate = c.select(c.less(c.like(s.count, 0), s.count), corrected, s.rate);
  Value root = c.add(c.sqrt(h), floatAttr(node, "epsilon", 1e-6));
  Value x = c.sub(s.x, c.div(c.mul(v, rate), root));
  return {c.mul(x, 1 - floatAttr(node, "norm_coefficient_post", 0)), v, h};
}

static Values adagrad(Compose &c, const Node &node, const TensorStep &s) {
  Value t = c.cast(s.count, c.type(s.x));
  Value rate = c.div(s.rate, c.add(c.mul(t, floatAttr(node, "decay_factor", 0)), 1));
  Value h = c.add(s.states[0], c.mul(s.gradient, s.gradient));
  Value root = c.add(c.sqrt(h), floatAttr(node, "epsilon", 1e-6));
  return {c.sub(s.x, c.div(c.mul(rate, s.gradient), root)), h};
}

template <size_t numStates, Update update>
static Expected<Values> importOptimizer(Importer &importer, const Node &node) {
  return perTensor(importer, node, numStates, update);
}

void import::addTraining(HandlerTable &table) {
  table["ai.onnx.preview.training.Momentum"] = importOptimizer<1, momentum>;
  table["ai.onnx.preview.training.Adam"] = importOptimizer<2, adam>;
  table["ai.onnx.preview.training.Adagrad"] = importOptimizer<1, adagrad>;
}
