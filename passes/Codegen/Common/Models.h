//===- Models.h - The models that this folder attaches ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_MODELS_H
#define PARTITA_PASSES_CODEGEN_COMMON_MODELS_H

#include "passes/Codegen/Common/Interfaces.h"

namespace partita::codegen {

void attachViewModels(mlir::MLIRContext &context);       // Views.cpp
void attachSourceModels(mlir::MLIRContext &context);     // Sources.cpp
void attachMatMulModel(mlir::MLIRContext &context);      // MatMul.cpp
void attachBlockMatMulModel(mlir::MLIRContext &context); // BlockMatMul.cpp
void attachAttentionModels(mlir::MLIRContext &context);  // AttentionOps.cpp
void attachWindowModels(mlir::MLIRContext &context);     // Window.cpp
void attachJoinModels(mlir::MLIRContext &context);       // Join.cpp
void attachCommModels(mlir::MLIRContext &context);       // Communicate.cpp
void attachControlModels(mlir::MLIRContext &context);    // Control.cpp

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_MODELS_H
