//===- Reshard.h - From one layout to another -------------------*- C++ -*-===//
//
// The one planner that search, lowering, checkpoint resharding and reports share.
// It turns a pair of layouts of one tensor on one mesh into steps in normal form
//
//     refine → slices → reductions → all-to-all / permute → gathers → merge
//
// so that memory never exceeds max(source, target) local size (plus the step's own
// result), and prices exactly the steps that will be emitted. Slices come before the
// reductions because they are free and make the reductions smaller.
//
// The planner cuts every dim and every mesh axis at the cuts of both layouts (the least
// common refinement): a dim becomes a row of *atoms*, each wholly local or wholly bound
// to one *digit* (a part of a mesh axis) in source and in target. A reshard then is a
// set of paths along which digits move between atoms; each path is a slice, a gather, an
// all-to-all or part of one permute. Where cuts do not nest (2·3 against 3·2), where
// padded extents differ on both sides, where a dim has given blocks on one side only, or
// where the steps would move more than a direct exchange, one Exchange step moves exactly
// what is lacking.
//
// Every step is described on *local* shapes: a dim d with factors is seen as
// [outer, middle, inner] where `inner` is the product of the local sizes of the
// factors below the one concerned. Collectives name mesh axes only.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_LAYOUT_RESHARD_H
#define PARTITA_BASE_LAYOUT_RESHARD_H

#include "partita/Base/DType.h"
#include "partita/Base/Layout/Layout.h"

#include <optional>
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
  /// Each rank sends its whole block to one rank: `axes` (in one or more places, the
  /// first
  /// being (dim, factor)) are replaced by others of equal size, swapped or reordered.
  /// Pairs
  /// follow from the layouts before and after: see permuteSource.
  Permute,
  /// Partial → replicated along `axes`.
  AllReduce,
  /// Partial → sharded along `axes`, appended minor-most to (dim, factor).
  ReduceScatter,
  /// Replicated → partial: coordinate 0 keeps, the others are filled; see toPartialFill.
  ToPartial,
  /// Changes the padded extent of an unsharded dim: local copy (grow or cut).
  Repad,
  /// General exchange: every rank fetches, from the nearest holder, exactly the elements
  /// it lacks. `axes` is empty; peers and blocks follow from exchangeBlocks. Used where
  /// digit-wise steps do not exist (cuts that do not nest) or move more than it.
  Exchange,
};
std::string_view name(StepKind kind);

/// One step. `before` and `after` are layouts with the same dim factors (other than for
/// View, Repad and Exchange), so that (dim, factor) means the same place in both.
struct Step {
  StepKind kind = StepKind::View;
  AxisList axes; ///< the group, major to minor: member i has coordinate i
  ReduceKind reduce = ReduceKind::Sum;
  int32_t dim = -1, factor = -1;     ///< see StepKind; -1 where no one place is meant
  int32_t toDim = -1, toFactor = -1; ///< AllToAll only
  Layout before, after;

  /// Elements, padding included, that a rank receives from others, the most over all
  /// ranks; for Exchange, which moves no padding, valid elements. An all-reduce counts as
  /// a reduce-scatter and a gather.
  int64_t receivedElements = 0;
};

/// The step of this kind that leads from one layout to the other: its group, place,
/// reduction and volume all follow from the three. An error says why the kind does not
/// lead there, e.g. "an all-gather takes axes from one place, and dim 0 gains {tp}".
/// View also takes layouts whose factors are cut differently; every other kind but Repad,
/// Exchange and Permute wants the same dim factors on both sides.
Expected<Step> stepBetween(const Mesh &mesh, StepKind kind, const Layout &before,
                           const Layout &after);

/// Whether there is such a step: as stepBetween, but never looks at single ranks.
Expected<void> verifyStep(const Mesh &mesh, StepKind kind, const Layout &before,
                          const Layout &after);

struct ReshardOptions {
  /// False forbids AllToAll, Permute and Exchange: only slices, gathers and reductions.
  /// Given blocks are still gathered and sliced by Exchange, as their lengths differ.
  bool allToAll = true;
};

struct ReshardPlan {
  std::vector<Step> steps;
  int64_t receivedElements = 0; ///< sum over steps: the most that one rank receives
  /// Valid elements that some rank must receive whatever the steps. Without reductions:
  /// max over ranks of |needed \ held|. With a reduction over p ranks of E elements that
  /// end in t copies each: the larger of |needed| and the mean E·(p-1 + t-1) / ranks, the
  /// classical (p-1)/p for reduce-scatter and 2(p-1)/p for all-reduce.
  int64_t lowerBoundElements = 0;
  /// Most local elements alive at once: input and output of one step.
  int64_t peakElements = 0;
};

