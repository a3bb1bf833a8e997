//===- BestPlan.h - The fastest plan of a program on a cluster --*- C++ -*-===//
//
// Around the problem of a program on a mesh (Search.h) there are *nodes*: the meshes that
// may be taken. Of a training step that does not fit, or that leaves its number of
// micro-batches open, each node has *forms* (StepFitter.h). A node is bounded before it
// is solved, and is left out where its bound says that it cannot have the fastest plan:
//
//     1  sums over the program            refuse what no plan can do
//     2  every mesh without memory,       bounds; plans of the program as it stands
//        then in full from the least      (searchAll)
//        bound on
//     3  meshes on which the limit is     bounds of steps with any recompute
//        felt
//     4  the same, from the least such    forms: micro-batches, what is computed again
//        bound on
//
// The program is reached through a StepSource alone, which gives flow graphs: nothing of
// this knows of MLIR.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_BESTPLAN_H
#define PARTITA_SEARCH_BESTPLAN_H

#include "partita/Search/Search.h"
#include "partita/Search/StepFitter.h"

#include <memory>

namespace partita::search {

/// A program in one form on one mesh.
struct StepProgram {
  StepProgram(const FlowGraph &graph, Placement placement)
      : graph(graph), placement(std::move(placement)) {}
  virtual ~StepProgram() = default;

  const FlowGraph &graph; ///< finalized; of whoever made the step
  Placement placement;
  Pins pins = {};                            ///< that hints ask for
  std::vector<ParameterOps> parameters = {}; ///< of a training step
};

/// The door to the program.
class StepSource {
public:
  virtual ~StepSource() = default;
  /// The program of a form on a mesh.
  virtual Expected<std::shared_ptr<const StepProgram>> step(const Mesh &mesh,
                                                            const StepForm &form) = 0;
  /// Pins by which states lie in parts on ranks that hold the same, as the specification
  /// asks, beside such strategies; `notes` say what stays whole. Absent: nothing of that
  /// is asked. The step is of the form that was asked for last.
  virtual std::optional<Pins> statesInParts(const StepProgram &step,
                                            const std::vector<Strategy> &strategies,
                                            std::vector<std::string> &notes) = 0;
  /// Rows of the batch, where the number of micro-batches is chosen.
  virtual std::optional<int64_t> rows() const = 0;
};

/// Numbers that steer the search over nodes, each with what it trades.
struct NodeLimits {
  /// Meshes of which forms are looked at: up to the time limit each.
  size_t meshes = 6;
  /// Equal parts of the time or work of a mesh, of which each bound, proposal and form
  /// has one.
  int parts = 4;
  /// Searches after which no other mesh's forms are looked at, where work is the limit.
  int searches = 8;
};

struct Wanted {
  std::vector<Mesh> meshes; ///< not empty
  /// Limits, threads, flags and the log; pins and space are not read.
  SearchOptions search = {};
  bool choosesMicroBatches = false, choosesRecompute = false;
  /// The plan is the fastest if collectives are in flight while kernels run.
  bool overlap = false;
  NodeLimits most = {};
  std::function<void(const std::string &)> progress = [](const std::string &) {};
};

/// Time of a plan were collectives in flight while kernels run, and a bound of any
/// plan's.
struct OverlapTime {
  Picos time = 0; ///< simulated
  Bound bound = {};
};

/// A mesh that was searched.
struct NodeResult {
  Mesh mesh;
  std::optional<Found> found; ///< absent: nothing fits
  NotFound reason;
  std::optional<Bound> bound;          ///< absent: there is no plan at all
  std::vector<std::string> notes = {}; ///< of what was found
  /// Overlap of the plan, if one was found and Wanted::overlap asks for it.
  std::optional<OverlapTime> overlap = std::nullopt;
};

/// Bound of plans on any of the nodes.
Bound boundOf(const std::vector<NodeResult> &nodes);

struct PlanResult {
  std::vector<NodeResult> nodes; ///< as Wanted::meshes
  size_t best = 0;
  StepForm form = {};     ///< of the best one's step
  int64_t savedBytes = 0; ///< at the peak of a device, by what is computed again
  bool isGiven = false;   ///< the plan was priced, and nothing was searched
  /// True if bounds are of steps with any recompute.
  bool isAnyBounded = false;
  /// True if plans were looked at in other forms than the program's own.
  bool isFormChosen = false;
  std::vector<std::string> notes = {}; ///< a line about each thing that was chosen
};

/// The fastest plan that was found. An error if nothing fits: it says what is needed,
/// what there is, what takes most and which change would fit.
Expected<PlanResult> bestPlan(StepSource &source, const Wanted &wanted);

/// The price of a given plan of the timing's program. There is no bound.
PlanResult pricedPlan(Timing &timing, Decided plan);

/// Overlap of the plan that was found, as it was searched for, else on its mesh; the
/// timing and model, of so many tied layers, are of its step.
Expected<OverlapTime> overlapOf(const PlanResult &result, Timing &timing,
                                const Model &model, size_t tiedLayers);

} // namespace partita::search

#endif // PARTITA_SEARCH_BESTPLAN_H
