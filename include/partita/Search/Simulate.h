//===- Simulate.h - A plan with communication beside kernels ----*- C++ -*-===//
//
// How long a plan takes if a collective is in flight while kernels run that need nothing
// of it. One device is simulated, as all do the same.
//
// Each piece of work takes its time alone, begins when what it needs is done, and keeps
// its resources to itself: the device, or the links of every level that a collective
// uses. Work of a resource is done in the order of the program:
//
//   kernels      ops, in their order
//   conversions  behind the op that makes the value. Those of what lies there before the
//                program runs (weights, states) beside the last product (a contraction or
//                convolution) before their first user, so that besides what a product
//                reads only what the next one reads is there. Their local steps (packing,
//                slices) are in an order of their own: a kernel does not wait for one
//                that waits for a collective. Where both can begin, the one that is
//                earlier in the program does.
//   loops        nothing crosses their beginning and end, nor that of a trip
//
// While the device and any links are busy, both go slower by the device's factor of
// contention (Topology/Contention.h), but never by more than 2: then they take turns. So
// there is always work that gets on, and nothing takes longer than one after the other.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_SIMULATE_H
#define PARTITA_SEARCH_SIMULATE_H

#include "partita/Cost/Overlap.h"
#include "partita/Search/Model.h"

namespace partita::search {

/// One piece of work.
struct Work {
  Picos time = 0; ///< alone
  /// What it keeps to itself; Nothing: it only takes time.
  enum class On : uint8_t { Nothing, Kernel, Local, Links } on = On::Nothing;
  uint32_t levels = 0;          ///< of Links: bit l for the links of level l
  std::vector<int32_t> after{}; ///< numbers of earlier work
};

/// Picoseconds from the beginning of the first to the end of the last, of work in the
/// order of the program; not rounded.
double makespan(const std::vector<Work> &work, double contention = defaultContention);

/// The factor that is taken: 1 to 2.
double effectiveContention(double contention);
/// Factor of kernels beside collectives, of the device that is planned for.
double contentionOf(const Timing &timing);

struct Simulated {
  Picos time = 0;    ///< from begin to end
  Occupied occupied; ///< its time: of all work, one after the other, as PlanCost::total
};
/// `contention`: absent that of the device.
Simulated simulate(Timing &timing, const Decided &plan,
                   std::optional<double> contention = {});

} // namespace partita::search

#endif // PARTITA_SEARCH_SIMULATE_H
