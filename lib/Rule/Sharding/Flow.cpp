//===- Flow.cpp - A program as ops, values and loops ----------------------===//
#include "partita/Rule/Sharding/Flow.h"

#include "partita/Base/DType.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <set>
#include <span>

using namespace partita;

int64_t FlowValue::bytes() const { return elementCount(shape) * elementBytes; }

int32_t FlowGraph::addValue(std::string name, std::vector<int64_t> shape,
                            int64_t elementBytes) {
  values.push_back({std::move(name), std::move(shape), elementBytes, -1, 0, {}});
  return static_cast<int32_t>(values.size()) - 1;
}

int32_t FlowGraph::addOp(FlowOp op) {
  auto number = static_cast<int32_t>(ops.size());
  for (size_t i = 0; i < op.operands.size(); ++i)
    values[op.operands[i]].uses.push_back({number, static_cast<int32_t>(i)});
  for (size_t i = 0; i < op.results.size(); ++i) {
    values[op.results[i]].producer = number;
    values[op.results[i]].result = static_cast<int32_t>(i);
  }
  ops.push_back(std::move(op));
  return number;
}

void FlowGraph::tie(int32_t state, int32_t sink) {
  assert(ops[state].kind == FlowKind::State && ops[sink].kind == FlowKind::Sink);
  ops[state].tied = sink;
  ops[sink].tied = state;
}

std::vector<int32_t> FlowGraph::dimAtoms(int32_t op,
                                         const std::vector<int32_t> &factors) const {
  std::vector<int32_t> result;
  for (int32_t f : factors)
    result.insert(result.end(), opAtoms[op][f].begin(), opAtoms[op][f].end());
  return result;
}

namespace {
/// Cut points of a factor: sizes of its pieces, major to minor.
using Pieces = std::vector<int64_t>;

/// One end of a value's dim: the factors of an op that make it up.
struct Port {
  int32_t op;
  const std::vector<int32_t> *factors;
  int32_t operand; ///< which of the op; -1: a result
};

class Refiner {
public:
  Refiner(const FlowGraph &graph, const std::vector<DetachedLoop> &loops) : graph(graph) {
    for (const FlowOp &op : graph.ops) {
      pieces.emplace_back();
      for (const Factor &factor : op.rule.factors)
        pieces.back().push_back({factor.size});
      detached.emplace_back(op.rule.factors.size(), false);
    }
    for (const DetachedLoop &loop : loops) {
      detached[loop.op][loop.factor] = true;
      if (!loop.pieces.empty())
        pieces[loop.op][loop.factor] = loop.pieces;
    }
    tiesOf.resize(graph.ops.size());
    for (const FlowTie &tie : graph.ties)
      for (const FlowTie::Member &member : tie.members)
        tiesOf[member.op].push_back(&tie);
    firstDim.reserve(graph.values.size());
    for (size_t v = 0; v < graph.values.size(); ++v) {
      firstDim.push_back(static_cast<int32_t>(dims.size()));
      for (size_t d = 0; d < graph.values[v].shape.size(); ++d)
        dims.emplace_back(static_cast<int32_t>(v), static_cast<int32_t>(d));
    }
  }

  /// Sweeps over the dims of all values until nothing changes. A dim is looked at again
  /// only when a factor of one of its ends was cut since: in this sweep if it is yet to
  /// come, else in the next. So the result is that of whole sweeps, and a cut that
  /// travels against the order of values costs what it costs along it.
  void run() {
    for (const auto count = static_cast<int32_t>(dims.size()); numSeen < count;)
      refineDim(numSeen++);
    while (!next.empty()) {
      now.swap(next);
      while (!now.empty()) {
        int32_t dim = *now.begin();
        now.erase(now.begin());
        refineDim(dim);
      }
    }
  }

  /// Per op and factor.
  std::vector<std::vector<Pieces>> pieces;
  std::vector<std::vector<bool>> detached;

