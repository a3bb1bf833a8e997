//===- Compare.cpp - What a plan's conversions cost -----------------------===//
#include "partita/Search/Compare.h"

#include <algorithm>
#include <tuple>

using namespace partita;
using namespace partita::search;

std::vector<Reshard> search::costliestReshards(Timing &timing, const Decided &plan,
                                               size_t count, int32_t only) {
  const FlowGraph &graph = timing.graph;
  std::map<std::tuple<int32_t, int32_t, int64_t>, Reshard> all;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const FlowValue &value = graph.values[v];
    auto number = static_cast<int32_t>(v);
    if (value.producer < 0 || value.uses.empty() || (only >= 0 && number != only))
      continue;
    auto producer = static_cast<size_t>(value.producer);
    bool isSource = graph.ops[producer].kind == FlowKind::Source;
    auto given = plan.servings.find(number);
    auto served = given != plan.servings.end()
                      ? given->second
                      : serveUses(graph, plan.strategies, number);
    Layout produced = resultLayout(graph.ops[producer].rule, plan.strategies[producer],
                                   static_cast<size_t>(value.result))
                          .canonicalized();
    for (const ServedLayout &entry : served) {
      if (isSource && entry.from < 0)
        continue;
      const Layout &at =
          entry.from < 0 ? produced : served[static_cast<size_t>(entry.from)].layout;
      int32_t from = timing.forms.add(at);
      Form form{entry.layout, entry.halo};
      if (form.halo)
        form.halo->before = entry.layout;
      int32_t to = timing.forms.add(std::move(form));
      Conversion way = timing.convert(from, to, value.elementBytes);
      if (way.time == 0)
        continue;
      auto [place, added] = all.try_emplace({from, to, value.elementBytes}, Reshard{});
      if (!added) {
        ++place->second.copies;
        continue;
      }
      int64_t bound = 0;
      if (!entry.halo)
        if (auto steps = planReshard(graph.mesh, at, entry.layout, graph.reshard))
          bound = steps->lowerBoundElements * value.elementBytes;
      place->second = {value.name,
                       graph.ops[producer].name,
                       at.str(graph.mesh),
                       (entry.halo ? "windows of " : "") + entry.layout.str(graph.mesh),
                       from,
                       to,
                       number,
                       way.time,
                       way.receivedBytes,
                       bound,
                       1};
    }
  }
  std::vector<Reshard> result;
  for (auto &[key, reshard] : all)
    result.push_back(std::move(reshard));
  std::sort(result.begin(), result.end(), [](const Reshard &a, const Reshard &b) {
    return std::make_tuple(-a.time * a.copies, a.value) <
           std::make_tuple(-b.time * b.copies, b.value);
  });
  result.resize(std::min(result.size(), count));
  return result;
}
