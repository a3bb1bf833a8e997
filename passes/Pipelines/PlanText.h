//===- PlanText.h - What a search has found, for people ---------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_PLANTEXT_H
#define PARTITA_PASSES_PIPELINES_PLANTEXT_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Search/BestPlan.h"
#include "partita/Search/Compare.h"
#include "partita/Search/Request.h"
#include "passes/Shard/SearchPlan.h"

#include <array>

namespace partita {

/// The time of a mesh's plan, or why there is none.
std::string meshText(const search::NodeResult &mesh);

struct PlanStory {
  const search::PlanResult &result;
  const PlanTarget &target;
  double importSeconds = 0;
  std::vector<search::KnownPlan> known = {};
  std::vector<search::Reshard> reshards = {};
  std::vector<std::optional<search::RunnerUp>> runnersUp = {}; ///< per reshard
  std::optional<search::OverlapTime> overlap = std::nullopt;
  std::string name = {}; ///< PlanStage::name
  PlanCertificate::Rates rates = {};
  /// Price beside the step; absent where the cluster does not know the runtime.
  std::optional<search::PlanRequest> request = std::nullopt;

  const search::NodeResult &best() const { return result.nodes[result.best]; }
};
std::string planText(const PlanStory &story);
/// "lower bound: 4.30 ms, a gap of 1.20%", of a plan that takes `total`; then a line of
/// which plans that is and of what it ignores.
std::string boundText(const search::Bound &bound, search::Picos total);
/// Names of PlanCost::passes.
inline constexpr std::array<const char *, 3> passNames = {"forward and again", "backward",
                                                          "update"};
/// The same of the story's plan; of one that was given, that there is none.
std::string storyBoundText(const PlanStory &story);
/// A sentence about the story's overlap; empty without one.
std::string overlapText(const PlanStory &story);

/// Writes hints that lead to a plan that takes so long, and says what they do: how many
/// entries they have, which strategies they miss.
Expected<std::string> writeHints(const std::string &file, const FlowGraph &graph,
                                 const Placement &placement, const search::Decided &plan,
                                 search::Picos time);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_PLANTEXT_H
