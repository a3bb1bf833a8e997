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
  /// Targets of the leaves, `each` per leaf, and the weights for them; target -1: none.
  std::vector<double> weight, target;
  std::vector<double> roots;
  size_t interior = 0, all = 0, width = 0, each = 1;
};

/// Numbers are those of the attributes.
enum Aggregate { Average, Sum, Min, Max };
} // namespace

/// An error where nodes are no trees.
static Expected<void> checkTrees(const Trees &t) {
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
  return {};
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

/// Adds leaves as nodes that lead to themselves.
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
  if (auto ok = checkTrees(t); !ok)
    return tl::unexpected(ok.error());
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
  if (auto ok = checkTrees(t); !ok)
    return tl::unexpected(ok.error());
  return std::move(t);
}

namespace {
/// Trees as graph.trees has them: of each tree a row of tables, from the root on, in
/// which two nodes stand side by side to which one leads.
class Tables {
public:
  /// `type`: of the features, f32 or f64.
  Tables(Compose &c, const Trees &t, Type type) : c(c), t(t), type(type) {}

  Expected<void> build();
  /// [trees, rows, targets]: what the leaf of each tree says of a target, `none` where
  /// that is nothing. `isFlag`: 1 where it says something.
  Value emit(Value x, int64_t targets, double none, bool isFlag);
  /// Tells whether all leaves of some tree say something of each target.
  bool saysAll(int64_t targets) const;

private:
  /// A node to be written: of `t`, or the comparison `part` of it with a set's numbers.
  struct Source {
    size_t node = 0, part = 0;
  };
  struct Row {
    double feature = -1, split = INFINITY, child = 0;
    int64_t leaf = -1;
  };
  struct Pending {
    size_t at;
    Source source;
    int64_t depth;
  };
  bool grow(double root);
  bool branch(std::vector<Row> &rows, const Pending &one, Source &here, Source &behind);
  /// The greatest number of the type below `value`.
  double below(double value) const {
    return type.isF64() ? std::nextafter(value, -INFINITY)
                        : std::nextafter(static_cast<float>(value), -INFINITY);
  }
  std::vector<double> numbersOf(size_t node) const;

  Compose &c;
  const Trees &t;
  Type type;
  std::vector<std::vector<Row>> trees;
  int64_t depth = 0;
};
} // namespace

/// The numbers with which a node compares for equality.
std::vector<double> Tables::numbersOf(size_t node) const {
  if (t.mode[node] != 6)
    return {t.split[node]};
  std::vector<double> numbers;
  for (size_t i = 0; i < t.width; ++i)
    if (double number = t.members[node * t.width + i]; !std::isnan(number))
      numbers.push_back(number);
  return numbers;
}

/// Every mode is "at most": below a number is at most the one before it, more than a
/// number are the nodes exchanged, and equality is both, one number after the other. NaN
/// goes where it does by the mode: nothing holds of it but that it differs.
bool Tables::branch(std::vector<Row> &rows, const Pending &one, Source &here,
                    Source &behind) {
  Row &row = rows[one.at];
  size_t node = one.source.node, part = one.source.part;
  Source yes{static_cast<size_t>(t.onTrue[node])},
      no{static_cast<size_t>(t.onFalse[node])};
  auto mode = static_cast<int64_t>(t.mode[node]);
  bool tracks = t.trueIfMissing[node] != 0, isLow = false;
  double split = t.split[node];
  if (mode < 4) {
    bool isMore = mode == 2 || mode == 3;
    here = isMore ? no : yes, behind = isMore ? yes : no;
    isLow = isMore != tracks;
    if (mode == 1 || mode == 2)
      split = below(split);
  } else {
    std::vector<double> numbers = numbersOf(node);
    if (numbers.empty())
      return false;
    if (mode == 5)
      std::swap(yes, no), tracks = false;
    split = numbers[part / 2];
    Source next = part / 2 + 1 < numbers.size() ? Source{node, part / 2 * 2 + 2} : no;
    if (part % 2 == 0) {
      here = {node, part + 1}, behind = next, isLow = tracks;
    } else {
      here = next, behind = yes, split = below(split);
    }
  }
  row.split = split;
  row.feature = isLow ? -1 - t.feature[node] : t.feature[node];
  return std::isfinite(split) || (mode == 0 || mode == 3);
}

bool Tables::grow(double root) {
  std::vector<Row> rows(1);
  std::vector<Pending> pending{{0, {static_cast<size_t>(root), 0}, 0}};
  for (size_t i = 0; i < pending.size(); ++i) {
    Pending one = pending[i];
    if (one.source.node >= t.interior) {
      rows[one.at].leaf = static_cast<int64_t>(one.source.node - t.interior);
      rows[one.at].child = static_cast<double>(one.at);
      continue;
    }
    Source here, behind;
    if (!branch(rows, one, here, behind))
      return false;
    rows[one.at].child = static_cast<double>(rows.size());
    depth = std::max(depth, one.depth + 1);
    for (Source source : {here, behind}) {
      pending.push_back({rows.size(), source, one.depth + 1});
      rows.push_back({});
    }
  }
  trees.push_back(std::move(rows));
  return true;
}

