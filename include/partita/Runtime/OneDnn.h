//===- OneDnn.h - oneDNN as an engine ---------------------------*- C++ -*-===//
//
// oneDNN does f32 and, where the CPU has it, bf16; element types that it does not know
// (f64, f16 on most CPUs, integers) run plain loops with the same meaning (Plain.h).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_ONEDNN_H
#define PARTITA_RUNTIME_ONEDNN_H

#include "partita/Runtime/Engine.h"

namespace partita::onednn {

const engine::Engine &oneDnn();

} // namespace partita::onednn

#endif // PARTITA_RUNTIME_ONEDNN_H
