//===- KernelTimeline.h - Kernels beside communication ----------*- C++ -*-===//
//
// Time that a rank takes for a function of its program if collectives are in flight while
// kernels run. lib/Comm decides, as for the program that is emitted (Comm/Order.h): which
// calls are one, where each starts and where it is waited for. The order that it gives is
// then run by the rules of Simulate.h:
//
//   kernel, call   on the device, one after the other
//   bucket         what its members pack, on the device; then the links of their levels,
//                  from behind the kernel before its start; what they unpack, where it is
//                  waited for
//   other step     likewise, waited for where it starts
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_KERNELTIMELINE_H
#define PARTITA_SEARCH_KERNELTIMELINE_H

#include "partita/Comm/Order.h"
#include "partita/Search/LocalProgram.h"

namespace partita::search {

/// A function of a decided program as lib/Comm sees it.
std::vector<buckets::Op> describeOps(const FlowGraph &graph,
                                     const LocalFunction &function);

struct KernelTimeline {
  Picos time = 0;    ///< of one trip, from its begin to its end
  Picos alone = 0;   ///< of all steps of conversions, one after the other
  int32_t calls = 0; ///< buckets, and collectives that are in none
};
/// `kernels`: by op, what its kernel or call takes; 0 where it is in another's.
KernelTimeline timelineOf(const Timing &timing, const LocalFunction &function,
                          const std::vector<Picos> &kernels);

} // namespace partita::search

#endif // PARTITA_SEARCH_KERNELTIMELINE_H
