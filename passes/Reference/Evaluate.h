//===- Evaluate.h - Running programs on host tensors ------------*- C++ -*-===//
//
// The oracle: evaluates a function of graph ops, and a partitioned function of graph and
// comm ops on N virtual ranks in one process, op by op.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_REFERENCE_EVALUATE_H
#define PARTITA_PASSES_REFERENCE_EVALUATE_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Base/Layout/Layout.h"
#include "partita/Base/Stop.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <functional>
#include <vector>

namespace partita {

/// The global bytes of a weight by name.
using WeightLoader = std::function<Expected<HostTensor>(llvm::StringRef)>;

/// Tensors of one rank, and of all.
using Tensors = std::vector<HostTensor>;
using RankTensors = std::vector<Tensors>;

/// Links of an evaluation to its caller while the evaluation goes on.
struct Evaluating {
  Evaluating(StopFlag stop = {}, std::function<void(mlir::Operation *)> done = {})
      : stop(stop), done(std::move(done)) {}

  /// Once raised, the evaluation ends behind the op at hand with the error "cancelled".
  StopFlag stop;
  /// Hears of each op when all ranks have run it, in loops once per trip; empty: nobody.
  std::function<void(mlir::Operation *)> done;
};

/// Runs a function on N ranks in lockstep; `inputs[rank][argument]`. With `poison`, all
/// padding that comm ops touch is garbage.
Expected<RankTensors> evaluateRanks(mlir::func::FuncOp function, const Mesh &mesh,
                                    const RankTensors &inputs,
                                    const WeightLoader &weights, bool poison = false,
                                    const Evaluating &how = {});

/// Runs an unpartitioned function.
Expected<Tensors> evaluate(mlir::func::FuncOp function, const Tensors &inputs,
                           const WeightLoader &weights, const Evaluating &how = {});

/// Runs a partitioned function on global inputs: slices arguments by their dist.layout,
/// runs all ranks, checks that ranks that hold the same element agree, and assembles the
/// results. The error names result, element and ranks.
Expected<Tensors> evaluatePartitioned(mlir::func::FuncOp function, const Tensors &inputs,
                                      const WeightLoader &weights,
                                      const Evaluating &how = {});

/// The two halves of evaluatePartitioned, for callers that make the local inputs
/// themselves. localPart: what `rank` holds of a global tensor, its padding garbage.
HostTensor localPart(const Mesh &mesh, const Layout &layout, int64_t rank,
                     const HostTensor &global);
/// The inverse of localPart for the parts of all ranks. An error if ranks that hold the
/// same element disagree.
Expected<HostTensor> assemble(const Mesh &mesh, const Layout &layout,
                              const Tensors &parts);
/// Runs all ranks on `inputs[rank][argument]` and assembles the results.
Expected<Tensors> evaluateLocals(mlir::func::FuncOp function, const RankTensors &inputs,
                                 const WeightLoader &weights, const Evaluating &how = {});

/// Whether |actual - expected| ≤ atol + rtol·|expected| for every element (NaN equals
/// NaN, integers exactly); an error that names the worst element.
Expected<void> compareTensors(const HostTensor &actual, const HostTensor &expected,
                              double rtol, double atol);

/// Values in [-1, 1) for floats, small integers otherwise; the same for the same seed.
HostTensor randomTensor(DType type, const std::vector<int64_t> &shape, uint64_t seed);

} // namespace partita

#endif // PARTITA_PASSES_REFERENCE_EVALUATE_H
