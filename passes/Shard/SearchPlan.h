//===- SearchPlan.h - Deciding by search ------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_SEARCHPLAN_H
#define PARTITA_PASSES_SHARD_SEARCHPLAN_H

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/Hints.h"
#include "partita/Search/Search.h"

namespace partita {

/// What a program is planned for.
struct PlanTarget {
  Topology topology;
  /// Whether there was no cluster file: this host, whose levels are the mesh axes.
  bool isHost = false;
  bool isCalibrated = false; ///< its constants were measured
  std::optional<int64_t> memoryLimit;
};

/// The cluster of a file, or this host. `memory` as in cluster files ("16GiB"); empty:
/// with a file its device's, else no limit.
Expected<PlanTarget> planTarget(const Mesh &mesh, const std::string &clusterFile,
                                const std::string &memory);

/// Writes strategies, layouts, services and the certificate of what was found, for
/// conversions to be inserted. The module has the flow's mesh.
void writeFound(mlir::FunctionOpInterface function, const dist::ProgramFlow &flow,
                const search::Found &found, const PlanTarget &target);

/// The fastest plan that follows the pins as a decision, with its note and where every
/// split came from.
Expected<Decision> decideBySearch(mlir::FunctionOpInterface function,
                                  const dist::ProgramFlow &flow,
                                  const std::string &clusterFile,
                                  const std::string &memory, const search::Pins &pins);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_SEARCHPLAN_H