  /// The producer first. Both ends of a state are ends of what it was and of what it
  /// becomes, so that these are cut alike.
  static std::vector<Port> portsOf(const FlowGraph &graph, const FlowValue &value,
                                   size_t dim) {
    std::vector<Port> ports;
    auto result = [&](int32_t op, int32_t number) {
      ports.push_back({op, &graph.ops[op].rule.results[number][dim], -1});
    };
    auto operand = [&](int32_t op, int32_t number) {
      ports.push_back({op, &graph.ops[op].rule.operands[number][dim], number});
    };
    if (value.producer >= 0)
      result(value.producer, value.result);
    for (const FlowUse &use : value.uses)
      operand(use.op, use.operand);
    // A state that nothing changes has both ends here anyway.
    auto tiedTo = [&](int32_t op) {
      int32_t other = graph.ops[op].tied;
      bool isHere = std::any_of(ports.begin(), ports.end(),
                                [&](const Port &port) { return port.op == other; });
      return isHere ? -1 : other;
    };
    if (value.producer >= 0)
      if (int32_t sink = tiedTo(value.producer); sink >= 0)
        operand(sink, 0);
    for (const FlowUse &use : value.uses)
      if (int32_t state = tiedTo(use.op); state >= 0)
        result(state, 0);
    return ports;
  }

private:
  /// Adds suffix products at which a port's dim is cut, ascending, without 1 and the
  /// total. What is minor to a cut but may not be split needs none: the others would be
  /// cut for nothing, and a dim that is read through windows cannot follow.
  void addCuts(const Port &port, std::vector<int64_t> &cuts) const {
    const size_t first = cuts.size();
    int64_t suffix = 1;
    const auto &factors = graph.ops[port.op].rule.factors;
    bool bare = true;
    for (size_t i = port.factors->size(); i-- > 0;) {
      int32_t f = (*port.factors)[i];
      bool wasBare = bare;
      bare &= factors[f].kind() == FactorKind::Replicate || detached[port.op][f];
      if (wasBare && !bare)
        cuts.resize(first);
      // Neighbours see no pieces of a loop that is read through windows or detached.
      if (factors[f].window() || detached[port.op][f]) {
        cuts.push_back(suffix *= factors[f].extent(port.operand));
        continue;
      }
      const Pieces &list = pieces[port.op][f];
      for (size_t k = list.size(); k-- > 0;)
        cuts.push_back(suffix *= list[k]);
    }
    if (cuts.size() > first)
      cuts.pop_back();
  }

  /// Ends of a loop that are one variable with an end of this dim are ends of it, so that
  /// the pieces of a body reach what the loop reads and gives.
  void addTied(std::vector<Port> &ports, int32_t dim) const {
    if (graph.ties.empty())
      return;
    const FlowValue &value = graph.values[dims[dim].first];
    std::vector<int32_t> ends;
    if (value.producer >= 0)
      ends.push_back(value.producer);
    for (const FlowUse &use : value.uses)
      ends.push_back(use.op);
    for (int32_t end : ends)
      for (const FlowTie *tie : tiesOf[end]) {
        auto own = std::ranges::find(tie->members, end, &FlowTie::Member::op);
        int32_t row = dims[dim].second - own->hasRows; // -1: of the rows
        for (const FlowTie::Member &member : tie->members)
          if (row >= 0 && std::ranges::find(ends, member.op) == ends.end())
            ports.push_back({member.op,
                             &graph.endFactors(member.op)[row + member.hasRows],
                             graph.ops[member.op].results.empty() ? 0 : -1});
      }
  }

  void refineDim(int32_t dim) {
    std::vector<Port> ports =
        portsOf(graph, graph.values[dims[dim].first], dims[dim].second);
    addTied(ports, dim);
    cuts.clear();
    for (const Port &port : ports)
      addCuts(port, cuts);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (const Port &port : ports)
      for (int64_t cut : cuts)
        if (int32_t f = tryCut(port, cut); f >= 0)
          wake(port.op, f, dim);
  }

