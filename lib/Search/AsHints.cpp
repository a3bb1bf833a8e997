//===- AsHints.cpp - The shortest hints that lead to a plan ---------------===//
#include "partita/Search/AsHints.h"

#include "partita/Rule/Decide/ResolveHints.h"
#include "partita/Rule/Sharding/AssignStrategies.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>
#include <chrono>
#include <fnmatch.h>
#include <set>
#include <tuple>

using namespace partita;
using namespace partita::search;

static std::vector<std::string> axisTexts(const Mesh &mesh, const AxisList &axes) {
  std::vector<std::string> texts;
  for (const AxisRef &axis : axes)
    texts.push_back(mesh.str(axis));
  return texts;
}

static TensorHint hintOf(const Mesh &mesh, const Layout &layout) {
  std::vector<DimHint> dims;
  for (const DimLayout &dim : layout.dims) {
    DimHint hint;
    hint.open = false;
    if (dim.factors.size() == 1)
      hint.axes = axisTexts(mesh, dim.factors[0].axes);
    for (const DimFactor &factor : dim.factors)
      if (dim.factors.size() > 1) {
        hint.factors.push_back(factor.size);
        hint.factorAxes.push_back(axisTexts(mesh, factor.axes));
      }
    dims.push_back(std::move(hint));
  }
  return dims;
}

namespace {
/// A tensor that hints may speak of.
struct Named {
  std::string name;
  Layout layout;
  int order; ///< what is left out last has the largest: values, arguments, weights
};

class Shortener {
public:
  Shortener(const FlowGraph &graph, const Decided &plan) : graph(graph), plan(plan) {}

  Expected<FoundHints> run(const Placement &placement) {
    entries = all();
    best = decided(entries);
    if (!best)
      return makeError("the plan cannot be written as hints: " + lastError);
    least = differing(*best);
    // All tensors of one glob first, then ever smaller parts of what is left.
    for (size_t at = 0; at < entries.size();) {
      size_t end = at + 1;
      while (end < entries.size() && entries[end].group == entries[at].group)
        ++end;
      if (!leaveOut(at, end))
        at = end;
    }
    for (size_t chunk = std::max<size_t>(1, entries.size() / 2); chunk > 0; chunk /= 2)
      for (size_t at = 0; at < entries.size();)
        if (!leaveOut(at, std::min(at + chunk, entries.size())))
          at += chunk;
    return finish(placement);
  }

private:
  std::vector<Named> tensors() const {
    std::vector<Named> found;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const FlowValue &value = graph.values[v];
      if (value.producer < 0 || value.uses.empty() || value.shape.empty())
        continue;
      auto producer = static_cast<size_t>(value.producer);
      FlowKind kind = graph.ops[producer].kind;
      if (kind == FlowKind::Source) {
        const FlowUse &use = value.uses[0];
        Layout layout = operandForm(graph.ops[static_cast<size_t>(use.op)].rule,
                                    plan.strategies[static_cast<size_t>(use.op)],
                                    static_cast<size_t>(use.operand))
                            .layout;
        found.push_back({value.name, std::move(layout), 2});
      } else {
        found.push_back({value.name,
                         resultLayout(graph.ops[producer].rule, plan.strategies[producer],
                                      static_cast<size_t>(value.result))
                             .canonicalized(),
                         kind == FlowKind::Argument ? 1 : 0});
      }
    }
    return found;
  }

  struct Entry {
    std::string group;
    int order;
    NamedTensorHint hint;
  };
  using Strategies = std::optional<std::vector<Strategy>>;

  /// Whether the plan is the same without these entries; they are gone then.
  bool leaveOut(size_t begin, size_t end) {
    if (std::chrono::steady_clock::now() > deadline)
      return false;
    std::vector<Entry> fewer(entries.begin(), entries.begin() + static_cast<long>(begin));
    fewer.insert(fewer.end(), entries.begin() + static_cast<long>(end), entries.end());
    Strategies next = decided(fewer);
    size_t now = next ? differing(*next) : 0;
    if (!next || now > least)
      return false;
    least = now;
    entries = std::move(fewer);
    best = std::move(next);
    return true;
  }

