//===- StepOrder.cpp - Schedules of a training step's pipeline ------------===//
#include "partita/Comm/StepOrder.h"

#include "partita/Comm/StepTimeline.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <deque>
#include <set>
#include <utility>

using namespace partita;

static constexpr std::pair<ScheduleKind, const char *> kinds[] = {
    {ScheduleKind::OneForwardOneBackward, "1f1b"},
    {ScheduleKind::Gpipe, "gpipe"},
    {ScheduleKind::Interleaved, "interleaved"},
    {ScheduleKind::ZeroBubbleH1, "zb-h1"},
    {ScheduleKind::ZeroBubbleH2, "zb-h2"},
    {ScheduleKind::ZeroBubbleAuto, "zb-auto:"},
    {ScheduleKind::ZeroBubbleV, "zb-v"},
    {ScheduleKind::VHalf, "v-half"},
    {ScheduleKind::VMin, "v-min"}};

std::string partita::name(StepSchedule schedule) {
  std::string text;
  for (auto [kind, word] : kinds)
    if (kind == schedule.kind)
      text = word;
  if (schedule.kind != ScheduleKind::ZeroBubbleAuto)
    return text;
  char room[32];
  return text +
         std::string(room, std::to_chars(room, room + sizeof room, schedule.room).ptr);
}

std::optional<StepSchedule> partita::stepScheduleOf(std::string_view name) {
  for (auto [kind, word] : kinds) {
    if (kind != ScheduleKind::ZeroBubbleAuto && name == word)
      return StepSchedule{kind};
    if (kind != ScheduleKind::ZeroBubbleAuto || !name.starts_with(word))
      continue;
    StepSchedule schedule{kind};
    const char *first = name.data() + std::string_view(word).size();
    const char *last = name.data() + name.size();
    auto read = std::from_chars(first, last, schedule.room);
    if (read.ec == std::errc() && read.ptr == last && schedule.room > 0 &&
        std::isfinite(schedule.room))
      return schedule;
  }
  return std::nullopt;
}

std::string partita::stepScheduleNames() {
  std::string text;
  for (auto [kind, word] : kinds)
    text += (text.empty() ? "" : ", ") + std::string(word) +
            (kind == ScheduleKind::ZeroBubbleAuto ? "ROOM" : "");
  return text;
}

//===-- Where stages lie --------------------------------------------------===//

