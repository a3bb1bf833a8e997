//===- Trees.cpp - Import of ensembles of trees ---------------------------===//
#include "passes/Import/MachineLearning.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

namespace {
/// Interior nodes, then leaves, which lead to themselves.
struct Trees {
  std::vector<double> feature, split, mode, onTrue, onFalse, trueIfMissing;
  std::vector<double> members; ///< `width` per node, NaN where there are fewer
  /// Of each leaf, `each` targets and what it adds to them; target -1: none.
  std::vector<double> weight, target;
  std::vector<double> roots;
  size_t interior = 0, all = 0, width = 0, each = 1, depth = 0;
};

/// By the numbers that they have as attributes.
enum Aggregate { Average, Sum, Min, Max };
} // namespace

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

/// As nodes that lead to themselves.
static void addLeaves(Trees &t) {
  t.trueIfMissing.resize(t.all, 0);
  t.feature.resize(t.all, 0), t.split.resize(t.all, 0), t.mode.resize(t.all, 0);
  for (size_t i = t.interior; i < t.all; ++i) {
    t.onTrue.push_back(static_cast<double>(i));
    t.onFalse.push_back(static_cast<double>(i));
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
  addLeaves(t);
  readMembers(t, tensorAttr(node, "membership_values"));
  auto depth = depthOf(t);
  if (!depth)
    return tl::unexpected(depth.error());
  t.depth = *depth;
  return t;
}

namespace {
/// The trees of a regressor or classifier: interior nodes and leaves in one list, each
/// named by the numbers of its tree and of itself, and weights by leaf and target.
class NamedTrees {
public:
  /// `weighed`: what the attributes of weights begin with.
  NamedTrees(const Node &node, std::string weighed)
      : node(node), weighed(std::move(weighed)) {}
  Expected<Trees> read();

private:
  using Name = std::pair<int64_t, int64_t>;
  Expected<void> number();
  Expected<void> connect();
  Expected<void> weigh();
  Expected<size_t> find(int64_t tree, double name) const;

  const Node &node;
  std::string weighed;
  Trees t;
  std::vector<int64_t> tree, name, kind; ///< per node of the list; kind -1: a leaf
  std::map<Name, size_t> numberOf;       ///< in `t`
};
} // namespace

Expected<size_t> NamedTrees::find(int64_t tree, double name) const {
  auto found = numberOf.find({tree, static_cast<int64_t>(name)});
  if (found == numberOf.end())
    return makeError("tree " + std::to_string(tree) + " has no node " +
                     std::to_string(static_cast<int64_t>(name)));
  return found->second;
}

/// Interior nodes first, each kind in its order.
Expected<void> NamedTrees::number() {
  static const std::vector<std::string> modes = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                                 "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
  tree = intsAttr(node, "nodes_treeids", {});
  name = intsAttr(node, "nodes_nodeids", {});
  const auto *words = node.attribute<std::vector<std::string>>("nodes_modes");
  if (!words || tree.size() != words->size() || name.size() != words->size())
    return makeError("the lists of nodes have not one length");
  size_t leaves = 0;
  for (const std::string &word : *words) {
    auto found = llvm::find(modes, word);
    if (found == modes.end() && word != "LEAF")
      return makeError("nodes of mode \"" + word + "\"");
    kind.push_back(word == "LEAF" ? -1 : found - modes.begin());
    leaves += kind.back() < 0 ? 1 : 0;
  }
  t.all = words->size(), t.interior = t.all - leaves;
  size_t interior = 0, leaf = t.interior;
  for (size_t i = 0; i < t.all; ++i)
    if (!numberOf.try_emplace({tree[i], name[i]}, kind[i] < 0 ? leaf++ : interior++)
             .second)
      return makeError("tree " + std::to_string(tree[i]) + " has two nodes " +
                       std::to_string(name[i]));
  return {};
}

/// A root is a node to which no other leads.
Expected<void> NamedTrees::connect() {
  std::vector<double> feature = numbersAttr(node, "nodes_featureids");
  std::vector<double> split = realsAttr(node, "nodes_values");
  std::vector<double> onTrue = numbersAttr(node, "nodes_truenodeids");
  std::vector<double> onFalse = numbersAttr(node, "nodes_falsenodeids");
  std::vector<double> missing = numbersAttr(node, "nodes_missing_value_tracks_true");
  missing.resize(t.all, 0);
  for (const auto *list : {&feature, &split, &onTrue, &onFalse, &missing})
    if (list->size() != t.all)
      return makeError("the lists of nodes have not one length");
  std::vector<bool> isBelow(t.all, false);
  for (size_t i = 0; i < t.all; ++i) {
    if (kind[i] < 0)
      continue;
    auto yes = find(tree[i], onTrue[i]), no = find(tree[i], onFalse[i]);
    if (!yes || !no)
      return tl::unexpected(yes ? no.error() : yes.error());
    isBelow[*yes] = isBelow[*no] = true;
    t.feature.push_back(feature[i]), t.split.push_back(split[i]);
    t.mode.push_back(static_cast<double>(kind[i]));
    t.onTrue.push_back(static_cast<double>(*yes));
    t.onFalse.push_back(static_cast<double>(*no));
    t.trueIfMissing.push_back(missing[i]);
  }
  for (size_t i = 0; i < t.all; ++i)
    if (!isBelow[i])
      t.roots.push_back(static_cast<double>(i));
  return {};
}

Expected<void> NamedTrees::weigh() {
  auto of = [&](const char *name) { return weighed + name; };
  std::vector<int64_t> trees = intsAttr(node, of("_treeids"), {});
  std::vector<double> names = numbersAttr(node, of("_nodeids").c_str());
  std::vector<double> targets = numbersAttr(node, of("_ids").c_str());
  std::vector<double> weights = realsAttr(node, of("_weights"));
  if (names.size() != trees.size() || targets.size() != trees.size() ||
      weights.size() != trees.size())
    return makeError("the lists of targets have not one length");
  std::vector<std::vector<size_t>> ofLeaf(t.all - t.interior);
  for (size_t i = 0; i < trees.size(); ++i) {
    auto at = find(trees[i], names[i]);
    if (!at)
      return tl::unexpected(at.error());
    if (*at < t.interior)
      return makeError("a weight of node " +
                       std::to_string(static_cast<int64_t>(names[i])) +
                       ", which is no leaf");
    ofLeaf[*at - t.interior].push_back(i);
  }
  for (const auto &list : ofLeaf)
    t.each = std::max(t.each, list.size());
  for (const auto &list : ofLeaf)
    for (size_t k = 0; k < t.each; ++k) {
      t.weight.push_back(k < list.size() ? weights[list[k]] : 0);
      t.target.push_back(k < list.size() ? targets[list[k]] : -1);
    }
  return {};
}

Expected<Trees> NamedTrees::read() {
  for (auto step : {&NamedTrees::number, &NamedTrees::connect, &NamedTrees::weigh})
    if (auto done = (this->*step)(); !done)
      return tl::unexpected(done.error());
  addLeaves(t);
  auto depth = depthOf(t);
  if (!depth)
    return tl::unexpected(depth.error());
  t.depth = *depth;
  return std::move(t);
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
/// leaves wait. Then [rows, targets] of what the leaves add to each target, with `base`
/// per target where there are some. A target of which no tree says anything is 0.
static Value scored(Compose &c, const Trees &t, Value x, int64_t targets, int64_t how,
                    const std::vector<double> &base = {}) {
  int64_t rows = c.shape(x)[0], count = static_cast<int64_t>(t.roots.size());
  auto leaves = static_cast<int64_t>(t.all - t.interior);
  auto each = static_cast<int64_t>(t.each), entries = count * each;
  Value at = c.broadcast(c.tensor(c.i64(), {count}, t.roots), {rows, count});
  for (size_t i = 0; i < t.depth && !c.failed(); ++i)
    at = step(c, t, x, at);
  Value leaf = c.sub(at, static_cast<double>(t.interior));
  auto look = [&](Type type, const std::vector<double> &table) {
    return c.reshape(c.gather(c.tensor(type, {leaves, each}, table), leaf, 0),
                     {rows, entries, 1});
  };
  Value weight = look(c.type(x), t.weight), target = look(c.i64(), t.target);
  Value isHere = c.equal(target, c.iota(c.i64(), targets, 2, 3));
  bool isSum = how == Average || how == Sum;
  Value none = c.like(x, isSum ? 0 : how == Min ? INFINITY : -INFINITY);
  ReduceKind kind = isSum        ? ReduceKind::Sum
                    : how == Min ? ReduceKind::Min
                                 : ReduceKind::Max;
  Value y = c.reduce(kind, c.select(isHere, weight, none), {1}, false);
  if (how == Average)
    y = c.div(y, static_cast<double>(count));
  if (!base.empty())
    y = c.add(y, c.tensor(c.type(y), {targets}, base));
  if (isSum && base.empty())
    return y;
  return c.select(c.reduce(ReduceKind::Max, isHere, {1}, false), y, c.like(y, 0));
}

static Expected<Values> importTreeEnsemble(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  if (c.shape(x).size() != 2)
    return makeError("TreeEnsemble of rank " + std::to_string(c.shape(x).size()));
  auto trees = readTrees(node);
  if (!trees)
    return tl::unexpected(trees.error());
  int64_t how = intAttr(node, "aggregate_function", Sum);
  int64_t post = intAttr(node, "post_transform", None);
  if (how < Average || how > Max || post < None || post > Probit)
    return makeError("TreeEnsemble with this aggregate_function or post_transform");
  Value y = scored(c, *trees, x, intAttr(node, "n_targets", 1), how);
  return c.results({transformed(c, y, post)});
}

static Expected<Values> importTreeRegressor(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  if (c.shape(x).size() != 2)
    return makeError("TreeEnsembleRegressor of rank " +
                     std::to_string(c.shape(x).size()));
  auto trees = NamedTrees(node, "target").read();
  auto how =
      wordAttr(node, "aggregate_function", {"AVERAGE", "SUM", "MIN", "MAX"}, "SUM");
  auto post = postTransform(node);
  if (!trees || !how || !post)
    return tl::unexpected(!trees ? trees.error() : !how ? how.error() : post.error());
  if (!c.type(x).isF64())
    x = c.cast(x, realType(c, node));
  int64_t targets = intAttr(node, "n_targets", 1);
  std::vector<double> base = realsAttr(node, "base_values");
  if (!base.empty() && base.size() != static_cast<size_t>(targets))
    return makeError(std::to_string(base.size()) + " base_values for " +
                     std::to_string(targets) + " targets");
  return c.results(
      {c.cast(transformed(c, scored(c, *trees, x, targets, *how, base), *post),
              realType(c, node))});
}

/// Of two classes of which the leaves weigh one alone, its score decides: from a half on
/// where all weights are chances, else from 0 on.
static Expected<Values> importTreeClassifier(Importer &importer, const Node &node) {
  Compose c(importer);
  auto trees = NamedTrees(node, "class").read();
  auto labels = classLabels(node, "classlabels_int64s");
  auto post = postTransform(node);
  if (!trees || !labels || !post)
    return tl::unexpected(!trees    ? trees.error()
                          : !labels ? labels.error()
                                    : post.error());
  std::vector<double> base = realsAttr(node, "base_values");
  std::set<double> weighed(trees->target.begin(), trees->target.end());
  weighed.erase(-1);
  auto classes = static_cast<int64_t>(labels->size());
  bool isOne = classes == 2 && weighed.size() == 1;
  if (isOne) {
    std::replace(trees->target.begin(), trees->target.end(), *weighed.begin(), 0.0);
    if (!base.empty())
      base = {base.back()};
    classes = 1;
  }
  if (!base.empty() && base.size() != static_cast<size_t>(classes))
    return makeError(std::to_string(base.size()) + " base_values for " +
                     std::to_string(classes) + " classes");
  Value x = features(c, importer.input(node, 0));
  if (c.failed())
    return c.results({});
  Value y = c.cast(scored(c, *trees, x, classes, Sum, base), realType(c, node));
  bool isChance = llvm::all_of(trees->weight, [](double weight) { return weight >= 0; });
  return classified(c, y, *labels, *post, isChance ? 0.5 : 0, isChance);
}

void import::addTrees(HandlerTable &table) {
  table["ai.onnx.ml.TreeEnsemble"] = importTreeEnsemble;
  table["ai.onnx.ml.TreeEnsembleRegressor"] = importTreeRegressor;
  table["ai.onnx.ml.TreeEnsembleClassifier"] = importTreeClassifier;
}
