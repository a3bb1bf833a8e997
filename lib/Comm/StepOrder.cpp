//===- StepOrder.cpp - Schedules of a training step's pipeline ------------===//
#include "partita/Comm/StepOrder.h"

#include <algorithm>
#include <utility>

using namespace partita;

static constexpr std::pair<StepSchedule, const char *> schedules[] = {
    {StepSchedule::OneForwardOneBackward, "1f1b"},
    {StepSchedule::Gpipe, "gpipe"},
    {StepSchedule::ZeroBubbleH1, "zb-h1"}};

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

std::vector<StepTurn> partita::turnsOf(const PipelineStep &shape, int64_t stage) {
  if (!shape.given.empty())
    return shape.given[static_cast<size_t>(stage)];
  const int64_t count = shape.microBatches;
  const int64_t ahead = shape.schedule == StepSchedule::Gpipe
                            ? count
                            : std::min(count, shape.stages - 1 - stage);
  // Stage s waits s parts longer for the first cotangent that comes back than it would
  // if the last stage were the only one; so many gradients of weights fill that time.
  const int64_t late = shape.partsWeights() ? stage : 0;
  std::vector<StepTurn> turns;
  int64_t forward = 0, weight = 0;
  for (; forward < ahead; ++forward)
    turns.push_back({StepPart::Forward, forward});
  for (int64_t backward = 0; backward < count; ++backward) {
    if (forward < count)
      turns.push_back({StepPart::Forward, forward++});
    turns.push_back({StepPart::Backward, backward});
    for (; shape.partsWeights() && weight + late <= backward; ++weight)
      turns.push_back({StepPart::Weight, weight});
  }
  for (; shape.partsWeights() && weight < count; ++weight)
    turns.push_back({StepPart::Weight, weight});
  return turns;
}

StepTimeline partita::simulate(const PipelineStep &shape,
                               const std::vector<StepTimes> &times) {
  const auto stages = static_cast<size_t>(shape.stages);
  const auto count = static_cast<size_t>(shape.microBatches);
  std::vector<std::vector<StepTurn>> turns;
  for (size_t s = 0; s < stages; ++s)
    turns.push_back(turnsOf(shape, static_cast<int64_t>(s)));
  using Ends = std::vector<std::vector<double>>; // by stage and micro-batch; < 0: not yet
  Ends forward(stages, std::vector<double>(count, -1)), backward = forward;
  std::vector<size_t> next(stages, 0);
  std::vector<double> now(stages, 0);
  StepTimeline line;
  line.busy.resize(stages);
  line.kept.resize(stages);
  line.spans.resize(stages);
  std::vector<int64_t> kept(stages, 0);
  auto readyAt = [&](size_t s, const StepTurn &turn) {
    const auto m = static_cast<size_t>(turn.microBatch);
    const bool isFirst = s == 0, isLast = s + 1 == stages;
    if (turn.part == StepPart::Weight || (turn.part == StepPart::Forward && isFirst) ||
        (turn.part == StepPart::Backward && isLast))
      return 0.0;
    const double made =
        turn.part == StepPart::Forward ? forward[s - 1][m] : backward[s + 1][m];
    const StepTimes &from =
        times[std::min(times.size() - 1, turn.part == StepPart::Forward ? s - 1 : s)];
    return made < 0 ? made : made + from.transfer;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t s = 0; s < stages; ++s)
      for (; next[s] < turns[s].size(); ++next[s], moves = true) {
        const StepTurn &turn = turns[s][next[s]];
        const double ready = readyAt(s, turn);
        if (ready < 0)
          break;
        const StepTimes &own = times[std::min(times.size() - 1, s)];
        const auto m = static_cast<size_t>(turn.microBatch);
        const bool isWhole = !shape.partsWeights();
        const double takes = turn.part == StepPart::Forward  ? own.forward
                             : turn.part == StepPart::Weight ? own.weight
                             : isWhole                       ? own.backward + own.weight
                                                             : own.backward;
        now[s] = std::max(now[s], ready) + takes;
        line.busy[s] += takes;
        line.spans[s].push_back({turn, now[s] - takes, now[s]});
        if (turn.part == StepPart::Forward) {
          forward[s][m] = now[s];
          line.kept[s] = std::max(line.kept[s], ++kept[s]);
        } else if (turn.part == StepPart::Backward) {
          backward[s][m] = now[s];
          kept[s] -= isWhole ? 1 : 0;
        } else {
          --kept[s];
        }
      }
  }
  line.seconds = *std::max_element(now.begin(), now.end());
  return line;
}
