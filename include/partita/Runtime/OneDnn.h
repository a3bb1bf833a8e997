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

/// Who computes products of f32.
enum class Products {
  OfMachine, ///< oneDNN where it has vectors of 512 bits, else our kernels (Gemm.h)
  OfLibrary, ///< oneDNN everywhere: for measurements
};

const engine::Engine &oneDnn(Products products = Products::OfMachine);

} // namespace partita::onednn

#endif // PARTITA_RUNTIME_ONEDNN_H
