//===- Inspect.h - What a model contains ------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_INSPECT_H
#define PARTITA_PASSES_PIPELINES_INSPECT_H

#include "partita/Base/Error.h"

#include <string>
#include <vector>

namespace partita {

struct InspectResult {
  std::string text; ///< tables for a person
  bool supported = true;
};

/// Inputs, outputs, operators with counts, parameters; every node without an import as a
/// row with domain, version, name and reason.
Expected<InspectResult> inspectModel(const std::string &path,
                                     const std::vector<std::string> &shapes);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_INSPECT_H
