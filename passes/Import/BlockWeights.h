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

/// Input 1 of a product of `x`, or its transpose, where it is a constant of 4-bit numbers
/// that a DequantizeLinear scales by blocks of summands. Nothing where the form does not
/// do.
std::optional<BlockWeight> dequantizedWeight(Compose &c, const onnx_model::Node &node,
                                             mlir::Value x, bool isTransposed);

/// The rows of `x` times the matrix, of the type of `x`.
mlir::Value blockProduct(Compose &c, mlir::Value x, const BlockWeight &weight);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_BLOCKWEIGHTS_H
