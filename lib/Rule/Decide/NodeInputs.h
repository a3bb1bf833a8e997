//===- NodeInputs.h - What a node or a module reads and makes ---*- C++ -*-===//
#ifndef PARTITA_LIB_RULE_DECIDE_NODEINPUTS_H
#define PARTITA_LIB_RULE_DECIDE_NODEINPUTS_H

#include "partita/Rule/Sharding/Flow.h"

#include <vector>

namespace partita {

/// A value that comes from outside, with the operands that are this value.
struct NodeInput {
  int32_t value;
  std::vector<FlowUse> uses;
};

/// What becomes of a value that several ops read: one input, or one for each. One op may
/// have a value twice (x + x); that is two inputs in any case.
enum class Repeats : uint8_t { Merged, Apart };

/// The inputs of `ops`, ascending, that are one thing to the user: of a node in the order
/// that its file has them in (those that the program does not read are left out), of a
/// module in the order of the program. Neither what the ops compute is one, nor what
/// their import made for them.
std::vector<NodeInput> inputsOf(const FlowGraph &graph, const std::vector<int32_t> &ops,
                                Repeats repeats);

/// The values that go outside, or nowhere: an output that nobody reads counts like the
/// others. In program order. Not the values inside a function that the node stands for,
/// which are called "node/inner": equal ones of two nodes are one, which then goes from
/// the first to the second.
std::vector<int32_t> outputsOf(const FlowGraph &graph, const std::vector<int32_t> &ops);

} // namespace partita

#endif // PARTITA_LIB_RULE_DECIDE_NODEINPUTS_H
