//===- OneDnnModel.h - The target cpu ---------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_ONEDNN_ONEDNNMODEL_H
#define PARTITA_PASSES_CODEGEN_ONEDNN_ONEDNNMODEL_H

#include "passes/Codegen/CPU/CpuModel.h"

namespace partita::codegen {

/// `cpu`: calls of oneDNN, and of our products (Gemm.h) where the code's vectors have 256
/// bits.
class OneDnnModel : public CpuModel {
public:
  static constexpr const char *name = "cpu";
  explicit OneDnnModel(CpuTarget code);
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_ONEDNN_ONEDNNMODEL_H
