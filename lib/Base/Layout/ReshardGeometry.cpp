//===- ReshardGeometry.cpp - Steps as blocks and peers; volume bounds -----===//
#include "ReshardRefine.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>
#include <numeric>

using namespace partita;
using namespace partita::reshard;

/// Local elements of everything major to (dim, factor), and of everything minor to it.
static int64_t localBefore(const Layout &layout, int dim, int factor) {
  int64_t result = 1;
  for (int d = 0; d < dim; ++d)
    result *= layout.dims[d].local();
  for (int f = 0; f < factor; ++f)
    result *= layout.dims[dim].factors[f].local();
  return result;
}

static int64_t localOf(const Layout &layout, int dim, int factor) {
  return layout.dims[dim].factors[factor].local();
}

static int64_t localAfter(const Layout &layout, int dim, int factor) {
  return layout.localElements() /
         (localBefore(layout, dim, factor) * localOf(layout, dim, factor));
}

static StepGeometry allToAllGeometry(const Step &step, StepGeometry g) {
  const Layout &before = step.before;
  g.fromFirst =
      step.dim < step.toDim || (step.dim == step.toDim && step.factor < step.toFactor);
  g.chunk = localOf(before, step.dim, step.factor);
  g.toChunk = localOf(step.after, step.toDim, step.toFactor);
  if (g.fromFirst) {
    g.outer = localBefore(before, step.dim, step.factor);
    g.inner = localAfter(before, step.toDim, step.toFactor);
  } else {
    g.outer = localBefore(before, step.toDim, step.toFactor);
    g.inner = localAfter(before, step.dim, step.factor);
  }
  g.middle = before.localElements() / (g.outer * g.inner * g.chunk * g.toChunk * g.count);
  return g;
}

StepGeometry partita::stepGeometry(const Step &step) {
  StepGeometry g;
  g.count = product(step.axes);
  switch (step.kind) {
  case StepKind::AllToAll:
    return allToAllGeometry(step, g);
  case StepKind::AllGather:
    g.chunk = localOf(step.before, step.dim, step.factor);
    break;
  case StepKind::Slice:
  case StepKind::ReduceScatter:
    g.chunk = localOf(step.after, step.dim, step.factor);
    break;
  case StepKind::Repad:
    g.chunk = localOf(step.before, step.dim, step.factor);
    g.toChunk = localOf(step.after, step.dim, step.factor);
    break;
  default:
    g.inner = step.before.localElements();
    return g;
  }
  g.outer = localBefore(step.before, step.dim, step.factor);
  g.inner = localAfter(step.before, step.dim, step.factor);
  return g;
}

/// Whether all cuts of two overlapping references are cuts of one mixed-radix number.
static bool cutsNest(const AxisRef &a, const AxisRef &b) {
  int64_t cuts[] = {a.pre, b.pre, a.pre * a.size, b.pre * b.size};
  std::sort(std::begin(cuts), std::end(cuts));
  return cuts[1] % cuts[0] == 0 && cuts[2] % cuts[1] == 0 && cuts[3] % cuts[2] == 0;
}

AxisList reshard::without(const AxisList &axes, const AxisList &others) {
  AxisList result;
  for (const AxisRef &ref : axes) {
    AxisList rest{ref};
    for (const AxisRef &other : others) {
      AxisList next;
      for (const AxisRef &part : rest) {
        if (part.axis != other.axis || !overlap(part, other) || !cutsNest(part, other)) {
          next.push_back(part);
          continue;
        }
        int64_t end = part.pre * part.size, otherEnd = other.pre * other.size;
        if (part.pre < other.pre)
          next.push_back({part.axis, part.pre, other.pre / part.pre});
        if (otherEnd < end)
          next.push_back({part.axis, otherEnd, end / otherEnd});
      }
      rest = std::move(next);
    }
    result.insert(result.end(), rest.begin(), rest.end());
  }
  return result;
}

