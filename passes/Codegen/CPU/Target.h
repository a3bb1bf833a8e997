//===- Target.h - What a program is compiled for ----------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_CPU_TARGET_H
#define PARTITA_PASSES_CODEGEN_CPU_TARGET_H

#include "partita/Base/Error.h"
#include "partita/Runtime/Engine.h"

#include <string>
#include <string_view>
#include <vector>

namespace partita::codegen {

/// Targets of this machine differ in who computes products and windows; their kernels are
/// the same loops.
struct Target {
  std::string_view name; ///< in bundle.json
  const engine::Engine *engine;
};

/// `cpu`: oneDNN, and our products (Gemm.h). `plain`: loops only, the reference without
/// any library, for any element type and under sanitizers. `cpuFeatures`: what its code
/// may need of a CPU; they choose among the engine's ways.
Expected<Target> targetNamed(std::string_view name,
                             const std::vector<std::string> &cpuFeatures = {});

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_TARGET_H
