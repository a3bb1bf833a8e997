//===- Export.h - What a bundle has trained, as an ONNX file ----*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_EXPORT_H
#define PARTITA_PASSES_PIPELINES_EXPORT_H

#include "partita/Base/Error.h"

#include <string>

namespace partita {

struct ExportOptions {
  std::string file;       ///< to write; empty: nothing is exported
  std::string model;      ///< of the bundle, if it has moved; empty: as the plan says
  std::string weightsDir; ///< is searched first for external data; empty: none
};

/// Sets `model`. Says before a long run why the export would fail for lack of a model, or
/// because it would replace a file of it.
Expected<void> prepareExport(const std::string &bundle, ExportOptions &options);

/// Writes the model with the states of a file of them in the place of the initializers
/// whose names they have (partita/Onnx/Export.h). Returns how many those are.
Expected<size_t> exportStates(const std::string &bundle, ExportOptions options,
                              const std::string &states);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_EXPORT_H
