//===- Requantize.h - What sums of products of bytes become -----*- C++ -*-===//
//
// The post-ops of a convolution of 8-bit integers, on a few rows of its sums that are in
// the first-level cache: a row is a pixel, its columns are channels. Every step gives
// numbers of its type, so that results are to the bit those of the ops that it stands
// for.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_REQUANTIZE_H
#define PARTITA_LIB_RUNTIME_GEMM_REQUANTIZE_H

#include "ByteSteps.h"

#include "partita/Base/Bundle/TaskTable.h"

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace partita::gemm {

/// Sums, which are overwritten. Behind the last column are others, up to a multiple of
/// sumsAtOnce.
struct SumBlock {
  int32_t *sums;
  int64_t row; ///< elements
  int64_t rows, columns;
  int64_t pixel, channel; ///< of the result, of the first sum
};

class Requantizer {
public:
  /// `isWide`: by vectors of 512 bits, else of 256, where all steps are one function.
  Requantizer(const task::Conv &params, bool isWide);
  /// Tells whether there are kernels for all steps of the call.
  static bool takes(const task::Conv &params);
  /// Tells whether blocks of any number of columns may be given, which stay as they are.
  bool isOneStep() const { return scaling.has_value(); }
  /// Puts the block into the call's result.
  void run(std::span<void *const> operands, const SumBlock &block) const;

private:
  struct Step {
    task::PostOp op;
    bool isInteger;
    size_t operand = 0; ///< among the call's; 0: none
    /// Strides of the operand, in elements: by image, spatial dim and channel.
    std::array<int64_t, 4> pixel = {};
    int64_t channel = 0;
    bool varies() const { return pixel != std::array<int64_t, 4>{}; }
  };
  void findScaling();
  void apply(const Step &step, std::span<void *const> operands,
             const SumBlock &block) const;
  bool scale(std::span<void *const> operands, const SumBlock &block) const;
  void store(std::span<void *const> operands, const SumBlock &block) const;
  int64_t placeOf(const Step &step, int64_t pixel) const;

  bool isWide;
  std::vector<Step> steps;
  DType type;                     ///< of the result
  bool isLast;                    ///< channels
  int64_t channels, pixels = 1;   ///< of the result, and of an image
  std::array<int64_t, 3> extents; ///< of an image
  /// All steps as one function, where they are that.
  struct Scaling {
    const Step *bias = nullptr, *factor = nullptr;
    float one = 1, offset = 0, low = 0, high = 0;
  };
  std::optional<Scaling> scaling;
};

} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_REQUANTIZE_H
