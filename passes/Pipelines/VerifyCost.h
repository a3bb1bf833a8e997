//===- VerifyCost.h - How long the evaluator will take ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_VERIFYCOST_H
#define PARTITA_PASSES_PIPELINES_VERIFYCOST_H

#include "passes/Pipelines/Compile.h"
#include "passes/Reference/Evaluate.h"

#include "llvm/ADT/DenseMap.h"

namespace partita {

/// Speed of the reference evaluator on one core, measured on Zen 4 over the models of the
/// test suites. It decides whether a model is evaluated whole, and what is said of it
/// before an evaluation begins; what is said later counts seconds that have gone by.
struct EvaluatorRates {
  double flops = 2e9;    ///< per second, of products and convolutions
  double elements = 1e8; ///< per second, read and written
};

/// Seconds that an evaluation of a function will take: operations that the function runs
/// and elements that these read and write, on all ranks. A loop counts as often as it
/// runs, a branch as its longer side.
class EvaluationCost {
public:
  explicit EvaluationCost(mlir::func::FuncOp function, int64_t ranks = 1,
                          EvaluatorRates rates = {});

  double seconds() const { return total; }
  /// Seconds of one run of an op without the functions that it runs; 0 of an unknown op.
  double of(mlir::Operation *op) const { return own.lookup(op); }

private:
  double add(mlir::func::FuncOp function);

  int64_t ranks;
  EvaluatorRates rates;
  double total = 0;
  llvm::DenseMap<mlir::Operation *, double> own;
};

/// Says now and then how much of an evaluation is done, and how long the rest will take.
class EvaluationProgress {
public:
  /// `what` is "the model", say. An evaluation of less than `quiet` seconds is not spoken
  /// of.
  EvaluationProgress(std::string what, const EvaluationCost &cost, Progress progress,
                     double quiet = 10);
  /// Outlives what is evaluated.
  Evaluating hooks(StopFlag stop);

private:
  void done(mlir::Operation *op);

  std::string what;
  const EvaluationCost &cost;
  Progress progress;
  double quiet, begin, told;
  double spent = 0; ///< of the seconds that were expected
};

/// "3 s", "4 min", "2 h".
std::string roughly(double seconds);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_VERIFYCOST_H
