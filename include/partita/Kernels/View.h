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
#ifndef PARTITA_KERNELS_VIEW_H
#define PARTITA_KERNELS_VIEW_H

#include "partita/Kernels/OpFacts.h"
#include "partita/Kernels/Target.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

namespace partita::kernels {

using Shape = std::vector<int64_t>;

struct Part {
  int64_t size = 1, stride = 0;
  bool operator==(const Part &) const = default;
};
/// Major to minor; empty for a dim of size 1. Views are copied at every use of a tensor:
/// one or two parts need no memory of their own.
class Parts {
public:
  Parts() = default;
  Parts(std::initializer_list<Part> parts) { append(parts.begin(), parts.end()); }

  size_t size() const { return count; }
  bool empty() const { return count == 0; }
  Part *begin() { return count <= own.size() ? own.data() : more.data(); }
  const Part *begin() const { return count <= own.size() ? own.data() : more.data(); }
  Part *end() { return begin() + count; }
  const Part *end() const { return begin() + count; }
  Part &operator[](size_t i) { return begin()[i]; }
  const Part &operator[](size_t i) const { return begin()[i]; }
  Part &back() { return begin()[count - 1]; }
  const Part &back() const { return begin()[count - 1]; }

  void push_back(Part part);
  void pop_back();
  void clear() { count = 0, more.clear(); }
  void insertFront(Part part);
  template <typename It> void append(It first, It last) {
    for (; first != last; ++first)
      push_back(*first);
  }

  bool operator==(const Parts &other) const;

private:
  size_t count = 0;
  std::array<Part, 2> own;
  std::vector<Part> more; ///< all of them, where there are more than `own` has
};

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
  static View inOrder(const Shape &shape, std::span<const size_t> order);
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
  /// Stretches dims of size 1, as numpy does, and adds leading ones, by stride 0.
  View broadcast(const Shape &shape) const;
  /// Row-major reshape; nothing where the cuts of the new shape do not nest with the
  /// parts.
  std::optional<View> reshaped(const Shape &shape) const;

  bool operator==(const View &) const = default;
};

/// Parts of each loop of a tensor that lies as `view` and whose dims are made of these
/// loops, major to minor; none of loops that it lacks. Nothing if they do not nest.
std::optional<std::vector<Parts>>
partsOfLoops(const std::vector<std::vector<int32_t>> &dims,
             std::span<const int64_t> sizes, const View &view);

/// The view of the result of a reshape, transpose, broadcast or slice of what lies as
/// `operand` does, by the op's facts; nothing if it is none: the operand is copied first.
std::optional<View> viewOfResult(const OpFacts &facts, const View &operand,
                                 const Shape &result);
/// How the operand lies if the result of a reshape or transpose does as `result`, which
/// it fills; nothing if that is no view, or the op another one.
std::optional<View> viewOfOperand(const OpFacts &facts, const View &result,
                                  const Shape &operand);

// Images, in the orders that calls of a target read and write.

/// An image of this shape in the order in memory in which calls are fastest.
View imageView(const Images &images, const Shape &shape);
/// Tells whether the view is one.
bool isImage(const Images &images, const View &view);
/// Tells whether calls read an image where it lies so; others are copied first.
bool readsImage(const Images &images, const View &view);

/// Places of a join's operands in its result.
std::vector<View> viewsOfJoin(const View &result, std::span<const Shape> operands,
                              size_t axis);

// Kernels.

/// An operand or output of a kernel: a storage, and how the tensor lies there.
struct Lying {
  int32_t storage = -1;
  const View *view = nullptr;
  bool isIndexed = false; ///< read at places that an op computes
};
/// The order in memory that an output of a kernel gets: that of most operands of its
/// shape, or of an image that is read at computed places; row-major if there is none.
View orderOfOutput(std::span<const Lying> operands, const Shape &shape);

/// Cuts of the dims of a kernel's points, at which all that it reads and writes has one
/// stride on either side.
class Cuts {
public:
  explicit Cuts(size_t rank) : perDim(rank, {1}) {}
  /// Adds those of a view of the points if all of a dim divide one another; else the
  /// tensor is copied first, or the output's order is another one.
  bool nests(const View &view);
  /// Products of the minor parts, ascending.
  const std::vector<int64_t> &of(size_t dim) const { return perDim[dim]; }

private:
  std::vector<std::vector<int64_t>> perDim;
};
/// Elements alone of a tensor that moves along no more than some dims of the points:
/// what is copied of it where it does not nest.
View ownElements(const View &ofPoints);

} // namespace partita::kernels

#endif // PARTITA_KERNELS_VIEW_H
