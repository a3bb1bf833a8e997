//===- Products.h - Products for a GPU, and what they are on a CPU *- C++ -*-===//
#ifndef PARTITA_TEST_DEVICE_RECORDKERNELS_PRODUCTS_H
#define PARTITA_TEST_DEVICE_RECORDKERNELS_PRODUCTS_H

#include "partita/Base/Error.h"
#include "passes/Codegen/Nvptx/Manifest.h"

#include <string>
#include <vector>

/// The last launch of a kernel: what each in and out held before, what each out after.
struct Launch {
  std::vector<std::string> before, after;
  std::vector<int64_t> scalars = {};
};

/// A product by words: TYPE:MxNxK, then, behind commas, ta and tb (transposed operands),
/// batch=3, shared (b is the same for all of the batch), pad=1 (elements between rows),
/// and tiles=128/128/32/2/2/3/2: the members of ProductTiles in order.
partita::Expected<std::pair<partita::task::MatMul, partita::codegen::ProductTiles>>
readProduct(const std::string &text);

/// A launch on drawn numbers by the target plain's loops.
Launch runProduct(const partita::task::MatMul &product,
                  const partita::codegen::TileKernel &made, uint64_t seed);

#endif // PARTITA_TEST_DEVICE_RECORDKERNELS_PRODUCTS_H