std::pair<AxisList, AxisList> partita::permuteAxes(const Step &step) {
  // The block of a rank after the step is held, before it, by the ranks at the same
  // position along the axes before. Of those, axes that come in take the position that
  // the leaving ones had, so that every rank sends exactly once.
  AxisList from, to;
  auto append = [](AxisList &list, const AxisList &more) {
    list.insert(list.end(), more.begin(), more.end());
  };
  for (size_t d = 0; d < step.before.dims.size(); ++d)
    for (size_t f = 0; f < step.before.dims[d].factors.size(); ++f) {
      const AxisList &before = step.before.dims[d].factors[f].axes;
      const AxisList &after = step.after.dims[d].factors[f].axes;
      if (before == after)
        continue;
      append(from, before);
      append(to, after);
    }
  const AxisList before = step.before.shardingAxes(), after = step.after.shardingAxes();
  append(from, without(after, before));
  append(to, without(before, after));
  return {from, to};
}

int64_t partita::permuteSource(const Mesh &mesh, const Step &step, int64_t rank) {
  auto [from, to] = permuteAxes(step);
  return mesh.withCoordinate(rank, from, mesh.coordinate(rank, to));
}

std::optional<ReduceKind> partita::toPartialFill(const Mesh &mesh, const Step &step,
                                                 int64_t rank) {
  if (mesh.coordinate(rank, step.axes) == 0)
    return std::nullopt;
  ReduceKind fill = step.reduce;
  for (const PartialAxes &entry : step.before.partial)
    if (entry.kind > step.reduce && mesh.coordinate(rank, entry.axes) != 0)
      fill = entry.kind;
  return fill;
}

//===----------------------------------------------------------------------===//
// Exchange
//===----------------------------------------------------------------------===//

AxisList reshard::axesOf(const DimLayout &dim) {
  AxisList axes;
  for (const DimFactor &factor : dim.factors)
    axes.insert(axes.end(), factor.axes.begin(), factor.axes.end());
  return axes;
}

std::vector<ExchangeRun> reshard::intersect(const std::vector<DimRun> &before,
                                            const std::vector<DimRun> &after) {
  std::vector<ExchangeRun> result;
  for (size_t i = 0, j = 0; i < before.size() && j < after.size();) {
    const DimRun &b = before[i], &a = after[j];
    int64_t begin = std::max(b.global, a.global);
    int64_t endB = b.global + b.length, endA = a.global + a.length;
    int64_t end = std::min(endB, endA);
    if (begin < end)
      result.push_back(
          {b.local + begin - b.global, a.local + begin - a.global, end - begin});
    (endB < endA ? i : j) += 1;
  }
  return result;
}

int64_t ExchangeBlock::elements() const {
  int64_t count = 1;
  for (const std::vector<ExchangeRun> &runs : dims) {
    int64_t length = 0;
    for (const ExchangeRun &run : runs)
      length += run.length;
    count *= length;
  }
  return count;
}

std::vector<ExchangeBlock>
reshard::blocksOf(const Mesh &mesh, const Layout &before,
                  const std::vector<std::vector<DimRun>> &needed, int64_t rank) {
  std::vector<ExchangeBlock> blocks{{rank, {}}};
  for (size_t d = 0; d < before.dims.size(); ++d) {
    AxisList axes = reshard::axesOf(before.dims[d]);
    std::vector<ExchangeBlock> next;
    for (int64_t c = 0; c < product(axes); ++c) {
      int64_t owner = mesh.withCoordinate(rank, axes, c);
      std::vector<ExchangeRun> runs =
          intersect(dimRuns(mesh, before.dims[d], owner), needed[d]);
      if (runs.empty())
        continue;
      for (const ExchangeBlock &block : blocks) {
        next.push_back(block);
        next.back().peer = mesh.withCoordinate(block.peer, axes, c);
        next.back().dims.push_back(runs);
      }
    }
    blocks = std::move(next);
  }
  return blocks;
}

std::vector<ExchangeBlock> partita::exchangeBlocks(const Mesh &mesh, const Layout &before,
                                                   const Layout &after, int64_t rank) {
  std::vector<std::vector<DimRun>> needed;
  for (const DimLayout &dim : after.dims)
    needed.push_back(dimRuns(mesh, dim, rank));
  return blocksOf(mesh, before, needed, rank);
}

namespace {
/// Per dim: how many valid indices a target block holds, and how many of them the source
/// block of the same rank holds, each computed once per pair of coordinates.
struct DimCounts {
  DimCounts(const DimLayout &before, const DimLayout &after)
      : before(before), after(after), beforeAxes(reshard::axesOf(before)),
        afterAxes(reshard::axesOf(after)) {}

