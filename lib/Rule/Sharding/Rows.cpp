//===- Rows.cpp - What a program does with rows of its inputs -------------===//
#include "partita/Rule/Sharding/Rows.h"

#include "partita/Rule/Sharding/AssignStrategies.h"
#include "partita/Rule/Sharding/Propagation.h"

#include <algorithm>

using namespace partita;

namespace {
class RowFollower {
public:
  /// Atoms with axes of a carrier's first dim are rows; `axes` is per carrier.
  RowFollower(const FlowGraph &graph, const BatchEnds &ends,
              std::vector<std::vector<AxisList>> axes)
      : graph(graph), ends(ends), axesOf(std::move(axes)), isLive(graph.ops.size()),
        isRow(graph.atoms.size()), axes(graph.atoms.size()), tiesOf(graph.ops.size()) {
    for (const FlowTie &tie : graph.ties)
      for (const FlowTie::Member &member : tie.members)
        tiesOf[index(member.op)].push_back(&tie);
  }

  int32_t run() {
    findLive();
    findRows();
    for (int32_t op = 0; op < static_cast<int32_t>(graph.ops.size()); ++op)
      if (isLive[index(op)] && (isEnd(ends.sinks, op) ? !givesRows(op) : joins(op)))
        return op;
    return -1;
  }

  const std::vector<AxisList> &atomAxes() const { return axes; }

private:
  static bool isEnd(const std::vector<int32_t> &list, int32_t op) {
    return std::ranges::count(list, op) != 0;
  }
  static size_t index(int32_t number) { return static_cast<size_t>(number); }
  const FlowOp &at(int32_t op) const { return graph.ops[index(op)]; }

  /// What the sink depends on, through loops too.
  void findLive() {
    std::vector<int32_t> open = ends.sinks;
    while (!open.empty()) {
      int32_t op = open.back();
      open.pop_back();
      if (isLive[index(op)])
        continue;
      isLive[index(op)] = true;
      for (int32_t value : at(op).operands)
        open.push_back(graph.values[index(value)].producer);
      for (const FlowTie *tie : tiesOf[index(op)])
        for (const FlowTie::Member &member : tie->members)
          open.push_back(member.op);
    }
  }

  /// Everything that is the same piece as one of the first dim of a carrier. A constant
  /// is read in parts by some and whole by others: nothing is learned through it.
  void findRows() {
    std::vector<std::pair<int32_t, AxisList>> open;
    for (size_t c = 0; c < ends.carriers.size(); ++c) {
      int32_t op = ends.carriers[c];
      std::vector<int32_t> first = graph.dimAtoms(op, at(op).rule.results[0][0]);
      for (size_t i = 0; i < first.size(); ++i)
        if (!axesOf[c][i].empty()) {
          axes[index(first[i])] = axesOf[c][i]; // read by somebody or not
          open.emplace_back(first[i], axesOf[c][i]);
        }
    }
    while (!open.empty()) {
      auto [atom, list] = std::move(open.back());
      open.pop_back();
      const int32_t op = graph.atoms[index(atom)].op;
      if (isRow[index(atom)] || !isLive[index(op)] || at(op).kind == FlowKind::Source)
        continue;
      isRow[index(atom)] = true;
      axes[index(atom)] = list;
      for (const Atom::Link &link : graph.atoms[index(atom)].links)
        if (link.common == 0)
          open.emplace_back(link.atom, list);
    }
  }

  size_t countRows(int32_t op, const TensorFactors &tensor) const {
    size_t count = 0;
    for (const std::vector<int32_t> &dim : tensor)
      for (int32_t atom : graph.dimAtoms(op, dim))
        count += isRow[index(atom)];
    return count;
  }
  size_t rowsOf(int32_t value) const {
    const FlowValue &it = graph.values[index(value)];
    return countRows(it.producer, at(it.producer).rule.results[index(it.result)]);
  }

  bool joins(int32_t number) const {
    const FlowOp &op = at(number);
    size_t rows = 0;
    for (int32_t atom : graph.allAtoms(number)) {
      if (!isRow[index(atom)])
        continue;
      ++rows;
      const Atom &it = graph.atoms[index(atom)];
      const Factor &factor = op.rule.factors[index(it.factor)];
      if (factor.kind() != FactorKind::Parallel || factor.indexOperand() >= 0)
        return true;
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      size_t seen = countRows(number, op.rule.operands[i]);
      const bool isSource =
          at(graph.values[index(op.operands[i])].producer).kind == FlowKind::Source;
      // Rows that the op does not see as such, or that meet others.
      if ((!isSource && seen != rowsOf(op.operands[i])) || (seen != 0 && seen != rows))
        return true;
    }
    for (const TensorFactors &result : op.rule.results)
      if (countRows(number, result) != rows)
        return true;
    if (isEnd(ends.carriers, number)) // another dim of it that meets the first one
      return rows != countRows(number, {op.rule.results[0][0]});
    if (op.kind == FlowKind::Argument) // without the batch, and it meets what has it
      return rows != 0;
    if (op.kind == FlowKind::State || op.kind == FlowKind::Sink)
      return joinsAtEnd(number, rows);
    return false;
  }

