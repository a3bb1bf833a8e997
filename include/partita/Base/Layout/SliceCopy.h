//===- SliceCopy.h - Between a global tensor and one rank's part -*- C++ -*-===//
#ifndef PARTITA_BASE_LAYOUT_SLICECOPY_H
#define PARTITA_BASE_LAYOUT_SLICECOPY_H

#include "partita/Base/Layout/Layout.h"

#include <functional>

namespace partita {

/// Copies between a dense global tensor and a rank's dense local one, prepared at load:
/// no allocation later. Padding of the local tensor is not touched.
class SliceCopy {
public:
  SliceCopy(const Mesh &mesh, const Layout &layout, int64_t rank, size_t width);
  /// Copies between any two dense tensors: per dim the runs of the one (`global`) that
  /// the other has (`local`).
  SliceCopy(std::vector<std::vector<DimRun>> runs, const std::vector<int64_t> &global,
            const std::vector<int64_t> &local, size_t width);
  void toLocal(const std::byte *global, std::byte *local) const;
  /// Every contiguous run: byte offsets in the global and the local tensor, and bytes.
  void forEachRun(const std::function<void(uint64_t, uint64_t, uint64_t)> &visit) const;
  void toGlobal(const std::byte *local, std::byte *global) const;
  /// Whether the valid elements are the whole local tensor and one run of the global one;
  /// then that run's byte offset.
  std::optional<uint64_t> contiguous() const;
  uint64_t localBytes() const { return total; }
  bool padded() const { return hasPadding; }

private:
  void prepare(const std::vector<int64_t> &global, const std::vector<int64_t> &local);
  template <typename Copy>
  void walk(size_t dim, uint64_t global, uint64_t local, Copy copy) const;

  std::vector<std::vector<DimRun>> runs;
  std::vector<uint64_t> globalStride, localStride; ///< bytes
  uint64_t total = 0;
  size_t width;
  bool hasPadding = false;
};

} // namespace partita

#endif // PARTITA_BASE_LAYOUT_SLICECOPY_H
