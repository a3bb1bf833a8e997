//===- Request.h - Seconds of a plan's requests -----------------*- C++ -*-===//
#ifndef PARTITA_SEARCH_REQUEST_H
#define PARTITA_SEARCH_REQUEST_H

#include "partita/Cost/Request.h"
#include "partita/Search/Model.h"

#include <optional>

namespace partita::search {

/// Seconds of a request.
struct PlanRequest {
  double tasks = 0;    ///< kernels, calls and conversions, one after the other
  bool isNear = false; ///< a core's own caches hold all of it (RequestLimits)
  RequestPrice beside; ///< what is no task's
  double seconds() const { return tasks + beside.seconds(); }
};

/// Prices a request of the plan by the kernels into which code generation for CPUs groups
/// its ops (KernelPrice.h): the step of a search prices ops by pairs. Absent where the
/// topology says nothing of the runtime (Host::request is 0).
std::optional<PlanRequest> requestOf(const FlowGraph &graph, const Topology &topology,
                                     const Decided &plan);

} // namespace partita::search

#endif // PARTITA_SEARCH_REQUEST_H
