//===- Request.h - Seconds of a request beside its tasks --------*- C++ -*-===//
//
// A caller gives a request to the runtime and sleeps. The ranks wake, each copies its
// parts of the inputs, runs its tasks, and copies its parts of the outputs; the last one
// wakes the caller:
//
//     request = tasks + host.request + 2 · bytes / bandwidth
//
// `bytes` are a rank's of inputs and outputs, which are read and written once; the
// bandwidth is that of memory as kernels have it, or of copies in the cache
// (Host::copies). No plan changes the constant, and plans that differ in the copies
// differ by their layouts at the ends of the program alone, so that a search compares
// steps.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_REQUEST_H
#define PARTITA_COST_REQUEST_H

#include "partita/Cost/Compute.h"

namespace partita {

/// The sizes up to which all that a request touches stays in a core's own caches until
/// the next request, so that its kernels start by Host::launch. Second-level caches have
/// 256 KiB to 2 MiB.
struct RequestLimits {
  int64_t bytes = 256 << 10; ///< of values, code and table
  int64_t perTask = 2 << 10; ///< of code and table: a kernel's loops, what starts it
};

/// Seconds of a request that are no task's.
struct RequestPrice {
  double runtime = 0; ///< Host::request
  double copies = 0;  ///< of inputs and outputs
  double seconds() const { return runtime + copies; }
};

/// `bytes`: of all inputs and outputs on one rank.
inline RequestPrice priceRequest(const Topology &topology, double bytes) {
  const Host &host = topology.host;
  const bool isInCache = 2 * bytes <= static_cast<double>(topology.device.cache);
  return {host.request, host.copies > 0 && isInCache
                            ? 2 * bytes / host.copies
                            : streamSeconds(topology.device, 2 * bytes)};
}

} // namespace partita

#endif // PARTITA_COST_REQUEST_H
