//===- Selection.h - The first of many by a pass over all -------*- C++ -*-===//
//
// Way to the first `count` of a row of many, which code generation takes and prices know:
// blocks of entries are compared with a bound, what is within it waits together, and is
// sorted where there is no more room for a block.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_KERNELS_SELECTION_H
#define PARTITA_KERNELS_SELECTION_H

#include <cstdint>

namespace partita::kernels {

struct Selection {
  int64_t extent, count;

  /// Entries that are compared with the bound at once.
  static constexpr int64_t block = 32;

  /// Tells whether a row has room for it, and a sort of all takes longer.
  bool pays() const;
  /// Entries that wait together at most, with the best so far.
  int64_t room() const;

  /// Entries at even distances; the first bound is that of which so many come first.
  struct Sample {
    int64_t size = 0, rank = 0;
  };
  /// Sample as large as pays, beside a sort of what is wanted. Three standard deviations
  /// lie between the rank and the share of the sample that is wanted on average. Size 0:
  /// none pays, since few are wanted, of the row or of a sample.
  Sample sample() const;
  /// Entries that are within the bound when it is their turn, of a row in any order.
  double found() const;
};

/// Way to the boxes that a suppression keeps: its candidates are sorted, or lie in a heap
/// of which only those that are looked at are taken.
struct Suppression {
  /// Candidates per box that may be kept from which on there is a heap: as long as all of
  /// a heap are taken, a sort is no slower.
  static constexpr int64_t heapShare = 8;

  static bool takesHeap(int64_t candidates, int64_t most) {
    return candidates / heapShare >= most;
  }
};

} // namespace partita::kernels

#endif // PARTITA_KERNELS_SELECTION_H
