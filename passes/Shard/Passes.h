//===- Passes.h - Deciding strategies ---------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_PASSES_H
#define PARTITA_PASSES_SHARD_PASSES_H

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Shard/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Shard/Passes.h.inc"

} // namespace partita

#endif // PARTITA_PASSES_SHARD_PASSES_H
