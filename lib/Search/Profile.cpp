//===- Profile.cpp - Where a plan's time and memory go --------------------===//
#include "partita/Search/Profile.h"

#include "partita/Rule/Sharding/Price.h"
#include "partita/Search/Memory.h"

using namespace partita;
using namespace partita::search;

namespace {
/// Adds up steps by kind.
struct Ledger : StepObserver {
  explicit Ledger(const Timing &timing) : timing(timing) {}
  void onStep(const Step &step, int64_t elementBytes) override {
    add(std::string(name(step.kind)), timing.step(step, elementBytes),
        priceStep(timing.placement, step, elementBytes));
  }
  void onWindow(const Halo &halo, int64_t elementBytes) override {
    add("window", timing.window(halo, elementBytes),
        priceWindow(timing.placement, halo, elementBytes));
  }
  void add(const std::string &kind, Picos time, const StepPrice &price) {
    times[kind] += repeated(time, trips);
    total += repeated(time, trips);
    for (size_t level = 0; level < links.size(); ++level)
      links[level] += price.price.links[level] * static_cast<double>(trips);
  }

  const Timing &timing;
  std::map<std::string, Picos> times;
  Picos total = 0;
  std::array<double, Topology::maxLevels> links{};
};
} // namespace

Profile search::profileOf(Timing &timing, const Decided &plan) {
  const FlowGraph &graph = timing.graph;
  Profile profile;
  Picos products = 0, others = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    Picos time = timing.op(static_cast<int32_t>(op), plan.strategies[op]);
    (isMatmul(graph.ops[op]) ? products : others) += time;
  }
  Ledger ledger(timing);
  price(graph, plan.strategies, plan.servings, &ledger);
  auto add = [&](std::string what, Picos time) {
    if (time != 0)
      profile.parts.emplace_back(std::move(what), time);
  };
  add("matrix products", products);
  add("other kernels", others);
  for (const auto &[kind, time] : ledger.times)
    add(kind, time);
  add("kernels parted by conversions", evaluate(timing, plan).conversions - ledger.total);
  profile.links = ledger.links;
  profile.memory = memoryOverTime(timing, plan);
  return profile;
}
