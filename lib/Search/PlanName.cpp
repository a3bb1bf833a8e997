//===- PlanName.cpp - A plan by the names that people know ----------------===//
#include "partita/Search/PlanName.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Search/Timing.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

using namespace partita;
using namespace partita::search;

namespace {
/// In the order of names.
enum class Kind : uint8_t { TP, SP, EP, CP, DP };
constexpr std::array<const char *, 5> kindNames = {"TP", "SP", "EP", "CP", "DP"};

class Namer {
public:
  Namer(const FlowGraph &graph, const std::vector<Strategy> &strategies)
      : graph(graph), strategies(strategies) {
    findWeights();
    findRows();
  }

  std::string name() {
    if (graph.mesh.numRanks() == 1)
      return "1 device";
    count(/*onlyOfWeights=*/true);
    if (uses.empty())
      count(/*onlyOfWeights=*/false);
    findPositions();
    std::map<std::string, int64_t> ranks; // by label
    for (size_t a = 0; a < graph.mesh.axes().size(); ++a)
      for (const AxisRef &digit :
           primes({AxisRef{static_cast<int32_t>(a), 1, graph.mesh.axes()[a].size}}))
        ranks.try_emplace(labelOf(digit), 1).first->second *= digit.size;
    std::string text;
    for (const auto &[label, size] : ordered(ranks))
      text += (text.empty() ? "" : "·") + label + std::to_string(size);
    if (int level = shardedLevel())
      text += "·ZeRO-" + std::to_string(level);
    return text;
  }

private:
  /// Parameters, weights, and what is made of nothing else.
  void findWeights() {
    isWeight.resize(graph.values.size());
    for (const FlowOp &op : graph.ops) {
      bool is = op.isParameter || (op.kind == FlowKind::Source && !op.isUniform());
      if (op.kind == FlowKind::Compute && !op.operands.empty())
        is = std::ranges::all_of(op.operands, [&](int32_t value) {
          return isWeight[static_cast<size_t>(value)];
        });
      for (int32_t value : op.results)
        isWeight[static_cast<size_t>(value)] = is;
    }
  }

  /// Marks of the first dims of inputs: pieces that are linked with theirs.
  void findRows() {
    isRow.resize(graph.atoms.size());
    std::vector<int32_t> open;
    auto add = [&](int32_t atom) {
      if (!isRow[static_cast<size_t>(atom)]) {
        isRow[static_cast<size_t>(atom)] = true;
        open.push_back(atom);
      }
    };
    for (size_t o = 0; o < graph.ops.size(); ++o)
      if (const FlowOp &op = graph.ops[o];
          op.kind == FlowKind::Argument && op.trips == 1 && !op.rule.results[0].empty())
        for (int32_t atom :
             graph.dimAtoms(static_cast<int32_t>(o), op.rule.results[0][0]))
          add(atom);
    spread(isRow, std::move(open));
  }

  /// Marks what is the same piece as one of `open`, however far.
  void spread(std::vector<bool> &marks, std::vector<int32_t> open) const {
    while (!open.empty()) {
      int32_t atom = open.back();
      open.pop_back();
      for (const Atom::Link &link : graph.atoms[static_cast<size_t>(atom)].links)
        if (link.common == 0 && !marks[static_cast<size_t>(link.atom)]) {
          marks[static_cast<size_t>(link.atom)] = true;
          open.push_back(link.atom);
        }
    }
  }

  /// Marks of positions: what products with weights have of their activations besides
  /// rows, and do not sum over.
  void findPositions() {
    isPosition.resize(graph.atoms.size());
    std::vector<int32_t> open;
    for (size_t o = 0; o < graph.ops.size(); ++o) {
      const FlowOp &op = graph.ops[o];
      if (!isMatmul(op) || isWeight[static_cast<size_t>(op.operands[0])] ==
                               isWeight[static_cast<size_t>(op.operands[1])])
        continue;
      for (int32_t atom : graph.allAtoms(static_cast<int32_t>(o))) {
        int32_t factor = graph.atoms[static_cast<size_t>(atom)].factor;
        if (kindOf(op, factor, atom) != Kind::CP || isPosition[static_cast<size_t>(atom)])
          continue;
        isPosition[static_cast<size_t>(atom)] = true;
        open.push_back(atom);
      }
    }
    spread(isPosition, std::move(open));
  }

