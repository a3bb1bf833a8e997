//===- Generate.h - Large problems shaped like models -----------*- C++ -*-===//
#ifndef PARTITA_BENCH_SOLVER_GENERATE_H
#define PARTITA_BENCH_SOLVER_GENERATE_H

#include "partita/Solver/Problem.h"

#include <algorithm>
#include <random>

namespace partita::solver::bench {

/// A chain of blocks as a layered model gives them. In each block a few decisions are
/// free (contractions, with `choices` choices), and most variables follow one of them
/// through an edge that forbids all but one pair per choice (elementwise ops). Cheap
/// choices use more memory. `seed` 0 makes every block but the first and last equal.
class Layered {
public:
  Layered(int blocks, int perBlock, int choices, uint64_t seed)
      : blocks(blocks), perBlock(perBlock), choices(choices), most(choices), seed(seed) {}

  Problem make() {
    Problem problem;
    int last = -1, time = 0;
    for (int b = 0; b < blocks; ++b) {
      bool end = b == 0 || b == blocks - 1;
      random.seed(seed != 0 ? seed + b : end ? 7 + (b != 0) : 3);
      if (seed != 0)
        choices = someChoices();
      int head = -1;
      for (int i = 0; i < perBlock; ++i, ++time) {
        int v = static_cast<int>(problem.variables.size());
        bool free = i % 8 == 0;
        problem.variables.push_back(variable(free, time));
        if (!free)
          join(problem, head, v, true);
        else if (last >= 0)
          join(problem, last, v, false);
        if (free && i >= 16 && random() % 2)
          join(problem, v - 16, v, false);
        if (free)
          head = v;
        last = v;
      }
    }
    problem.memoryLimit = limit(problem);
    return problem;
  }

private:
  /// Few blocks have all the choices, half of them a thirtieth.
  int someChoices() {
    uint64_t dice = random() % 32;
    int part = dice == 0 ? 1 : dice < 4 ? 3 : dice < 16 ? 10 : 30;
    return std::max(2, most / part);
  }

  Variable variable(bool free, int time) {
    Variable v;
    Usage use;
    use.begin = time;
    use.end = time + 1 + static_cast<int64_t>(random() % 20);
    int64_t size = 1 << (10 + random() % 10);
    for (int s = 0; s < choices; ++s) {
      int64_t split = 1 + static_cast<int64_t>(random() % 16);
      v.costs.push_back(free ? static_cast<int64_t>(random() % 1000) * split : 0);
      use.bytes.push_back(size / split + 1);
    }
    v.usages.push_back(std::move(use));
    return v;
  }

  void join(Problem &problem, int a, int b, bool follows) {
    Edge edge;
    edge.first = static_cast<uint32_t>(a);
    edge.second = static_cast<uint32_t>(b);
    int ka = static_cast<int>(problem.variables[a].costs.size());
    int shift = static_cast<int>(random() % choices);
    uint64_t salt = random();
    std::vector<int64_t> costs;
    costs.reserve(static_cast<size_t>(ka) * choices);
    for (int s = 0; s < ka; ++s)
      for (int t = 0; t < choices; ++t) {
        if (follows) {
          costs.push_back((s + shift) % choices == t ? 0 : forbidden);
          continue;
        }
        uint64_t h = (static_cast<uint64_t>(s) * 0x9e3779b97f4a7c15ull) ^
                     (static_cast<uint64_t>(t) * 0xbf58476d1ce4e5b9ull) ^ salt;
        h = (h ^ (h >> 29)) * 0x94d049bb133111ebull;
        h ^= h >> 32;
        costs.push_back(h % 11 == 0 ? forbidden : static_cast<int64_t>(h % 5000));
      }
    edge.costs = tables.add(std::move(costs));
    problem.edges.push_back(std::move(edge));
  }