  /// (needed, held of those) on `rank`.
  std::pair<int64_t, int64_t> count(const Mesh &mesh, int64_t rank) {
    auto [entry, added] = known.try_emplace(
        {mesh.coordinate(rank, beforeAxes), mesh.coordinate(rank, afterAxes)});
    if (added) {
      // Any rank at these positions gives the same counts.
      std::vector<DimRun> runs = dimRuns(mesh, after, rank);
      for (const DimRun &run : runs)
        entry->second.first += run.length;
      for (const ExchangeRun &run : intersect(dimRuns(mesh, before, rank), runs))
        entry->second.second += run.length;
    }
    return entry->second;
  }

  const DimLayout &before, &after;
  AxisList beforeAxes, afterAxes;
  std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>> known;
};
} // namespace

namespace {
/// What a refinement tells without looking at ranks.
struct EvenPart {
  int64_t needed = 1, held = 1; ///< over the dims without padding
  int64_t unsharded = 1;        ///< valid elements of the unsharded dims with padding
  bool moves = false;           ///< some rank lacks something
  bool conflict = false;  ///< an atom without padding has another digit on each side
  bool anyUneven = false; ///< a dim with padding is split
};
} // namespace

static EvenPart evenPart(const Refinement &r, const Layout &target) {
  EvenPart part;
  auto padded = [&](int dim) {
    return target.dims[dim].size() != target.dims[dim].padded();
  };
  for (size_t d = 0; d < target.dims.size(); ++d)
    if (!padded(static_cast<int>(d)))
      part.needed *= target.dims[d].local();
    else if (!target.dims[d].sharded())
      part.unsharded *= target.dims[d].size();
  part.held = part.needed;
  for (const Atom &atom : r.atoms) {
    part.anyUneven |= padded(atom.dim) && (atom.source != none || atom.target != none);
    part.moves |= atom.source != none && atom.source != atom.target;
    if (padded(atom.dim) || atom.source == none || atom.source == atom.target)
      continue;
    if (atom.target == none)
      part.held /= atom.size;
    else
      part.conflict = true;
  }
  return part;
}

/// Where along the axes of an uneven dim ranks can differ in what they need and hold: its
/// blocks are full up to the one in which the dim ends, and empty behind it. With 13 of
/// 16 elements, 8 blocks of 2 and 2 of 8, the coordinates 0, 5 to 7 tell everything.
/// Nothing where the blocks of one side are not parts of the other's.
static std::optional<std::pair<AxisList, std::vector<int64_t>>>
tellingPlaces(const DimLayout &before, const DimLayout &after) {
  if (before.factors.size() != 1 || after.factors.size() != 1)
    return std::nullopt;
  const DimFactor *fine = &before.factors[0], *coarse = &after.factors[0];
  if (fine->shards() < coarse->shards())
    std::swap(fine, coarse);
  AxisList axes = canonical(fine->axes);
  bool sameBlocks = fine->padded == coarse->padded;
  if (!behind(axes, canonical(coarse->axes)) || (!sameBlocks && coarse->shards() != 1) ||
      fine->local() == 0)
    return std::nullopt;
  int64_t count = fine->shards(), ratio = count / coarse->shards();
  int64_t end = fine->size / fine->local();
  int64_t first = sameBlocks ? fine->size / coarse->local() * ratio : 0;
  int64_t last = first + ratio - 1;
  std::vector<int64_t> places{0,     end - 1, end,      end + 1,  first - 1,
                              first, last,    last + 1, count - 1};
  std::erase_if(places, [&](int64_t c) { return c < 0 || c >= count; });
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return std::pair(std::move(axes), std::move(places));
}

