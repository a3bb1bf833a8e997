//===- SearchPlan.h - Deciding by search ------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_SEARCHPLAN_H
#define PARTITA_PASSES_SHARD_SEARCHPLAN_H

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/Hints.h"
#include "partita/Search/Request.h"
#include "partita/Search/Search.h"

#include "mlir/IR/BuiltinOps.h"

namespace partita {

/// What a program is planned for.
struct PlanTarget {
  Topology topology;
  /// Whether there was no cluster file: this host, whose levels are the mesh axes.
  bool isHost = false;
  bool isCalibrated = false; ///< its constants were measured
  std::optional<int64_t> memoryLimit;
  /// Kept from the device's memory, if the limit is that less this.
  MemoryReserve reserve = {};
};

/// "1.29 GiB of context, … are kept".
std::string reserveText(int64_t context, int64_t communicators, int64_t fragmentation);

/// An error names what is wrong with the file of this host's constants.
Expected<PlanTarget> planTarget(const Mesh &mesh, const Machine &machine);

/// "auto: predicted 3.47 ms per run (…; a request 3.52 ms) on cpu-core; no plan is
/// faster".
std::string searchNote(const search::Found &found,
                       const std::optional<search::PlanRequest> &request,
                       const PlanTarget &target);

/// Says what a plan would take in a narrower type; empty: nothing is gained, or the rate
/// of the device in it is not known, as of this host before `partita calibrate`.
std::string narrowedNote(const FlowGraph &graph, const Decision &decision,
                         const Machine &machine, DType type);

/// A bound as a certificate has it.
PlanCertificate::Bound planBound(const search::Bound &bound);

/// What a step of the plan gets done.
PlanCertificate::Rates ratesOf(const dist::ProgramFlow &flow, const search::Found &found,
                               const PlanTarget &target);

/// Writes strategies, layouts, services and the certificate of what was found, for
/// conversions to be inserted. The module has the flow's mesh.
void writeFound(mlir::FunctionOpInterface function, const dist::ProgramFlow &flow,
                const search::Found &found,
                const std::optional<search::PlanRequest> &request,
                const PlanTarget &target);

/// The fastest plan that follows the pins as a decision, with its note and where every
/// split came from.
Expected<Decision> decideBySearch(mlir::FunctionOpInterface function,
                                  const dist::ProgramFlow &flow, const Machine &machine,
                                  const search::Pins &pins);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_SEARCHPLAN_H
