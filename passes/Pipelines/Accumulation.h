//===- Accumulation.h - How many micro-batches a step may have --*- C++ -*-===//
//
// Where a specification says "accumulation": "auto", the shape of the model is that of a
// whole step, and the step is the same whatever number of micro-batches is chosen. That
// asks of the model that it works row by row of one batch.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_ACCUMULATION_H
#define PARTITA_PASSES_PIPELINES_ACCUMULATION_H

#include "passes/Pipelines/MicroBatch.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita {

/// The first dim of all inputs that have dims, states apart. An error where they differ.
Expected<int64_t> rowsOf(mlir::func::FuncOp main);

/// An error if the rows of an input of a step are not `rows`: the labels' may not be.
Expected<void> checkRows(mlir::func::FuncOp step, int64_t rows);

/// An error that names the node by which rows of the output that the specification's loss
/// is of depend on each other. `main` is an imported model.
Expected<void> checkApart(mlir::func::FuncOp main, const train::Spec &spec);

/// Leaves of the results of an imported model the output that the specification's loss is
/// of, and states, as the step does: inputs with dims and that output have the batch.
Expected<BatchInterface> keepLossOnly(mlir::func::FuncOp main, const train::Spec &spec);

/// Whether the specification leaves the number open, and nothing has said it yet.
bool choosesAccumulation(const Job &job);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_ACCUMULATION_H