/// Ranks among which one lacks the most, by these dims alone: a few, however many share
/// them. Nothing where that cannot be told.
static std::optional<std::vector<int64_t>> tellingRanks(const Mesh &mesh,
                                                        const Layout &source,
                                                        const Layout &target,
                                                        const std::vector<size_t> &dims) {
  // Dims over the same axes share their coordinate: what tells of either is looked at.
  std::vector<std::pair<AxisList, std::vector<int64_t>>> all;
  for (size_t d : dims) {
    if (!source.dims[d].sharded() && !target.dims[d].sharded())
      continue;
    auto places = tellingPlaces(source.dims[d], target.dims[d]);
    if (!places)
      return std::nullopt;
    bool shared = false;
    for (auto &[axes, list] : all) {
      if (axes != places->first && overlap(axes, places->first))
        return std::nullopt;
      if (axes == places->first) {
        list.insert(list.end(), places->second.begin(), places->second.end());
        shared = true;
      }
    }
    if (!shared)
      all.push_back(std::move(*places));
  }
  std::vector<int64_t> ranks{0};
  for (const auto &[axes, places] : all) {
    std::vector<int64_t> next;
    for (int64_t rank : ranks)
      for (int64_t place : places)
        next.push_back(mesh.withCoordinate(rank, axes, place));
    ranks = std::move(next);
  }
  return ranks;
}

namespace {
/// Elements that a rank needs, and how many of those it holds.
struct Lack {
  int64_t needed = 1, held = 1;

  Lack times(const Lack &other) const {
    return {needed * other.needed, held * other.held};
  }
};

/// Dims that share digits of the mesh: along other axes their counts are the same.
struct DimGroup {
  std::vector<size_t> dims;
  AxisList axes; ///< whole axes where sub-axes of one overlap in part
};
} // namespace

