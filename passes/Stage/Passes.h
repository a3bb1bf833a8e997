//===- Passes.h - From one rank's program to schedules ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_STAGE_PASSES_H
#define PARTITA_PASSES_STAGE_PASSES_H

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Stage/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Stage/Passes.h.inc"

} // namespace partita

#endif // PARTITA_PASSES_STAGE_PASSES_H
