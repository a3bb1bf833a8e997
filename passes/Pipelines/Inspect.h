//===- Inspect.h - What a model contains ------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_INSPECT_H
#define PARTITA_PASSES_PIPELINES_INSPECT_H

#include "partita/Base/Error.h"
#include "passes/Pipelines/Compile.h"

#include <optional>
#include <string>
#include <vector>

namespace partita {

struct InspectOptions {
  ModelSource model;
  /// List the nodes, or the weights, whose name or module path matches; empty: do not.
  std::string nodes, weights;
  bool json = false;
};

struct InspectResult {
  std::string text;              ///< tables for a person, or a JSON document
  std::optional<bool> supported; ///< absent: sizes are open, and nothing is imported yet
};

/// Inputs, outputs, operators with counts, parameters; every node without an import as a
/// row with domain, version, name and reason. Nodes and weights are listed as hints see
/// them: by name, with module paths, shapes and the loops that can be split. An error
/// where a pattern matches nothing. Of a model whose sizes are open only its inputs and
/// the names of the sizes, with where they come from and the options that would bind
/// them.
Expected<InspectResult> inspectModel(const InspectOptions &options);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_INSPECT_H
