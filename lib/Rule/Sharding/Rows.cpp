//===- Rows.cpp - What a program does with rows of its inputs -------------===//
#include "partita/Rule/Sharding/Rows.h"

#include <algorithm>

using namespace partita;

namespace {
class RowFollower {
public:
  RowFollower(const FlowGraph &graph, int32_t sink)
      : graph(graph), sink(sink), isLive(graph.ops.size()), isRow(graph.atoms.size()),
        tiesOf(graph.ops.size()) {
    for (const FlowTie &tie : graph.ties)
      for (const FlowTie::Member &member : tie.members)
        tiesOf[index(member.op)].push_back(&tie);
  }

  int32_t run() {
    findLive();
    findRows();
    for (int32_t op = 0; op < static_cast<int32_t>(graph.ops.size()); ++op)
      if (isLive[index(op)] && (op == sink ? !givesRows() : joins(op)))
        return op;
    return -1;
  }

private:
  static size_t index(int32_t number) { return static_cast<size_t>(number); }
  const FlowOp &at(int32_t op) const { return graph.ops[index(op)]; }

  /// What the sink depends on, through loops too.
  void findLive() {
    std::vector<int32_t> open{sink};
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

  /// Everything that is the same piece as the first dim of an argument.
  void findRows() {
    std::vector<int32_t> open;
    for (int32_t op = 0; op < static_cast<int32_t>(graph.ops.size()); ++op)
      if (const FlowOp &it = at(op); isLive[index(op)] && it.kind == FlowKind::Argument &&
                                     !it.rule.results[0].empty())
        for (int32_t atom : graph.dimAtoms(op, it.rule.results[0][0]))
          open.push_back(atom);
    while (!open.empty()) {
      int32_t atom = open.back();
      open.pop_back();
      if (isRow[index(atom)] || !isLive[index(graph.atoms[index(atom)].op)])
        continue;
      isRow[index(atom)] = true;
      for (const Atom::Link &link : graph.atoms[index(atom)].links)
        if (link.common == 0)
          open.push_back(link.atom);
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
      // Rows that the op does not see as such, or that meet others.
      if (seen != rowsOf(op.operands[i]) || (seen != 0 && seen != rows))
        return true;
    }
    for (const TensorFactors &result : op.rule.results)
      if (countRows(number, result) != rows)
        return true;
    if (op.kind == FlowKind::Argument) // another dim of it that meets the first one
      return !op.rule.results[0].empty() &&
             graph.dimAtoms(number, op.rule.results[0][0]).size() != rows;
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

  bool givesRows() const {
    const TensorFactors &taken = at(sink).rule.operands[0];
    if (taken.empty())
      return false;
    std::vector<int32_t> first = graph.dimAtoms(sink, taken[0]);
    return !first.empty() && isRow[index(first[0])] &&
           countRows(sink, taken) == rowsOf(at(sink).operands[0]);
  }

  const FlowGraph &graph;
  int32_t sink;
  std::vector<bool> isLive, isRow; ///< per op, per atom
  std::vector<std::vector<const FlowTie *>> tiesOf;
};
} // namespace

int32_t partita::joinsRows(const FlowGraph &graph, int32_t sink) {
  return RowFollower(graph, sink).run();
}
