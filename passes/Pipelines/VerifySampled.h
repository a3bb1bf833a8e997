//===- VerifySampled.h - Checking what is too large to evaluate -*- C++ -*-===//
//
// A model that the evaluator would take too long for is compiled as
// one rank of the target `plain`, whose code is loops without an engine, and this program
// stands for the model. The evaluator then checks the program itself, at nodes that are
// drawn: the program gives what these nodes read and make beside its outputs, and the
// evaluator computes the one of the other.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_VERIFYSAMPLED_H
#define PARTITA_PASSES_PIPELINES_VERIFYSAMPLED_H

#include "partita/Base/Files/Aside.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/RunBundle.h"
#include "passes/Pipelines/VerifyCost.h"

namespace partita {

/// Bounds of a sample. A node that alone exceeds one is not drawn.
struct SampleLimits {
  double seconds = 20;              ///< expected of the evaluator, all nodes together
  int64_t bytes = int64_t(1) << 30; ///< of what all nodes read and make
  size_t nodes = 256;
};

/// Nodes of a function, drawn at random.
class NodeSample {
public:
  /// The function outlives the sample. Equal seeds draw equal nodes.
  NodeSample(mlir::func::FuncOp function, const EvaluationCost &cost, uint64_t seed,
             const SampleLimits &limits = {});

  size_t size() const { return nodes.size(); }
  size_t numNodes() const { return eligible; } ///< that could be drawn

  /// Makes what the nodes read and make results of a clone of the function, behind the
  /// clone's own.
  void addResults(mlir::func::FuncOp clone) const;
  size_t numResults() const { return values.size(); }

  /// Judges what a node made; `where` names the node.
  using Judge = std::function<Expected<void>(
      const std::string &where, const HostTensor &made, const HostTensor &evaluated)>;

  /// Evaluates every node. `results` are those of addResults, `arguments` those of the
  /// function.
  Expected<void> check(const Tensors &results, const Tensors &arguments,
                       const WeightLoader &weights, const Judge &judge,
                       StopFlag stop) const;

private:
  bool takes(mlir::Operation *op, const EvaluationCost &cost, const SampleLimits &left);
  void add(mlir::Value value);
  const HostTensor &valueOf(mlir::Value value, const Tensors &results,
                            const Tensors &arguments) const;
  Expected<void> checkNode(mlir::Operation *node, const Tensors &results,
                           const Tensors &arguments, const WeightLoader &weights,
                           const Judge &judge, StopFlag stop) const;

  mlir::func::FuncOp function;
  std::vector<mlir::Operation *> nodes; ///< in the order of the function
  std::vector<mlir::Value> values;
  llvm::DenseMap<mlir::Value, size_t> numberOf; ///< in `values`
  size_t eligible = 0;
};

/// Runs a clone of a program as one rank of the target `plain`, on all cores of this
/// machine, from a bundle that is gone afterwards.
class PlainRank {
public:
  /// `job` says the model. `prepare`, if any, changes the clone before it is compiled.
  static Expected<PlainRank>
  compile(const Job &job, const Program &program,
          const std::function<void(mlir::func::FuncOp)> &prepare);
  /// The results, without sizes of others.
  Expected<Tensors> run(const BundleRunner &runner, const Tensors &arguments,
                        StopFlag stop) const;

private:
  PlainRank() = default;
  Aside folder; ///< has the bundle
  std::unique_ptr<Job> job;
  mlir::OwningOpRef<mlir::func::FuncOp> main; ///< as it was before it was compiled
};

/// A folder among the temporary files, for a bundle that nobody needs afterwards.
Expected<Aside> temporaryFolder();

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_VERIFYSAMPLED_H
