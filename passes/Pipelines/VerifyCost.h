//===- VerifyCost.h - How long the evaluator will take ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_VERIFYCOST_H
#define PARTITA_PASSES_PIPELINES_VERIFYCOST_H

#include "passes/Pipelines/Compile.h"
#include "passes/Reference/Evaluate.h"

#include "llvm/ADT/DenseMap.h"

#include <limits>

namespace partita {

/// Speed of the reference evaluator on one core, measured on Zen 4 over the models of the
/// test suites. It decides whether the evaluation of a whole model begins, and what is
/// said of it before; what is said later counts seconds that have gone by, and so does
/// what ends an evaluation that turns out too long.
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

/// Says now and then how much of an evaluation is done, and how long the rest will take,
/// and ends what takes too long.
class EvaluationProgress {
public:
  /// `what` is "the model", say. An evaluation of less than `quiet` seconds is not spoken
  /// of.
  EvaluationProgress(std::string what, const EvaluationCost &cost, Progress progress,
                     double quiet = 10);
  EvaluationProgress(const EvaluationProgress &) = delete;
  EvaluationProgress &operator=(const EvaluationProgress &) = delete;

  /// Outlives what is evaluated. `stop` is of one flag.
  Evaluating hooks(StopFlag stop);
  /// Ends an evaluation by its hooks once all of it would take longer than that, by the
  /// seconds that have gone by when progress is told.
  void endIfLonger(double seconds) { most = seconds; }
  /// Seconds that an evaluation that was ended for this would have taken; 0: none was.
  double tooLong() const { return expected > most ? expected : 0; }

private:
  void done(mlir::Operation *op);

  std::string what;
  const EvaluationCost &cost;
  Progress progress;
  double quiet, begin, told;
  double spent = 0; ///< of the seconds that were expected
  double expected = 0, most = std::numeric_limits<double>::infinity();
  int late = 0; ///< raised for the hooks
};

/// "3 s", "4 min", "2 h".
std::string roughly(double seconds);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_VERIFYCOST_H
