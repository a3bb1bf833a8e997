//===- Models.h - The models that this folder attaches ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_EMIT_MODELS_H
#define PARTITA_PASSES_CODEGEN_EMIT_MODELS_H

#include "mlir/IR/MLIRContext.h"

namespace partita::codegen {

void attachRowModels(mlir::MLIRContext &context);        // LowerRows.cpp
void attachIndexedRowModels(mlir::MLIRContext &context); // LowerScatter.cpp
void attachSortModel(mlir::MLIRContext &context);        // LowerSort.cpp
void attachPoolModels(mlir::MLIRContext &context);       // LowerPools.cpp
void attachIndexedModels(mlir::MLIRContext &context);    // LowerIndexed.cpp

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_EMIT_MODELS_H
