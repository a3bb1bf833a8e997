//===- StepCut.cpp - A training step cut into stages ----------------------===//
#include "partita/Search/StepCut.h"

#include "CutPlaces.h"
#include "partita/Comm/StepTimeline.h"

#include <algorithm>
#include <bit>
#include <cmath>

using namespace partita;
using namespace partita::search;

/// Turns that are simulated in a search of all cuts, and in one by moves.
static constexpr double allTurns = 4e6, mostTurns = 2e7;

std::vector<double> StepWork::perMicroBatch(int64_t microBatches) const {
  std::vector<double> all;
  for (size_t i = 0; i < forward.size(); ++i)
    all.push_back(forward[i] + backward[i] + weight[i] +
                  update[i] / static_cast<double>(microBatches));
  return all;
}

namespace {
class StepCutter {
public:
  StepCutter(const CutPlaces &places, const StepWork &work, const StageCost &link,
             const PipelineStep &step, const StepMemory &memory)
      : places(places), link(link), step(step), memory(memory),
        kept(keptMicroBatches(step)) {
    for (const std::vector<double> *part : {&work.forward, &work.backward, &work.weight,
                                            &work.update, &work.kept, &work.states}) {
      std::vector<double> &sums = before.emplace_back();
      double sum = 0;
      size_t i = 0;
      for (const Cut &cut : places.cuts) {
        for (; i < cut.op; ++i)
          sum += part->empty() ? 0 : (*part)[static_cast<size_t>(places.ops[i])];
        sums.push_back(sum);
      }
    }
    for (const auto &turns : step.turns)
      turnsPerTry += static_cast<double>(turns.size());
  }

  std::vector<size_t> run(const StageCost &cost) {
    const auto stages = static_cast<int32_t>(step.stages());
    best = evenBounds(places.cuts, cost, stages, [&](size_t i, size_t j, size_t s) {
      return bytesOf(i, j, s) *
                 static_cast<double>(std::ranges::count(step.groupOf, step.groupOf[s])) <=
             memory.bytes;
    });
    if (best.empty())
      best = evenBounds(places.cuts, cost, stages);
    least = costOf(best);
    const auto inner = static_cast<double>(places.cuts.size() - 2);
    const double choices = std::exp(std::lgamma(inner + 1) - std::lgamma(stages) -
                                    std::lgamma(inner - stages + 2));
    if (choices * turnsPerTry <= allTurns) {
      std::vector<size_t> bounds = best;
      tryAll(bounds, 1);
    } else {
      while (moveBounds())
        ;
    }
    return best;
  }

  /// Bytes of a device, by group.
  std::vector<double> bytesOf(const std::vector<size_t> &bounds) const {
    std::vector<double> bytes(step.turns.size(), 0);
    for (size_t s = 0; s + 1 < bounds.size(); ++s)
      bytes[static_cast<size_t>(step.groupOf[s])] += bytesOf(bounds[s], bounds[s + 1], s);
    return bytes;
  }

private:
  struct Cost {
    double excess = 0;   ///< bytes above the limit, of all groups
    double seconds = 0;  ///< of a step
    double crossing = 0; ///< bytes that cross in it
  };

  double ranksOf(size_t stage) const {
    return link.ranks.empty() ? 1 : link.ranks[stage];
  }

  /// A part of a stage's work, of one of its ranks.
  double sumOf(size_t part, size_t from, size_t to, size_t stage) const {
    return (before[part][to] - before[part][from]) / ranksOf(stage);
  }

  /// Bytes of a device for a stage between two places.
  double bytesOf(size_t from, size_t to, size_t stage) const {
    const double ranks = ranksOf(stage);
    return (sumOf(4, from, to, stage) + places.cuts[from].bytes / ranks) *
               static_cast<double>(kept[stage]) +
           sumOf(5, from, to, stage) * (memory.sharesStates ? 1 : ranks);
  }

