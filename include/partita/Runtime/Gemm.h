//===- Gemm.h - Products of f32 by our own kernels --------------*- C++ -*-===//
//
// For CPUs with vectors of 256 bits, where oneDNN neither packs weights nor keeps its
// speed over all shapes, and for few rows, which wait for the weight. A weight is packed
// into panels once, at load; other operands are packed into scratch, piece by piece.
// docs/codegen.md, "Products", has the measurements.
//
// The form of a packed weight is that of its shape alone, so calls of any number of rows
// and threads read one copy.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_GEMM_H
#define PARTITA_RUNTIME_GEMM_H

#include "partita/Runtime/Engine.h"

#include <memory>
#include <optional>

namespace partita::gemm {

/// Whether this CPU runs the kernels: it has AVX2 and FMA.
bool isSupported();

/// A weight that somebody else packs: blocks of `columns` neighbouring columns, `step`
/// elements apart, of rows of as many elements, one per summand.
struct Blocks {
  int64_t columns; ///< a multiple of 16
  int64_t step;    ///< at least columns · k
};

/// The call, for the team of this thread; null where the kernels do not take it: another
/// CPU, another element type, a weight whose elements overlap. With `blocks`, the packed
/// weight is described to it as these; it has no form of its own and packs nothing.
std::unique_ptr<engine::Call> matMul(const task::MatMul &params,
                                     std::optional<Blocks> blocks = std::nullopt);

/// Whether the kernels are expected to be faster than oneDNN's AVX2 code, for a call that
/// they take.
bool isWorth(const task::MatMul &params);

/// The call of a product of 8-bit integers (task::isOfBytes), exact modulo 2^32 on CPUs
/// with AVX2; null on others.
std::unique_ptr<engine::Call> byteMatMul(const task::MatMul &params);

/// The call of a convolution of 8-bit integers, likewise. `isWide`: by vectors of 512
/// bits where the CPU has VNNI for them.
std::unique_ptr<engine::Call> byteConv(const task::Conv &params, bool isWide);
/// The call of a product with a weight of 4 bits, with vectors of 512 bits if wanted and
/// there (and VNNI, for rows of bytes); null where the kernels do not take it: a CPU
/// without AVX2, blocks of no multiple of 8 numbers. A weight that is computed is packed
/// in every run.
std::unique_ptr<engine::Call> blockMatMul(const task::BlockMatMul &params, bool isWide);

/// The call of a convolution of 8-bit integers with post-ops, by a call of the same
/// convolution without; null where there are no kernels for the post-ops.
std::unique_ptr<engine::Call> requantized(const task::Conv &params,
                                          std::unique_ptr<engine::Call> sums);

} // namespace partita::gemm

#endif // PARTITA_RUNTIME_GEMM_H
