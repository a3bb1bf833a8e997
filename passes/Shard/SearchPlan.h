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

/// What a plan is for, as it is given.
struct TargetOptions {
  std::string cluster; ///< a file; empty: this host
  /// As in cluster files ("16GiB"); empty: with a file its device's, else no limit.
  std::string memory;
  /// Of the part of the cluster that is meant, as many devices as the mesh has ranks; −1:
  /// all of it.
  int64_t firstDevice = -1;
};

/// An error names what is wrong with the file.
Expected<PlanTarget> planTarget(const Mesh &mesh, const TargetOptions &options);

/// Writes strategies, layouts, services and the certificate of what was found, for
/// conversions to be inserted. The module has the flow's mesh.
void writeFound(mlir::FunctionOpInterface function, const dist::ProgramFlow &flow,
                const search::Found &found, const PlanTarget &target);

/// The fastest plan that follows the pins as a decision, with its note and where every
/// split came from.
Expected<Decision> decideBySearch(mlir::FunctionOpInterface function,
                                  const dist::ProgramFlow &flow,
                                  const TargetOptions &target, const search::Pins &pins);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_SEARCHPLAN_H
