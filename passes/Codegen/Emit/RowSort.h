//===- RowSort.h - Sorting entries in scratch -------------------*- C++ -*-===//
//
// Entries are sorted: i64 numbers in rows of a node's scratch, each of which has
// a place of the row, with or without the key of that place.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_EMIT_ROWSORT_H
#define PARTITA_PASSES_CODEGEN_EMIT_ROWSORT_H

#include "passes/Codegen/Emit/RowPasses.h"

namespace partita::codegen {

/// Calls `body` at each i with from ≤ i < to by `step`.
void forRange(KernelEmitter &e, mlir::Value from, mlir::Value to, mlir::Value step,
              llvm::function_ref<void(mlir::Value)> body);
mlir::Value compare(KernelEmitter &e, mlir::arith::CmpIPredicate predicate, mlir::Value a,
                    mlir::Value c);

/// Tells whether entry `a` comes before `c`; neither, if they may stay as they are.
using EntryOrder = llvm::function_ref<mlir::Value(mlir::Value a, mlir::Value c)>;

/// Entries with their keys: the key's bits, such that the lesser number comes first, and
/// the place behind them. Equal keys so come by their places.
namespace packed {
/// Keys of at most 32 bits fit, in rows whose places take 31.
bool fits(mlir::Type key, int64_t places);
/// An integer of 32 bits, or of 64 where the key has more, that ascends as keys come.
/// Falling keys come first with `descending`. NaN is above all numbers, -0 is 0.
mlir::Value orderedKey(Passes &p, mlir::Value key, bool isUnsigned, bool descending);
/// Functions of an ordered key of 32 bits.
mlir::Value entry(Passes &p, mlir::Value key, mlir::Value place);
mlir::Value place(Passes &p, mlir::Value entry);
mlir::Value key(Passes &p, mlir::Value entry);
} // namespace packed

/// A merge sort from the bottom up, in which runs keep their first `count` only. `most`
/// is what there are at most.
class MergeSort {
public:
  /// Entries of a row of scratch, from the one numbered `begin` on.
  struct Area {
    int64_t slot;
    mlir::Value begin;
  };

  MergeSort(Passes &p, mlir::Value count, int64_t most, EntryOrder isBefore,
            bool isStrict)
      : p(p), count(count), most(most), isBefore(isBefore), isStrict(isStrict) {}

  /// Sorts `extent` entries; gives the area in which the first `count` lie then.
  Area run(Area entries, Area other, mlir::Value extent);
  /// Merges two sorted runs, the first of `ofFirst` entries, into another area.
  void merge(Area entries, Area into, int64_t ofFirst, mlir::Value extent);

private:
  /// Entries of which each is compared with all: 8 comparisons at once.
  static constexpr int64_t rankedEntries = 64;

  void rankAt(mlir::Value begin, Area from, Area into, mlir::Value extent);
  void mergeAt(mlir::Value begin, Area from, Area into, int64_t width,
               mlir::Value extent);

  /// Two runs side by side, and the area that they are merged into; places count from the
  /// begin of an area.
  struct Runs {
    Area from, into;
    mlir::Value begin, leftEnd;   ///< of the first one
    mlir::Value second, rightEnd; ///< of the second one
    mlir::Value last;             ///< end of what is merged
  };
  std::pair<mlir::Value, mlir::Value> takeFirst(const Runs &runs, mlir::Value to,
                                                mlir::Value i, mlir::Value j);
  std::pair<mlir::Value, mlir::Value> takeLast(const Runs &runs, mlir::Value to,
                                               mlir::Value i, mlir::Value j);
  mlir::Value entryAt(Area area, mlir::Value place);
  void put(Area into, mlir::Value place, mlir::Value isOne, mlir::Value one,
           mlir::Value other);
  mlir::Value add(mlir::Value a, mlir::Value c) {
    return mlir::arith::AddIOp::create(p.b, p.at, a, c);
  }
  mlir::Value sub(mlir::Value a, mlir::Value c) {
    return mlir::arith::SubIOp::create(p.b, p.at, a, c);
  }
  mlir::Value select(mlir::Value isOne, mlir::Value one, mlir::Value other) {
    return mlir::arith::SelectOp::create(p.b, p.at, isOne, one, other);
  }
  mlir::Value least(mlir::Value a, mlir::Value c) {
    return mlir::arith::MinSIOp::create(p.b, p.at, a, c);
  }

  Passes &p;
  mlir::Value count;
  int64_t most;
  EntryOrder isBefore;
  bool isStrict;
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_EMIT_ROWSORT_H
