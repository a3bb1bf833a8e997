//===- Overlap.h - Communication beside compute -----------------*- C++ -*-===//
//
// While kernels and collectives run at the same time, both go slower by a contention
// factor f ≥ 1, as they share memory bandwidth and multiprocessors. With compute c and
// communication m,
//
//     together = f·min(c, m) + |c − m|
//
// because the shorter one lasts f times as long and the rest of the longer one runs
// alone. (Galvatron, VLDB 2023, measures f = 1.1 to 1.3; vTrain, MICRO 2024, finds NCCL
// 30% slower in a training step than alone.) Nobody is made to overlap: it never takes
// longer than one after the other.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_OVERLAP_H
#define PARTITA_COST_OVERLAP_H

namespace partita {

/// The middle of what Galvatron and vTrain measured, for devices that were not.
inline constexpr double defaultContention = 1.2;

struct Overlap {
  double together = 0; ///< seconds until both are done
  double exposed = 0;  ///< of them beyond the compute alone
};

/// `contention` is at least 1.
Overlap overlapped(double compute, double communication,
                   double contention = defaultContention);

} // namespace partita

#endif // PARTITA_COST_OVERLAP_H