  Cost costOf(const std::vector<size_t> &bounds) {
    turns += turnsPerTry;
    const size_t stages = bounds.size() - 1;
    std::vector<StepTimes> times;
    std::vector<double> updates(step.turns.size(), 0);
    double crossing = 0;
    for (size_t s = 0; s < stages; ++s) {
      const size_t from = bounds[s], to = bounds[s + 1];
      const double bytes = places.cuts[to].bytes;
      times.push_back({sumOf(0, from, to, s), sumOf(1, from, to, s),
                       sumOf(2, from, to, s), bytes / link.bytesPerSecond});
      updates[static_cast<size_t>(step.groupOf[s])] += sumOf(3, from, to, s);
      crossing += bytes;
    }
    const StepTimeline line = simulate(step, times);
    double seconds = 0;
    for (size_t g = 0; g < updates.size(); ++g)
      seconds = std::max(
          seconds, updates[g] + (line.spans[g].empty() ? 0 : line.spans[g].back().end));
    // A sum, so that a move helps by which one of several full groups gets less.
    double excess = 0;
    for (double bytes : bytesOf(bounds))
      excess += std::max(0.0, bytes - memory.bytes);
    return {excess, seconds, crossing};
  }

  bool improves(const std::vector<size_t> &bounds) {
    const Cost cost = costOf(bounds);
    // Sums in another order are no gain.
    auto isBelow = [](double one, double other) { return one < other * (1 - 1e-9); };
    const bool isLess =
        isBelow(cost.excess, least.excess) ||
        (!isBelow(least.excess, cost.excess) &&
         (isBelow(cost.seconds, least.seconds) ||
          (!isBelow(least.seconds, cost.seconds) && cost.crossing < least.crossing)));
    if (isLess) {
      least = cost;
      best = bounds;
    }
    return isLess;
  }

  void tryAll(std::vector<size_t> &bounds, size_t next) {
    const size_t last = bounds.size() - 1;
    if (next == last) {
      improves(bounds);
      return;
    }
    // A place is left for each stage behind.
    for (size_t place = bounds[next - 1] + 1; place + (last - next) < places.cuts.size();
         ++place) {
      bounds[next] = place;
      tryAll(bounds, next + 1);
    }
  }

  /// Moves each bound by as many places as help; returns false if no move helps, or as
  /// many turns as there may be are simulated.
  bool moveBounds() {
    bool hasMoved = false;
    for (size_t k = 1; k + 1 < best.size(); ++k)
      for (size_t far = std::bit_floor(places.cuts.size()); far > 0; far /= 2)
        for (bool isBack : {true, false}) {
          std::vector<size_t> bounds = best;
          if (isBack ? bounds[k] < bounds[k - 1] + 1 + far
                     : bounds[k] + far >= bounds[k + 1])
            continue;
          bounds[k] = isBack ? bounds[k] - far : bounds[k] + far;
          if (turns >= mostTurns)
            return false;
          hasMoved |= improves(bounds);
        }
    return hasMoved;
  }

  const CutPlaces &places;
  const StageCost &link;
  const PipelineStep &step;
  const StepMemory &memory;
  const std::vector<int64_t> kept; ///< micro-batches, by stage
  /// Sums before each place, by part (forward, backward, weight, update: seconds;
  /// kept, states: bytes).
  std::vector<std::vector<double>> before;
  double turnsPerTry = 0, turns = 0;
  std::vector<size_t> best;
  Cost least;
};
} // namespace

Expected<StepCut> search::cutStep(const FlowGraph &graph, const StepWork &work,
                                  const StageCost &link, const PipelineStep &step,
                                  const StepMemory &memory) {
  StageCost cost = link;
  cost.seconds = work.perMicroBatch(step.microBatches);
  const auto stages = static_cast<int32_t>(step.stages());
  return cutPlaces(graph, cost, stages).map([&](const CutPlaces &places) {
    auto cutWithin = [&](const StepMemory &limit) {
      StepCutter cutter(places, work, link, step, limit);
      const auto bounds = cutter.run(cost);
      return StepCut{places.stages(bounds, graph),
                     std::ranges::max(cutter.bytesOf(bounds))};
    };
    StepCut cut = cutWithin(memory);
    if (cut.bytes > memory.bytes)
      cut = cutWithin({.sharesStates = memory.sharesStates});
    return cut;
  });
}
