//===- ProblemParts.h - Adding to a model's problem -------------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_PROBLEMPARTS_H
#define PARTITA_LIB_SEARCH_PROBLEMPARTS_H

#include "partita/Search/Model.h"

namespace partita::search {

/// Variables, edges and bytes of a problem; bytes only if memory is modelled.
class ProblemParts {
public:
  ProblemParts(solver::Problem &problem, bool memory)
      : memory(memory), problem(problem) {}

  uint32_t addVariable(std::vector<int64_t> costs) {
    problem.variables.push_back({std::move(costs), {}});
    return static_cast<uint32_t>(problem.variables.size()) - 1;
  }
  /// An empty table is no edge.
  void addEdge(uint32_t first, uint32_t second, const solver::CostTable &costs) {
    if (!costs.empty())
      problem.edges.push_back({first, second, costs, {}});
  }
  void use(uint32_t variable, int64_t from, int64_t to, solver::CostTable bytes) {
    if (memory && from < to)
      problem.variables[variable].usages.push_back({from, to, std::move(bytes)});
  }
  /// Of the pairs of the last edge: that of the last call of addEdge, with a table that
  /// is not empty.
  void useByPair(int64_t from, int64_t to, solver::CostTable bytes) {
    if (memory && from < to)
      problem.edges.back().usages.push_back({from, to, std::move(bytes)});
  }

  const bool memory;
  solver::Problem &problem;
  solver::TablePool pool;
};

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_PROBLEMPARTS_H
