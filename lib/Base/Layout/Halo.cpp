//===- Halo.cpp - Windows that reach into other ranks' blocks -------------===//
#include "partita/Base/Layout/Halo.h"

#include "ReshardRefine.h"

#include <algorithm>
#include <set>

using namespace partita;

static const HaloWindow *windowOf(const Halo &halo, size_t dim) {
  for (const HaloWindow &window : halo.windows)
    if (window.dim == static_cast<int32_t>(dim))
      return &window;
  return nullptr;
}

std::vector<int64_t> Halo::shape() const {
  std::vector<int64_t> shape = positions.localShape();
  for (const HaloWindow &window : windows)
    shape[static_cast<size_t>(window.dim)] =
        window.extent(shape[static_cast<size_t>(window.dim)]);
  return shape;
}

/// Beyond this, products of the numbers of one window could leave 64 bits.
static constexpr int64_t mostElements = int64_t(1) << 30;

static Expected<void> verifyWindow(const Halo &halo, const HaloWindow &window) {
  std::string where = "window of dim " + std::to_string(window.dim);
  if (window.dim < 0 || window.dim >= halo.positions.rank())
    return makeError(where + ": the tensor has " + std::to_string(halo.positions.rank()) +
                     " dims");
  if (window.stride < 1 || window.stride > mostElements || window.kernelExtent < 1 ||
      window.kernelExtent > mostElements || window.low < -mostElements ||
      window.low > mostElements)
    return makeError(where + ": stride " + std::to_string(window.stride) +
                     ", kernel_extent " + std::to_string(window.kernelExtent) +
                     " and low " + std::to_string(window.low) + " are out of range");
  const DimLayout &dim = halo.positions.dims[static_cast<size_t>(window.dim)];
  if (dim.factors.size() != 1)
    return makeError(where + ": its positions have " +
                     std::to_string(dim.factors.size()) + " factors instead of one");
  if (dim.padded() < 1 || dim.padded() > mostElements)
    return makeError(where + ": " + std::to_string(dim.padded()) +
                     " positions are out of range");
  return {};
}

Expected<void> Halo::verify(const Mesh &mesh) const {
  if (auto ok = before.verify(mesh); !ok)
    return makeError("the source, " + ok.error().message);
  if (auto ok = positions.verify(mesh); !ok)
    return makeError("the positions, " + ok.error().message);
  if (before.rank() != positions.rank())
    return makeError("the source has " + std::to_string(before.rank()) +
                     " dims, the positions " + std::to_string(positions.rank()));
  if (before.partial != positions.partial)
    return makeError("the source and the positions have different partial axes");
  if (windows.empty())
    return makeError("there is no window");
  for (size_t i = 0; i < windows.size(); ++i) {
    if (auto ok = verifyWindow(*this, windows[i]); !ok)
      return ok;
    if (i != 0 && windows[i - 1].dim >= windows[i].dim)
      return makeError("window of dim " + std::to_string(windows[i].dim) +
                       ": the dims do not ascend");
  }
  for (size_t d = 0; d < before.dims.size(); ++d)
    if (!windowOf(*this, d) && before.dims[d].size() != positions.dims[d].size())
      return makeError("dim " + std::to_string(d) + " has size " +
                       std::to_string(before.dims[d].size()) + " in the source and " +
                       std::to_string(positions.dims[d].size()) + " in the result");
  constexpr int64_t mostInBuffer = int64_t(1) << 40;
  int64_t count = 1;
  for (int64_t extent : shape()) {
    if (extent > mostInBuffer / std::max<int64_t>(count, 1))
      return makeError("the window buffer has more than 2^40 elements");
    count *= extent;
  }
  return {};
}

