//===- Passes.h - From global to local --------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PARTITION_PASSES_H
#define PARTITA_PASSES_PARTITION_PASSES_H

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Partition/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Partition/Passes.h.inc"

} // namespace partita

#endif // PARTITA_PASSES_PARTITION_PASSES_H