  /// A factor was cut at `dim`: every dim that it is part of is looked at again.
  void wake(int32_t op, int32_t factor, int32_t dim) {
    const FlowOp &it = graph.ops[op];
    auto wakeTensor = [&](const TensorFactors &tensor, int32_t value) {
      for (size_t d = 0; d < tensor.size(); ++d)
        if (std::find(tensor[d].begin(), tensor[d].end(), factor) != tensor[d].end()) {
          int32_t other = firstDim[value] + static_cast<int32_t>(d);
          if (other <= dim)
            next.insert(other);
          else if (other < numSeen)
            now.insert(other);
        }
    };
    for (size_t o = 0; o < it.operands.size(); ++o)
      wakeTensor(it.rule.operands[o], it.operands[o]);
    for (size_t r = 0; r < it.results.size(); ++r)
      wakeTensor(it.rule.results[r], it.results[r]);
  }

  /// Cuts the piece of a port's dim that `cut` falls into, if it divides there. Windows
  /// overlap, so that a dim which is read through them has no pieces. The factor that was
  /// cut, or -1.
  int32_t tryCut(const Port &port, int64_t cut) {
    int64_t suffix = 1;
    for (size_t i = port.factors->size(); i-- > 0;) {
      int32_t f = (*port.factors)[i];
      if (graph.ops[port.op].rule.factors[f].window())
        return -1;
      Pieces &list = pieces[port.op][f];
      for (size_t k = list.size(); k-- > 0;) {
        int64_t piece = list[k];
        if (cut > suffix && cut < suffix * piece) {
          if (cut % suffix != 0 || piece % (cut / suffix) != 0 || detached[port.op][f])
            return -1;
          list[k] = piece / (cut / suffix);
          list.insert(list.begin() + static_cast<int64_t>(k) + 1, cut / suffix);
          return f;
        }
        suffix *= piece;
      }
    }
    return -1;
  }

  const FlowGraph &graph;
  std::vector<std::pair<int32_t, int32_t>> dims; ///< (value, dim), in the order of sweeps
  std::vector<int32_t> firstDim;                 ///< per value
  std::vector<std::vector<const FlowTie *>> tiesOf; ///< per op
  int32_t numSeen = 0;         ///< dims that the first sweep has looked at
  std::set<int32_t> now, next; ///< dims to look at again
  std::vector<int64_t> cuts;   ///< of one dim, kept for its room
};

/// An atom of a port with its place: [low, low * size) in suffix products.
struct Placed {
  int32_t atom;
  int64_t low, size;
  bool major;
};
} // namespace

/// The producer and this many users at most are linked pair by pair.
static constexpr size_t maxPairedEnds = 6;

/// Adds the atoms of a port, minor to major.
static void place(const FlowGraph &graph, const Port &port, std::vector<Placed> &placed) {
  const size_t first = placed.size();
  int64_t suffix = 1;
  for (size_t i = port.factors->size(); i-- > 0;) {
    const auto &list = graph.atomsOf(port.op, (*port.factors)[i]);
    for (size_t k = list.size(); k-- > 0;) {
      int64_t size = graph.extent(graph.atoms[list[k]], port.operand);
      placed.push_back({list[k], suffix, size, false});
      suffix *= size;
    }
  }
  if (placed.size() > first)
    placed.back().major = true;
}

void FlowGraph::finalize(const std::vector<DetachedLoop> &detached) {
  atoms.clear();
  opAtoms.clear();
  firstAtom.clear();
  Refiner refiner(*this, detached);
  refiner.run();
  for (size_t op = 0; op < ops.size(); ++op) {
    firstAtom.push_back(static_cast<int32_t>(atoms.size()));
    opAtoms.emplace_back();
    for (size_t f = 0; f < ops[op].rule.factors.size(); ++f) {
      opAtoms.back().emplace_back();
      bool bare = ops[op].rule.factors[f].kind() == FactorKind::Replicate;
      for (int64_t size : refiner.pieces[op][f]) {
        opAtoms.back().back().push_back(static_cast<int32_t>(atoms.size()));
        atoms.push_back({static_cast<int32_t>(op),
                         static_cast<int32_t>(f),
                         size,
                         true,
                         bare,
                         refiner.detached[op][f],
                         {}});
      }
    }
  }
  firstAtom.push_back(static_cast<int32_t>(atoms.size()));
  for (size_t v = 0; v < values.size(); ++v)
    for (size_t d = 0; d < values[v].shape.size(); ++d)
      linkDim(static_cast<int32_t>(v), d);
  for (const FlowTie &tie : ties)
    linkTie(tie);
  // Both are properties of the whole class of linked atoms.
  spread([](const Atom &a) { return !a.canPad; }, [](Atom &a) { a.canPad = false; });
  spread([](const Atom &a) { return a.refused; }, [](Atom &a) { a.refused = true; });
}

