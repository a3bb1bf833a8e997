//===- MachineLearning.cpp - Import of ai.onnx.ml's operators -------------===//
#include "passes/Import/Compose.h"

#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

static Expected<Values> importBinarizer(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Value threshold = c.like(x, floatAttr(node, "threshold", 0));
  return c.results({c.cast(c.op("greater", {x, threshold}), c.type(x))});
}

/// Elements of the last dim by a list of places.
static Expected<Values> importFeatureExtractor(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), places = importer.input(node, 1);
  if (c.shape(x).empty())
    return makeError("ArrayFeatureExtractor of a scalar");
  if (c.shape(x).size() == 1)
    x = c.reshape(x, {1, c.shape(x)[0]});
  places = c.reshape(places, {elementCount(c.shape(places))});
  return c.results({c.gather(x, places, static_cast<int64_t>(c.shape(x).size()) - 1)});
}

//===-- Trees -------------------------------------------------------------===//

namespace {
/// Interior nodes, then leaves, which lead to themselves.
struct Trees {
  std::vector<double> feature, split, mode, onTrue, onFalse, trueIfMissing;
  std::vector<double> members; ///< `width` per node, NaN where there are fewer
  std::vector<double> weight, target, roots;
  size_t interior = 0, all = 0, width = 0, depth = 0;
};
} // namespace

static std::vector<double> tensorAttr(const Node &node, const char *name) {
  const auto *tensor = node.attribute<onnx_model::Tensor>(name);
  if (!tensor)
    return {};
  HostTensor host{tensor->type, tensor->shape, {}};
  host.bytes.assign(tensor->bytes.begin(), tensor->bytes.end());
  return reference::values<double>(host);
}

static std::vector<double> numbersAttr(const Node &node, const char *name) {
  std::vector<int64_t> values = intsAttr(node, name, {});
  return {values.begin(), values.end()};
}

/// Steps from the roots to the lowest leaf; an error where nodes are no trees.
static Expected<size_t> depthOf(const Trees &t) {
  std::vector<double> level = t.roots;
  size_t depth = 0;
  for (; !level.empty(); ++depth) {
    if (depth > t.interior || level.size() > t.all)
      return makeError("the nodes make up no trees");
    std::vector<double> next;
    for (double at : level) {
      if (at < 0 || at >= static_cast<double>(t.all))
        return makeError("there is no node " + std::to_string(int64_t(at)));
      auto i = static_cast<size_t>(at);
      if (i < t.interior)
        next.insert(next.end(), {t.onTrue[i], t.onFalse[i]});
    }
    level = std::move(next);
  }
  return depth - 1;
}

/// The sets of nodes of mode BRANCH_MEMBER, in the order of these, each ended by NaN.
static void readMembers(Trees &t, const std::vector<double> &values) {
  std::vector<std::vector<double>> sets(t.all);
  size_t at = 0;
  for (size_t i = 0; i < t.interior; ++i)
    if (t.mode[i] == 6) {
      for (; at < values.size() && !std::isnan(values[at]); ++at)
        sets[i].push_back(values[at]);
      ++at;
      t.width = std::max(t.width, sets[i].size());
    }
  for (std::vector<double> &set : sets) {
    set.resize(t.width, NAN);
    t.members.insert(t.members.end(), set.begin(), set.end());
  }
}

static Expected<Trees> readTrees(const Node &node) {
  Trees t;
  t.feature = numbersAttr(node, "nodes_featureids");
  t.split = tensorAttr(node, "nodes_splits");
  t.mode = tensorAttr(node, "nodes_modes");
  t.onTrue = numbersAttr(node, "nodes_truenodeids");
  t.onFalse = numbersAttr(node, "nodes_falsenodeids");
  t.trueIfMissing = numbersAttr(node, "nodes_missing_value_tracks_true");
  t.weight = tensorAttr(node, "leaf_weights");
  t.target = numbersAttr(node, "leaf_targetids");
  t.roots = numbersAttr(node, "tree_roots");
  std::vector<double> trueLeaf = numbersAttr(node, "nodes_trueleafs");
  std::vector<double> falseLeaf = numbersAttr(node, "nodes_falseleafs");
  t.interior = t.feature.size(), t.all = t.interior + t.weight.size();
  for (const auto *list :
       {&t.split, &t.mode, &t.onTrue, &t.onFalse, &trueLeaf, &falseLeaf})
    if (list->size() != t.interior)
      return makeError("the lists of nodes have not one length");
  if (t.target.size() != t.weight.size() || t.roots.empty())
    return makeError("the lists of leaves have not one length, or there is no root");
  for (size_t i = 0; i < t.interior; ++i) {
    t.onTrue[i] += trueLeaf[i] != 0 ? static_cast<double>(t.interior) : 0;
    t.onFalse[i] += falseLeaf[i] != 0 ? static_cast<double>(t.interior) : 0;
  }
  t.trueIfMissing.resize(t.all, 0);
  t.feature.resize(t.all, 0), t.split.resize(t.all, 0), t.mode.resize(t.all, 0);
  for (size_t i = t.interior; i < t.all; ++i) {
    t.onTrue.push_back(static_cast<double>(i));
    t.onFalse.push_back(static_cast<double>(i));
  }
  readMembers(t, tensorAttr(node, "membership_values"));
  auto depth = depthOf(t);
  if (!depth)
    return tl::unexpected(depth.error());
  t.depth = *depth;
  return t;
}

