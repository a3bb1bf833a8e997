//===- Overlap.h - Work of a device at the same time ------------*- C++ -*-===//
//
// Compute c beside communication m, with the factor f of Contention.h, takes
//
//     together = f·min(c, m) + |c − m|
//
// because the shorter one lasts f times as long and the rest of the longer one runs
// alone. Nobody is made to overlap: it never takes longer than one after the other.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_OVERLAP_H
#define PARTITA_COST_OVERLAP_H

#include "partita/Topology/Contention.h"

namespace partita {

struct Overlap {
  double together = 0; ///< seconds until both are done
  double exposed = 0;  ///< of them beyond the compute alone
};

/// `contention` is at least 1.
Overlap overlapped(double compute, double communication,
                   double contention = defaultContention);

/// Seconds until all resources are done that begin at once, each with so many seconds of
/// work by itself; 0: it has none.
double secondsTogether(const std::array<double, numResources> &alone,
                       const Contention &contention);

} // namespace partita

#endif // PARTITA_COST_OVERLAP_H