/// Plans source → target. Both are valid on `mesh` and have equal global shapes; padding,
/// factors and partial axes may differ in any way. Partial axes (digits) of one kind on
/// both sides stay; all others of the source are reduced; those of the target are made
/// from replicated ones. The plan is empty if and only if source == target.
Expected<ReshardPlan> planReshard(const Mesh &mesh, const Layout &source,
                                  const Layout &target,
                                  const ReshardOptions &options = {});

/// A step on the dense local tensors, as strided blocks. With count = size of the group:
///   Slice          [outer, count·chunk, inner] → [outer, chunk, inner], own block
///   AllGather      [outer, chunk, inner] → [outer, count·chunk, inner]
///   ReduceScatter  as Slice, reduced over the group
///   AllToAll       a 5-d view. With fromFirst
///       [outer, chunk, middle, count·toChunk, inner] →
///       [outer, count·chunk, middle, toChunk, inner]
///     and without it
///       [outer, count·toChunk, middle, chunk, inner] →
///       [outer, toChunk, middle, count·chunk, inner].
///     Member i sends block j of the `to` place to member j, who stores it as block i of
///     the `from` place.
///   Repad          [outer, chunk, inner] → [outer, toChunk, inner]; the common prefix is
///                  kept.
///   other kinds    inner = all elements, the rest 1.
struct StepGeometry {
  int64_t count = 1;
  int64_t outer = 1, chunk = 1, middle = 1, toChunk = 1, inner = 1;
  bool fromFirst = true;
};
StepGeometry stepGeometry(const Step &step);

/// Permute: the rank whose whole block becomes the block of `rank`. A bijection over
/// ranks for one step.
int64_t permuteSource(const Mesh &mesh, const Step &step, int64_t rank);
/// permuteSource as two lists of axes: the coordinate of the source along the first is
/// that of the receiver along the second.
std::pair<AxisList, AxisList> permuteAxes(const Step &step);

/// ToPartial: nothing where `rank` keeps its block, else the kind with whose neutral
/// element it fills it. That is the step's own kind; but on ranks that are not the first
/// along axes of a later (inner) kind, that one's, so that the inner reduction gives the
/// neutral element of the outer (a max around a prod: -inf, 1, 1, not -inf three times).
std::optional<ReduceKind> toPartialFill(const Mesh &mesh, const Step &step, int64_t rank);

/// Exchange: what `rank` takes from `peer` (itself included): the cartesian product over
/// dims of runs, by local index in the peer's `before` block and the own `after` block.
struct ExchangeRun {
  int64_t before, after, length;
};
struct ExchangeBlock {
  int64_t peer;
  std::vector<std::vector<ExchangeRun>> dims;
  int64_t elements() const;
};
/// The holder of an element is the one that agrees with `rank` on every axis that the
/// source does not shard: the nearest one. Only valid elements are named, each once.
std::vector<ExchangeBlock> exchangeBlocks(const Mesh &mesh, const Layout &before,
                                          const Layout &after, int64_t rank);

/// Fills `tensor` with the value that leaves a reduction unchanged.
void fillNeutral(HostTensor &tensor, ReduceKind kind);
/// into = reduce(into, from), elementwise in the element type (f16 and bf16 through f32).
void reduceInto(HostTensor &into, const HostTensor &from, ReduceKind kind);

/// The local tensor of `rank`, padding zero. Of the ranks along partial axes the first
/// gets the value, the others the neutral element.
HostTensor extractLocal(const Mesh &mesh, const Layout &layout, int64_t rank,
                        const HostTensor &global);

/// Overwrites the padding of the local tensor of `rank`, so that whoever reads padding is
/// seen: NaN for floats; for integers a large value, as −1 is an index like others; true.
void poisonPadding(const Mesh &mesh, const Layout &layout, int64_t rank,
                   HostTensor &local);

/// Runs a plan on virtual ranks in this process: locals[r] is rank r's dense local
/// tensor of `source`; the result is of `target`. For tests and the reference evaluator;
/// reductions run in the element type, ranks in coordinate order.
/// `poison`: poisonPadding of every intermediate, to prove that nothing depends on it.
std::vector<HostTensor> executeReshard(const Mesh &mesh, const ReshardPlan &plan,
                                       const std::vector<HostTensor> &locals,
                                       bool poison = false);

} // namespace partita

#endif // PARTITA_BASE_LAYOUT_RESHARD_H
