//===- StepTimeline.cpp - When groups run the parts of a step -------------===//
#include "partita/Comm/StepTimeline.h"

#include <algorithm>

using namespace partita;

double StepTimeline::longestSpan() const {
  double longest = 0;
  for (const std::vector<Span> &group : spans)
    if (!group.empty())
      longest = std::max(longest, group.back().end - group.front().begin);
  return longest;
}

StepClock::StepClock(const std::vector<int64_t> &groupOf, int64_t microBatches,
                     bool partsWeights, const std::vector<StepTimes> &times,
                     SendRule rule)
    : groups(groupOf), partsWeights(partsWeights), times(times), rule(rule),
      ends(2,
           {groupOf.size(), std::vector<double>(static_cast<size_t>(microBatches), -1)}) {
  const auto count =
      static_cast<size_t>(1 + *std::max_element(groupOf.begin(), groupOf.end()));
  clocks.assign(count, 0);
  live.assign(count, 0);
  line.spans.resize(count);
  line.busy.assign(count, 0);
  line.kept.assign(count, 0);
}

const StepTimes &StepClock::timesOf(int64_t stage) const {
  return times[std::min(times.size() - 1, static_cast<size_t>(stage))];
}

double StepClock::transferOf(int64_t from, int64_t to) const {
  return groupOf(from) == groupOf(to) ? 0 : timesOf(std::min(from, to)).transfer;
}

int64_t StepClock::sourceOf(const StepTurn &turn) const {
  const int64_t source = turn.stage + (turn.part == StepPart::Forward ? -1 : 1);
  return turn.part == StepPart::Weight || source == static_cast<int64_t>(groups.size())
             ? -1
             : source;
}

int64_t StepClock::readerOf(const StepTurn &turn) const {
  const int64_t reader = turn.stage + (turn.part == StepPart::Forward ? 1 : -1);
  return turn.part == StepPart::Weight || reader == static_cast<int64_t>(groups.size())
             ? -1
             : reader;
}

std::optional<double> StepClock::readyAt(const StepTurn &turn) const {
  const int64_t source = sourceOf(turn);
  if (source < 0)
    return 0;
  const double made = ends[static_cast<size_t>(turn.part)][static_cast<size_t>(source)]
                          [static_cast<size_t>(turn.microBatch)];
  if (made < 0)
    return std::nullopt;
  return made + (rule == SendRule::Delays ? transferOf(source, turn.stage) : 0);
}

double StepClock::secondsOf(const StepTurn &turn) const {
  const StepTimes &own = timesOf(turn.stage);
  return turn.part == StepPart::Forward  ? own.forward
         : turn.part == StepPart::Weight ? own.weight
                                         : own.backward + (partsWeights ? 0 : own.weight);
}

void StepClock::run(const StepTurn &turn) {
  const auto g = static_cast<size_t>(groupOf(turn.stage));
  double &now = clocks[g];
  now = std::max(now, *readyAt(turn));
  const bool isBusy = rule == SendRule::Occupies;
  if (const int64_t source = sourceOf(turn); isBusy && source >= 0)
    now += transferOf(source, turn.stage);
  const double begin = now;
  now += secondsOf(turn);
  line.busy[g] += now - begin;
  line.spans[g].push_back({turn, begin, now});
  if (const int64_t reader = readerOf(turn); isBusy && reader >= 0)
    now += transferOf(turn.stage, reader);
  if (turn.part != StepPart::Weight)
    ends[static_cast<size_t>(turn.part)][static_cast<size_t>(turn.stage)]
        [static_cast<size_t>(turn.microBatch)] = now;
  if (turn.part == StepPart::Forward)
    line.kept[g] = std::max(line.kept[g], ++live[g]);
  else if (turn.part == StepPart::Weight || !partsWeights)
    --live[g];
}

StepTimeline StepClock::finish() {
  line.seconds = *std::max_element(clocks.begin(), clocks.end());
  return std::move(line);
}

StepTimeline partita::simulate(const PipelineStep &step,
                               const std::vector<StepTimes> &times, SendRule rule) {
  StepClock clock(step.groupOf, step.microBatches, step.partsWeights, times, rule);
  std::vector<size_t> next(step.turns.size(), 0);
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t g = 0; g < step.turns.size(); ++g)
      for (; next[g] < step.turns[g].size() && clock.readyAt(step.turns[g][next[g]]);
           ++next[g], moves = true)
        clock.run(step.turns[g][next[g]]);
  }
  return clock.finish();
}
