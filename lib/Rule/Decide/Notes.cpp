//===- Notes.cpp - What a decision tells the user -------------------------===//
#include "Notes.h"

#include <algorithm>
#include <map>

using namespace partita;

void partita::noteConflicts(const FlowGraph &graph, bool hintsAreFound,
                            Decision &decision) {
  constexpr size_t shown = 6;
  size_t count = 0;
  auto isHint = [](const Conflict::Side &side) {
    return side.origin.starts_with("hint for ");
  };
  for (const Conflict &conflict : decision.propagated.conflicts) {
    if (hintsAreFound && isHint(conflict.kept) && isHint(conflict.rejected))
      continue;
    if (++count <= shown)
      decision.notes.push_back("at '" + graph.ops[conflict.op].name + "' " +
                               toString(graph, conflict));
  }
  if (count > shown)
    decision.notes.push_back(std::to_string(count - shown) +
                             " more nodes have such conflicts; --explain NODE shows one");
}

/// Whether a layout splits dim by dim as hints ask of the source: `asked` are pairs of a
/// dim and its axes.
static bool hasAxes(const Layout &layout,
                    const std::vector<std::pair<size_t, AxisList>> &asked) {
  return std::all_of(asked.begin(), asked.end(), [&](const auto &dim) {
    AxisList axes;
    for (const DimFactor &factor : layout.dims[dim.first].factors)
      axes.insert(axes.end(), factor.axes.begin(), factor.axes.end());
    return canonical(axes) == canonical(dim.second);
  });
}

void partita::noteLostHints(const FlowGraph &graph, const std::vector<Seed> &seeds,
                            Decision &decision) {
  std::map<int32_t, std::vector<const Seed *>> bySource;
  for (const Seed &seed : seeds)
    if (int32_t op = graph.atoms[seed.atom].op;
        graph.ops[op].isSource() && !seed.axes.empty())
      bySource[op].push_back(&seed);
  for (const auto &[op, list] : bySource) {
    const FlowOp &source = graph.ops[op];
    std::vector<std::pair<size_t, AxisList>> asked;
    for (size_t d = 0; d < source.rule.results[0].size(); ++d) {
      AxisList axes;
      for (int32_t a : graph.dimAtoms(op, source.rule.results[0][d]))
        for (const Seed *seed : list)
          if (seed->atom == a)
            axes.insert(axes.end(), seed->axes.begin(), seed->axes.end());
      if (!axes.empty())
        asked.emplace_back(d, std::move(axes));
    }
    auto served = serveUses(graph, decision.strategies, source.results[0]);
    bool isArgument = source.kind == FlowKind::Argument;
    if (served.empty() ||
        (isArgument && served.size() > 1
             ? false
             : std::any_of(served.begin(), served.end(), [&](const ServedLayout &s) {
                 return hasAxes(s.layout, asked);
               })))
      continue;
    decision.notes.push_back(
        "the " + list[0]->origin + " has no effect: " +
        (served.size() == 1
             ? "'" + graph.ops[served[0].uses[0].op].name + "' reads it as " +
                   served[0].layout.str(graph.mesh)
             : "it is read in " + std::to_string(served.size()) + " layouts" +
                   (isArgument ? ", so that it is whole on every rank"
                               : ", none of them like this")));
  }
}