  /// Most of the way from the least bytes of every variable, which no answer reaches,
  /// to what choices use on average.
  static int64_t limit(const Problem &problem) {
    int64_t end = 0;
    for (const Variable &v : problem.variables)
      end = std::max(end, v.usages[0].end);
    std::vector<int64_t> low(end + 1), high(end + 1);
    for (const Variable &v : problem.variables) {
      const Usage &u = v.usages[0];
      int64_t least = *std::min_element(u.bytes.begin(), u.bytes.end());
      int64_t sum = 0;
      for (int64_t b : u.bytes)
        sum += b;
      for (int64_t t = u.begin; t < u.end; ++t) {
        low[t] += least;
        high[t] += sum / static_cast<int64_t>(u.bytes.size());
      }
    }
    int64_t least = *std::max_element(low.begin(), low.end());
    int64_t most = *std::max_element(high.begin(), high.end());
    return least + (most - least) * 4 / 5;
  }

  int blocks, perBlock, choices, most;
  uint64_t seed;
  TablePool tables;
  std::mt19937_64 random;
};

/// A chain of equal blocks with differing ends: in a block every op reads one or two of
/// the last results, the first reads what the block before gave, and only a block's last
/// result lives on into the next one. Cheap choices use more memory, of which there is
/// less than the cheapest would take.
class Chain {
public:
  Chain(int blocks, int perBlock, int choices)
      : blocks(blocks), perBlock(perBlock), choices(choices) {}

  Problem make() {
    Problem problem;
    for (int b = 0; b < blocks; ++b) {
      random.seed(b == 0 ? 7 : b == blocks - 1 ? 8 : 3);
      int base = b * perBlock;
      for (int i = 0; i < perBlock; ++i) {
        problem.variables.push_back(variable(base, i));
        if (b + i > 0)
          join(problem, base + i - 1, base + i);
        // A second operand: the block's input, or a result of a few steps before.
        int other =
            random() % 4 == 0 ? base - 1 : base + i - 2 - static_cast<int>(random() % 3);
        if (i >= 2 && other >= std::max(0, base - 1) && other != base + i - 1)
          join(problem, other, base + i);
      }
    }
    problem.memoryLimit = limit(problem);
    return problem;
  }

private:
  Variable variable(int base, int i) {
    Variable v;
    Usage use;
    use.begin = base + i;
    use.end = i == perBlock - 1 ? base + 2 * perBlock
                                : std::min<int64_t>(base + perBlock, base + i + 6);
    int64_t size = 1 << (10 + random() % 4);
    for (int s = 0; s < choices; ++s) {
      int64_t split = 1 << random() % 5;
      v.costs.push_back(static_cast<int64_t>(random() % 400) * split);
      use.bytes.push_back(size / split);
    }
    v.usages.push_back(std::move(use));
    return v;
  }

  void join(Problem &problem, int a, int b) {
    Edge edge;
    edge.first = static_cast<uint32_t>(a);
    edge.second = static_cast<uint32_t>(b);
    // Choices are layouts over two axes; each axis that changes is paid for.
    int64_t first = static_cast<int64_t>(random() % 2000);
    int64_t second = static_cast<int64_t>(random() % 2000);
    std::vector<int64_t> costs;
    for (int s = 0; s < choices; ++s)
      for (int t = 0; t < choices; ++t)
        costs.push_back((s % 4 != t % 4 ? first : 0) + (s / 4 != t / 4 ? second : 0));
    edge.costs = tables.add(std::move(costs));
    problem.edges.push_back(std::move(edge));
  }

  /// Halfway from the least bytes to those of the cheapest choices, by the busiest step.
  static int64_t limit(const Problem &problem) {
    int64_t end = 0;
    for (const Variable &v : problem.variables)
      end = std::max(end, v.usages[0].end);
    std::vector<int64_t> low(end), high(end);
    for (const Variable &v : problem.variables) {
      const Usage &u = v.usages[0];
      size_t cheapest = static_cast<size_t>(
          std::min_element(v.costs.begin(), v.costs.end()) - v.costs.begin());
      for (int64_t t = u.begin; t < u.end; ++t) {
        low[t] += *std::min_element(u.bytes.begin(), u.bytes.end());
        high[t] += u.bytes[cheapest];
      }
    }
    int64_t least = *std::max_element(low.begin(), low.end());
    return least + (*std::max_element(high.begin(), high.end()) - least) / 2;
  }

