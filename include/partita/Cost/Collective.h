//===- Collective.h - What a collective costs over some levels --*- C++ -*-===//
//
// α–β per level (Hockney 1994): a message of b bytes takes α + b/β, with α the level's
// latency and β its effective bandwidth. S is the size of the whole tensor of a group of
// n members (what is reduced, or what the gather gives); for all-to-all, permute and
// point-to-point it is what one member holds.
//
//   ring          all-reduce 2(n−1)/n·S/β, all-gather and reduce-scatter (n−1)/n·S/β
//                 (Patarasuk, Yuan 2009); n−1 messages one after the other, twice for an
//                 all-reduce. Over several levels: one ring per member of an inner unit,
//                 each leaving by another member's link, so that every link carries its
//                 share: β is the least over levels of (members inside) · β(level). A
//                 piece crosses an outer link as often as there are units, and inner
//                 links otherwise.
//   tree          all-reduce by a double binary tree: 2·S/β, 2·⌈log2 n⌉ messages
//                 (Sanders, Speck, Träff 2009; the one of NCCL)
//   hierarchical  all-reduce: reduce-scatter inside, all-reduce of S/m across, all-gather
//                 inside (m members inside); all-gather: across, then inside;
//                 reduce-scatter: inside, then across. Rings at each level.
//   pairwise      all-to-all by n−1 messages of S/n: a level carries the part of the
//                 peers that are nearest through it; levels work at the same time.
//                 Hierarchical: one all-to-all per level, S each time, fewer messages.
//   shared        members read and write each other's memory (LinkLevel::sharesMemory):
//                 all meet, everyone moves its part, all meet again, 2 α for any n. For
//                 an all-reduce a member reads its part of the others' tensors and writes
//                 the sum to all: (n−1)/n·S in either direction at the same time, as for
//                 the other collectives. Such a level has no other algorithm.
//   direct        one message through the outermost level
//
// What a level moves below its `ramp` bytes goes at half speed: b + min(b, ramp).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_COLLECTIVE_H
#define PARTITA_COST_COLLECTIVE_H

#include "partita/Cost/TimeCost.h"
#include "partita/Topology/Placement.h"

#include <string_view>

namespace partita {

enum class Collective : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Permute,     ///< every member sends all it holds to one other
  PointToPoint ///< as Permute, by one pair
};
std::string_view name(Collective collective);

enum class CollectiveAlgorithm : uint8_t {
  None, ///< a group of one
  Ring,
  Tree,
  Hierarchical,
  Pairwise,
  Direct,
  Shared
};
std::string_view name(CollectiveAlgorithm algorithm);

struct CollectivePrice {
  TimeCost price;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::None;
};

/// The price of one algorithm; seconds are infinite if it cannot do the collective (a
/// tree gather, hierarchical over one level).
CollectivePrice priceCollective(const Topology &topology, const Span &span,
                                Collective collective, double bytes,
                                CollectiveAlgorithm algorithm);

/// The fastest algorithm and its price. One kernel launch is counted.
CollectivePrice priceCollective(const Topology &topology, const Span &span,
                                Collective collective, double bytes);

} // namespace partita

#endif // PARTITA_COST_COLLECTIVE_H
