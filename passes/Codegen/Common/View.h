//===- View.h - Tensors as strided views of a buffer ------------*- C++ -*-===//
//
// Transposes, slices, broadcasts and most reshapes move no data: their results are other
// views of the buffer that holds the operand. A view gives each dim of the tensor as a
// product of *parts*, major to minor, each with its size and its stride in elements. One
// part is the common case; merging dims that are not adjacent in memory (heads and head
// size after a transpose) needs more.
//
// Engines and kernels read and write views, so that a fused projection, the split into
// heads and the transposes around attention cost nothing. Only where a consumer cannot
// take a view is a copy made.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_VIEW_H
#define PARTITA_PASSES_CODEGEN_COMMON_VIEW_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace partita::codegen {

using Shape = std::vector<int64_t>;

struct Part {
  int64_t size = 1, stride = 0;
  bool operator==(const Part &) const = default;
};
/// Major to minor; empty for a dim of size 1. Views are copied at every use of a tensor:
/// one or two parts need no memory of their own.
using Parts = llvm::SmallVector<Part, 2>;

/// Drops parts of size 1 and merges neighbours that are contiguous with each other.
Parts simplified(Parts parts);
int64_t sizeOf(const Parts &parts);

class View {
public:
  int64_t offset = 0; ///< elements
  std::vector<Parts> dims;

  /// Row-major and contiguous.
  static View dense(const Shape &shape);
  /// Contiguous, with the dims from outer to inner in memory as `order` numbers them.
  static View inOrder(const Shape &shape, llvm::ArrayRef<size_t> order);
  Shape shape() const;
  int64_t elements() const;
  /// Row-major and contiguous, at any offset.
  bool isDense() const;

  /// The dense view of `shape` whose dims have this view's order in memory; row-major
  /// where that is not an order of whole dims.
  View denseLike(const Shape &shape) const;

  /// Result dim i is dim permutation[i].
  View transposed(const Shape &permutation) const;
  /// Elements starts[d] + i·steps[d], i < shape[d]; nothing where a dim of several parts
  /// is cut.
  std::optional<View> sliced(const Shape &shape, const Shape &starts,
                             const Shape &steps) const;
  /// As numpy: stretches dims of size 1 and adds leading ones, by stride 0.
  View broadcast(const Shape &shape) const;
  /// Row-major reshape; nothing where the cuts of the new shape do not nest with the
  /// parts.
  std::optional<View> reshaped(const Shape &shape) const;

  bool operator==(const View &) const = default;
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_VIEW_H
