//===- LocalProgram.h - What one rank runs of a decided program -*- C++ -*-===//
//
// A flow graph with strategies and services, as the partitioned program has it: local
// extents, masks, local indices, steps of conversions where they happen, moments of a
// norm that are gathered together. From it follow kernels and calls before there is any
// code (partita/Kernels/Group.h).
//
// Not seen: what an op becomes whose local form is exact only in other words
// (rewriteForSplit), readings that are given up and made anew (epochs that a plan does
// not have yet), attentions.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_LOCALPROGRAM_H
#define PARTITA_SEARCH_LOCALPROGRAM_H

#include "partita/Kernels/LocalProgram.h"
#include "partita/Search/Model.h"

#include <variant>

namespace partita::search {

/// A step or window exchange of a conversion, as an op of a rank's program.
struct LocalStep {
  int32_t op = -1;
  std::variant<Step, Halo> what;
  int64_t elementBytes = 4;
  /// False of a gather of moments, which no conversion of the plan is.
  bool isOfPlan = true;
};

/// A function of one rank's program: the whole, or what a loop or branch runs.
struct LocalFunction {
  kernels::LocalProgram program;
  int64_t trips = 1; ///< how often a run of the program runs it
  /// Per op the flow op that it is, or the one at which it prepares or converts.
  std::vector<int32_t> flowOps = {};
  std::vector<bool> isOwn = {}; ///< per op whether it is the flow op
  /// Per value the flow value of which it is, or of which it is a part.
  std::vector<int32_t> flowValues = {};
  std::vector<LocalStep> steps = {}; ///< in the order of their ops
  /// Steps of the plan in whose place moments are gathered, by an op of the moments.
  std::vector<LocalStep> replaced = {};
};

/// The function itself, then those that it runs, in the order of what runs them.
std::vector<LocalFunction> localProgram(const FlowGraph &graph, const Decided &plan);

} // namespace partita::search

#endif // PARTITA_SEARCH_LOCALPROGRAM_H
