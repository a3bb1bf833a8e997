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

  std::vector<size_t> run(std::vector<size_t> start) {
    best = std::move(start);
    least = costOf(best);
    const auto stages = static_cast<double>(best.size() - 1);
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

  /// Bytes of a device of the fullest group.
  double bytesOf(const std::vector<size_t> &bounds) const {
    std::vector<double> bytes(step.turns.size(), 0);
    for (size_t s = 0; s + 1 < bounds.size(); ++s) {
      const double ranks = link.ranks.empty() ? 1 : link.ranks[s];
      const double perMicroBatch =
          sumOf(4, bounds, s) + places.cuts[bounds[s]].bytes / ranks;
      bytes[static_cast<size_t>(step.groupOf[s])] +=
          perMicroBatch * static_cast<double>(kept[s]) +
          sumOf(5, bounds, s) * (memory.sharesStates ? 1 : ranks);
    }
    return *std::ranges::max_element(bytes);
  }

private:
  struct Cost {
    double excess = 0;   ///< bytes above the limit
    double seconds = 0;  ///< of a step
    double crossing = 0; ///< bytes that cross in it
  };

  /// A part of a stage's work, of one of its ranks.
  double sumOf(size_t part, const std::vector<size_t> &bounds, size_t stage) const {
    return (before[part][bounds[stage + 1]] - before[part][bounds[stage]]) /
           (link.ranks.empty() ? 1 : link.ranks[stage]);
  }

  Cost costOf(const std::vector<size_t> &bounds) {
    turns += turnsPerTry;
    const size_t stages = bounds.size() - 1;
    std::vector<StepTimes> times;
    std::vector<double> updates(step.turns.size(), 0);
    double crossing = 0;
    for (size_t s = 0; s < stages; ++s) {
      const double bytes = places.cuts[bounds[s + 1]].bytes;
      times.push_back({sumOf(0, bounds, s), sumOf(1, bounds, s), sumOf(2, bounds, s),
                       bytes / link.bytesPerSecond});
      updates[static_cast<size_t>(step.groupOf[s])] += sumOf(3, bounds, s);
      crossing += bytes;
    }
    const StepTimeline line = simulate(step, times);
    double seconds = 0;
    for (size_t g = 0; g < updates.size(); ++g)
      seconds = std::max(
          seconds, updates[g] + (line.spans[g].empty() ? 0 : line.spans[g].back().end));
    return {std::max(0.0, bytesOf(bounds) - memory.bytes), seconds, crossing};
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
    StepCutter cutter(places, work, link, step, memory);
    const auto bounds = cutter.run(evenBounds(places.cuts, cost, stages));
    return StepCut{places.stages(bounds, graph.ops.size()), cutter.bytesOf(bounds)};
  });
}
