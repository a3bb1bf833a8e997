//===- KernelFormula.h - Kernels as data for the runtime --------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_KERNELFORMULA_H
#define PARTITA_PASSES_CODEGEN_COMMON_KERNELFORMULA_H

#include "partita/Base/Bundle/Formulas.h"
#include "passes/Codegen/Common/Program.h"

namespace partita::codegen {

/// Reads, nodes and writes of the kernel as data. Ops that the runtime has no words for
/// are opaque.
KernelFormula formulaOf(const KernelSpec &spec);

/// The names of the node and of its value; both empty without an op.
MadeName madeBy(mlir::Operation *op, int result = 0);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_KERNELFORMULA_H