  /// Ends of a loop have rows all together; what is no loop's end has none.
  bool joinsAtEnd(int32_t number, size_t rows) const {
    if (tiesOf[index(number)].empty())
      return rows > 0;
    return std::ranges::any_of(tiesOf[index(number)], [&](const FlowTie *tie) {
      return std::ranges::any_of(tie->members, [&](const FlowTie::Member &member) {
        return countRows(member.op, graph.endFactors(member.op)) != rows;
      });
    });
  }

  bool givesRows(int32_t sink) const {
    const TensorFactors &taken = at(sink).rule.operands[0];
    if (taken.empty())
      return false;
    std::vector<int32_t> first = graph.dimAtoms(sink, taken[0]);
    return !first.empty() && isRow[index(first[0])] &&
           countRows(sink, taken) == countRows(sink, {taken[0]}) &&
           countRows(sink, taken) == rowsOf(at(sink).operands[0]);
  }

  const FlowGraph &graph;
  const BatchEnds &ends;
  const std::vector<std::vector<AxisList>> axesOf; ///< per carrier and atom of its batch
  std::vector<bool> isLive, isRow;                 ///< per op, per atom
  std::vector<AxisList> axes;                      ///< per atom
  std::vector<std::vector<const FlowTie *>> tiesOf;
};
} // namespace

int32_t partita::joinsRows(const FlowGraph &graph, int32_t sink) {
  BatchEnds ends{{}, {sink}};
  std::vector<std::vector<AxisList>> axes;
  const AxisList any{AxisRef{}}; // how many parts there are is no matter
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (const FlowOp &it = graph.ops[op];
        it.kind == FlowKind::Argument && !it.rule.results[0].empty()) {
      ends.carriers.push_back(static_cast<int32_t>(op));
      axes.emplace_back(
          graph.dimAtoms(ends.carriers.back(), it.rule.results[0][0]).size(), any);
    }
  return RowFollower(graph, ends, std::move(axes)).run();
}

/// The layout of a tensor of an op whose loops are cut so.
static Strategy strategyOfEnd(const FlowGraph &graph, int32_t op,
                              const std::vector<AxisList> &axes) {
  Strategy strategy;
  for (size_t f = 0; f < graph.ops[static_cast<size_t>(op)].rule.factors.size(); ++f) {
    DimLayout layout;
    for (int32_t a : graph.atomsOf(op, static_cast<int32_t>(f))) {
      const int64_t size = graph.atoms[static_cast<size_t>(a)].size;
      layout.factors.push_back({size, size, axes[static_cast<size_t>(a)]});
    }
    strategy.factors.push_back(std::move(layout));
  }
  return strategy;
}

/// The axes of each piece of a dim such that parts are equal runs of it: a piece is cut
/// only where all before it are cut to the last. Absent: there is no such cut.
static std::optional<std::vector<AxisList>>
cutsOf(const FlowGraph &graph, const std::vector<int32_t> &pieces, const AxisList &axes) {
  auto lists = distribute(graph, pieces, axes, 0);
  if (!lists)
    return std::nullopt;
  bool isBeforeWhole = true;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t size = graph.atoms[static_cast<size_t>(pieces[i])].size;
    const int64_t shards = product((*lists)[i]);
    if (size % shards != 0 || (shards != 1 && !isBeforeWhole))
      return std::nullopt;
    isBeforeWhole &= size == shards;
  }
  return std::move(*lists);
}

Expected<RowParts> partita::partsOfRows(const FlowGraph &graph, const BatchEnds &ends) {
  const AxisList all = graph.mesh.all();
  std::vector<std::vector<AxisList>> axes;
  for (int32_t carrier : ends.carriers) {
    const FlowOp &op = graph.ops[static_cast<size_t>(carrier)];
    const std::vector<int32_t> &first = op.rule.results[0][0];
    const std::vector<int32_t> pieces = graph.dimAtoms(carrier, first);
    auto lists = cutsOf(graph, pieces, all);
    if (!lists) {
      std::string extent;
      for (int32_t piece : pieces)
        extent += (extent.empty() ? "" : " of ") +
                  std::to_string(graph.atoms[static_cast<size_t>(piece)].size);
      return makeError("dim 0 of '" + op.name + "' is " + extent + ", which " +
                       std::to_string(product(all)) + " parts do not divide");
    }
    axes.push_back(std::move(*lists));
  }
  RowFollower follower(graph, ends, std::move(axes));
  RowParts parts;
  parts.joined = follower.run();
  if (parts.joined >= 0)
    return parts;
  parts.strategies = strategiesOf(graph, follower.atomAxes());
  // A carrier that nobody reads has parts too.
  for (int32_t carrier : ends.carriers)
    parts.strategies[static_cast<size_t>(carrier)] =
        strategyOfEnd(graph, carrier, follower.atomAxes());
  return parts;
}