static std::string counted(int64_t number, const std::string &what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

Expected<std::vector<int64_t>> partita::placedStages(StepSchedule schedule,
                                                     int64_t stages, int64_t groups) {
  std::vector<int64_t> groupOf;
  const int64_t count = groups > 0 ? groups : schedule.isV() ? stages / 2 : stages;
  if (schedule.isV() && stages != 2 * count)
    return makeError(
        "--schedule " + name(schedule) + " has two stages on each group of " +
        "ranks, the second on the way back: there are " + counted(stages, "stage") +
        (groups > 0 ? " on " + counted(groups, "group") : ""));
  for (int64_t s = 0; s < stages; ++s)
    groupOf.push_back(!schedule.isV() ? s % count : std::min(s, stages - 1 - s));
  return groupOf;
}

static Expected<void> checkPlaces(StepSchedule schedule,
                                  const std::vector<int64_t> &groupOf, int64_t groups,
                                  int64_t microBatches) {
  const auto stages = static_cast<int64_t>(groupOf.size());
  const bool isInterleaved = schedule.kind == ScheduleKind::Interleaved;
  if (isInterleaved && (stages % groups != 0 || microBatches % groups != 0))
    return makeError("--schedule interleaved: " + counted(stages, "stage") + " and " +
                     std::to_string(microBatches) +
                     " micro-batches, both of which must " + "be multiples of the " +
                     counted(groups, "group"));
  if (!isInterleaved && !schedule.isV() && groups < stages)
    return makeError("--schedule " + name(schedule) +
                     " has one stage on each group of ranks: there are " +
                     counted(stages, "stage") + " on " + counted(groups, "group"));
  return placedStages(schedule, stages, groups)
      .and_then([&](const std::vector<int64_t> &wanted) -> Expected<void> {
        for (size_t s = 0; s < wanted.size(); ++s)
          if (groupOf[s] != wanted[s])
            return makeError("--schedule " + name(schedule) + " has stage " +
                             std::to_string(s) + " on group " +
                             std::to_string(wanted[s]) + " of ranks, not on group " +
                             std::to_string(groupOf[s]));
        return {};
      });
}

//===-- Orders ------------------------------------------------------------===//

using Turns = std::vector<StepTurn>;
using Orders = std::vector<Turns>; // by group

/// `ahead` forward parts, then a forward and a backward part in turns. Each weight part
/// comes `late` micro-batches behind its backward part; none: they are no parts.
static Turns leadTurns(int64_t stage, int64_t count, int64_t ahead,
                       std::optional<int64_t> late) {
  Turns turns;
  int64_t forward = 0, weight = 0;
  for (; forward < std::min(count, ahead); ++forward)
    turns.push_back({StepPart::Forward, forward, stage});
  for (int64_t backward = 0; backward < count; ++backward) {
    if (forward < count)
      turns.push_back({StepPart::Forward, forward++, stage});
    turns.push_back({StepPart::Backward, backward, stage});
    for (; late && weight + *late <= backward; ++weight)
      turns.push_back({StepPart::Weight, weight, stage});
  }
  for (; late && weight < count; ++weight)
    turns.push_back({StepPart::Weight, weight, stage});
  return turns;
}

/// Megatron's order (Narayanan et al. 2021): forward part k of a group is of the stage
/// that has its turn, for as many micro-batches as there are groups.
static Turns interleavedTurns(int64_t group, int64_t groups, int64_t chunks,
                              int64_t count) {
  const int64_t total = count * chunks;
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
  Turns turns;
  for (int64_t k = 0; k < ahead; ++k)
    turns.push_back(turn(StepPart::Forward, k));
  for (int64_t k = 0; k < total; ++k) {
    if (ahead + k < total)
      turns.push_back(turn(StepPart::Forward, ahead + k));
    turns.push_back(turn(StepPart::Backward, k));
  }
  return turns;
}

namespace {
/// A micro-batch through the V, in units in which F, B and W of a stage take one: group i
/// runs the four parts that read or give activations at the units below, and the same six
/// units later for the next micro-batch. Two of six units are left for W.
///
///   F of stage i        down·i
///   F of stage 2G−1−i   begin[0] + up·(G−1−i)
///   B of stage 2G−1−i   begin[1] + down·i
///   B of stage i        begin[2] + up·(G−1−i)
///
/// A group keeps what lies between F and B: (2·(G−1)·(down+up) + what turning costs) / 6
/// stages, alike on all groups. (down, up) = (4, 2) keeps 2G stages and leaves no bubble,
/// (2, 1) half, (1, 1) a third. (Qi et al., Pipeline Parallelism with Controllable
/// Memory.)
struct Vee {
  int64_t groups, down, up;
  std::array<int64_t, 3> begin = {};

  std::array<int64_t, 4> unitsOf(int64_t i) const {
    const int64_t back = up * (groups - 1 - i);
    return {down * i, begin[0] + back, begin[1] + down * i, begin[2] + back};
  }

  /// Begins as early as no group has two parts at once, of whatever micro-batches. For
  /// the slopes above such begins exist with any number of groups: what matters of it is
  /// its rest by six.
  void place() {
    int64_t best = -1;
    std::array<int64_t, 3> found = {};
    for (int64_t wait = 0; wait < period * period * period; ++wait) {
      begin[0] = down * (groups - 1) + 1 + wait % period;
      begin[1] = begin[0] + up * (groups - 1) + 1 + wait / period % period;
      begin[2] = begin[1] + down * (groups - 1) + 1 + wait / period / period;
      if ((best < 0 || begin[2] < best) && isFree()) {
        best = begin[2];
        found = begin;
      }
    }
    begin = found;
  }

  Orders orders(int64_t count) const {
    Orders orders;
    for (int64_t i = 0; i < groups; ++i) {
      const std::array<int64_t, 4> units = unitsOf(i);
      const int64_t back = 2 * groups - 1 - i;
      std::vector<std::pair<int64_t, StepTurn>> timed;
      for (int64_t m = 0; m < count; ++m) {
        timed.push_back({units[0] + period * m, {StepPart::Forward, m, i}});
        timed.push_back({units[1] + period * m, {StepPart::Forward, m, back}});
        timed.push_back({units[2] + period * m, {StepPart::Backward, m, back}});
        timed.push_back({units[3] + period * m, {StepPart::Backward, m, i}});
      }
      std::ranges::sort(timed);
      Turns &turns = orders.emplace_back();
      for (const auto &[unit, turn] : timed)
        turns.push_back(turn);
    }
    return orders;
  }

private:
  static constexpr int64_t period = 6; ///< F, B and W of two stages

  bool isFree() const {
    for (int64_t i = 0; i < groups; ++i) {
      std::set<int64_t> taken;
      for (int64_t unit : unitsOf(i))
        taken.insert(unit % period);
      if (taken.size() < 4)
        return false;
    }
    return true;
  }
};
} // namespace

/// The most stages of which a group keeps values between their F and B.
static int64_t mostKept(const Orders &orders) {
  int64_t most = 0;
  for (const Turns &turns : orders) {
    int64_t kept = 0;
    for (const StepTurn &turn : turns) {
      kept += turn.part == StepPart::Forward ? 1 : -1;
      most = std::max(most, kept);
    }
  }
  return most;
}

//===-- Gradients of weights where time is left ----------------------------===//

namespace {
/// Puts weight parts between the others: where a group would wait for at least `patience`
/// of one, and before a forward part that there is no room for. Where a group still
/// waits, a later forward part comes forward. `room` in forward parts.
class WeightFiller {
public:
  WeightFiller(const Orders &given, const std::vector<int64_t> &groupOf, int64_t count,
               const std::vector<StepTimes> &times, int64_t room, double patience)
      : orders(given.size()), clock(groupOf, count, /*partsWeights=*/true, times),
        room(room), patience(patience), pending(orders.size()), made(orders.size()) {
    for (size_t g = 0; g < given.size(); ++g)
      orders[g].assign(given[g].begin(), given[g].end());
  }

  Orders run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t g = 0; g < orders.size(); ++g)
        for (; !orders[g].empty() && clock.readyAt(orders[g].front()); moves = true)
          runFirst(g);
    }
    for (size_t g = 0; g < orders.size(); ++g)
      while (!pending[g].empty())
        runWeight(g);
    return std::move(made);
  }
  StepTimeline finish() { return clock.finish(); }

