//===- ReshardRefine.h - Common refinement of two layouts -------*- C++ -*-===//
//
// Private to the reshard planner: the pieces that its files share.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_BASE_RESHARDREFINE_H
#define PARTITA_LIB_BASE_RESHARDREFINE_H

#include "partita/Base/Layout/Reshard.h"

#include <optional>

namespace partita::reshard {

constexpr int none = -1;

/// A part of a dim that no cut of either layout divides: wholly local or wholly bound to
/// one digit. Atoms of a dim are stored major to minor.
struct Atom {
  int dim = 0;
  int64_t size = 1;   ///< padded extent of this part
  int64_t stride = 1; ///< product of the sizes below it in the dim
  /// Whether a layout may have a factor boundary below this atom. Not so inside the
  /// uneven part of a padded dim: 13 of 16 is not a number of blocks of 4.
  bool cutBelow = true;
  int source = none, target = none; ///< digit, or none when local
};

/// A part of a mesh axis that no cut divides. At most one of atom / partial is set on
/// each side; neither means replicated.
struct Digit {
  AxisRef ref;
  int sourceAtom = none, targetAtom = none;
  int sourcePartial = none, targetPartial = none; ///< a ReduceKind
};

struct Refinement {
  std::vector<Atom> atoms;
  std::vector<int> dimBegin; ///< rank + 1 entries: atoms of dim d
  std::vector<Digit> digits; ///< in mesh order
  std::vector<int64_t> size; ///< true size per dim

  /// Dims whose cuts, padded extents or axes do not agree. If there is one, or if
  /// partialConflict, the atoms and digits are not filled in.
  std::vector<bool> badDim;
  bool anyBad = false;
  /// An axis in a partial list is cut in a way that does not nest with another cut.
  bool partialConflict = false;

  bool nested() const { return !anyBad && !partialConflict; }
};

Refinement refine(const Mesh &mesh, const Layout &source, const Layout &target);

/// The distribution between two steps.
struct State {
  std::vector<int> atom;    ///< per atom: the digit bound to it, or none
  std::vector<int> partial; ///< per digit: its ReduceKind, or none
  bool operator==(const State &) const = default;
};

State sourceState(const Refinement &refinement);
State targetState(const Refinement &refinement);

/// For each atom the index of its factor in its dim, in the coarsest factor structure
/// that can write both states; empty if none can (a boundary would fall into the uneven
/// part of a dim).
std::vector<int> commonFactors(const Refinement &refinement, const State &a,
                               const State &b);

/// The layout of a state in a factor structure from commonFactors.
Layout layoutOf(const Refinement &refinement, const State &state,
                const std::vector<int> &factorOf);

/// The parts of `axes` that `others` do not use, cut where the two lists cut. References
/// whose cuts do not nest have no part in common.
AxisList without(const AxisList &axes, const AxisList &others);

/// What is left of `list` behind `prefix`; nothing if it does not begin with it. Both
/// canonical: tp:(1)4 begins with tp:(1)2 and leaves tp:(2)2.
std::optional<AxisList> behind(const AxisList &list, const AxisList &prefix);

/// The partial axes that need not be reduced: common to both layouts, with nothing
/// outside them (of an earlier kind) reduced.
std::vector<PartialAxes> commonPartials(const Layout &source, const Layout &target);

/// See ReshardPlan::lowerBoundElements. Exact without reductions.
int64_t lowerBound(const Mesh &mesh, const Layout &source, const Layout &target);
/// Max over ranks of |needed \ held| for layouts with equal partial axes.
int64_t exchangeElements(const Mesh &mesh, const Layout &source, const Layout &target);

/// Intersection of two run lists, both ascending in global and local index.
std::vector<ExchangeRun> intersect(const std::vector<DimRun> &before,
                                   const std::vector<DimRun> &after);

/// Axes of all factors of a dim, in order.
AxisList axesOf(const DimLayout &dim);

/// What `rank` takes from each holder of `before` so that it has the runs `needed` per
/// dim; see exchangeBlocks.
std::vector<ExchangeBlock> blocksOf(const Mesh &mesh, const Layout &before,
                                    const std::vector<std::vector<DimRun>> &needed,
                                    int64_t rank);

/// Copies a block from the local tensor of its peer, of shape `source`, to that of the
/// receiver, of shape `target`.
void copyBlock(const ExchangeBlock &block, const std::vector<int64_t> &source,
               const std::vector<int64_t> &target, const HostTensor &from,
               HostTensor &to);

/// What a collective makes a rank receive, from the local elements before it and the
/// number of ranks in its group; 0 for kinds that move nothing and for Exchange, whose
/// volume depends on the layouts.
int64_t elementsReceived(StepKind kind, int64_t local, int64_t count);

/// Building blocks of plans. append keeps the sums; appendView adds nothing for equal
/// layouts.
Step makeStep(StepKind kind, const Layout &before, const Layout &after);
void append(ReshardPlan &plan, Step step);
void appendView(ReshardPlan &plan, const Layout &before, const Layout &after);
void appendExchange(ReshardPlan &plan, const Mesh &mesh, const Layout &before,
                    const Layout &after);
void appendAll(ReshardPlan &plan, ReshardPlan other);

/// The plan for a nested refinement of two canonical layouts. Nothing if, without
/// all-to-all, the uneven part of a dim does not allow slices and gathers in any order.
std::optional<ReshardPlan> planDigits(const Mesh &mesh, const Refinement &refinement,
                                      const Layout &source, const Layout &target,
                                      const ReshardOptions &options);

} // namespace partita::reshard

#endif // PARTITA_LIB_BASE_RESHARDREFINE_H
