//===- TimeCost.h - Seconds, and what is busy during them -------*- C++ -*-===//
//
// A price says how long something takes alone on an idle machine, and for how long it
// keeps each resource busy: the device, and the links of each level. A plan that overlaps
// compute and communication is bounded below by the sum over its parts of any one
// resource, which is why parts are priced as vectors.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_TIMECOST_H
#define PARTITA_COST_TIMECOST_H

#include "partita/Topology/Topology.h"

#include <array>

namespace partita {

struct TimeCost {
  double seconds = 0;                              ///< from begin to end, alone
  double device = 0;                               ///< of which kernels run
  std::array<double, Topology::maxLevels> links{}; ///< of which each level is busy

  /// One after the other.
  TimeCost &operator+=(const TimeCost &other) {
    seconds += other.seconds;
    device += other.device;
    for (size_t i = 0; i < links.size(); ++i)
      links[i] += other.links[i];
    return *this;
  }
};

/// Only kernels.
inline TimeCost onDevice(double seconds) { return {seconds, seconds, {}}; }

} // namespace partita

#endif // PARTITA_COST_TIMECOST_H