void FlowGraph::linkDim(int32_t value, size_t dim) {
  std::vector<Placed> all;
  std::vector<size_t> first{0}; // of each end in `all`, and behind the last
  for (const Port &port : Refiner::portsOf(*this, values[value], dim)) {
    place(*this, port, all);
    first.push_back(all.size());
  }
  auto atomsOf = [&](size_t end) {
    return std::span(all).subspan(first[end], first[end + 1] - first[end]);
  };
  const size_t numEnds = first.size() - 1;
  auto canLink = [&](const Placed &p) { return !atoms[p.atom].detached; };
  auto canSplit = [&](const Placed &p) {
    return kindOf(atoms[p.atom]) != FactorKind::Replicate;
  };
  // Users see each other through the producer only where they are many, or where it
  // is a source, through which nothing spreads: pairs would be quadratic in layers.
  bool star = numEnds > maxPairedEnds || ops[values[value].producer].isSource();
  for (size_t a = 0; a < numEnds; ++a)
    for (const Placed &p : atomsOf(a)) {
      atoms[p.atom].canPad &= p.major;
      for (size_t b = 0; canLink(p) && b < (star && a != 0 ? 1 : numEnds); ++b)
        for (const Placed &q : atomsOf(b)) {
          if (a == b || !canLink(q))
            continue;
          int64_t common = std::gcd(p.size, q.size);
          if (p.low == q.low && p.size == q.size)
            common = 0;
          else if (!p.major || !q.major || !canSplit(p) || !canSplit(q) || common == 1)
            continue;
          atoms[p.atom].links.push_back({q.atom, value, common});
        }
    }
}

/// All members with the first.
void FlowGraph::linkTie(const FlowTie &tie) {
  auto ends = [&](const FlowTie::Member &member, size_t dim) {
    std::vector<Placed> placed;
    place(*this,
          {member.op, &endFactors(member.op)[dim + member.hasRows],
           ops[member.op].results.empty()},
          placed);
    return placed;
  };
  const FlowTie::Member &first = tie.members[0];
  size_t rank = endFactors(first.op).size() - first.hasRows;
  auto link = [&](int32_t from, int32_t to, int64_t common) {
    atoms[from].links.push_back({to, endValue(atoms[to].op), common});
  };
  for (const FlowTie::Member &member : tie.members)
    for (size_t d = 0; member.op != first.op && d < rank; ++d)
      for (const Placed &p : ends(first, d))
        for (const Placed &q : ends(member, d)) {
          int64_t common = std::gcd(p.size, q.size);
          if (p.low == q.low && p.size == q.size)
            common = 0;
          else if (!p.major || !q.major || common == 1)
            continue;
          link(p.atom, q.atom, common);
          link(q.atom, p.atom, common);
        }
}

template <typename Holds, typename Set> void FlowGraph::spread(Holds holds, Set set) {
  std::vector<int32_t> open;
  for (size_t a = 0; a < atoms.size(); ++a)
    if (holds(atoms[a]))
      open.push_back(static_cast<int32_t>(a));
  while (!open.empty()) {
    int32_t from = open.back();
    open.pop_back();
    for (const Atom::Link &link : atoms[from].links)
      if (link.common == 0 && !holds(atoms[link.atom])) {
        set(atoms[link.atom]);
        open.push_back(link.atom);
      }
  }
}
