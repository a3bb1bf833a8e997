//===- Counted.h - Moving elements of dims that have a count ----*- C++ -*-===//
//
// Where a rule cannot say what becomes of a count, because elements end up elsewhere, the
// places are computed: each of these is a gather by places that the counts give
// (docs/rules-any-op.md, Bounded sizes).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_IMPORT_COUNTED_H
#define PARTITA_PASSES_IMPORT_COUNTED_H

#include "passes/Import/Compose.h"

namespace partita::import {

/// How long a dim is of which `size` elements are there: a dim with a count is at least
/// 2 long.
int64_t boundOf(const Size &size);

/// Elements start, start + step, … of dim `d`, `length` of them, all of which are there.
mlir::Value taken(Compose &c, mlir::Value x, size_t d, const Size &start, int64_t step,
                  const Size &length);

/// What is there of one part behind what is there of the part before.
mlir::Value joined(Compose &c, const Values &parts, size_t axis);

/// `low` elements of value `fill` before what is there of dim `d`, and `high` behind it.
mlir::Value padded(Compose &c, mlir::Value x, size_t d, const Size &low, const Size &high,
                   mlir::Value fill);

/// Indices of dim `d` of `data`, which has a count: negative ones count from it, and one
/// that is not below it names no element: it becomes one outside of the dim, which ends
/// the run. i64.
mlir::Value checkedIndices(Compose &c, mlir::Value indices, mlir::Value data, size_t d);

/// The indices of a gather along `axis`: if that dim of `data` has a count, the same, and
/// `data` has all of the dim then.
void checkAlong(Compose &c, mlir::Value &data, mlir::Value &indices, size_t axis);

/// Indices whose last dim has a component per dim of `data` behind the first `batch`: the
/// same for those dims that have a count, of which `data` has all then.
void checkComponents(Compose &c, mlir::Value &data, mlir::Value &indices, int64_t batch);

/// Where indices [..., n] lie in the n dims `dims` that they address, as one dim: [...,
/// 1], i64. Component d is looked up among the places of its dim: one outside of it is no
/// index there, and the run says so, where a sum of products could be a place again.
mlir::Value linearPlace(Compose &c, mlir::Value indices, llvm::ArrayRef<int64_t> dims);

/// The lookup data[indices[i, j], j] with the dim `axis` looked up. A dim of which the
/// indices reach only the beginning is cut to that first, so that it is one loop of both.
mlir::Value gatherElements(Compose &c, mlir::Value data, mlir::Value indices,
                           size_t axis);

/// One or the other of two tensors of one rank and element type, whose sizes may differ
/// or be data, by a bool: the longer of their dims, and what is there of the one.
mlir::Value either(Compose &c, mlir::Value condition, mlir::Value yes, mlir::Value no);

/// 0, 1, 2, … along dim `d` of a tensor like `x`, whose other dims are 1; counted as `x`
/// is.
mlir::Value placesAlong(Compose &c, mlir::Value x, size_t d);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_COUNTED_H
