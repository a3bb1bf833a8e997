//===- Winograd.h - Convolutions of f32 by Winograd's algorithm -*- C++ -*-===//
//
// F(2 × 2, 3 × 3) for images that keep channels last: a tile of 2 × 2 results takes 16
// multiplications per pair of channels instead of 36. The filter's part of the algorithm
// is done once, at load, or where the filter changes in each run. Tiles of 4 × 4 results
// would take 36 instead of 144, but round too coarsely. docs/codegen.md, "Winograd's
// algorithm", has the measurements.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_WINOGRAD_H
#define PARTITA_RUNTIME_WINOGRAD_H

#include "partita/Runtime/Engine.h"

#include <memory>

namespace partita::winograd {

/// Which kernels run. They pack the same and give the same bits.
enum class Vectors { Of256Bits, Of512Bits };

/// The call, for the team of this thread; null where it is not taken: a CPU without such
/// vectors, another element type, window or form of the images, groups, a transposed
/// convolution with a constant filter. All post-ops are done while results are in cache.
/// Elements do not depend on the number of threads, to the last bit.
std::unique_ptr<engine::Call> conv(const task::Conv &params, Vectors vectors,
                                   bool isTransposed = false);

/// The gradient of such a convolution's filter, likewise; null where it is not taken.
std::unique_ptr<engine::Call> filterGradient(const task::ConvBackwardFilter &params,
                                             Vectors vectors);

/// Tells if these are expected to be faster than oneDNN's code, for calls that are taken.
bool isWorth(const task::Conv &params);
bool isWorth(const task::ConvBackwardFilter &params);

/// Whether the form is that of a filter which such a call has packed. It is the same for
/// images of all sizes.
bool isForm(const engine::WeightForm &form);

} // namespace partita::winograd

#endif // PARTITA_RUNTIME_WINOGRAD_H
