//===- Clocks.h - Clocks of ranks on several machines -----------*- C++ -*-===//
//
// Each machine's clock counts from a moment of its own. All ranks meet at a barrier and
// note, each by its own clock, when they came and when they left. Nobody leaves before
// everybody has come. So with c the time by which a rank's clock is ahead of rank 0's,
//
//     left(rank) − c ≥ came(0)   and   left(0) ≥ came(rank) − c
//
// and each meeting bounds c from both sides. The bounds of several meetings are taken
// together.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_CLOCKS_H
#define PARTITA_RUNTIME_CLOCKS_H

#include "partita/Base/Bundle/RunRecord.h"
#include "partita/Runtime/Transport.h"

#include <span>
#include <vector>

namespace partita::runtime {

/// Seconds of a rank's own clock.
struct Meeting {
  double came, left;
};

/// Seconds by which `other`'s clock is ahead of `root`'s: 0 where the meetings allow it,
/// as between processes of one machine, else the middle of the two bounds. Both have the
/// same meetings, at least one.
double clockLead(std::span<const Meeting> root, std::span<const Meeting> other);

/// Every rank of the transport calls this, with its clock in seconds. Rank 0 gets every
/// rank's lead over its own clock; the others' `leads` is left alone. False if the
/// transport failed.
bool compareClocks(Transport &transport, double (*clock)(), std::vector<double> &leads);

/// Between processes: rank 0 gets everyone's spans, by rank and by its own clock; the
/// others send theirs. `clock` is the one by which a rank has recorded. False if the
/// transport failed.
bool exchangeSpans(Transport &transport, const std::vector<RunSpan> &mine,
                   std::vector<std::vector<RunSpan>> &all, double (*clock)());

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_CLOCKS_H