private:
  void add(size_t group, const StepTurn &turn) {
    clock.run(turn);
    made[group].push_back(turn);
  }

  void runWeight(size_t group) {
    add(group, pending[group].front());
    pending[group].pop_front();
  }

  bool hasTime(const StepTurn &turn, double share, double until) const {
    const int64_t group = clock.groupOf(turn.stage);
    return std::max(clock.now(group), *clock.readyAt(turn)) +
               share * clock.secondsOf(turn) <=
           until + slack;
  }

  void runFirst(size_t group) {
    const auto g = static_cast<int64_t>(group);
    const StepTurn turn = orders[group].front();
    const double ready = *clock.readyAt(turn);
    auto isFull = [&] { return turn.part == StepPart::Forward && clock.kept(g) >= room; };
    while (!pending[group].empty() &&
           (isFull() || hasTime(pending[group].front(), patience, ready)))
      runWeight(group);
    while (runForward(group, ready))
      ;
    add(group, turn);
    orders[group].pop_front();
    if (turn.part == StepPart::Backward)
      pending[group].push_back({StepPart::Weight, turn.microBatch, turn.stage});
  }

  /// Runs the next forward part behind the first turn, if it can end by then and leaves
  /// room for one more; else returns false.
  bool runForward(size_t group, double until) {
    auto &order = orders[group];
    auto next = std::find_if(order.begin() + 1, order.end(), [](const StepTurn &turn) {
      return turn.part == StepPart::Forward;
    });
    if (order.front().part == StepPart::Forward || next == order.end() ||
        clock.kept(static_cast<int64_t>(group)) + 1 > room || !clock.readyAt(*next) ||
        !hasTime(*next, 1, until))
      return false;
    add(group, *next);
    order.erase(next);
    return true;
  }

  static constexpr double slack =
      1e-12; ///< seconds, for sums of times that differ by rounding

  std::vector<std::deque<StepTurn>> orders; ///< by group, turns that have not run yet
  StepClock clock;
  int64_t room;
  double patience;
  std::vector<std::deque<StepTurn>> pending; ///< by group
  Orders made;
};
} // namespace

