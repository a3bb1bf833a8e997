//===- SliceCopy.cpp - Between a global tensor and one rank's part --------===//
#include "partita/Base/Layout/SliceCopy.h"

#include <cstring>

using namespace partita;

SliceCopy::SliceCopy(const Mesh &mesh, const Layout &layout, int64_t rank, size_t width)
    : width(width) {
  for (const DimLayout &dim : layout.dims)
    runs.push_back(dimRuns(mesh, dim, rank));
  prepare(layout.globalShape(), layout.localShape());
}

SliceCopy::SliceCopy(std::vector<std::vector<DimRun>> runs,
                     const std::vector<int64_t> &global,
                     const std::vector<int64_t> &local, size_t width)
    : runs(std::move(runs)), width(width) {
  prepare(global, local);
}

void SliceCopy::prepare(const std::vector<int64_t> &globalShape,
                        const std::vector<int64_t> &localShape) {
  globalStride.resize(runs.size());
  localStride.resize(runs.size());
  uint64_t global = width, local = width;
  uint64_t valid = 1;
  for (size_t d = runs.size(); d-- > 0;) {
    globalStride[d] = global;
    localStride[d] = local;
    global *= static_cast<uint64_t>(globalShape[d]);
    local *= static_cast<uint64_t>(localShape[d]);
  }
  total = local;
  for (const std::vector<DimRun> &dim : runs) {
    uint64_t held = 0;
    for (const DimRun &run : dim)
      held += static_cast<uint64_t>(run.length);
    valid *= held;
  }
  hasPadding = valid * width != total;
  // Trailing dims held whole are one run with the dim above them.
  while (runs.size() > 1 && runs.back().size() == 1 &&
         static_cast<uint64_t>(runs.back()[0].length) * globalStride.back() ==
             globalStride[runs.size() - 2] &&
         static_cast<uint64_t>(runs.back()[0].length) * localStride.back() ==
             localStride[runs.size() - 2]) {
    runs.pop_back();
    globalStride.pop_back();
    localStride.pop_back();
  }
}

template <typename Copy>
void SliceCopy::walk(size_t dim, uint64_t global, uint64_t local, Copy copy) const {
  if (runs.empty())
    return copy(global, local, width); // a scalar
  bool last = dim + 1 == runs.size();
  for (const DimRun &run : runs[dim]) {
    uint64_t g = global + static_cast<uint64_t>(run.global) * globalStride[dim];
    uint64_t l = local + static_cast<uint64_t>(run.local) * localStride[dim];
    if (last) {
      copy(g, l, static_cast<uint64_t>(run.length) * globalStride[dim]);
      continue;
    }
    for (int64_t i = 0; i < run.length;
         ++i, g += globalStride[dim], l += localStride[dim])
      walk(dim + 1, g, l, copy);
  }
}

void SliceCopy::toLocal(const std::byte *global, std::byte *local) const {
  walk(0, 0, 0, [&](uint64_t g, uint64_t l, uint64_t bytes) {
    std::memcpy(local + l, global + g, bytes);
  });
}

void SliceCopy::forEachRun(
    const std::function<void(uint64_t, uint64_t, uint64_t)> &visit) const {
  walk(0, 0, 0, visit);
}

void SliceCopy::toGlobal(const std::byte *local, std::byte *global) const {
  walk(0, 0, 0, [&](uint64_t g, uint64_t l, uint64_t bytes) {
    std::memcpy(global + g, local + l, bytes);
  });
}

std::optional<uint64_t> SliceCopy::contiguous() const {
  std::optional<uint64_t> first;
  uint64_t next = 0;
  bool one = !hasPadding && total != 0;
  if (one)
    walk(0, 0, 0, [&](uint64_t g, uint64_t, uint64_t bytes) {
      one &= !first || g == next;
      if (!first)
        first = g;
      next = g + bytes;
    });
  return one ? first : std::nullopt;
}
