//===- Inspect.h - What a model contains ------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_INSPECT_H
#define PARTITA_PASSES_PIPELINES_INSPECT_H

#include "partita/Base/Error.h"
#include "passes/Pipelines/Compile.h"

#include <string>
#include <vector>

namespace partita {

struct InspectResult {
  std::string text; ///< tables for a person
  bool supported = true;
};

/// Inputs, outputs, operators with counts, parameters; every node without an import as a
/// row with domain, version, name and reason.
/// Of `options`, the model, its shapes and its constants count.
Expected<InspectResult> inspectModel(const CompileOptions &options);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_INSPECT_H
