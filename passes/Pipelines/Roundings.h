//===- Roundings.h - What a narrower type makes of a model ------*- C++ -*-===//
//
// The rule by which a program in bf16 or f16 is right (docs/precision.md). The model is
// evaluated in f64 twice: as it is, and with every float value (weights, inputs, what
// each op gives) rounded to as many digits as the type has. What the two differ by is
// what the roundings of the type do to an output. A program rounds at fewer places and
// sums in f32, so its error is of that size:
//
//     rms     ≤ 2 · rms of the roundings + unit
//     largest ≤ 2 · largest of the roundings + 4 · unit
//
// where a unit is one in the last place of the output's largest element. The type's range
// has no part in it: in f16 a number above 65504 is an infinity in the program, and an
// error.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_ROUNDINGS_H
#define PARTITA_PASSES_PIPELINES_ROUNDINGS_H

#include "partita/Base/Compute.h"
#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include <string>

namespace partita {

/// Rounds the elements of an f64 tensor to the digits of a type, whatever their exponent.
void roundDigits(HostTensor &tensor, Compute type);

/// Compares an output of a program that computes in `type` with the model in f64, and
/// with that when every value is rounded; of integers an element that the roundings
/// change is free. Says the figures; an error says them too.
Expected<std::string> judgeRoundings(const HostTensor &actual, const HostTensor &exact,
                                     const HostTensor &rounded, Compute type);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_ROUNDINGS_H