  int blocks, perBlock, choices;
  TablePool tables;
  std::mt19937_64 random;
};

/// A stack of equal layers whose parameters live all the time, planned as one class that
/// may be split into runs. Cheap choices keep more parameters on a device, of which
/// `share` of what the cheapest choices want is there: some layers have to take others.
/// Activations add to that while their layer is at work.
class Stack {
public:
  Stack(int copies, int perCopy, int choices, int runs, double share)
      : copies(copies), perCopy(perCopy), choices(choices), runs(runs), share(share) {}

  Problem make() {
    Problem problem;
    Class layers;
    layers.runs = static_cast<uint32_t>(runs);
    for (int i = 0; i < copies; ++i) {
      random.seed(5);
      std::vector<uint32_t> &copy = layers.copies.emplace_back();
      int base = i * perCopy;
      for (int j = 0; j < perCopy; ++j) {
        copy.push_back(static_cast<uint32_t>(base + j));
        problem.variables.push_back(variable(base + j));
        if (base + j > 0)
          join(problem, base + j - 1, base + j);
        if (j >= 4 && j % 4 == 0)
          join(problem, base + j - 4, base + j);
      }
    }
    problem.classes.push_back(std::move(layers));
    problem.memoryLimit = limit(problem);
    return problem;
  }

private:
  /// A choice splits the parameters 1, 2, 4 … ways and pays for gathering them.
  Variable variable(int time) {
    Variable v;
    int64_t parameters = static_cast<int64_t>(random() % 4) * 3000 + 1000;
    int64_t activations = static_cast<int64_t>(random() % 4000) + 100;
    Usage always{0, static_cast<int64_t>(copies) * perCopy, {}};
    Usage now{time, time + 3, {}};
    for (int s = 0; s < choices; ++s) {
      int64_t split = int64_t(1) << s % 4;
      v.costs.push_back(parameters * (split - 1) / split / 10 +
                        static_cast<int64_t>(random() % 200));
      always.bytes.push_back(parameters / split);
      now.bytes.push_back(activations >> s / 4);
    }
    v.usages = {always, now};
    return v;
  }

  void join(Problem &problem, int a, int b) {
    // Choices are layouts over two axes; each axis that changes is paid for.
    int64_t first = static_cast<int64_t>(random() % 600);
    int64_t second = static_cast<int64_t>(random() % 600);
    std::vector<int64_t> costs;
    for (int s = 0; s < choices; ++s)
      for (int t = 0; t < choices; ++t)
        costs.push_back((s % 4 != t % 4 ? first : 0) + (s / 4 != t / 4 ? second : 0));
    problem.edges.push_back({static_cast<uint32_t>(a),
                             static_cast<uint32_t>(b),
                             tables.add(std::move(costs)),
                             {}});
  }

  int64_t limit(const Problem &problem) const {
    int64_t low = 0, high = 0;
    for (const Variable &v : problem.variables) {
      const CostTable &bytes = v.usages[0].bytes;
      low += *std::min_element(bytes.begin(), bytes.end());
      high += bytes[static_cast<size_t>(std::min_element(v.costs.begin(), v.costs.end()) -
                                        v.costs.begin())];
    }
    return low + static_cast<int64_t>(static_cast<double>(high - low) * share);
  }

  int copies, perCopy, choices, runs;
  double share;
  TablePool tables;
  std::mt19937_64 random;
};

} // namespace partita::solver::bench

#endif // PARTITA_BENCH_SOLVER_GENERATE_H
