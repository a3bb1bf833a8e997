//===- Winograd.h - Convolutions by Winograd's algorithm --------*- C++ -*-===//
//
// F(2 × 2, 3 × 3) (Lavin, Gray 2016) as the runtime has it (Runtime/Winograd.h): a tile
// of 2 × 2 results takes 16 multiplications per pair of channels instead of 36, and what
// it reads and gives is transformed, 16 pieces a channel:
//
//     tiles      = batch · ⌈height/2⌉ · ⌈width/2⌉
//     products   = 2 · 16 · tiles · in · out / (peak · efficiency · reuse)
//     traffic    = image, result and the packed filter (16 · in · out elements), once
//     transforms = 16 · (tiles · (in + out) + made · in · out) / winograd
//     seconds    = √(products² + traffic²) + transforms + launch
//
// `made` is 1 for a filter that is transformed in each run, else 0.
//
// `reuse` is that of the device's best tile (Compute.h). Pieces stay in a cache and are
// not in the traffic; to make and to read them is in the rate of the transforms, a
// constant of the device, and so is what a micro-kernel loses before and behind its
// summands (fillSteps of other products): per tile, it is as many stores as there are
// pieces of results.
//
// Sizes are local ones: a rank's rows, channels and pictures decide whether it is taken.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_WINOGRAD_H
#define PARTITA_COST_WINOGRAD_H

#include "partita/Cost/Compute.h"

namespace partita {

/// A convolution of f32 with 3 × 3 taps, stride 1 and no groups. All sizes are elements;
/// height and width are those of the result.
struct WinogradShape {
  int64_t batch = 1, height = 1, width = 1, in = 1, out = 1;
  bool isMade = false; ///< the filter is no constant, and is transformed in each run

  /// The same by the direct algorithm.
  MatmulShape direct() const { return {1, batch * height * width, out, 9 * in}; }
};

/// Seconds of the convolution on a device: by Winograd's algorithm where the device has
/// it and the runtime takes it for this shape (Runtime/WinogradShape.h), else as a
/// product. With `isFilterFar` the filter is read from memory, else everything was
/// touched just now.
double convSeconds(const Device &device, const WinogradShape &shape,
                   bool isFilterFar = false);

} // namespace partita

#endif // PARTITA_COST_WINOGRAD_H
