//===- ServeUses.cpp - Which conversions serve the users of a value -------===//
#include "partita/Rule/Sharding/ServeUses.h"

#include "partita/Base/Layout/Reshard.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>

using namespace partita;

namespace {
/// Where conversions are planned: the mesh and what the planner may use.
struct Planner {
  const Mesh &mesh;
  const ReshardOptions &options;

  int64_t moved(const Layout &from, const Layout &to) const {
    if (from == to)
      return 0;
    auto plan = planReshard(mesh, from, to, options);
    return plan ? plan->receivedElements : INT64_MAX / 4;
  }
};
} // namespace

/// The number of the entry of `layout` without windows, added if there is none.
static size_t addPlain(std::vector<ServedLayout> &served, const Layout &layout) {
  auto same = std::find_if(served.begin(), served.end(),
                           [&](const ServedLayout &s) { return s.layout == layout; });
  if (same == served.end())
    same = served.insert(served.end(), {layout, -1, {}});
  return static_cast<size_t>(same - served.begin());
}

/// Reduce once: from the produced layout to one of the wanted ones, the rest from there
/// unless going back to the producer is cheaper.
static void reduceOnce(const Planner &planner, const Layout &produced,
                       std::vector<ServedLayout> &served) {
  size_t best = 0;
  int64_t bestCost = INT64_MAX;
  std::vector<std::vector<int32_t>> from(served.size());
  for (size_t first = 0; first < served.size(); ++first) {
    if (!served[first].layout.partial.empty())
      continue;
    int64_t cost = planner.moved(produced, served[first].layout);
    from[first].assign(served.size(), -1);
    for (size_t other = 0; other < served.size(); ++other) {
      if (other == first)
        continue;
      int64_t direct = planner.moved(produced, served[other].layout);
      int64_t through = planner.moved(served[first].layout, served[other].layout);
      cost += std::min(direct, through);
      if (through < direct)
        from[first][other] = 0;
    }
    if (cost < bestCost) {
      bestCost = cost;
      best = first;
    }
  }
  if (bestCost == INT64_MAX)
    return;
  for (size_t other = 0; other < served.size(); ++other)
    served[other].from = from[best][other];
  // Entries may only refer to earlier ones.
  std::rotate(served.begin(), served.begin() + static_cast<int64_t>(best),
              served.begin() + static_cast<int64_t>(best) + 1);
}

/// Where a halo's dims are split over the axes of the produced layout, it is in the
/// blocks of that: the step from one to the other then is a plain reduction.
static Layout paddedLike(Layout layout, const Halo &halo, const Layout &produced) {
  for (const HaloWindow &window : halo.windows) {
    const DimLayout &from = produced.dims[window.dim];
    DimLayout &to = layout.dims[window.dim];
    if (from.factors.size() == 1 && from.size() == to.size() &&
        from.factors[0].axes == to.factors[0].axes)
      to = from;
  }
  return layout;
}

/// The source of a halo: of the produced layout and those served from it, the one from
/// which the fewest elements move.
static void chooseSource(const Mesh &mesh, const Layout &produced,
                         const std::vector<ServedLayout> &served, ServedLayout &entry) {
  int64_t bestElements = -1;
  auto consider = [&](const Layout &layout, int32_t from) {
    if (layout.partial != entry.halo->positions.partial)
      return;
    Halo halo = *entry.halo;
    halo.before = layout;
    int64_t elements = haloElements(mesh, halo);
    if (bestElements >= 0 && elements >= bestElements)
      return;
    bestElements = elements;
    entry.halo = std::move(halo);
    entry.from = from;
  };
  consider(produced, -1);
  for (size_t i = 0; i < served.size(); ++i)
    consider(served[i].layout, static_cast<int32_t>(i));
}

/// A source is read where it is needed: dims that windows read whole.
static void readWhole(ServedLayout &entry) {
  for (const HaloWindow &window : entry.halo->windows) {
    DimFactor &input = entry.layout.dims[window.dim].factors[0];
    input = {input.size, input.size, {}};
  }
  entry.halo->before = entry.layout;
}

/// Without exchanges, blocks first change places by slices and gathers, to those of the
/// positions; what windows lack then is neighbours'.
static void readFromPositions(std::vector<ServedLayout> &served, ServedLayout &entry) {
  entry.from = static_cast<int32_t>(addPlain(served, entry.layout));
  entry.halo->before = entry.layout;
}

std::vector<ServedLayout> partita::serveUses(const FlowGraph &graph,
                                             const std::vector<Strategy> &strategies,
                                             int32_t value) {
  const FlowValue &v = graph.values[value];
  std::vector<ServedLayout> served, halos;
  served.reserve(v.uses.size());
  for (const FlowUse &use : v.uses) {
    const ShardingRule &rule = graph.ops[use.op].rule;
    OperandForm form =
        operandForm(rule, strategies[use.op], static_cast<size_t>(use.operand));
    ServedLayout wanted{std::move(form.layout), -1, {}, std::move(form.window)};
    std::vector<ServedLayout> &list = wanted.halo ? halos : served;
    auto same = std::find_if(list.begin(), list.end(), [&](const ServedLayout &s) {
      return s.layout == wanted.layout && s.halo == wanted.halo;
    });
    if (same == list.end())
      same = list.insert(list.end(), std::move(wanted));
    same->uses.push_back(use);
  }
  if (halos.empty() && served.size() < 2) // the common case
    return served;
  if (v.producer >= 0 && graph.ops[v.producer].kind == FlowKind::Source) {
    for (ServedLayout &entry : halos)
      readWhole(entry);
  } else if (v.producer >= 0) {
    Layout produced = resultLayout(graph.ops[v.producer].rule, strategies[v.producer],
                                   static_cast<size_t>(v.result))
                          .canonicalized();
    // What must be reduced, or made partial, is so before windows are read.
    for (ServedLayout &entry : halos)
      if (entry.halo->positions.partial != produced.partial) {
        entry.layout = paddedLike(entry.layout, *entry.halo, produced);
        addPlain(served, entry.layout);
      }
    if (!produced.partial.empty() && served.size() > 1)
      reduceOnce({graph.mesh, graph.reshard}, produced, served);
    for (ServedLayout &entry : halos)
      if (graph.reshard.allToAll)
        chooseSource(graph.mesh, produced, served, entry);
      else
        readFromPositions(served, entry);
  }
  for (ServedLayout &entry : halos)
    served.push_back(std::move(entry));
  return served;
}

void partita::giveEpochs(const FlowGraph &graph, const Layout &produced,
                         std::vector<ServedLayout> &served) {
  struct First {
    int32_t from;
    Step step;
  };
  std::vector<First> firsts;
  for (ServedLayout &entry : served) {
    const Layout &at =
        entry.from < 0 ? produced : served[static_cast<size_t>(entry.from)].layout;
    // Nothing is planned for an entry that alone leads on from where it begins.
    const bool isAlone = std::ranges::count(served, entry.from, &ServedLayout::from) == 1;
    auto plan = isAlone || entry.halo || at == entry.layout
                    ? Expected<ReshardPlan>()
                    : planReshard(graph.mesh, at, entry.layout, graph.reshard);
    entry.epoch = 0;
    if (!plan)
      continue;
    auto first = std::find_if(plan->steps.begin(), plan->steps.end(),
                              [](const Step &s) { return s.kind != StepKind::View; });
    if (first == plan->steps.end())
      continue;
    for (const First &other : firsts)
      entry.epoch += other.from == entry.from && other.step.kind == first->kind &&
                     other.step.before == first->before &&
                     other.step.after == first->after;
    firsts.push_back({entry.from, *first});
  }
}