  /// Whether half or more of the bytes between products that the part of an axis does not
  /// split in other ways are split by it along positions.
  bool isByPositions(const AxisRef &digit) const {
    int64_t whole = 0, split = 0;
    for (size_t o = 0; o < graph.ops.size(); ++o) {
      const FlowOp &op = graph.ops[o];
      if (op.kind != FlowKind::Compute || !op.isForward() || isMatmul(op) ||
          op.results.empty() || isWeight[static_cast<size_t>(op.results[0])])
        continue;
      bool byPositions = false, otherwise = false, hasPositions = false;
      for (size_t f = 0; f < op.rule.factors.size(); ++f) {
        const auto &atoms =
            graph.atomsOf(static_cast<int32_t>(o), static_cast<int32_t>(f));
        const std::vector<DimFactor> &pieces = strategies[o].factors[f].factors;
        for (int32_t atom : atoms)
          hasPositions |= isPosition[static_cast<size_t>(atom)];
        for (size_t i = 0; i < pieces.size() && !atoms.empty(); ++i) {
          if (!overlap(pieces[i].axes, {digit}))
            continue;
          int32_t atom = atoms[std::min(i, atoms.size() - 1)];
          (isPosition[static_cast<size_t>(atom)] ? byPositions : otherwise) = true;
        }
      }
      if (otherwise || !hasPositions)
        continue;
      int64_t bytes = graph.values[static_cast<size_t>(op.results[0])].bytes();
      whole += bytes;
      split += byPositions ? bytes : 0;
    }
    return whole > 0 && 2 * split >= whole;
  }

  static bool has(const TensorFactors &tensor, int32_t factor) {
    return std::ranges::any_of(tensor, [&](const std::vector<int32_t> &dim) {
      return std::ranges::find(dim, factor) != dim.end();
    });
  }

  Kind kindOf(const FlowOp &op, int32_t factor, int32_t atom) const {
    const bool left = has(op.rule.operands[0], factor),
               right = has(op.rule.operands[1], factor);
    const bool isOfWeight = (left && isWeight[static_cast<size_t>(op.operands[0])]) ||
                            (right && isWeight[static_cast<size_t>(op.operands[1])]);
    if (isRow[static_cast<size_t>(atom)])
      return Kind::DP;
    if (!isOfWeight)
      return Kind::CP;
    const bool isWindowed = std::ranges::any_of(
        op.rule.factors, [](const Factor &it) { return it.window() != nullptr; });
    return left && right && has(op.rule.results[0], factor) && !isWindowed ? Kind::EP
                                                                           : Kind::TP;
  }

  /// Adds what products of the forward pass use each part of an axis for.
  void count(bool onlyOfWeights) {
    for (size_t o = 0; o < graph.ops.size(); ++o) {
      const FlowOp &op = graph.ops[o];
      if (!isMatmul(op) || !op.isForward())
        continue;
      const bool left = isWeight[static_cast<size_t>(op.operands[0])],
                 right = isWeight[static_cast<size_t>(op.operands[1])];
      if (onlyOfWeights && left == right)
        continue;
      for (size_t f = 0; f < op.rule.factors.size(); ++f)
        countLoop(o, f);
    }
  }

  void countLoop(size_t o, size_t f) {
    const FlowOp &op = graph.ops[o];
    const double flops = static_cast<double>(op.flops) * static_cast<double>(op.trips);
    const std::vector<int32_t> &atoms =
        graph.atomsOf(static_cast<int32_t>(o), static_cast<int32_t>(f));
    const std::vector<DimFactor> &pieces = strategies[o].factors[f].factors;
    for (size_t i = 0; i < pieces.size(); ++i) {
      // A layout in other pieces than the atoms speaks of the major-most.
      int32_t atom = atoms.empty() ? -1 : atoms[std::min(i, atoms.size() - 1)];
      if (atom < 0)
        continue;
      for (const AxisRef &digit : primes(pieces[i].axes))
        uses[digit][static_cast<size_t>(kindOf(op, static_cast<int32_t>(f), atom))] +=
            flops;
    }
  }