/// Where `at` [rows, trees] leads in one step.
static Value step(Compose &c, const Trees &t, Value x, Value at) {
  auto count = static_cast<int64_t>(t.all);
  auto look = [&](const std::vector<double> &table, Type type) {
    return c.gather(c.tensor(type, {count}, table), at, 0);
  };
  Value value = c.op("gather_elements", {x, look(t.feature, c.i64())},
                     c.importer.attr("axis", int64_t(1)));
  Value split = look(t.split, c.type(x)), mode = look(t.mode, c.i64());
  Value isTrue = c.op("less_equal", {value, split});
  auto choose = [&](int64_t number, Value holds) {
    isTrue = c.select(c.equal(mode, static_cast<double>(number)), holds, isTrue);
  };
  auto has = [&](double number) { return llvm::is_contained(t.mode, number); };
  if (has(1))
    choose(1, c.less(value, split));
  if (has(2))
    choose(2, c.op("greater_equal", {value, split}));
  if (has(3))
    choose(3, c.op("greater", {value, split}));
  if (has(4))
    choose(4, c.equal(value, split));
  if (has(5))
    choose(5, c.op("not", c.equal(value, split)));
  if (has(6) && t.width != 0) {
    Shape shape = c.shape(at);
    auto width = static_cast<int64_t>(t.width);
    Value sets = c.gather(c.tensor(c.type(x), {count, width}, t.members), at, 0);
    Value same = c.equal(sets, c.reshape(value, {shape[0], shape[1], 1}));
    Value number = c.sum(c.cast(same, c.i64()), {2}, false);
    choose(6, c.less(c.like(number, 0), number));
  }
  if (llvm::any_of(t.trueIfMissing, [](double flag) { return flag != 0; })) {
    Value tracks = c.less(c.scalar(c.i64(), 0), look(t.trueIfMissing, c.i64()));
    isTrue = c.op("or", {isTrue, c.both(c.op("isnan", value), tracks)});
  }
  return c.select(isTrue, look(t.onTrue, c.i64()), look(t.onFalse, c.i64()));
}

/// Each row goes down every tree at once, as many steps as the lowest leaf is away;
/// leaves wait.
static Expected<Values> importTreeEnsemble(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  if (c.shape(x).size() != 2)
    return makeError("TreeEnsemble of rank " + std::to_string(c.shape(x).size()));
  auto trees = readTrees(node);
  if (!trees)
    return tl::unexpected(trees.error());
  int64_t rows = c.shape(x)[0], count = static_cast<int64_t>(trees->roots.size());
  int64_t targets = intAttr(node, "n_targets", 1), leaves = trees->weight.size();
  int64_t how = intAttr(node, "aggregate_function", 1);
  int64_t post = intAttr(node, "post_transform", 0);
  if (how > 1 || post > 2)
    return makeError("TreeEnsemble with this aggregate_function or post_transform");
  Value at = c.broadcast(c.tensor(c.i64(), {count}, trees->roots), {rows, count});
  for (size_t i = 0; i < trees->depth && !c.failed(); ++i)
    at = step(c, *trees, x, at);
  Value leaf = c.sub(at, static_cast<double>(trees->interior));
  Value weight = c.gather(c.tensor(c.type(x), {leaves}, trees->weight), leaf, 0);
  Value target = c.gather(c.tensor(c.i64(), {leaves}, trees->target), leaf, 0);
  Value isHere =
      c.equal(c.reshape(target, {rows, count, 1}), c.iota(c.i64(), targets, 2, 3));
  Value y = c.sum(c.select(isHere, c.reshape(weight, {rows, count, 1}), c.like(x, 0)),
                  {1}, false);
  if (how == 0)
    y = c.div(y, static_cast<double>(count));
  if (post == 1)
    y = c.op("softmax", y, importer.attr("axis", int64_t(1)));
  if (post == 2)
    y = c.op("sigmoid", y);
  return c.results({y});
}

void import::addMachineLearning(HandlerTable &table) {
  table["ai.onnx.ml.Binarizer"] = importBinarizer;
  table["ai.onnx.ml.ArrayFeatureExtractor"] = importFeatureExtractor;
  table["ai.onnx.ml.TreeEnsemble"] = importTreeEnsemble;
}
