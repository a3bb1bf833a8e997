//===- Simulate.cpp - The work of a plan, in the order of the program -----===//
#include "partita/Search/Simulate.h"

#include "partita/Rule/Sharding/Price.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace partita;
using namespace partita::search;

namespace {
/// A step or window of a value's conversions.
struct Leg {
  size_t from, to; ///< nodes of the value's tree
  Occupied occupied;
  bool endsOnDevice; ///< unpacks what was gathered, else packs before
};
/// An op finds a value at a node.
struct Reading {
  int32_t op;
  size_t node;
};
struct Conversions {
  std::vector<Leg> legs;
  std::vector<Reading> readings;
};

/// All conversions of a plan, by value.
struct Recorder : StepObserver {
  explicit Recorder(const Timing &timing)
      : timing(timing), of(timing.graph.values.size()) {}

  void onStep(const Step &step, int64_t elementBytes) override {
    add(priceStep(timing.placement, step, elementBytes),
        step.kind == StepKind::AllGather);
  }
  void onWindow(const Halo &halo, int64_t elementBytes) override {
    add(priceWindow(timing.placement, halo, elementBytes), false);
  }
  void onServed(const ServedLayout &entry, size_t node) override {
    for (const FlowUse &use : entry.uses)
      of[static_cast<size_t>(value)].readings.push_back({use.op, node});
  }
  void add(const StepPrice &price, bool endsOnDevice) {
    of[static_cast<size_t>(value)].legs.push_back(
        {from, to, occupiedBy(price).repeated(trips), endsOnDevice});
  }

  const Timing &timing;
  std::vector<Conversions> of;
};

/// Lays a plan's work out, part by part: between two parts of a program all work ends.
class Layouter {
public:
  Layouter(Timing &timing, const Decided &plan, double contention)
      : timing(timing), graph(timing.graph), plan(plan), contention(contention),
        conversions(timing), opWork(graph.ops.size(), none),
        nodeWork(graph.values.size()), before(graph.ops.size()) {}

  Simulated run() {
    price(graph, plan.strategies, plan.servings, &conversions);
    for (size_t op = 0; op < graph.ops.size(); ++op)
      times.push_back(timing.op(static_cast<int32_t>(op), plan.strategies[op]));
    findParts();
    placeReadings();
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      if (parts.count(static_cast<int32_t>(op)))
        endPart();
      add(static_cast<int32_t>(op));
    }
    endPart();
    result.time = static_cast<Picos>(std::llround(passed));
    return result;
  }

private:
  static constexpr int32_t none = -1;
  static size_t at(int32_t number) { return static_cast<size_t>(number); }

  /// Loops begin and end where ties say so, or where the number of trips changes.
  void findParts() {
    for (const FlowTie &tie : graph.ties) {
      parts.insert(tie.begin);
      parts.insert(tie.end);
    }
    for (size_t op = 1; op < graph.ops.size(); ++op)
      if (graph.ops[op].trips != graph.ops[op - 1].trips)
        parts.insert(static_cast<int32_t>(op));
  }

  /// Whether a value lies there before the program runs, so that it is converted where it
  /// is used.
  bool isThere(const FlowValue &value) const {
    FlowKind kind = graph.ops[at(value.producer)].kind;
    return kind == FlowKind::Source || kind == FlowKind::State;
  }