  const std::string &labelOf(const AxisRef &digit) {
    auto [known, isNew] = labels.try_emplace(digit);
    if (isNew)
      known->second = makeLabel(digit);
    return known->second;
  }

  std::string makeLabel(const AxisRef &digit) const {
    auto found = uses.find(digit);
    if (found == uses.end())
      return "Replicated";
    double all = 0;
    for (double flops : found->second)
      all += flops;
    std::string label;
    for (size_t kind = 0; kind < kindNames.size(); ++kind) {
      bool isUsed = found->second[kind] >= all / 4 && found->second[kind] > 0;
      if (static_cast<Kind>(kind) == Kind::SP)
        isUsed =
            label == kindNames[static_cast<size_t>(Kind::TP)] && isByPositions(digit);
      if (isUsed)
        label += std::string(label.empty() ? "" : "/") + kindNames[kind];
    }
    return label;
  }

  static std::vector<std::pair<std::string, int64_t>>
  ordered(const std::map<std::string, int64_t> &ranks) {
    auto place = [](const std::string &label) {
      for (size_t kind = 0; kind < kindNames.size(); ++kind)
        if (label.starts_with(kindNames[kind]))
          return kind;
      return kindNames.size();
    };
    std::vector<std::pair<std::string, int64_t>> list(ranks.begin(), ranks.end());
    std::ranges::stable_sort(list, {}, [&](const auto &it) { return place(it.first); });
    return list;
  }

  /// Whether the axes have a part that batches are split over.
  bool isOverRows(const AxisList &axes) {
    return std::ranges::any_of(primes(axes), [&](const AxisRef &digit) {
      return labelOf(digit).ends_with("DP");
    });
  }

  /// Whether half or more of the bytes of ends that `chosen` takes are split so.
  template <typename Chosen> bool areSplit(Chosen chosen) {
    int64_t all = 0, split = 0;
    for (size_t o = 0; o < graph.ops.size(); ++o) {
      const FlowOp &op = graph.ops[o];
      if (op.results.empty() || !chosen(static_cast<int32_t>(o), op))
        continue;
      int64_t bytes = graph.values[static_cast<size_t>(op.results[0])].bytes();
      all += bytes;
      if (isOverRows(resultLayout(op.rule, strategies[o], 0).shardingAxes()))
        split += bytes;
    }
    return all > 0 && 2 * split >= all;
  }

  int shardedLevel() {
    if (std::ranges::all_of(graph.ops, &FlowOp::isForward))
      return 0;
    // A loop has such ops without a sink of their own: what its body reads and gives.
    auto isState = [](const FlowOp &op) {
      return op.kind == FlowKind::State && op.tied >= 0;
    };
    if (areSplit(
            [&](int32_t, const FlowOp &op) { return isState(op) && op.isParameter; }))
      return 3;
    if (!areSplit(
            [&](int32_t, const FlowOp &op) { return isState(op) && !op.isParameter; }))
      return 0;
    std::set<int32_t> carried;
    for (const FlowTie &tie : graph.ties)
      if (std::ranges::none_of(tie.members, &FlowTie::Member::hasRows))
        for (const FlowTie::Member &member : tie.members)
          carried.insert(member.op);
    return areSplit([&](int32_t op, const FlowOp &) { return carried.contains(op); }) ? 2
                                                                                      : 1;
  }

  struct Before {
    bool operator()(const AxisRef &a, const AxisRef &b) const {
      return std::tie(a.axis, a.pre, a.size) < std::tie(b.axis, b.pre, b.size);
    }
  };

  const FlowGraph &graph;
  const std::vector<Strategy> &strategies;
  std::vector<bool> isWeight;          ///< by value
  std::vector<bool> isRow, isPosition; ///< by atom
  /// By part of an axis the operations of each kind.
  std::map<AxisRef, std::array<double, kindNames.size()>, Before> uses;
  std::map<AxisRef, std::string, Before>
      labels; ///< of what was asked for: a look at all ops
};
} // namespace

std::string search::planName(const FlowGraph &graph,
                             const std::vector<Strategy> &strategies) {
  return Namer(graph, strategies).name();
}
