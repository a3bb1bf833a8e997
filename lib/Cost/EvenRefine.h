//===- EvenRefine.h - Common refinement of two even layouts -----*- C++ -*-===//
//
// The planner's refinement (Base/Layout/Reshard.h) for layouts without padding, in arrays
// of fixed size: no allocation, so that a volume costs less than a microsecond or two.
// Anything that does not fit or does not nest is refused.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_COST_EVENREFINE_H
#define PARTITA_LIB_COST_EVENREFINE_H

#include "partita/Base/Layout/Layout.h"

#include <array>

namespace partita::cost {

/// A vector in place. Appending to a full one is refused.
template <typename T, int capacity> class Row {
public:
  bool push(const T &value) {
    if (count == capacity)
      return false;
    items[static_cast<size_t>(count++)] = value;
    return true;
  }
  bool insert(int at, const T &value) {
    if (!push(value))
      return false;
    for (int i = count - 1; i > at; --i)
      std::swap((*this)[i], (*this)[i - 1]);
    return true;
  }
  T &operator[](int i) { return items[static_cast<size_t>(i)]; }
  const T &operator[](int i) const { return items[static_cast<size_t>(i)]; }
  int size() const { return count; }
  const T *begin() const { return items.data(); }
  const T *end() const { return items.data() + count; }

private:
  std::array<T, capacity> items;
  int count = 0;
};

inline constexpr int none = -1;

/// A piece of a dim. `source` and `target` are digits, or none where it is local.
struct EvenAtom {
  int64_t size;
  int64_t high; ///< stride above it: its own stride times its size
  int dim;
  int source = none, target = none;
};

/// A piece of a mesh axis; a partial kind is a ReduceKind, or none.
struct EvenDigit {
  int64_t size;
  int targetAtom = none;
  int sourcePartial = none, targetPartial = none;
};

struct EvenRefinement {
  static constexpr int mostDims = 8, mostAxes = 8, mostCuts = 12, mostBindings = 24;
  static constexpr int mostAtoms = 40, mostDigits = 24;

  Row<EvenAtom, mostAtoms> atoms;    ///< dims in order, each major to minor
  Row<EvenDigit, mostDigits> digits; ///< axes in order, each major to minor
  int64_t targetElements = 1;        ///< of one block
  int64_t sourceElements = 1;
  int64_t elements = 1; ///< of the tensor
};

/// False if the layouts are not even, do not nest, or do not fit.
bool refineEven(const Mesh &mesh, const Layout &source, const Layout &target,
                EvenRefinement &result);

} // namespace partita::cost

#endif // PARTITA_LIB_COST_EVENREFINE_H
