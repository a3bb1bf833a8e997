//===- Manual.h - Nodes of graphs that are written per rank -----*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_MANUAL_H
#define PARTITA_PASSES_IMPORT_MANUAL_H

#include "passes/Import/Importer.h"

namespace partita::import {

/// The axes of a node's group by its `group` or `groups`, major first; all of the mesh if
/// it names none.
Expected<AxisList> groupOf(const Mesh &mesh, const onnx_model::Node &node);

/// Tells which attribute the node cannot have, or not of its type: read as absent it
/// would be a default, and a group all ranks.
Expected<void> checkAttributes(const onnx_model::Node &node);

/// "[0, 1]".
std::string textOf(llvm::ArrayRef<int64_t> numbers);

/// Numbers between commas.
Expected<std::vector<int64_t>> numbersOf(llvm::StringRef text);

void addNeighbours(HandlerTable &table);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_MANUAL_H
