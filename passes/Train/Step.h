//===- Step.h - A model becomes a training step -----------------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_STEP_H
#define PARTITA_PASSES_TRAIN_STEP_H

#include "passes/Train/Loss.h"
#include "passes/Train/Update.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita::train {

/// The state that counts the steps that are done.
inline constexpr char stepState[] = "step";

/// Builds the step in place of `main`, whose states that are only read are the
/// parameters. The stages, in order: the loss (Loss.h),
/// cotangents (Differentiate.h), recompute (Recompute.h), accumulation, the update
/// (Update.h).
class StepBuilder {
public:
  StepBuilder(mlir::func::FuncOp main, const Spec &spec)
      : main(main), spec(spec), context(main.getContext()) {}

  /// An error leaves `main` half built: the pass fails.
  Expected<void> run();

  /// Parameters on which the loss does not depend; they stay as they are.
  std::vector<std::string> unused;
  /// After run(): what the user should know of what is computed again.

private:
  /// A result of the step: a metric, or what becomes of a state.
  struct Result {
    std::string name;
    mlir::Value value;
    bool isState = false;
  };

  Expected<void> findStates();
  bool decays(const std::string &name) const;
  Expected<void> differentiateLoss(const BuiltLoss &built);
  void merge();
  void markArguments();
  /// Moves what `main` computes so far into a function of one micro-batch, which a loop
  /// runs: it carries the sums of loss and gradients, running moments, the number of the
  /// micro-batch and the labels counted; inputs are its rows; parameters are shared.
  void accumulate();
  /// The part of accumulate() that builds the function; gives the types of what is
  /// carried.
  mlir::func::FuncOp microBatch(const graph::Values &carriedIn,
                                const graph::Values &carriedOut,
                                const graph::Values &scanned,
                                const graph::Values &shared);
  Expected<void> update();
  void finish(const std::vector<Result> &results);

  // A scale of the loss (LossScale.cpp).
  mlir::Value scaleOf(graph::Formula &f, mlir::Value output);
  mlir::Value unscale(graph::Formula &f);
  void keepUnlessFinite(graph::Formula &f, mlir::Value isFinite,
                        std::vector<Result> &results);
  void updateScale(graph::Formula &f, mlir::Value isFinite, std::vector<Result> &results);

  mlir::Value inUpdate(mlir::Value value);
  /// Likewise, and belongs to the parameter (markParameter).
  mlir::Value inUpdateOf(const Parameter &parameter, mlir::Value value);
  mlir::Value stateNamed(const std::string &name);
  mlir::Value addState(const std::string &name, mlir::RankedTensorType type,
                       llvm::StringRef parameter = {});

  mlir::func::FuncOp main;
  const Spec &spec;
  mlir::MLIRContext *context;
  mlir::Value step, loss;
  mlir::Value counted; ///< of a loss, see BuiltLoss; null: there is none
  mlir::Value power;   ///< of a dynamic scale of the loss
  std::vector<Parameter> parameters;
  std::vector<Result> running; ///< moments
};

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_STEP_H
