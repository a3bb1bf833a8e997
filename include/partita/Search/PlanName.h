//===- PlanName.h - A plan by the names that people know --------*- C++ -*-===//
#ifndef PARTITA_SEARCH_PLANNAME_H
#define PARTITA_SEARCH_PLANNAME_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Strategy.h"

#include <string>

namespace partita::search {

/// "TP2·DP4·ZeRO-1": what the axes of the mesh are used for, each with its ranks. By the
/// operations of the forward pass's products with weights, a part of an axis is
///   DP  where it splits rows of the batch (what the first dims of inputs become),
///   EP  where it splits a loop of both operands and the result: weights of experts,
///   TP  where it splits another loop of the weight,
///   CP  where it splits another loop of the activations (a sequence, an image): every
///       product has only its positions (context parallelism),
///   SP  beside TP, where half or more of the bytes between products that it does not
///       split as TP does are split along such loops (Megatron's sequence parallelism);
/// two of them, "TP/DP4", where it does each in a quarter of its operations or more, and
/// "Replicated" where no product is split along it. ZeRO-1, -2, -3: half of the bytes of
/// optimizer states; and of sums over micro-batches; and of parameters are split over
/// axes of DP. A plan of one rank is "1 device". The graph is finalized.
std::string planName(const FlowGraph &graph, const std::vector<Strategy> &strategies);

} // namespace partita::search

#endif // PARTITA_SEARCH_PLANNAME_H
