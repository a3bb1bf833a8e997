//===- Measure.h - Kernels and collectives of this machine ------*- C++ -*-===//
//
// What `partita calibrate` fits constants to, measured through the compiler and the
// runtime as users have them: one model of independent products, convolutions and
// elementwise ops is compiled and run by all ranks at once (they share the memory's
// bandwidth, and the cores if there are fewer), and collectives run on the transport.
// Seconds are those of the slowest rank in the fastest of some requests: what disturbs a
// measurement makes it longer.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOOLS_PARTITA_MEASURE_H
#define PARTITA_TOOLS_PARTITA_MEASURE_H

#include "partita/Base/Error.h"
#include "partita/Cost/Calibrate.h"

#include <functional>
#include <string>
#include <vector>

namespace partita {

struct KernelSamples {
  std::vector<StreamSample> streams;
  std::vector<std::string> streamNames; ///< "relu of 8.00 KiB, just written"
  std::vector<MatmulSample> matmuls;
  std::vector<std::string> names; ///< of the matmuls: "conv 3x3 64 to 64 at 56x56"
  RequestSamples requests;
};

/// What every one of `ranks` ranks does with `threads` threads, all at once.
Expected<KernelSamples> measureKernels(int ranks, int threads);

/// Requests as a caller of that many ranks sees them: a quarter of 400 take no longer.
Expected<RequestSamples> measureRequests(int ranks, int threads);

/// Collectives of all of `ranks` ranks, as threads of this process.
Expected<std::vector<CollectiveSample>> measureLocalCollectives(int ranks);

/// The same as a rank of an MPI job: the samples are rank 0's.
Expected<std::vector<CollectiveSample>> measureMpiCollectives();

} // namespace partita

#endif // PARTITA_TOOLS_PARTITA_MEASURE_H
