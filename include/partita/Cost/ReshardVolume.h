//===- ReshardVolume.h - What a reshard moves, without planning it -*- C++ -*-===//
//
// A search asks for the volume of one reshard per pair of layouts along every edge, far
// more often than a program has reshards. Where everything is even and the cuts of both
// layouts nest, the planner's volume has a closed form over the common refinement (see
// Base/Layout/Reshard.h: atoms of dims, digits of axes).
//
// Without partial axes the planner reaches the lower bound, the most that a rank lacks:
//
//     needed = elements of a target block
//     0                  if no atom loses a digit
//     needed             if some atom has one digit before and another one after: then a
//                        rank exists whose two positions differ, and it holds nothing
//     needed · (1 − 1/p) otherwise, p the product of the atoms that lose their digit
//
// Partial axes are reduced first, innermost kind first. The digits of a kind that have a
// place in the target go by reduce-scatters, (c−1)/c of the block for a run of digits
// with c positions in neighbouring atoms, after which the block is 1/c; what is left goes
// by one all-reduce, 2(c−1)/c. Slices that can be made at once are made before, as they
// shrink the block. The rest is the case above.
//
// Not applicable: padding, given blocks, cuts that do not nest, empty tensors; reductions
// for which the planner compares a second plan (more than twice its lower bound, or
// copies of an all-reduce that move on). planReshard knows those.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_RESHARDVOLUME_H
#define PARTITA_COST_RESHARDVOLUME_H

#include "partita/Base/Layout/Layout.h"

#include <optional>

namespace partita {

/// planReshard(mesh, source, target)->receivedElements where the closed form applies, or
/// nothing. Both layouts are valid on `mesh`, of equal global shapes and canonical.
/// Allocates nothing.
std::optional<int64_t> reshardVolume(const Mesh &mesh, const Layout &source,
                                     const Layout &target);

} // namespace partita

#endif // PARTITA_COST_RESHARDVOLUME_H
