//===- Grades.h - Which ops compute in the narrower type --------*- C++ -*-===//
//
// Ops of a function on f32, by kind:
//
//   product     contraction with a sum, convolution       narrow
//   movement    reshape, gather, concat, max pool, …      as its operands are
//   pointwise   without functions of real numbers         narrow between narrow values
//   other       norms, softmax, reductions, exponentials  f32
//
// A pointwise op is f32 where that costs nothing: if all that it reads is f32, if it
// reads a statistic (a reduction, or what is made of nothing else) or a number that the
// narrower type does not have, or if its one reader is f32, unless a product may apply
// the op to its sums. So a norm that an exporter has written as ten ops, a mask, and the
// scale in front of a softmax are f32 from end to end, and a residual stream is narrow:
//
//     d = x - mean(x)        f32: the mean is a statistic
//     y = d / sqrt(v) * g    f32: the operands are
//     r = x + product        narrow: a norm and the next sum read it
//
// Weights and constants have no type of their own: each is there as its readers want it.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PRECISION_GRADES_H
#define PARTITA_PASSES_PRECISION_GRADES_H

#include "partita/Base/DType.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <functional>

namespace partita::precision {

/// Grades of the ops and values of one function, before it is changed.
class Grades {
public:
  /// `keeps`: whether a node is to stay f32, whatever it is.
  Grades(mlir::func::FuncOp function, DType narrow,
         std::function<bool(mlir::Operation *)> keeps);

  /// Tells whether the f32 operands and results of an op become narrow.
  bool isNarrow(mlir::Operation *op) const { return narrowOps.contains(op); }
  /// Tells whether an f32 argument that readers may have in either type becomes narrow: a
  /// state that is made of narrow values, or what a function is given to read.
  bool isNarrow(mlir::BlockArgument argument) const {
    return narrowArguments.contains(argument);
  }

private:
  enum class Grade : uint8_t { Neutral, Wide, Narrow };
  struct Value {
    Grade grade = Grade::Wide;
    bool isStatistic = false;
  };
  void beginArguments();
  void followOperands();
  bool followReaders();
  void chooseNeutral();
  /// Tells whether a state's result is what its argument is said to be; those that are
  /// not become f32.
  bool settleStates();
  Value gradeOf(mlir::Operation *op) const;
  bool isReadWide(mlir::Value value) const;
  bool isReadNarrow(mlir::Value value) const;
  bool mayJoinProduct(mlir::Operation *op) const;

  mlir::func::FuncOp function;
  DType narrow;
  std::function<bool(mlir::Operation *)> keeps;
  llvm::DenseMap<mlir::Value, Value> values; ///< of f32
  llvm::DenseSet<mlir::Operation *> wideOps; ///< pointwise ops that would be narrow
  llvm::DenseSet<mlir::Operation *> narrowOps;
  llvm::DenseSet<mlir::BlockArgument> narrowArguments, wideStates;
};

} // namespace partita::precision

#endif // PARTITA_PASSES_PRECISION_GRADES_H
