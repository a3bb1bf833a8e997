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

  /// Variables of one size as copies of one or two, with up to as many runs as copies.
  void addClass(Problem &problem) {
    std::vector<uint32_t> members;
    size_t size = problem.variables[0].costs.size();
    for (size_t v = 0; v < problem.variables.size(); ++v)
      if (problem.variables[v].costs.size() == size && members.size() < 3)
        members.push_back(static_cast<uint32_t>(v));
    Class tied;
    for (uint32_t v : members)
      tied.copies.push_back({v});
    problem.classes.push_back(tied);
  }

  std::mt19937_64 random;
  int64_t magnitude = 0;
  int rarity = 0;
};

/// Chains of copies of one or two variables that may be split into runs: equal copies or
/// ones that differ in their costs, one class or two, free variables beside them, memory
/// over stretches of time or over all of it.
class LayeredProblem {
public:
  explicit LayeredProblem(uint64_t seed) : random(seed) {}

  Problem make() {
    Problem problem;
    int64_t choices = pick(2, 3);
    // At most four thousand combinations.
    left = choices == 2 ? 12 : 7;
    alike = pick(0, 2) != 0;
    for (int64_t classes = pick(1, 2); classes > 0 && left >= 2; --classes)
      addClass(problem, choices);
    for (; left > 0 && pick(0, 1); --left)
      join(problem, static_cast<uint32_t>(pick(0, last(problem))),
           add(problem, variable(choices, 0)), table(choices * choices));
    problem.memoryLimit = limit(problem);
    return problem;
  }

private:
  int64_t pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }
  static int64_t last(const Problem &problem) {
    return static_cast<int64_t>(problem.variables.size()) - 1;
  }
  static uint32_t add(Problem &problem, Variable v) {
    problem.variables.push_back(std::move(v));
    return static_cast<uint32_t>(last(problem));
  }

  std::vector<int64_t> table(int64_t entries) {
    std::vector<int64_t> costs;
    for (int64_t i = 0; i < entries; ++i)
      costs.push_back(pick(0, 14) == 0 ? forbidden : pick(0, 30));
    return costs;
  }

  /// Cheap choices use more.
  Variable variable(int64_t choices, int64_t time) {
    Variable v;
    v.costs = table(choices);
    Usage u;
    u.begin = pick(0, 1) ? 0 : time;
    u.end = pick(0, 1) ? time + pick(1, 3) : 12;
    for (int64_t c : v.costs)
      u.bytes.push_back(std::max<int64_t>(0, 31 - c + pick(0, 9)));
    v.usages.push_back(u);
    return v;
  }

  void join(Problem &problem, uint32_t a, uint32_t b, std::vector<int64_t> costs) {
    if (a == b)
      return;
    Edge edge{a, b, std::move(costs), {}};
    if (pick(0, 11) == 0) {
      edge.usages.push_back({pick(0, 4), pick(5, 9), {}});
      for (size_t i = 0; i < edge.costs.size(); ++i)
        edge.usages[0].bytes.push_back(pick(0, 12));
    }
    problem.edges.push_back(std::move(edge));
  }

  void addClass(Problem &problem, int64_t choices) {
    int64_t width = pick(1, 2), most = left / width;
    int64_t copies = pick(std::min<int64_t>(2, most), std::min<int64_t>(most, 6));
    left -= static_cast<int>(width * copies);
    Class tied;
    tied.runs = static_cast<uint32_t>(pick(1, std::min<int64_t>(copies, 3)));
    std::vector<Variable> layer;
    for (int64_t j = 0; j < width; ++j)
      layer.push_back(variable(choices, 0));
    std::vector<int64_t> inside = table(choices * choices),
                         between = table(choices * choices);
    for (int64_t i = 0; i < copies; ++i) {
      std::vector<uint32_t> &copy = tied.copies.emplace_back();
      for (Variable v : layer) {
        if (!alike)
          v = variable(choices, i);
        v.usages[0].begin += v.usages[0].end < 12 ? i : 0;
        v.usages[0].end += v.usages[0].end < 12 ? i : 0;
        copy.push_back(add(problem, std::move(v)));
      }
      if (width == 2)
        join(problem, copy[0], copy[1], alike ? inside : table(choices * choices));
      if (i > 0)
        join(problem, tied.copies[i - 1].back(), copy[0], between);
    }
    problem.classes.push_back(std::move(tied));
  }

  int64_t limit(const Problem &problem) {
    int64_t low = 0, high = 0;
    for (const Variable &v : problem.variables) {
      const CostTable &bytes = v.usages[0].bytes;
      low += *std::min_element(bytes.begin(), bytes.end());
      high += *std::max_element(bytes.begin(), bytes.end());
    }
    return std::max<int64_t>(1, low + (high - low) * pick(-5, 100) / 100);
  }

  std::mt19937_64 random;
  int left = 0;
  bool alike = true;
};

} // namespace partita::solver::test

#endif // PARTITA_TEST_UNIT_SOLVER_RANDOMPROBLEM_H
