//===- Layout.cpp - Where each element of a tensor lives ------------------===//
#include "partita/Base/Layout/Layout.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>

using namespace partita;

static constexpr std::string_view reduceNames[] = {"sum", "max", "min", "prod"};

std::string_view partita::name(ReduceKind kind) {
  return reduceNames[static_cast<int>(kind)];
}

std::optional<ReduceKind> partita::reduceKindFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(reduceNames); ++i)
    if (reduceNames[i] == name)
      return static_cast<ReduceKind>(i);
  return std::nullopt;
}

int64_t DimFactor::begin(int64_t coordinate) const {
  if (blocks.empty())
    return coordinate * local();
  return std::accumulate(blocks.begin(), blocks.begin() + coordinate, int64_t(0));
}

int64_t DimLayout::size() const {
  int64_t result = 1;
  for (const DimFactor &factor : factors)
    result *= factor.size;
  return result;
}

int64_t DimLayout::padded() const {
  int64_t result = 1;
  for (const DimFactor &factor : factors)
    result *= factor.padded;
  return result;
}

int64_t DimLayout::local() const {
  int64_t result = 1;
  for (const DimFactor &factor : factors)
    result *= factor.local();
  return result;
}

bool DimLayout::sharded() const {
  return std::any_of(factors.begin(), factors.end(),
                     [](const DimFactor &factor) { return factor.shards() > 1; });
}

bool DimLayout::hasBlocks() const {
  return std::any_of(factors.begin(), factors.end(),
                     [](const DimFactor &factor) { return !factor.blocks.empty(); });
}

bool Layout::hasBlocks() const {
  return std::any_of(dims.begin(), dims.end(),
                     [](const DimLayout &dim) { return dim.hasBlocks(); });
}

Layout Layout::replicated(const std::vector<int64_t> &shape) {
  Layout layout;
  for (int64_t extent : shape)
    layout.dims.push_back({{{extent, extent, {}}}});
  return layout;
}

std::vector<int64_t> Layout::globalShape() const {
  std::vector<int64_t> shape;
  for (const DimLayout &dim : dims)
    shape.push_back(dim.size());
  return shape;
}

std::vector<int64_t> Layout::localShape() const {
  std::vector<int64_t> shape;
  for (const DimLayout &dim : dims)
    shape.push_back(dim.local());
  return shape;
}

int64_t Layout::localElements() const {
  int64_t result = 1;
  for (const DimLayout &dim : dims)
    result *= dim.local();
  return result;
}

AxisList Layout::shardingAxes() const {
  AxisList axes;
  for (const DimLayout &dim : dims)
    for (const DimFactor &factor : dim.factors)
      axes.insert(axes.end(), factor.axes.begin(), factor.axes.end());
  return axes;
}

AxisList Layout::partialAxes() const {
  AxisList axes;
  for (const PartialAxes &entry : partial)
    axes.insert(axes.end(), entry.axes.begin(), entry.axes.end());
  return axes;
}

bool Layout::isReplicated() const {
  return product(shardingAxes()) == 1 && product(partialAxes()) == 1;
}

//===----------------------------------------------------------------------===//
// Canonical form
//===----------------------------------------------------------------------===//

/// Given blocks that lie where equal ones would are equal ones.
static void dropEqualBlocks(DimFactor &factor) {
  for (size_t c = 0; c < factor.blocks.size(); ++c) {
    int64_t begin = static_cast<int64_t>(c) * factor.local();
    if (factor.blocks[c] != std::clamp<int64_t>(factor.size - begin, 0, factor.local()))
      return;
  }
  factor.blocks.clear();
}

/// Appends `minor` below `factors`, merging it into the last one where that places every
/// element alike: below {a: X} with local size 1 anything may follow ({a: X}*{b: Y} is
/// {a·b: X, Y}), below any other only an unsharded factor. Given blocks have no sub-axes.
static void appendFactor(std::vector<DimFactor> &factors, const DimFactor &minor) {
  if (!factors.empty()) {
    DimFactor &major = factors.back();
    if (minor.axes.empty() || (major.local() == 1 && major.blocks.empty())) {
      for (int64_t &block : major.blocks)
        block *= minor.size;
      major.size *= minor.size;
      major.padded *= minor.padded;
      major.axes.insert(major.axes.end(), minor.axes.begin(), minor.axes.end());
      major.axes = canonical(major.axes);
      return;
    }
  }
  factors.push_back(minor);
}