AxisList Halo::axes(const Mesh &mesh) const {
  AxisList result;
  for (size_t d = 0; d < before.dims.size(); ++d) {
    if (before.dims[d] == positions.dims[d] && !windowOf(*this, d))
      continue;
    for (const DimLayout *dim : {&positions.dims[d], &before.dims[d]})
      for (const DimFactor &factor : dim->factors)
        for (const AxisRef &axis : reshard::without(factor.axes, result))
          result.push_back(axis);
  }
  // Of parts whose cuts do not nest, the axis as a whole.
  for (size_t i = 0; i < result.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (overlap(result[i], result[j])) {
        int32_t axis = result[i].axis;
        std::erase_if(result, [&](const AxisRef &ref) { return ref.axis == axis; });
        result.push_back(mesh.whole(axis));
        i = j = 0;
      }
  return canonical(result);
}

std::vector<DimRun> partita::haloRuns(const Mesh &mesh, const Halo &halo, size_t d,
                                      int64_t rank) {
  const HaloWindow *window = windowOf(halo, d);
  if (!window)
    return dimRuns(mesh, halo.positions.dims[d], rank);
  const DimFactor &positions = halo.positions.dims[d].factors[0];
  int64_t begin =
      positions.begin(mesh.coordinate(rank, positions.axes)) * window->stride -
      window->low;
  int64_t first = std::max<int64_t>(begin, 0);
  int64_t end =
      std::min(begin + window->extent(positions.local()), halo.before.dims[d].size());
  if (first >= end)
    return {};
  return {{first, first - begin, end - first}};
}

std::optional<int64_t> partita::ownBegin(const Halo &halo) {
  if (halo.windows.size() != 1)
    return std::nullopt;
  const HaloWindow &window = halo.windows[0];
  auto dim = static_cast<size_t>(window.dim);
  for (size_t d = 0; d < halo.before.dims.size(); ++d)
    if (d != dim && halo.before.dims[d] != halo.positions.dims[d])
      return std::nullopt;
  const DimLayout &held = halo.before.dims[dim];
  const DimFactor &positions = halo.positions.dims[dim].factors[0];
  if (held.factors.size() != 1 || held.factors[0].axes != positions.axes)
    return std::nullopt;
  std::optional<int64_t> begin;
  for (int64_t block = 0; block < positions.shards(); ++block) {
    const DimFactor &blocks = held.factors[0];
    int64_t first = blocks.begin(block);
    bool isEmpty =
        !blocks.blocks.empty() && blocks.blocks[static_cast<size_t>(block)] == 0;
    if (first >= held.size() || isEmpty) // nobody reads what it has
      continue;
    int64_t here = first - (positions.begin(block) * window.stride - window.low);
    if (here < 0 || here + held.local() > window.extent(positions.local()) ||
        here != begin.value_or(here))
      return std::nullopt;
    begin = here;
  }
  return begin;
}

std::vector<ExchangeBlock> partita::haloBlocks(const Mesh &mesh, const Halo &halo,
                                               int64_t rank) {
  std::vector<std::vector<DimRun>> needed;
  for (size_t d = 0; d < halo.before.dims.size(); ++d)
    needed.push_back(haloRuns(mesh, halo, d, rank));
  return reshard::blocksOf(mesh, halo.before, needed, rank);
}

/// Elements that a rank needs along some dims, and those of them that it holds.
using Counts = std::pair<int64_t, int64_t>;

static Counts operator*(const Counts &a, const Counts &b) {
  return {a.first * b.first, a.second * b.second};
}

static Counts countsAlong(const Mesh &mesh, const Halo &halo, size_t d, int64_t rank) {
  Counts counts{0, 0};
  std::vector<DimRun> runs = haloRuns(mesh, halo, d, rank);
  for (const DimRun &run : runs)
    counts.first += run.length;
  for (const ExchangeRun &run :
       reshard::intersect(dimRuns(mesh, halo.before.dims[d], rank), runs))
    counts.second += run.length;
  return counts;
}

namespace {
/// Dims that have axes in common, so that a coordinate places a rank in all of them.
struct DimGroup {
  AxisList axes; ///< whole mesh axes
  std::vector<size_t> dims;
};
} // namespace

static std::vector<DimGroup> groupedDims(const Mesh &mesh, const Halo &halo) {
  std::vector<DimGroup> groups;
  for (size_t d = 0; d < halo.before.dims.size(); ++d) {
    DimGroup mine{{}, {d}};
    for (const DimLayout *dim : {&halo.before.dims[d], &halo.positions.dims[d]})
      for (const AxisRef &axis : reshard::axesOf(*dim))
        mine.axes.push_back(mesh.whole(axis.axis));
    for (size_t g = groups.size(); g-- > 0;)
      if (overlap(groups[g].axes, mine.axes)) {
        mine.axes.insert(mine.axes.end(), groups[g].axes.begin(), groups[g].axes.end());
        mine.dims.insert(mine.dims.end(), groups[g].dims.begin(), groups[g].dims.end());
        groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(g));
      }
    std::sort(mine.axes.begin(), mine.axes.end());
    mine.axes.erase(std::unique(mine.axes.begin(), mine.axes.end()), mine.axes.end());
    groups.push_back(std::move(mine));
  }
  return groups;
}

/// Ranks differ in few ways: along rows split 64 ways a rank has rows above and below, or
/// above only, or below only. So the coordinates of each group of dims are looked at, not
/// those of all together.
int64_t partita::haloElements(const Mesh &mesh, const Halo &halo) {
  std::set<Counts> all{{1, 1}};
  for (const DimGroup &group : groupedDims(mesh, halo)) {
    std::set<Counts> mine, next;
    for (int64_t rank : mesh.group(0, group.axes)) {
      Counts counts{1, 1};
      for (size_t d : group.dims)
        counts = counts * countsAlong(mesh, halo, d, rank);
      mine.insert(counts);
    }
    for (const Counts &a : all)
      for (const Counts &b : mine)
        next.insert(a * b);
    all = std::move(next);
  }
  int64_t most = 0;
  for (auto [needed, held] : all)
    most = std::max(most, needed - held);
  return most;
}

std::vector<HostTensor> partita::executeHalo(const Mesh &mesh, const Halo &halo,
                                             const std::vector<HostTensor> &locals) {
  std::vector<HostTensor> result;
  std::vector<int64_t> source = halo.before.localShape(), target = halo.shape();
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    result.push_back(HostTensor::zeros(locals[0].type, target));
    fillNeutral(result.back(), halo.fill);
    for (const ExchangeBlock &block : haloBlocks(mesh, halo, rank))
      reshard::copyBlock(block, source, target, locals[static_cast<size_t>(block.peer)],
                         result.back());
  }
  return result;
}