Expected<void> Tables::build() {
  for (double root : t.roots)
    if (!grow(root))
      return makeError("a node compares with an infinite number, or with none");
  return {};
}

bool Tables::saysAll(int64_t targets) const {
  std::vector<bool> said(static_cast<size_t>(targets), false);
  for (const std::vector<Row> &rows : trees) {
    std::vector<size_t> count(said.size());
    size_t leaves = 0;
    for (const Row &row : rows) {
      leaves += row.leaf >= 0 ? 1 : 0;
      for (size_t e = 0; row.leaf >= 0 && e < t.each; ++e)
        if (double target = t.target[static_cast<size_t>(row.leaf) * t.each + e];
            target >= 0)
          ++count[static_cast<size_t>(target)];
    }
    for (size_t k = 0; k < said.size(); ++k)
      said[k] = said[k] || count[k] == leaves;
  }
  return !llvm::is_contained(said, false);
}

Value Tables::emit(Value x, int64_t targets, double none, bool isFlag) {
  size_t count = trees.size(), nodes = 1, each = static_cast<size_t>(targets);
  for (const std::vector<Row> &rows : trees)
    nodes = std::max(nodes, rows.size());
  std::vector<double> feature(count * nodes, -1), split(count * nodes, INFINITY),
      child(count * nodes), weight(count * nodes * each, none);
  for (size_t k = 0; k < count; ++k)
    for (size_t i = 0; i < trees[k].size(); ++i) {
      const Row &row = trees[k][i];
      size_t at = k * nodes + i;
      feature[at] = row.feature, split[at] = row.split, child[at] = row.child;
      for (size_t e = 0; row.leaf >= 0 && e < t.each; ++e) {
        size_t entry = static_cast<size_t>(row.leaf) * t.each + e;
        if (t.target[entry] >= 0)
          weight[at * each + static_cast<size_t>(t.target[entry])] =
              isFlag ? 1 : t.weight[entry];
      }
    }
  Shape table{static_cast<int64_t>(count), static_cast<int64_t>(nodes)};
  Shape weights = table;
  weights.push_back(targets);
  Type i32 = c.builder.getI32Type();
  Value says = c.tensor(type, weights, weight);
  auto walk = [&](Value weighs) {
    return c.op("trees",
                {x, c.tensor(i32, table, feature), c.tensor(type, table, split),
                 c.tensor(i32, table, child), weighs},
                c.attr("depth", depth));
  };
  constexpr size_t maxExact = size_t(1) << 24; // integers of an f32
  if (targets == 1 || nodes > maxExact)
    return walk(says);
  // A kernel of several targets would walk once for each: the places are kept.
  std::vector<double> places(count * nodes);
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<double>(i % nodes);
  Value leaf = c.cast(walk(c.tensor(type, {table[0], table[1], 1}, places)), i32);
  return c.op("gather_nd", {says, leaf}, c.attr("batch_dims", int64_t(1)));
}

/// [rows, targets] of what the leaves say of each target, with `base` per target where
/// there are some. A target of which no tree says anything is 0.
static Value scored(Compose &c, const Trees &t, Value x, int64_t targets, int64_t how,
                    const std::vector<double> &base = {}) {
  for (double target : t.target)
    if (target >= static_cast<double>(targets))
      return c.fail("a weight of target " + std::to_string(static_cast<int64_t>(target)) +
                    ", and there are " + std::to_string(targets));
  for (double feature : t.feature)
    if (!c.failed() && (feature < 0 || feature >= static_cast<double>(c.shape(x)[1])))
      return c.fail("a node asks for feature " +
                    std::to_string(static_cast<int64_t>(feature)) + " of " +
                    std::to_string(c.shape(x)[1]));
  Tables tables(c, t, c.type(x));
  if (auto built = tables.build(); !built)
    return c.fail(built.error().message);
  bool isSum = how == Average || how == Sum;
  ReduceKind kind = isSum        ? ReduceKind::Sum
                    : how == Min ? ReduceKind::Min
                                 : ReduceKind::Max;
  double none = isSum ? 0 : how == Min ? INFINITY : -INFINITY;
  Value y = c.reduce(kind, tables.emit(x, targets, none, false), {0}, false);
  if (how == Average)
    y = c.div(y, static_cast<double>(t.roots.size()));
  if (!base.empty())
    y = c.add(y, c.tensor(c.type(y), {targets}, base));
  if ((isSum && base.empty()) || tables.saysAll(targets))
    return y;
  Value said = c.reduce(ReduceKind::Max, tables.emit(x, targets, 0, true), {0}, false);
  return c.select(c.less(c.like(said, 0), said), y, c.like(y, 0));
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

/// A score decides alone where leaves weigh one of two classes: from a half on where all
/// weights are chances, else from 0 on.
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