Layout Layout::canonicalized() const {
  Layout result;
  for (const DimLayout &dim : dims) {
    DimLayout merged;
    for (DimFactor factor : dim.factors) {
      factor.axes = canonical(factor.axes);
      dropEqualBlocks(factor);
      appendFactor(merged.factors, factor);
    }
    result.dims.push_back(std::move(merged));
  }
  for (const PartialAxes &entry : partial) {
    auto it = std::find_if(result.partial.begin(), result.partial.end(),
                           [&](const PartialAxes &p) { return p.kind == entry.kind; });
    if (it == result.partial.end())
      it = result.partial.insert(it, {entry.kind, {}});
    it->axes.insert(it->axes.end(), entry.axes.begin(), entry.axes.end());
  }
  for (PartialAxes &entry : result.partial) {
    std::sort(entry.axes.begin(), entry.axes.end());
    entry.axes = canonical(entry.axes);
  }
  std::erase_if(result.partial, [](const PartialAxes &p) { return p.axes.empty(); });
  std::sort(result.partial.begin(), result.partial.end(),
            [](const PartialAxes &a, const PartialAxes &b) { return a.kind < b.kind; });
  return result;
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

static Expected<void> verifyAxes(const Mesh &mesh, const AxisList &axes,
                                 const std::string &where, AxisList &used) {
  for (const AxisRef &ref : axes) {
    if (ref.axis < 0 || ref.axis >= static_cast<int32_t>(mesh.axes().size()))
      return makeError(where + ": axis number " + std::to_string(ref.axis) +
                       " is not in the mesh \"" + mesh.str() + "\"");
    int64_t size = mesh.axes()[ref.axis].size;
    if (ref.pre < 1 || ref.size < 1 || size % ref.pre || (size / ref.pre) % ref.size)
      return makeError(where + ": the sub-axis " + mesh.str(ref) +
                       " does not divide its axis of size " + std::to_string(size));
    for (const AxisRef &other : used)
      if (overlap(ref, other))
        return makeError(where + ": axis " + mesh.str(ref) + " is used twice" +
                         (ref == other ? "" : ": it overlaps " + mesh.str(other)));
    used.push_back(ref);
  }
  return {};
}

static Expected<void> verifyBlocks(const DimFactor &factor, bool major,
                                   const std::string &where) {
  if (!major)
    return makeError(where + ": only the major-most factor may have given blocks");
  if (static_cast<int64_t>(factor.blocks.size()) != factor.shards())
    return makeError(where + ": " + std::to_string(factor.blocks.size()) +
                     " blocks are given for " + std::to_string(factor.shards()) +
                     " shards");
  int64_t sum = 0, longest = 0;
  for (int64_t block : factor.blocks) {
    if (block < 0 || block > factor.size)
      return makeError(where + ": a block of length " + std::to_string(block) +
                       " is given for the size " + std::to_string(factor.size));
    sum += block;
    longest = std::max(longest, block);
    if (sum > factor.size)
      break;
  }
  if (sum != factor.size)
    return makeError(where + ": the given blocks do not sum to the size " +
                     std::to_string(factor.size));
  if (factor.padded != longest * factor.shards())
    return makeError(where + ": with given blocks the padded size must be " +
                     std::to_string(longest * factor.shards()) + ", got " +
                     std::to_string(factor.padded));
  return {};
}

static Expected<void> verifyFactor(const DimFactor &factor, bool major,
                                   const std::string &where) {
  if (factor.size < 0)
    return makeError(where + ": the size " + std::to_string(factor.size) +
                     " is negative");
  if (factor.padded < factor.size)
    return makeError(where + ": the padded size " + std::to_string(factor.padded) +
                     " is below the size " + std::to_string(factor.size));
  if (!factor.blocks.empty())
    return verifyBlocks(factor, major, where);
  if (!major && factor.padded != factor.size)
    return makeError(where + ": only the major-most factor may be padded, got " +
                     std::to_string(factor.size) + "/" + std::to_string(factor.padded));
  if (factor.padded % factor.shards())
    return makeError(where + ": the extent " + std::to_string(factor.padded) +
                     " is not a multiple of its " + std::to_string(factor.shards()) +
                     " shards");
  return {};
}

Expected<void> Layout::verify(const Mesh &mesh) const {
  AxisList used;
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    std::string where = "dim " + std::to_string(d);
    const std::vector<DimFactor> &factors = dims[d].factors;
    if (factors.empty())
      return makeError(where + ": the layout has no dim factor");
    for (size_t f = 0; f < factors.size(); ++f) {
      if (auto ok = verifyAxes(mesh, factors[f].axes, where, used); !ok)
        return ok;
      if (auto ok = verifyFactor(factors[f], f == 0, where); !ok)
        return ok;
      // Low enough that sums over a few tensors and steps stay in 64 bits.
      if (__builtin_mul_overflow(elements, std::max<int64_t>(factors[f].padded, 1),
                                 &elements) ||
          elements > int64_t(1) << 60)
        return makeError(where + ": the tensor has more than 2^60 elements");
    }
  }
  for (size_t i = 0; i < partial.size(); ++i) {
    std::string where = "partial " + std::string(name(partial[i].kind));
    if (i > 0 && partial[i].kind <= partial[i - 1].kind)
      return makeError(where + ": partial kinds must be sorted and appear once");
    if (auto ok = verifyAxes(mesh, partial[i].axes, where, used); !ok)
      return ok;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

int64_t partita::validExtent(const Mesh &mesh, const DimFactor &major, int64_t rank) {
  int64_t block = major.local(), coordinate = mesh.coordinate(rank, major.axes);
  if (!major.blocks.empty())
    return major.blocks[static_cast<size_t>(coordinate)];
  return std::clamp<int64_t>(major.size - coordinate * block, 0, block);
}

std::vector<DimRun> partita::dimRuns(const Mesh &mesh, const DimLayout &dim,
                                     int64_t rank) {
  // From the minor-most factor upwards: `runs` covers the dim below the factor at hand,
  // whose global and local extents are `innerGlobal` and `innerLocal`.
  std::vector<DimRun> runs{{0, 0, 1}};
  int64_t innerGlobal = 1, innerLocal = 1;
  for (size_t f = dim.factors.size(); f-- > 0;) {
    const DimFactor &factor = dim.factors[f];
    int64_t first = factor.begin(mesh.coordinate(rank, factor.axes));
    int64_t count = validExtent(mesh, factor, rank);
    std::vector<DimRun> next;
    if (runs.size() == 1 && runs[0].length == innerGlobal) {
      if (count > 0)
        next.push_back({first * innerGlobal, 0, count * innerGlobal});
    } else {
      next.reserve(runs.size() * count);
      for (int64_t q = 0; q < count; ++q)
        for (const DimRun &run : runs)
          next.push_back({(first + q) * innerGlobal + run.global,
                          q * innerLocal + run.local, run.length});
    }
    runs = std::move(next);
    innerGlobal *= factor.padded;
    innerLocal *= factor.local();
  }
  std::erase_if(runs, [](const DimRun &run) { return run.length == 0; });
  return runs;
}

namespace {
/// Walks the valid blocks that one rank holds; contiguous along the last dim.
class BlockCopy {
public:
  BlockCopy(const Mesh &mesh, const Layout &layout, int64_t rank, size_t elementBytes)
      : elementBytes(elementBytes) {
    globalStride.resize(layout.dims.size(), 1);
    localStride.resize(layout.dims.size(), 1);
    for (size_t d = layout.dims.size(); d-- > 0;) {
      runs.insert(runs.begin(), dimRuns(mesh, layout.dims[d], rank));
      if (d > 0) {
        globalStride[d - 1] = globalStride[d] * layout.dims[d].size();
        localStride[d - 1] = localStride[d] * layout.dims[d].local();
      }
    }
  }

  /// Calls copy(globalByte, localByte, bytes) for every contiguous block.
  template <typename Copy> void walk(Copy copy) const { walk(0, 0, 0, copy); }

private:
  template <typename Copy>
  void walk(size_t d, int64_t global, int64_t local, Copy &copy) const {
    if (d == runs.size())
      return copy(global * elementBytes, local * elementBytes, elementBytes);
    for (const DimRun &run : runs[d]) {
      int64_t g = global + run.global * globalStride[d];
      int64_t l = local + run.local * localStride[d];
      if (d + 1 == runs.size()) {
        copy(g * elementBytes, l * elementBytes, run.length * elementBytes);
        continue;
      }
      for (int64_t i = 0; i < run.length; ++i)
        walk(d + 1, g + i * globalStride[d], l + i * localStride[d], copy);
    }
  }

  std::vector<std::vector<DimRun>> runs;
  std::vector<int64_t> globalStride, localStride;
  size_t elementBytes;
};
} // namespace

void partita::extractLocal(const Mesh &mesh, const Layout &layout, int64_t rank,
                           size_t elementBytes, const std::byte *global,
                           std::byte *local) {
  std::fill_n(local, layout.localElements() * elementBytes, std::byte{0});
  BlockCopy(mesh, layout, rank, elementBytes).walk([&](size_t g, size_t l, size_t bytes) {
    std::memcpy(local + l, global + g, bytes);
  });
}

void partita::insertLocal(const Mesh &mesh, const Layout &layout, int64_t rank,
                          size_t elementBytes, const std::byte *local,
                          std::byte *global) {
  BlockCopy(mesh, layout, rank, elementBytes).walk([&](size_t g, size_t l, size_t bytes) {
    std::memcpy(global + g, local + l, bytes);
  });
}
