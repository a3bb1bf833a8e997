//===- Sizes.h - Integers that follow from sizes that are data --*- C++ -*-===//
//
// A shape operand, a number of elements or a place may be computed from counts
// (docs/rules-any-op.md, Bounded sizes): min(Shape(scores)[0], 100). Import has to know
// the most that it can be, and whether two of them are the same. So each element of an
// integer tensor is read as a sum
//
//     3·n + 2        n: a count, or what cannot be taken apart further, as min(n, 100)
//
// in which every n has bounds. It is read from the ops that compute it; nothing of it is
// in the IR.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_IMPORT_SIZES_H
#define PARTITA_PASSES_IMPORT_SIZES_H

#include "dialects/Graph/Graph.h"

#include <map>
#include <optional>
#include <vector>

namespace partita::import {

class Importer;

/// A constant and multiples of unknown integers, with the bounds that follow.
class Size {
public:
  Size(int64_t known = 0) : least(known), most(known), constant(known) {}

  bool isKnown() const { return times.empty(); }
  bool operator==(const Size &other) const {
    return constant == other.constant && times == other.times;
  }

  int64_t least, most;

private:
  friend class Sizes;
  int64_t constant;
  std::map<size_t, int64_t> times; ///< by the number of the unknown; none is 0
};

/// What is known of integers in the program that an importer builds.
class Sizes {
public:
  explicit Sizes(Importer &importer) : importer(importer) {}

  /// A count of at most `most`. Gives the one to use: an earlier count of the same block
  /// if it is the same number, be it that the same is computed twice.
  mlir::Value addCount(mlir::Value count, int64_t most);
  /// Forgets what stands in a block.
  void forget(mlir::Block *block);

  /// The elements, if each is known or follows from counts.
  std::optional<std::vector<Size>> read(mlir::Value value);
  /// The count as a sum.
  Size ofCount(mlir::Value count);
  /// The i64 scalar, computed where the importer stands.
  mlir::Value valueOf(const Size &size);

  Size add(const Size &a, const Size &b);
  Size scaled(const Size &a, int64_t times);
  Size sub(const Size &a, const Size &b) { return add(a, scaled(b, -1)); }
  Size min(const Size &a, const Size &b);
  Size max(const Size &a, const Size &b);
  /// Rounded up, of what is not negative, by what is positive.
  Size ceilDiv(const Size &a, int64_t by);
  /// The quotient, if every multiple is divisible.
  std::optional<Size> exactDiv(const Size &a, int64_t by);

private:
  /// Element `element` of a tensor in the program.
  struct Unknown {
    mlir::Value of;
    int64_t element = 0, least = 0, most = 0;
    mlir::Value scalar; ///< it alone, once it was asked for
  };
  using Elements = std::vector<Size>;
  using Known = llvm::DenseMap<mlir::Value, std::optional<Elements>>;

  std::optional<Elements> readOnce(mlir::Value value, Known &known);
  std::optional<Elements> compute(mlir::Operation *op, Known &known);
  std::optional<Elements> moved(mlir::Operation *op, Known &known);
  std::optional<Elements> reduced(mlir::Operation *op, Known &known);
  std::optional<Elements> elementwise(mlir::Operation *op, Known &known);
  /// One element of an elementwise op; `element` of `result` where it is an unknown.
  std::optional<Size> scalarOp(llvm::StringRef name, const Elements &operands,
                               mlir::Value result, int64_t element);
  /// The number of an unknown that is this element; how many there are if none is.
  size_t find(mlir::Value of, int64_t element);
  Size unknown(mlir::Value of, int64_t element, int64_t least, int64_t most);
  Size bounded(Size size) const;
  Size computed(llvm::StringRef op, const Size &a, const Size &b);

  Importer &importer;
  std::vector<Unknown> unknowns;
  std::vector<mlir::Value> counts;
};

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_SIZES_H
