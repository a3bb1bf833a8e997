//===- Roofline.h - What this host computes and reads at most ---*- C++ -*-===//
//
// The two bounds of the roofline model (Williams, Waterman, Patterson: "Roofline", CACM
// 52(4), 2009), measured by a small program: multiply-adds that wait for nothing, and
// reads of memory that no cache holds.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_ROOFLINE_H
#define PARTITA_RUNTIME_ROOFLINE_H

#include "partita/Base/Bundle/RunRecord.h"

namespace partita::runtime {

/// How many floats the widest vectors of this CPU have, of those that measurePeak knows:
/// 16 or 8; 0 if it knows none.
int widestVectors();

/// FLOP/s of one core: multiply-adds of f32 in vectors of `width` floats, the best of
/// some tries of some milliseconds. `clock`: seconds. 0 if the CPU has no such vectors.
double measurePeak(int width, double (*clock)());

/// Of the calling thread's team (Team.h), in some 0.1 s. Whatever else runs on the
/// machine at the same time, such as other ranks that measure too, takes its share.
/// Allocates 64 MiB per thread for the time; where there is no room, the bandwidth is 0.
Roofline measureRoofline(double (*clock)());

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_ROOFLINE_H
