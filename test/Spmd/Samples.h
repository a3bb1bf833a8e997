//===- Samples.h - Small programs in which every comm op occurs -*- C++ -*-===//
#ifndef PARTITA_TEST_SPMD_SAMPLES_H
#define PARTITA_TEST_SPMD_SAMPLES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/ArrayRef.h"

namespace partita::spmd {

/// A module with a mesh and a function @main whose ops have strategies.
struct Sample {
  const char *name, *text;
};
llvm::ArrayRef<Sample> samples();

/// The program planned and partitioned, both gates passed; null if that fails.
mlir::OwningOpRef<mlir::ModuleOp> partitioned(mlir::MLIRContext &context,
                                              const Sample &sample);

} // namespace partita::spmd

#endif // PARTITA_TEST_SPMD_SAMPLES_H
