//===- BlockWeights.h - Weights of few bits in scaled blocks ----*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_BLOCKWEIGHTS_H
#define PARTITA_PASSES_IMPORT_BLOCKWEIGHTS_H

#include "passes/Import/Compose.h"

#include <optional>

namespace partita::import {

/// A matrix of `k` summands by columns as operands of graph.contract_blocks.
struct BlockWeight {
  mlir::Value numbers; ///< [columns, blocks, block / 2]
  mlir::Value scales;  ///< [blocks, columns]
  mlir::Value zeros;   ///< likewise; null: all are 8
  int64_t block, k;
  int64_t accuracyLevel = 0; ///< that the model states; 0: none
};

/// Numbers of `bits` bits (2, 4 or 8) in bytes along dim `d`, which becomes as many times
/// as long; a negative `d` counts from the last dim. The first number of a byte is in its
/// lowest bits, or in its highest.
mlir::Value unpacked(graph::Formula &f, mlir::Value bytes, int64_t bits, int64_t d = -1,
                     bool isHighFirst = false);

/// An error that names input `input` of the node where it has another shape.
Expected<void> checkShape(const Compose &c, const onnx_model::Node &node, size_t input,
                          const Shape &expected);

/// Says whether the form is made of such a product: nothing trains, `weight` is a
/// constant, and the summands of `x` are all there. Kernels take eight numbers at a time.
bool takesForm(Compose &c, mlir::Value x, mlir::Value weight, int64_t block);

/// Zero points, or null where all are known to be 8: none at all stand for that.
mlir::Value zerosOfForm(Compose &c, mlir::Value zeros);

/// Input 1 of a product of `x`, or its transpose, where it is a constant of 4-bit numbers
/// that a DequantizeLinear scales by blocks of summands. Nothing where the form does not
/// do.
std::optional<BlockWeight> dequantizedWeight(Compose &c, const onnx_model::Node &node,
                                             mlir::Value x, bool isTransposed);

/// The rows of `x` times the matrix, of the type of `x`.
mlir::Value blockProduct(Compose &c, mlir::Value x, const BlockWeight &weight);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_BLOCKWEIGHTS_H