/// Tries forward parts ahead, as many as the first cotangent takes to come back, a share
/// of them or some more, and weight parts put in with more or less patience: whatever
/// makes the groups' longest span shortest.
static Orders automaticOrders(double roomShare, const std::vector<int64_t> &groupOf,
                              int64_t count, const std::vector<StepTimes> &times) {
  const auto groups = static_cast<int64_t>(groupOf.size());
  const auto room =
      std::max<int64_t>(1, std::llround(roomShare * static_cast<double>(groups)));
  Orders best;
  double shortest = 0;
  for (double share : {1.0, 1.25, 1.5, 2.0, 2.5, 3.0})
    for (int64_t more : {0, 1, 2})
      for (double patience : {1.0, 0.5, 0.0}) {
        Orders orders;
        for (int64_t g = 0; g < groups; ++g)
          orders.push_back(leadTurns(
              g, count,
              std::min(room - 1,
                       static_cast<int64_t>(share * static_cast<double>(groups - 1 - g)) +
                           more),
              std::nullopt));
        WeightFiller filler(orders, groupOf, count, times, room, patience);
        Orders filled = filler.run();
        const double span = filler.finish().longestSpan();
        if (best.empty() || span < shortest * (1 - 1e-9)) {
          best = std::move(filled);
          shortest = span;
        }
      }
  return best;
}

static Orders veeOrders(ScheduleKind kind, const std::vector<int64_t> &groupOf,
                        int64_t groups, int64_t count,
                        const std::vector<StepTimes> &times) {
  Vee vee{groups, 1, 1};
  if (kind != ScheduleKind::VMin)
    vee = kind == ScheduleKind::VHalf ? Vee{groups, 2, 1} : Vee{groups, 4, 2};
  vee.place();
  const Orders orders = vee.orders(count);
  // A stage or two more, whose weight parts wait for time that is left.
  const int64_t room = mostKept(orders) + (kind == ScheduleKind::ZeroBubbleV ? 0
                                           : kind == ScheduleKind::VHalf     ? 1
                                                                             : 2);
  return WeightFiller(orders, groupOf, count, times, room, /*patience=*/1).run();
}

Expected<PipelineStep> partita::makeStep(StepSchedule schedule,
                                         std::vector<int64_t> groupOf,
                                         int64_t microBatches,
                                         const std::vector<StepTimes> &times) {
  const int64_t groups = 1 + *std::ranges::max_element(groupOf);
  const auto stages = static_cast<int64_t>(groupOf.size());
  if (auto ok = checkPlaces(schedule, groupOf, groups, microBatches); !ok)
    return tl::unexpected(ok.error());
  PipelineStep step{name(schedule), microBatches, std::move(groupOf), {}, false};
  auto each = [&](auto turnsOf) {
    for (int64_t g = 0; g < groups; ++g)
      step.turns.push_back(turnsOf(g));
  };
  auto lead = [&](int64_t times, bool isPutOff) {
    each([&](int64_t g) {
      return leadTurns(g, microBatches, times * (stages - 1 - g),
                       isPutOff ? std::optional(times * g) : std::nullopt);
    });
  };
  switch (schedule.kind) {
  case ScheduleKind::OneForwardOneBackward:
    lead(1, false);
    break;
  case ScheduleKind::Gpipe:
    each([&](int64_t g) { return leadTurns(g, microBatches, microBatches, {}); });
    break;
  case ScheduleKind::Interleaved:
    each([&](int64_t g) {
      return interleavedTurns(g, groups, stages / groups, microBatches);
    });
    break;
  // Stage s waits s parts longer for the first cotangent that comes back than it would
  // if the last stage were the only one; so many gradients of weights fill that time.
  case ScheduleKind::ZeroBubbleH1:
    lead(1, true);
    break;
  case ScheduleKind::ZeroBubbleH2:
    lead(2, true);
    break;
  case ScheduleKind::ZeroBubbleAuto:
    step.turns = automaticOrders(schedule.room, step.groupOf, microBatches, times);
    break;
  case ScheduleKind::ZeroBubbleV:
  case ScheduleKind::VHalf:
  case ScheduleKind::VMin:
    step.turns = veeOrders(schedule.kind, step.groupOf, groups, microBatches, times);
    break;
  }
  step.partsWeights = schedule.kind >= ScheduleKind::ZeroBubbleH1;
  return step;
}

std::vector<int64_t> partita::keptMicroBatches(const PipelineStep &step) {
  std::vector<int64_t> now(static_cast<size_t>(step.stages()), 0), most = now;
  const StepPart last = step.partsWeights ? StepPart::Weight : StepPart::Backward;
  for (const auto &turns : step.turns)
    for (const StepTurn &turn : turns) {
      const auto s = static_cast<size_t>(turn.stage);
      now[s] += turn.part == StepPart::Forward ? 1 : turn.part == last ? -1 : 0;
      most[s] = std::max(most[s], now[s]);
    }
  return most;
}
