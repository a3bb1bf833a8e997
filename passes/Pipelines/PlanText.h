//===- PlanText.h - What a search has found, for people ---------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_PLANTEXT_H
#define PARTITA_PASSES_PIPELINES_PLANTEXT_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Search/Compare.h"
#include "partita/Search/Search.h"
#include "passes/Shard/SearchPlan.h"

namespace partita {

/// What a plan would take were collectives in flight while kernels run, and any plan at
/// least.
struct OverlapTime {
  search::Picos time = 0; ///< simulated
  search::Picos lowerBound = 0;
};

/// One mesh that was searched.
struct MeshResult {
  Mesh mesh;
  std::optional<search::Found> found; ///< absent: nothing fits
  search::NotFound reason;
  /// Time below which no plan on this mesh lies; nothing where there is no plan at all.
  std::optional<search::Picos> lowerBound;
  std::vector<std::string> notes = {}; ///< of what was found
  /// With --overlap: of what was found, if anything was.
  std::optional<OverlapTime> overlap = std::nullopt;
};

/// The time of its plan, or why there is none.
std::string meshText(const MeshResult &mesh);

/// The least bound of all meshes: no plan on any of them is faster.
search::Picos boundOf(const std::vector<MeshResult> &meshes);

struct PlanStory {
  const std::vector<MeshResult> &meshes;
  size_t best;
  const PlanTarget &target;
  std::vector<search::KnownPlan> known;
  std::vector<search::Reshard> reshards;
  std::vector<std::optional<search::RunnerUp>> runnersUp; ///< per reshard
  double importSeconds = 0;
  std::vector<std::string> choices = {}; ///< what else was chosen, a line each
  std::optional<OverlapTime> overlap = std::nullopt;
  /// The plan was chosen for it. Else its bound is of its mesh, with any memory.
  bool isForOverlap = false;
  std::string name = {}; ///< PlanStage::name
  PlanCertificate::Rates rates = {};
};
std::string planText(const PlanStory &story);
/// A sentence about the story's overlap; empty without one.
std::string overlapText(const PlanStory &story);

/// Writes hints that lead to a plan that takes so long, and says what they do: how many
/// entries they have, which strategies they miss.
Expected<std::string> writeHints(const std::string &file, const FlowGraph &graph,
                                 const Placement &placement, const search::Decided &plan,
                                 search::Picos time);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_PLANTEXT_H
