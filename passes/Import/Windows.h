//===- Windows.h - Attributes of ops that read windows ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_WINDOWS_H
#define PARTITA_PASSES_IMPORT_WINDOWS_H

#include "passes/Import/Importer.h"

namespace partita::import {

/// Strides, dilations and pads of a window op, with SAME_* padding resolved.
struct WindowAttrs {
  std::vector<int64_t> kernel, strides, dilations, pads;
};

/// By the node's attributes; `input` is [batch, channels, spatial…].
WindowAttrs windowOf(const onnx_model::Node &node, const Shape &input, Shape kernel);

/// `strides`, `dilations` and `pads` of a graph op.
llvm::SmallVector<mlir::NamedAttribute> windowAttrs(const Importer &importer,
                                                    const WindowAttrs &window);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_WINDOWS_H
