//===- PlanModel.h - The fastest plan of a model on a cluster ---*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_PLANMODEL_H
#define PARTITA_PASSES_PIPELINES_PLANMODEL_H

#include "passes/Pipelines/Compile.h"

namespace partita {

struct PlanOptions {
  /// Up to L2: no weights are read. Without a mesh all meshes of the cluster are tried.
  /// Hints are followed as pins.
  Request request = {.levels = {.to = Level::L2}};
  std::string output;      ///< plan.json; empty: none
  std::string hintsOutput; ///< the plan as hints; empty: none
  std::string report;      ///< an HTML page; empty: none
  int64_t mostAxes = 2;    ///< of the meshes that are tried
  double timeLimit = 20;   ///< seconds of solving per mesh
  /// Instead of seconds, work of the solver per mesh: the plan is then the same on every
  /// machine. 0: seconds count.
  int64_t workLimit = 0;
  int64_t threads = 1;
  StopFlag enough = {}; ///< raised: the best plan of those found is the outcome
  /// Hears a line about each mesh and form of the step that is bounded, planned or left
  /// out; empty: nobody does.
  Progress log = {};
  /// The plan is the fastest if collectives are in flight while kernels run.
  bool overlap = false;
  /// Instead of a search, the price of the plan to which hints lead on the only mesh, as
  /// mode data-parallel has it: batches over the axes that hints leave.
  bool price = false;
};

/// Outcome of a search: a text for a person, and plan.json.
struct PlannedModel {
  std::string text, json;
};

/// Searches and writes the plan. No weights are read. An error if nothing fits: it says
/// what is needed, what there is, what takes most and which change would fit.
Expected<PlannedModel> planModel(const PlanOptions &options, const Progress &progress,
                                 StopFlag stop = {});

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_PLANMODEL_H
