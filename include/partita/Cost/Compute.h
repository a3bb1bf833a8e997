//===- Compute.h - Matrix products and fused groups -------------*- C++ -*-===//
//
// Roofline (Williams, Waterman, Patterson 2009) over arithmetic a and memory traffic t,
// plus the launch. A fused group takes max(a, t). In a matrix product the first loads and
// the last stores of each tile are not hidden, so near the ridge both count:
// √(a² + t²), which is the longer of the two away from it.
//
// What a matrix product reaches of the peak depends on its shape (NVIDIA, Matrix
// Multiplication Background User's Guide, chapters 2 and 3). It is cut into tiles of
// tm × tn, one unit computes one tile at a time:
//
//     tiles   = batch · ⌈m/tm⌉ · ⌈n/tn⌉   whole tiles are computed
//     rounds  = ⌈tiles / units⌉           the last may be part empty
//     seconds = rounds · 2 · tm · tn · (k + fill) / (peak/units · efficiency · reuse)
//     reuse   = r / (r + halfTile),  r = tm·tn/(tm + tn)
//
// A tile loads tm + tn elements per 2·tm·tn operations, so small ones wait for loads
// (reuse); filling and draining its pipeline costs as much as `fill` steps of k. The tile
// size with the least time is taken, as the engines' heuristics do. If rows (of n or k
// elements) are no multiple of rowBytes, kernels load in smaller pieces: `misaligned` of
// the speed. With one unit and one 1×1 tile this is the peak.
//
// Traffic. What has just been touched is in the device's cache, if all that a kernel
// touches fits there (capacity misses only: Hill, Smith 1989). What was touched so long
// ago that the cache has held something else since is *far* and comes from memory:
//
//     seconds = far/memory + near/(near ≤ cache ? cacheBandwidth : memory)
//
// A device without a cache in its description moves all at the memory's bandwidth. In a
// matrix product near bytes move `nearSpeed` times as fast.
//
// Operations of a group are steps (FlowOp::steps): vector instructions per element, so
// that exp is many and a maximum one. The rate at which a device does them is its own,
// `pointwise`. Of a device that does not say it they are operations as they are written
// (exp is one), at the f32 peak: groups then are as long as their traffic.
//
// Shapes are local ones, as they will run: padded extents are counted by giving them.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_COMPUTE_H
#define PARTITA_COST_COMPUTE_H

#include "partita/Topology/Topology.h"

#include <optional>
#include <span>

namespace partita {

/// `batch` products of m × k by k × n. A convolution is one with m its positions (times
/// batch), n its output channels, k its input channels times taps.
struct MatmulShape {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  double flops() const {
    return 2.0 * static_cast<double>(batch) * static_cast<double>(m) *
           static_cast<double>(n) * static_cast<double>(k);
  }
};

/// Seconds of arithmetic alone, by the formula above.
double matmulArithmetic(const Device &device, DType type, const MatmulShape &shape);

/// Seconds of a matrix product whose operands and result move once; `far` bytes of them
/// are in memory, the others were touched just now. `kept` bytes do not move: they are
/// made or used in the same kernel. `products`: the type that is multiplied, where that
/// is not the one in memory.
double matmulSeconds(const Device &device, DType type, const MatmulShape &shape,
                     double far = 0, double kept = 0,
                     std::optional<DType> products = std::nullopt);

/// Seconds in which a product's operands and result move, `far` bytes of them from
/// memory.
double matmulTraffic(const Device &device, double bytes, double far = 0);

/// Fraction of the device's peak that matmulSeconds reaches.
double matmulEfficiency(const Device &device, DType type, const MatmulShape &shape);

/// Seconds to move `bytes` in long streams; `far` of them are in memory, the others were
/// touched just now.
double streamSeconds(const Device &device, double bytes, double far = 0);

/// A value that a fused group touches.
struct GroupValue {
  double bytes = 0;
  bool made = false; ///< by an op of the group
  bool used = false; ///< made and needed outside the group
};

/// Bytes that a fused group moves: what it does not make is read once, however many of
/// its ops read it; what is used outside is written; the rest stays in registers.
double groupBytes(std::span<const GroupValue> values);

/// Seconds of a fused group without matrix products: the longer of its traffic and its
/// operations, and one launch. Of the bytes `far` are in memory.
double groupSeconds(const Device &device, double bytes, double operations = 0,
                    double far = 0);

} // namespace partita

#endif // PARTITA_COST_COMPUTE_H
