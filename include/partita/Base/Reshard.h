//===- Reshard.h - From one layout to another -------------------*- C++ -*-===//
//
// The one planner that search, lowering, checkpoint resharding and reports share.
// It turns a pair of layouts of one tensor on one mesh into steps in normal form
//
//     refine → reduce → slices → all-to-all / permute → gathers → merge
//
// so that memory never exceeds max(source, target) local size (plus the step's own
// result), and prices exactly the steps that will be emitted.
//
// Every step is described on *local* shapes: a dim d with factors is seen as
// [outer, middle, inner] where `inner` is the product of the local sizes of the
// factors below the one concerned. Collectives name mesh axes only.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_RESHARD_H
#define PARTITA_BASE_RESHARD_H

#include "partita/Base/DType.h"
#include "partita/Base/Layout.h"

#include <vector>

namespace partita {

enum class StepKind : uint8_t {
  /// Same bytes, other factor structure (refine or merge): no work at all.
  View,
  /// Replicated → sharded along `axes`, appended minor-most to (dim, factor): local copy.
  Slice,
  /// Sharded → replicated along `axes`, the minor-most ones of (dim, factor).
  AllGather,
  /// The axes move from (dim, factor) to (toDim, toFactor).
  AllToAll,
  /// Each rank sends its whole block to one rank: `axes` of (dim, factor) are replaced by
  /// others of equal size or reordered. Pairs follow from the layouts before and after.
  Permute,
  /// Partial → replicated along `axes`.
  AllReduce,
  /// Partial → sharded along `axes`, appended minor-most to (dim, factor).
  ReduceScatter,
  /// Replicated → partial: coordinate 0 keeps, the others hold the neutral element.
  ToPartial,
  /// Changes the padded extent of an unsharded dim: local copy (grow or cut).
  Repad,
  /// General exchange: every rank fetches, from the nearest holder, exactly the elements
  /// it lacks.
  /// Used where digit-wise steps do not exist (cuts that do not nest) or move more than
  /// it.
  Exchange,
};
std::string_view name(StepKind kind);

struct Step {
  StepKind kind = StepKind::View;
  AxisList axes; ///< the group, major to minor: member i has coordinate i
  ReduceKind reduce = ReduceKind::Sum;
  int32_t dim = -1,
          factor = -1; ///< in `after` for Slice/ReduceScatter, in `before` otherwise
  int32_t toDim = -1, toFactor = -1; ///< AllToAll: in `after`
  Layout before, after;

  /// Elements a rank receives from others, the most over all ranks.
  int64_t receivedElements = 0;
};

struct ReshardOptions {
  /// False forbids AllToAll, Permute and Exchange: only slices, gathers and reductions.
  bool allToAll = true;
};

struct ReshardPlan {
  std::vector<Step> steps;
  int64_t receivedElements = 0; ///< sum over steps: the most that one rank receives
  /// Elements that some rank must receive whatever the steps: max over ranks of
  /// |needed \ held|, and for reductions the classical (p-1)/p bounds.
  int64_t lowerBoundElements = 0;
  int64_t peakElements =
      0; ///< most local elements alive at once (input + output of a step)
};

/// Plans source → target. Both are valid on `mesh`, have equal global shapes, and
/// target's partial axes (per kind) are either source's, or to be made from replicated
/// axes. An error only for impossible requests (kind of partial changed: that needs a
/// reduction first, which the planner does; max → sum is legal through replicated).
Expected<ReshardPlan> planReshard(const Mesh &mesh, const Layout &source,
                                  const Layout &target,
                                  const ReshardOptions &options = {});

/// Runs a plan on virtual ranks in this process: locals[r] is rank r's dense local
/// tensor of `source`; the result is of `target`. For tests and the reference evaluator;
/// reductions run in the element type, ranks in coordinate order.
/// `poison`: fill padding of every intermediate with a recognisable garbage pattern (NaN
/// / extreme), to prove that nothing depends on it.
std::vector<HostTensor> executeReshard(const Mesh &mesh, const ReshardPlan &plan,
                                       const std::vector<HostTensor> &locals,
                                       bool poison = false);

} // namespace partita

#endif // PARTITA_BASE_RESHARD_H
