//===- Halo.h - Windows that reach into other ranks' blocks -----*- C++ -*-===//
//
// Convolution and pooling read a spatial dim through *windows*: position i reads the
// elements [i·stride − low, i·stride − low + kernelExtent). When the positions are split
// over ranks, the windows of one rank cover an interval of elements that begins and ends
// in the blocks of others. That interval is the rank's *window buffer*; what it lacks of
// it is its *halo*.
//
// A rank with the positions [c·B, (c+1)·B) has the buffer
//
//     [c·B·stride − low, c·B·stride − low + extent)    extent = (B−1)·stride +
//     kernelExtent
//
// (with given blocks c·B is where its block begins and B the longest block's length),
// which is one extent for all ranks, so that one program serves all, although what it
// has to fetch differs: the first rank lacks nothing on its low side, uneven blocks need
// more of the next ones, a window beyond a block comes from several hops away, a rank
// without valid elements owns nothing. Everything in the buffer that is not a valid
// element of the tensor, padding of other dims too, holds the neutral element of `fill`:
// zero pads for a sum, lowest for a maximum.
//
// The source layout is arbitrary. Every element comes straight from its nearest holder,
// in one exchange, whether or not the tensor was split like the positions before.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_LAYOUT_HALO_H
#define PARTITA_BASE_LAYOUT_HALO_H

#include "partita/Base/Layout/Reshard.h"

#include <optional>

namespace partita {

/// How one dim is read.
struct HaloWindow {
  int32_t dim = 0;
  int64_t stride = 1; ///< elements from one position's window to the next, ≥ 1
  int64_t kernelExtent =
      1;           ///< elements from a window's first to its last, (k−1)·dilation + 1
  int64_t low = 0; ///< elements before the tensor that the first window begins at

  /// Elements that `positions` windows cover.
  int64_t extent(int64_t positions) const {
    return (positions - 1) * stride + kernelExtent;
  }
  bool operator==(const HaloWindow &) const = default;
};

struct Halo {
  Layout before; ///< where the tensor's elements live
  /// The result. Dims that are read through windows are dims of positions here: one
  /// factor, its size the number of windows. Other dims as any layout of the tensor.
  Layout positions;
  std::vector<HaloWindow> windows;   ///< by ascending dim, at least one
  ReduceKind fill = ReduceKind::Sum; ///< its neutral element stands where nothing is

  /// Shape of every rank's buffer.
  std::vector<int64_t> shape() const;
  /// Both layouts are valid, of one rank and with the same partial axes; dims without
  /// windows have equal sizes; window dims exist, ascend, and their numbers are in range.
  Expected<void> verify(const Mesh &mesh) const;
  /// The axes over which ranks may fetch from each other: those of every dim that is not
  /// laid out alike on both sides; independent of each other.
  AxisList axes(const Mesh &mesh) const;
  bool operator==(const Halo &) const = default;
};

/// The elements of dim `d` that the buffer of `rank` has, as runs of the global dim and
/// their places in the buffer.
std::vector<DimRun> haloRuns(const Mesh &mesh, const Halo &halo, size_t d, int64_t rank);

/// What `rank` takes from each holder, itself included; see exchangeBlocks.
std::vector<ExchangeBlock> haloBlocks(const Mesh &mesh, const Halo &halo, int64_t rank);

/// Where along the only dim with a window the buffer of every rank has the block that the
/// rank holds: made there, it need not move. Nothing where several dims have windows,
/// another dim is laid out otherwise than before, or the place is another one on another
/// rank. Example: of 14 rows in two blocks, read by windows of 3 with one row of padding,
/// every buffer has 9 rows, and the rank's own are those from row 1 on.
std::optional<int64_t> ownBegin(const Halo &halo);

/// Elements that a rank receives from others, the most over all ranks.
int64_t haloElements(const Mesh &mesh, const Halo &halo);

/// The buffers of all virtual ranks; locals[r] is rank r's local tensor of `before`.
std::vector<HostTensor> executeHalo(const Mesh &mesh, const Halo &halo,
                                    const std::vector<HostTensor> &locals);

} // namespace partita

#endif // PARTITA_BASE_LAYOUT_HALO_H
