//===- PlainModel.h - The target plain --------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_PLAIN_PLAINMODEL_H
#define PARTITA_PASSES_CODEGEN_PLAIN_PLAINMODEL_H

#include "passes/Codegen/CPU/CpuModel.h"

namespace partita::codegen {

/// `plain`: calls are loops, the reference without any library, for any element type and
/// under sanitizers. Kernels and calls are cut as those of `cpu` are, so that whatever
/// differs between the two is in the library.
class PlainModel : public CpuModel {
public:
  static constexpr const char *name = "plain";
  explicit PlainModel(CpuTarget code);
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_PLAIN_PLAINMODEL_H
