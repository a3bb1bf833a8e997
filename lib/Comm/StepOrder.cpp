//===- StepOrder.cpp - Schedules of a training step's pipeline ------------===//
#include "partita/Comm/StepOrder.h"

#include <algorithm>
#include <utility>

using namespace partita;

static constexpr std::pair<StepSchedule, const char *> schedules[] = {
    {StepSchedule::OneForwardOneBackward, "1f1b"},
    {StepSchedule::Gpipe, "gpipe"},
    {StepSchedule::ZeroBubbleH1, "zb-h1"},
    {StepSchedule::Interleaved, "interleaved"}};

const char *partita::name(StepSchedule schedule) {
  for (auto [known, name] : schedules)
    if (known == schedule)
      return name;
  return "";
}

std::optional<StepSchedule> partita::stepScheduleOf(std::string_view name) {
  for (auto [schedule, known] : schedules)
    if (known == name)
      return schedule;
  return std::nullopt;
}

bool PipelineStep::partsWeights() const {
  if (given.empty())
    return schedule == StepSchedule::ZeroBubbleH1;
  return std::ranges::any_of(given, [](const auto &turns) {
    return std::ranges::any_of(
        turns, [](const StepTurn &turn) { return turn.part == StepPart::Weight; });
  });
}

/// Megatron's order (Narayanan et al. 2021): forward part k of a group is of the stage
/// that has its turn, for as many micro-batches as there are groups.
static std::vector<StepTurn> interleavedTurns(const PipelineStep &shape, int64_t group) {
  const int64_t groups = shape.groups, chunks = shape.stages / groups;
  const int64_t total = shape.microBatches * chunks;
  auto turn = [&](StepPart part, int64_t k) {
    const int64_t round = k / (groups * chunks), chunk = k / groups % chunks;
    const bool isForward = part == StepPart::Forward;
    return StepTurn{part, round * groups + k % groups,
                    (isForward ? chunk : chunks - 1 - chunk) * groups + group};
  };
  // With one stage on each group this is 1F1B.
  const int64_t ahead =
      std::min(total, chunks == 1 ? groups - 1 - group
                                  : 2 * (groups - 1 - group) + (chunks - 1) * groups);
  std::vector<StepTurn> turns;
  for (int64_t k = 0; k < ahead; ++k)
    turns.push_back(turn(StepPart::Forward, k));
  for (int64_t k = 0; k < total; ++k) {
    if (ahead + k < total)
      turns.push_back(turn(StepPart::Forward, ahead + k));
    turns.push_back(turn(StepPart::Backward, k));
  }
  return turns;
}

std::vector<StepTurn> partita::turnsOf(const PipelineStep &shape, int64_t group) {
  if (!shape.given.empty())
    return shape.given[static_cast<size_t>(group)];
  if (shape.schedule == StepSchedule::Interleaved)
    return interleavedTurns(shape, group);
  const int64_t count = shape.microBatches;
  const int64_t ahead = shape.schedule == StepSchedule::Gpipe
                            ? count
                            : std::min(count, shape.stages - 1 - group);
  // Stage s waits s parts longer for the first cotangent that comes back than it would
  // if the last stage were the only one; so many gradients of weights fill that time.
  const int64_t late = shape.partsWeights() ? group : 0;
  std::vector<StepTurn> turns;
  int64_t forward = 0, weight = 0;
  for (; forward < ahead; ++forward)
    turns.push_back({StepPart::Forward, forward, group});
  for (int64_t backward = 0; backward < count; ++backward) {
    if (forward < count)
      turns.push_back({StepPart::Forward, forward++, group});
    turns.push_back({StepPart::Backward, backward, group});
    for (; shape.partsWeights() && weight + late <= backward; ++weight)
      turns.push_back({StepPart::Weight, weight, group});
  }
  for (; shape.partsWeights() && weight < count; ++weight)
    turns.push_back({StepPart::Weight, weight, group});
  return turns;
}

namespace {
class Simulation {
public:
  Simulation(const PipelineStep &shape, const std::vector<StepTimes> &times)
      : shape(shape), times(times), isWhole(!shape.partsWeights()) {
    for (int64_t g = 0; g < shape.groups; ++g)
      turns.push_back(turnsOf(shape, g));
    const auto count = static_cast<size_t>(shape.microBatches);
    ends.assign(2, {static_cast<size_t>(shape.stages), std::vector<double>(count, -1)});
    line.busy.resize(turns.size());
    line.kept.resize(turns.size());
    line.spans.resize(turns.size());
  }

  StepTimeline run() {
    std::vector<size_t> next(turns.size(), 0);
    std::vector<double> now(turns.size(), 0);
    std::vector<int64_t> kept(turns.size(), 0);
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t g = 0; g < turns.size(); ++g)
        for (; next[g] < turns[g].size(); ++next[g], moves = true) {
          const StepTurn &turn = turns[g][next[g]];
          const double ready = readyAt(turn);
          if (ready < 0)
            break;
          const double begin = std::max(now[g], ready);
          now[g] = begin + secondsOf(turn);
          line.busy[g] += now[g] - begin;
          line.spans[g].push_back({turn, begin, now[g]});
          if (turn.part != StepPart::Weight)
            endOf(turn.part, turn.stage, turn.microBatch) = now[g];
          if (turn.part == StepPart::Forward)
            line.kept[g] = std::max(line.kept[g], ++kept[g]);
          else if (turn.part == StepPart::Weight || isWhole)
            --kept[g];
        }
    }
    line.seconds = *std::max_element(now.begin(), now.end());
    return std::move(line);
  }

private:
  /// −1: it has not run yet.
  double &endOf(StepPart part, int64_t stage, int64_t microBatch) {
    return ends[static_cast<size_t>(part)][static_cast<size_t>(stage)]
               [static_cast<size_t>(microBatch)];
  }

  const StepTimes &timesOf(int64_t stage) const {
    return times[std::min(times.size() - 1, static_cast<size_t>(stage))];
  }

  double readyAt(const StepTurn &turn) {
    const bool isForward = turn.part == StepPart::Forward;
    const int64_t before = isForward ? turn.stage - 1 : turn.stage + 1;
    if (turn.part == StepPart::Weight || before < 0 || before >= shape.stages)
      return 0;
    const double made = endOf(turn.part, before, turn.microBatch);
    return made < 0 ? made : made + timesOf(std::min(before, turn.stage)).transfer;
  }

  double secondsOf(const StepTurn &turn) const {
    const StepTimes &own = timesOf(turn.stage);
    return turn.part == StepPart::Forward  ? own.forward
           : turn.part == StepPart::Weight ? own.weight
                                           : own.backward + (isWhole ? own.weight : 0);
  }

  const PipelineStep &shape;
  const std::vector<StepTimes> &times;
  bool isWhole; ///< the backward part has the gradients of weights
  std::vector<std::vector<StepTurn>> turns;
  /// Ends of turns by part (forward, backward), stage and micro-batch.
  std::vector<std::vector<std::vector<double>>> ends;
  StepTimeline line;
};
} // namespace

StepTimeline partita::simulate(const PipelineStep &shape,
                               const std::vector<StepTimes> &times) {
  return Simulation(shape, times).run();
}