static std::vector<DimGroup> groupsOf(const Mesh &mesh, const Layout &source,
                                      const Layout &target,
                                      const std::vector<size_t> &dims) {
  std::vector<DimGroup> groups;
  auto meet = [](const AxisList &a, const AxisList &b) {
    return std::any_of(a.begin(), a.end(), [&](const AxisRef &x) {
      return std::any_of(b.begin(), b.end(),
                         [&](const AxisRef &y) { return overlap(x, y); });
    });
  };
  for (size_t d : dims) {
    DimGroup group{{d}, reshard::axesOf(source.dims[d])};
    for (const AxisRef &ref : reshard::axesOf(target.dims[d]))
      group.axes.push_back(ref);
    std::erase_if(groups, [&](const DimGroup &other) {
      if (!meet(group.axes, other.axes))
        return false;
      group.dims.insert(group.dims.end(), other.dims.begin(), other.dims.end());
      group.axes.insert(group.axes.end(), other.axes.begin(), other.axes.end());
      return true;
    });
    groups.push_back(std::move(group));
  }
  for (DimGroup &group : groups) {
    std::sort(group.dims.begin(), group.dims.end());
    AxisList &axes = group.axes;
    auto unify = [&] {
      std::sort(axes.begin(), axes.end());
      axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
    };
    unify();
    bool cut = false;
    for (size_t i = 0; i < axes.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        cut |= overlap(axes[i], axes[k]);
    if (!cut)
      continue;
    for (AxisRef &ref : axes)
      ref = mesh.whole(ref.axis);
    unify();
  }
  return groups;
}

/// Keeps what may be the most lacking when both numbers are multiplied by those of other
/// dims: nobody else needs at least as much and holds at most as much.
static void keepWorst(std::vector<Lack> &lacks, const Lack &added) {
  for (const Lack &known : lacks)
    if (known.needed >= added.needed && known.held <= added.held)
      return;
  std::erase_if(lacks, [&](const Lack &known) {
    return added.needed >= known.needed && added.held <= known.held;
  });
  lacks.push_back(added);
}

/// What the ranks along the axes of `group` lack of its dims.
static std::vector<Lack> worstOf(const Mesh &mesh, const Layout &source,
                                 const Layout &target, const DimGroup &group) {
  bool blocks = source.hasBlocks() || target.hasBlocks();
  std::optional<std::vector<int64_t>> telling;
  if (!blocks)
    telling = tellingRanks(mesh, source, target, group.dims);
  std::vector<int64_t> ranks = telling ? std::move(*telling) : mesh.group(0, group.axes);
  std::vector<DimCounts> dims;
  for (size_t d : group.dims)
    dims.emplace_back(source.dims[d], target.dims[d]);
  // Without given blocks rank 0 has full blocks: nobody needs more. Who needs as much and
  // holds nothing ends the search. Such ranks may all stand together at the end, so that
  // the walk goes on in long steps, which visit every rank once.
  std::vector<Lack> worst;
  int64_t most = std::numeric_limits<int64_t>::max();
  size_t stride = ranks.size() * 5 / 8 + 1;
  while (std::gcd(stride, ranks.size()) != 1)
    ++stride;
  for (size_t i = 0, at = 0; i < ranks.size(); ++i, at = (at + stride) % ranks.size()) {
    Lack lack;
    for (DimCounts &dim : dims) {
      auto [needed, held] = dim.count(mesh, ranks[at]);
      lack = lack.times({needed, held});
    }
    if (ranks[at] == 0 && !blocks)
      most = lack.needed;
    keepWorst(worst, lack);
    if (lack.held == 0 && lack.needed == most)
      break;
  }
  return worst;
}

int64_t reshard::exchangeElements(const Mesh &mesh, const Layout &source,
                                  const Layout &target) {
  if (elementCount(target.globalShape()) == 0)
    return 0;
  // Where the cuts nest (given blocks never do), dims without padding are the same on
  // every rank, except that two digits in one place agree on some ranks only; and if
  // nothing is padded some rank is at odds.
  bool blocks = source.hasBlocks() || target.hasBlocks();
  Refinement refinement = blocks ? Refinement() : refine(mesh, source, target);
  std::vector<Lack> worst(1);
  bool known = false;
  if (!blocks && refinement.nested()) {
    EvenPart even = evenPart(refinement, target);
    if (!even.moves)
      return 0;
    if (!even.anyUneven)
      return even.unsharded * (even.needed - (even.conflict ? 0 : even.held));
    known = !even.conflict;
    if (known)
      worst = {{even.needed, even.held}};
  }
  std::vector<size_t> dims;
  for (size_t d = 0; d < source.dims.size(); ++d)
    if (!known || target.dims[d].size() != target.dims[d].padded())
      dims.push_back(d);
  for (const DimGroup &group : groupsOf(mesh, source, target, dims)) {
    std::vector<Lack> next;
    for (const Lack &there : worstOf(mesh, source, target, group))
      for (const Lack &here : worst)
        keepWorst(next, here.times(there));
    worst = std::move(next);
  }
  int64_t most = 0;
  for (const Lack &lack : worst)
    most = std::max(most, lack.needed - lack.held);
  return most;
}

std::vector<PartialAxes> reshard::commonPartials(const Layout &source,
                                                 const Layout &target) {
  std::vector<PartialAxes> kept;
  for (const PartialAxes &entry : source.partial) {
    AxisList staying;
    for (const PartialAxes &other : target.partial)
      if (other.kind == entry.kind)
        staying = other.axes;
    AxisList leaving = without(entry.axes, staying);
    AxisList common = canonical(without(entry.axes, leaving));
    if (!common.empty())
      kept.push_back({entry.kind, std::move(common)});
    if (!leaving.empty())
      break;
  }
  return kept;
}

int64_t reshard::lowerBound(const Mesh &mesh, const Layout &source,
                            const Layout &target) {
  // Ranks along axes that stay partial are problems of their own.
  int64_t kept = 1;
  for (const PartialAxes &entry : commonPartials(source, target))
    kept *= product(entry.axes);
  int64_t reduced = product(source.partialAxes()) / kept;
  if (reduced == 1)
    return exchangeElements(mesh, source, target);
  int64_t ranks = mesh.numRanks() / kept;
  int64_t newPartial = product(target.partialAxes()) / kept;
  int64_t copies = ranks / newPartial / product(target.shardingAxes());
  // Valid parts are prefixes: rank 0 has the most, or whoever has the longest block.
  int64_t most = 1;
  for (const DimLayout &dim : target.dims) {
    const DimFactor &major = dim.factors[0];
    int64_t valid = major.blocks.empty() ? validExtent(mesh, major, 0) : major.local();
    most *= major.local() == 0 ? 0 : valid * (dim.local() / major.local());
  }
  // elements·(messages each) / ranks, rounded up, without leaving 64 bits.
  int64_t elements = elementCount(source.globalShape()), messages = reduced + copies - 2;
  int64_t mean =
      elements / ranks * messages + (elements % ranks * messages + ranks - 1) / ranks;
  return std::max(most, mean);
}
