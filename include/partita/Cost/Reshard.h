//===- Reshard.h - Seconds of reshard steps and window exchanges -*- C++ -*-===//
//
// A step of the planner is a collective over the groups along its axes, whose span over
// the levels follows from the placement, or a local copy:
//
//   view            nothing
//   slice, repad    reads and writes the result
//   to-partial      writes the block
//   all-gather      S = the block after;  reduce-scatter, all-reduce: S = before
//   all-to-all, permute: the block before
//   exchange        an all-to-all over all axes that the two layouts use, in which a rank
//                   receives as many elements as the step says
//   window          as exchange, over the halo's axes; what surrounds it is written first
//
// A collective whose pieces do not lie one after the other in the local tensor (there is
// something major to the place that changes) also packs or unpacks: reads and writes the
// larger block once.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_RESHARD_H
#define PARTITA_COST_RESHARD_H

#include "partita/Base/Layout/Halo.h"
#include "partita/Cost/Collective.h"

#include <optional>

namespace partita {

/// The collective that a step is; nothing for those that are none.
std::optional<Collective> collectiveOf(StepKind kind);

struct StepPrice {
  TimeCost price;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::None;
  double receivedBytes = 0; ///< that a rank receives, the most over all ranks
};

/// What a step is to a price: sizes in elements, which grow in proportion with the
/// tensor.
struct StepShape {
  enum class Kind : uint8_t { Nothing, Local, Collective, Exchange };
  Kind kind = Kind::Nothing;
  Collective collective = Collective::AllReduce; ///< of kind Collective
  bool packs = false;                            ///< pieces are apart in the local tensor
  Span span;                                     ///< of its groups
  /// Collective: the larger of the blocks before and after. Local: read and written.
  int64_t elements = 0;
  int64_t receivedElements = 0;
};
StepShape shapeOf(const Placement &placement, const Step &step);
StepPrice priceShape(const Topology &topology, const StepShape &shape,
                     int64_t elementBytes);

/// `elementBytes` bytes per element.
StepPrice priceStep(const Placement &placement, const Step &step, int64_t elementBytes);

/// All steps, one after the other.
TimeCost pricePlan(const Placement &placement, const ReshardPlan &plan,
                   int64_t elementBytes);

/// Fetching the window buffers of `halo`: what comes from others, and a copy of
/// everything that is not made in the buffer (`ownBegin`).
StepPrice priceWindow(const Placement &placement, const Halo &halo, int64_t elementBytes);

} // namespace partita

#endif // PARTITA_COST_RESHARD_H
