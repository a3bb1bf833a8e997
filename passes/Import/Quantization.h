//===- Quantization.h - Bytes and what they are worth -----------*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_QUANTIZATION_H
#define PARTITA_PASSES_IMPORT_QUANTIZATION_H

#include "passes/Import/Compose.h"
#include "passes/Import/Windows.h"

namespace partita::import {

/// On a constant of real numbers that DequantizeLinear made of signed bytes without a
/// zero point: [bytes, scale], each a dense attribute, or the name of a weight. The scale
/// stands beside the tensor as numbers that are multiplied do. Gone behind L0.
inline constexpr char numbersAttr[] = "graph.numbers";

/// On a weight whose values may be absent when the program is made, which must not depend
/// on them. Gone behind L0.
inline constexpr char externalAttr[] = "graph.external";

/// A scale or zero point as it stands beside a tensor of this shape: one for all, one per
/// element of `axis`, or, where `block` is not 0, one per block of so many elements along
/// it; `parameter` has all dims of the tensor then.
mlir::Value beside(Compose &c, mlir::Value parameter, const Shape &shape, int64_t axis,
                   int64_t block);

/// The convolution of an image and signed weights of bytes, summed in i32: around the
/// image stand elements of its zero point.
mlir::Value byteWindows(Compose &c, mlir::Value image, mlir::Value weights, double zero,
                        WindowAttrs window, int64_t group);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_QUANTIZATION_H
