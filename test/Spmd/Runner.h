//===- Runner.h - One op, partitioned many ways, on virtual ranks -*- C++ -*-===//
#ifndef PARTITA_TEST_SPMD_RUNNER_H
#define PARTITA_TEST_SPMD_RUNNER_H

#include "Cases.h"

#include "partita/Rule/Sharding/Strategy.h"

#include <map>

namespace partita::spmd {

/// How values reach and leave the op.
enum class Feed {
  /// In the layouts the op wants; operands that it wants partial are split at random by
  /// the test (some parts neutral), so that nothing holds by luck of zeros.
  Direct,
  /// Whole on every rank: all slices, gathers and conversions to partial are the
  /// partitioner's.
  Whole,
  /// As Whole, operands being weights.
  Weights,
};

/// A program with its inputs and result, ready to be partitioned by strategies.
class Runner {
public:
  /// The expected result comes from the reference evaluator.
  static Expected<Runner> create(mlir::MLIRContext &context, const OpCase &opCase,
                                 uint64_t seed);

  /// One module with a function per strategy, at level L3. Direct: function arguments
  /// that the op wants partial are replaced by partial ones.
  Expected<mlir::OwningOpRef<mlir::ModuleOp>>
  partition(const Mesh &mesh, const std::vector<Strategy> &strategies, Feed feed);

  /// Evaluates function `number` of the module and compares with the expected result.
  Expected<void> check(mlir::ModuleOp module, const Mesh &mesh, const Strategy &strategy,
                       size_t number, Feed feed);

  /// Another model: the op with one attribute changed (removed where `value` is null).
  /// An error if there is no such op or if its result has another type. It can only be
  /// partitioned.
  Expected<Runner> changed(mlir::StringRef attribute, mlir::Attribute value) const;

  const ShardingRule &rule() const { return program.rule; }
  const Program &original() const { return program; }

private:
  HostTensor partialPart(const Mesh &mesh, const Layout &layout, size_t operand,
                         int64_t rank);

  OpCase opCase;
  Program program;
  std::vector<HostTensor> inputs;
  std::vector<HostTensor> expected;
  uint64_t seed = 0;
};

/// Integers exactly. Floats within 16 roundings of the coarsest type that partial values
/// have had, at the scale of the tensor. A sum of parts is as exact as the sum of their
/// sizes, which is `magnification` times the size of the whole.
Expected<void> compareResults(const HostTensor &actual, const HostTensor &expected,
                              DType coarsest, double magnification = 1);
/// The coarsest float type among the operands and results of the op.
DType coarsestType(mlir::Operation *op);

} // namespace partita::spmd

#endif // PARTITA_TEST_SPMD_RUNNER_H
