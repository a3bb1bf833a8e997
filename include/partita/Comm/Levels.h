//===- Levels.h - A collective as several, level by level -------*- C++ -*-===//
//
// A group whose ranks are in several units of a cluster, as hosts, may work within the
// units first and then across them, with what is left: so less crosses. An all-reduce of
// S bytes over two hosts of 4 ranks each sends S/4 from a rank to the other host, where
// one ring or direct messages send S.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_LEVELS_H
#define PARTITA_COMM_LEVELS_H

#include "partita/Base/Layout/Reshard.h"
#include "partita/Comm/Order.h"
#include "partita/Topology/Placement.h"

namespace partita {

/// Gives an all-reduce, a reduce-scatter or an all-gather by levels: reductions within
/// a unit come before those across, gathers the other way round. An all-reduce scatters
/// within, reduces across and gathers within. First and last layout place all elements as
/// the step's do. Sums are then of sums: bits may differ from those of the step.
/// Empty: it cannot be done so. No dim of an all-reduce's tensor falls into equal parts
/// for the ranks of a unit, or a block of a scattered or gathered dim has padding, or the
/// ranks of a unit do not have neighbouring blocks.
std::vector<Step> stepsByLevel(const Mesh &mesh, const Step &step,
                               const GroupLevels &levels);

/// The kind of call that does such a step; nothing for steps that share none.
std::optional<buckets::CallKind> callKindOf(StepKind kind);

} // namespace partita

#endif // PARTITA_COMM_LEVELS_H
