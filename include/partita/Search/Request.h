//===- Request.h - Seconds of a plan's requests -----------------*- C++ -*-===//
#ifndef PARTITA_SEARCH_REQUEST_H
#define PARTITA_SEARCH_REQUEST_H

#include "partita/Cost/Request.h"
#include "partita/Search/Model.h"

#include <optional>

namespace partita::search {

/// Bytes of a rank's parts of the program's inputs and outputs, without states.
int64_t requestBytes(const FlowGraph &graph, const std::vector<Strategy> &strategies);

/// Seconds of a request beside the plan's step. Absent where the topology says nothing of
/// the runtime (Host::request is 0).
std::optional<RequestPrice> requestOf(const FlowGraph &graph, const Topology &topology,
                                      const std::vector<Strategy> &strategies);

} // namespace partita::search

#endif // PARTITA_SEARCH_REQUEST_H