  /// An entry per glob whose tensors all have one layout, else one per tensor.
  std::vector<Entry> all() const {
    std::map<std::string, std::vector<Named>> groups;
    for (Named &it : tensors())
      groups[layerGlob(it.name)].push_back(std::move(it));
    std::vector<Entry> found;
    std::set<std::string> known;
    for (const auto &[glob, members] : groups) {
      bool alike = matches(glob, members);
      for (const Named &it : members)
        alike &= axesText(it.layout) == axesText(members[0].layout);
      for (const Named &it : members) {
        const std::string &name = alike ? glob : it.name;
        if (!name.empty() && known.insert(name).second)
          found.push_back({glob, it.order, {name, hintOf(graph.mesh, it.layout)}});
      }
    }
    std::sort(found.begin(), found.end(), [](const Entry &a, const Entry &b) {
      return std::tie(a.order, a.group, a.hint.glob) <
             std::tie(b.order, b.group, b.hint.glob);
    });
    return found;
  }

  std::string axesText(const Layout &layout) const {
    std::string text;
    for (const DimLayout &dim : layout.dims)
      for (const DimFactor &factor : dim.factors)
        text += std::to_string(factor.size) + graph.mesh.str(factor.axes) +
                (&factor == &dim.factors.back() ? "," : "*");
    return text;
  }

  /// Whether the glob speaks of no tensor but these.
  bool matches(const std::string &glob, const std::vector<Named> &members) const {
    std::set<std::string> names;
    for (const Named &it : members)
      names.insert(it.name);
    auto foreign = [&](const std::string &name) {
      return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0 && !names.count(name);
    };
    for (const FlowValue &value : graph.values)
      if (foreign(value.name) ||
          std::any_of(value.otherNames.begin(), value.otherNames.end(), foreign))
        return false;
    return true;
  }

  /// What propagation makes of hints; nothing if they contradict each other.
  Strategies decided(const std::vector<Entry> &list) {
    FlowGraph copy = graph;
    auto seeds = resolveHints(copy, hintsOf(list));
    auto spread =
        seeds ? propagate(copy, *seeds) : tl::unexpected(std::move(seeds.error()));
    if (spread)
      return strategiesOf(copy, spread->axes, *seeds);
    lastError = spread.error().message;
    return std::nullopt;
  }

  static Hints hintsOf(const std::vector<Entry> &list) {
    Hints hints;
    hints.file = "the plan";
    for (const Entry &entry : list)
      hints.tensors.push_back(entry.hint);
    return hints;
  }

  /// The ops whose strategies are not the plan's.
  size_t differing(const std::vector<Strategy> &strategies) const {
    size_t count = 0;
    for (size_t op = 0; op < graph.ops.size(); ++op)
      count += differs(op, strategies[op]);
    return count;
  }

  /// Padded extents aside: propagation has its own rule for them.
  bool differs(size_t op, const Strategy &other) const {
    if (graph.ops[op].kind == FlowKind::Source)
      return false;
    const Strategy &mine = plan.strategies[op];
    if (mine.passing != other.passing)
      return true;
    for (size_t f = 0; f < mine.factors.size(); ++f) {
      const auto &a = mine.factors[f].factors, &b = other.factors[f].factors;
      if (a.size() != b.size())
        return true;
      for (size_t i = 0; i < a.size(); ++i)
        if (a[i].size != b[i].size || a[i].axes != b[i].axes)
          return true;
    }
    return false;
  }

  FoundHints finish(const Placement &placement) {
    FoundHints found;
    found.hints = hintsOf(entries);
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      found.ops += graph.ops[op].kind != FlowKind::Source;
      if (differs(op, (*best)[op]) && found.differing++ == 0)
        found.firstDiffering = graph.ops[op].name;
    }
    Timing timing(graph, placement);
    found.cost = evaluate(timing, {std::move(*best), {}});
    found.json = found.hints.json();
    found.isShortest = std::chrono::steady_clock::now() <= deadline;
    return found;
  }

  static constexpr std::chrono::seconds patience{20};

  const FlowGraph &graph;
  const Decided &plan;
  std::chrono::steady_clock::time_point deadline =
      std::chrono::steady_clock::now() + patience;
  std::vector<Entry> entries;
  Strategies best;  ///< what `entries` lead to
  size_t least = 0; ///< ops that they do not lead to
  std::string lastError;
};
} // namespace

Expected<FoundHints> search::asHints(const FlowGraph &graph, const Placement &placement,
                                     const Decided &plan) {
  return Shortener(graph, plan).run(placement);
}