  /// What lies there is converted in front of the last product before its first user; in
  /// front of all if there is none.
  void placeReadings() {
    std::vector<int32_t> beside(graph.ops.size()); // from which op on
    int32_t last = 0;
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      auto number = static_cast<int32_t>(op);
      if (parts.count(number))
        last = number;
      beside[op] = last;
      if (isMatmul(graph.ops[op]))
        last = number;
    }
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const Conversions &all = conversions.of[v];
      if (graph.values[v].producer < 0 || all.legs.empty() || !isThere(graph.values[v]))
        continue;
      int32_t first = static_cast<int32_t>(graph.ops.size()) - 1;
      for (const Reading &reading : all.readings)
        first = std::min(first, reading.op);
      before[at(beside[at(first)])].push_back(static_cast<int32_t>(v));
    }
  }

  int32_t push(Work work) {
    std::erase(work.after, none);
    all.push_back(std::move(work));
    return static_cast<int32_t>(all.size()) - 1;
  }

  void add(int32_t op) {
    for (int32_t value : before[at(op)])
      addConversions(value, lastKernel);
    const FlowOp &it = graph.ops[at(op)];
    Work work{times[at(op)], Work::On::Kernel};
    for (int32_t value : it.operands) {
      work.after.push_back(opWork[at(graph.values[at(value)].producer)]);
      for (const Reading &reading : conversions.of[at(value)].readings)
        if (reading.op == op)
          work.after.push_back(workAt(value, reading.node));
    }
    if (work.time == 0)
      work.on = Work::On::Nothing;
    result.occupied += occupiedByKernel(work.time);
    bool isKernel = work.time > 0;
    int32_t made = opWork[at(op)] = push(std::move(work));
    if (isKernel)
      lastKernel = made;
    for (int32_t value : it.results)
      if (!isThere(graph.values[at(value)]))
        addConversions(value, breakKernel(value, made));
  }

  /// What a conversion takes out of its kernel is written and read; returns the work
  /// after which it is there.
  int32_t breakKernel(int32_t value, int32_t made) {
    Picos time = breakingTime(timing, plan, value);
    if (time == 0)
      return made;
    result.occupied += occupiedByKernel(time);
    return lastKernel = push({time, Work::On::Kernel, 0, {made}});
  }

  int32_t workAt(int32_t value, size_t node) const {
    const std::vector<int32_t> &nodes = nodeWork[at(value)];
    return node < nodes.size() ? nodes[node] : none;
  }

  /// `made`: the work after which the value is there.
  void addConversions(int32_t value, int32_t made) {
    std::vector<int32_t> &nodes = nodeWork[at(value)];
    const std::vector<Leg> &legs = conversions.of[at(value)].legs;
    nodes.assign(legs.size() + 1, none);
    nodes[0] = made;
    for (const Leg &leg : legs) {
      result.occupied += leg.occupied;
      int32_t last = nodes[leg.from];
      if (!leg.endsOnDevice)
        last = addLocal(leg, last);
      last = addLinks(leg, last);
      if (leg.endsOnDevice)
        last = addLocal(leg, last);
      nodes[leg.to] = last;
    }
  }

  int32_t addLocal(const Leg &leg, int32_t after) {
    if (leg.occupied.device == 0)
      return after;
    return push({leg.occupied.device, Work::On::Local, 0, {after}});
  }

  int32_t addLinks(const Leg &leg, int32_t after) {
    Work work{leg.occupied.time - leg.occupied.device, Work::On::Links, 0, {after}};
    for (size_t level = 0; level < leg.occupied.links.size(); ++level)
      if (leg.occupied.links[level] > 0)
        work.levels |= 1U << level;
    if (work.levels == 0)
      work.on = Work::On::Nothing;
    return work.time == 0 ? after : push(std::move(work));
  }

  void endPart() {
    passed += makespan(all, contention);
    all.clear();
    lastKernel = none;
    std::fill(opWork.begin(), opWork.end(), none);
    for (std::vector<int32_t> &nodes : nodeWork)
      nodes.clear();
  }

  Timing &timing;
  const FlowGraph &graph;
  const Decided &plan;
  double contention;
  Recorder conversions;
  std::vector<Picos> times;    ///< per op
  std::set<int32_t> parts;     ///< ops at which another part begins
  std::vector<Work> all;       ///< of this part
  std::vector<int32_t> opWork; ///< per op, in this part
  int32_t lastKernel = none;
  /// Per value and node the work after which it is there, in this part.
  std::vector<std::vector<int32_t>> nodeWork;
  /// Per op the values that are converted in front of it.
  std::vector<std::vector<int32_t>> before;
  double passed = 0;
  Simulated result;
};
} // namespace

double search::contentionOf(const Timing &timing) {
  return timing.placement.topology().device.contention.of(Resource::Device,
                                                          Resource::Links);
}

Simulated search::simulate(Timing &timing, const Decided &plan,
                           std::optional<double> contention) {
  return Layouter(timing, plan, contention.value_or(contentionOf(timing))).run();
}
