//===- OneDnn.h - oneDNN as an engine ---------------------------*- C++ -*-===//
//
// oneDNN does f32 and, where the CPU has it, bf16; element types that it does not know
// (f64, f16 on most CPUs, integers) run plain loops with the same meaning (Plain.h).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_ONEDNN_H
#define PARTITA_RUNTIME_ONEDNN_H

#include "partita/Runtime/Engine.h"

#include <string>
#include <vector>

namespace partita::onednn {

/// Who computes products of f32, and convolutions that Winograd's algorithm is for.
enum class Products {
  /// Products by oneDNN where it has vectors of 512 bits, else by our kernels (Gemm.h);
  /// convolutions by ours (Winograd.h), with the vectors that oneDNN sees.
  OfMachine,
  Own,       ///< our kernels for vectors of 256 bits, on every CPU that runs them
  OfLibrary, ///< oneDNN everywhere: for measurements
};

const engine::Engine &oneDnn(Products products = Products::OfMachine);

/// The engine of a bundle whose code needs these features of a CPU (LLVM's names). Code
/// for vectors of 256 bits has our products wherever it runs: so the scratch that was
/// planned on one machine is that of any other.
const engine::Engine &engineFor(const std::vector<std::string> &features);

} // namespace partita::onednn

#endif // PARTITA_RUNTIME_ONEDNN_H
