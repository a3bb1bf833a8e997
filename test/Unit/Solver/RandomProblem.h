//===- RandomProblem.h - Generated problems for the tests -------*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_SOLVER_RANDOMPROBLEM_H
#define PARTITA_TEST_UNIT_SOLVER_RANDOMPROBLEM_H

#include "partita/Solver/Problem.h"

#include <algorithm>
#include <random>

namespace partita::solver::test {

/// 2 to 12 variables joined as a tree, a cycle, a clique or at random, with forbidden
/// choices and pairs, equality edges, pair buffers, classes, and memory that is loose,
/// tight or too small.
class SmallProblem {
public:
  explicit SmallProblem(uint64_t seed) : random(seed) {}

  Problem make() {
    Problem problem;
    int count = pick(2, 12);
    // At most about four thousand combinations, so that enumeration stays quick.
    int widest = count <= 4 ? 6 : count <= 6 ? 4 : count <= 7 ? 3 : 2;
    magnitude = pick(0, 9) == 0 ? forbidden - 1 : pick(0, 1) ? 10 : 1'000'000;
    // One pair in so many is forbidden.
    rarity = static_cast<int>(pick(0, 2) == 0 ? pick(5, 10) : pick(20, 200));
    for (int v = 0; v < count; ++v)
      problem.variables.push_back(variable(pick(1, widest)));
    addEdges(problem, count);
    if (pick(0, 3) != 0)
      problem.memoryLimit = limit(problem);
    if (pick(0, 9) == 0)
      addClass(problem);
    return problem;
  }

private:
  int64_t pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }
  int64_t cost(int forbiddenIn) {
    return pick(0, forbiddenIn) == 0 ? forbidden : pick(0, magnitude);
  }

  Usage usage(size_t entries) {
    Usage u;
    u.begin = pick(0, 8);
    u.end = u.begin + pick(0, 6);
    for (size_t i = 0; i < entries; ++i)
      u.bytes.push_back(pick(0, 3) == 0 ? 0 : pick(1, 20));
    return u;
  }

  Variable variable(int64_t size) {
    Variable v;
    for (int64_t s = 0; s < size; ++s)
      v.costs.push_back(cost(4 * rarity));
    for (int64_t n = pick(0, 2); n > 0; --n)
      v.usages.push_back(usage(v.costs.size()));
    return v;
  }

  void addEdge(Problem &problem, int a, int b) {
    Edge edge;
    edge.first = static_cast<uint32_t>(a);
    edge.second = static_cast<uint32_t>(b);
    size_t ka = problem.variables[a].costs.size(), kb = problem.variables[b].costs.size();
    bool equality = pick(0, 15) == 0;
    for (size_t s = 0; s < ka; ++s)
      for (size_t t = 0; t < kb; ++t)
        edge.costs.push_back(equality ? (s % kb == t ? 0 : forbidden) : cost(rarity));
    if (pick(0, 5) == 0)
      edge.usages.push_back(usage(edge.costs.size()));
    problem.edges.push_back(edge);
  }

  void addEdges(Problem &problem, int count) {
    int64_t shape = pick(0, 3);
    for (int v = 1; v < count; ++v)
      if (shape == 2)
        for (int u = 0; u < v; ++u)
          addEdge(problem, u, v);
      else if (shape == 3)
        addEdge(problem, static_cast<int>(pick(0, v - 1)), v);
      else
        addEdge(problem, v, v - 1);
    if (shape == 1 && count > 2)
      addEdge(problem, 0, count - 1);
    if (shape == 3)
      for (int64_t extra = pick(0, 4); extra > 0; --extra) {
        int a = static_cast<int>(pick(0, count - 1));
        int b = static_cast<int>(pick(0, count - 1));
        if (a != b)
          addEdge(problem, a, b);
      }
  }

  /// Somewhere between too little for anything and enough for everything.
  int64_t limit(const Problem &problem) {
    int64_t most = 0;
    for (int64_t time = 0; time < 16; ++time) {
      int64_t sum = 0;
      for (const Variable &v : problem.variables)
        for (const Usage &u : v.usages)
          if (u.begin <= time && time < u.end)
            sum += *std::max_element(u.bytes.begin(), u.bytes.end());
      most = std::max(most, sum);
    }
    return std::max<int64_t>(1, most * pick(45, 95) / 100);
  }

  void addClass(Problem &problem) {
    std::vector<uint32_t> members;
    size_t size = problem.variables[0].costs.size();
    for (size_t v = 0; v < problem.variables.size(); ++v)
      if (problem.variables[v].costs.size() == size && members.size() < 3)
        members.push_back(static_cast<uint32_t>(v));
    problem.classes.push_back(members);
  }

  std::mt19937_64 random;
  int64_t magnitude = 0;
  int rarity = 0;
};

} // namespace partita::solver::test

#endif // PARTITA_TEST_UNIT_SOLVER_RANDOMPROBLEM_H
