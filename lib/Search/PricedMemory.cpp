//===- PricedMemory.cpp - Memory as a cost --------------------------------===//
#include "PricedMemory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

static int64_t momentsOf(const Usage &usage) {
  return std::min<int64_t>(usage.end - usage.begin, 64);
}

static int64_t priced(int64_t cost, double bytes, double share, double price) {
  if (cost >= forbidden)
    return forbidden;
  double sum = share * static_cast<double>(cost) + price * bytes;
  return std::llround(std::min(sum, 1e17));
}

Problem search::withPricedMemory(const Problem &given, double share, double price) {
  Problem problem = given;
  problem.memoryLimit.reset();
  for (Variable &variable : problem.variables) {
    for (size_t c = 0; c < variable.costs.size(); ++c) {
      double bytes = 0;
      for (const Usage &usage : variable.usages)
        bytes +=
            static_cast<double>(usage.bytes[c]) * static_cast<double>(momentsOf(usage));
      variable.costs[c] = priced(variable.costs[c], bytes, share, price);
    }
    variable.usages.clear();
  }
  // Equal layers share their tables, before and behind.
  using Parts = std::vector<std::pair<const void *, int64_t>>;
  std::map<std::pair<const void *, Parts>, CostTable> known;
  for (Edge &edge : problem.edges) {
    Parts parts;
    for (const Usage &usage : edge.usages)
      parts.emplace_back(usage.bytes.id(), momentsOf(usage));
    CostTable &table = known[{edge.costs.id(), std::move(parts)}];
    if (table.empty()) {
      std::vector<int64_t> costs(edge.costs.begin(), edge.costs.end());
      for (size_t i = 0; i < costs.size(); ++i) {
        double bytes = 0;
        for (const Usage &usage : edge.usages)
          bytes +=
              static_cast<double>(usage.bytes[i]) * static_cast<double>(momentsOf(usage));
        costs[i] = priced(costs[i], bytes, share, price);
      }
      table = CostTable(std::move(costs));
    }
    edge.costs = table;
    edge.usages.clear();
  }
  return problem;
}

double search::pricedBytes(const Problem &problem, const std::vector<uint32_t> &choices) {
  double sum = 0;
  for (size_t v = 0; v < problem.variables.size(); ++v)
    for (const Usage &usage : problem.variables[v].usages)
      sum += static_cast<double>(usage.bytes[choices[v]]) *
             static_cast<double>(momentsOf(usage));
  for (const Edge &edge : problem.edges)
    for (const Usage &usage : edge.usages) {
      size_t columns = problem.variables[edge.second].costs.size();
      sum += static_cast<double>(
                 usage.bytes[choices[edge.first] * columns + choices[edge.second]]) *
             static_cast<double>(momentsOf(usage));
    }
  return sum;
}
