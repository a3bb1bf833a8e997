//===- Nesting.cpp - Loops and skipped parts of a segment -----------------===//
#include "Nesting.h"

using namespace partita;

/// Deeper than programs are, and shallow enough for a recursive walk.
static constexpr size_t mostOpen = 32;
/// Moves are bounded so that sums over all loops do not overflow.
static constexpr int64_t farthest = int64_t(1) << 48;
static constexpr int64_t mostTrips = int64_t(1) << 31;

Expected<void> Nesting::arrive(size_t place, const InFlight &flights) {
  while (!open.empty() && open.back().end == place) {
    if (flights.handles() != open.back().flying)
      return makeError("the loop or skipped part that ends before task " +
                       std::to_string(place) +
                       " of the segment leaves other calls in flight than it found");
    open.pop_back();
  }
  return {};
}

Expected<void> Nesting::enter(size_t place, const TaskView &task,
                              const InFlight &flights) {
  auto *repeat = std::get_if<task::Repeat>(&task.params);
  auto *skip = std::get_if<task::Skip>(&task.params);
  if (!repeat && !skip)
    return {};
  size_t tasks = repeat ? repeat->tasks : skip->tasks;
  size_t end = open.empty() ? numTasks : open.back().end;
  if (tasks > end - place - 1)
    return makeError("its " + std::to_string(tasks) +
                     " tasks leave the loop or segment that it is in");
  if (open.size() == mostOpen)
    return makeError("more than " + std::to_string(mostOpen) + " loops are nested");
  open.push_back({place + 1 + tasks, repeat ? repeat->trips : 0, flights.handles()});
  return arrive(place + 1, flights);
}

Expected<void> Nesting::checkMove(const TaskView &task, const task::Move &move,
                                  const std::vector<int64_t> &loops) const {
  std::string which = "the move of operand " + std::to_string(move.operand);
  if (move.operand >= task.operands.size() || task.operands[move.operand] < 0)
    return makeError(which + " is of an operand that it does not have");
  if (move.loop >= loops.size())
    return makeError(which + " is by loop " + std::to_string(move.loop) + " of " +
                     std::to_string(loops.size()) + " around the task");
  for (int64_t bytes : {move.begin, move.stride})
    if (bytes < -farthest || bytes > farthest)
      return makeError(which + " is too far");
  if (!isLocalCopy(task.kind()) && (move.begin % PARTITA_BUFFER_ALIGNMENT != 0 ||
                                    move.stride % PARTITA_BUFFER_ALIGNMENT != 0))
    return makeError(which + " is not aligned");
  for (const task::Move &other : task.moves)
    if (&other != &move && other.operand == move.operand && other.loop == move.loop)
      return makeError(which + " is there twice");
  return {};
}

Expected<std::vector<uint64_t>> Nesting::reach(const TaskView &task) const {
  std::vector<int64_t> loops; // trips, the innermost first
  for (size_t i = open.size(); i-- > 0;)
    if (open[i].trips != 0)
      loops.push_back(open[i].trips);
  std::vector<uint64_t> farthestOf(task.operands.size(), 0);
  if (task.moves.size() > task.operands.size() * mostOpen)
    return makeError("it has " + std::to_string(task.moves.size()) + " moves");
  std::vector<__int128> low(task.operands.size(), 0), high = low;
  for (const task::Move &move : task.moves) {
    if (auto ok = checkMove(task, move, loops); !ok)
      return tl::unexpected(ok.error());
    __int128 way = static_cast<__int128>(loops[move.loop] - 1) * move.stride;
    low[move.operand] += move.begin + std::min<__int128>(way, 0);
    high[move.operand] += move.begin + std::max<__int128>(way, 0);
  }
  for (size_t i = 0; i < low.size(); ++i) {
    if (low[i] < 0 || high[i] > static_cast<__int128>(farthest) * mostTrips)
      return makeError("operand " + std::to_string(i) + " moves out of its buffer");
    farthestOf[i] = static_cast<uint64_t>(
        std::min<__int128>(high[i], std::numeric_limits<int64_t>::max()));
  }
  return farthestOf;
}
