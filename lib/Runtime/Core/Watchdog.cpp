//===- Watchdog.cpp - Sees ranks that stand still -------------------------===//
#include "Watchdog.h"

using namespace partita;
using namespace partita::runtime;

std::string runtime::describePlace(const TaskTable *table, int rank,
                                   const RankProgress &progress) {
  std::string text = "rank " + std::to_string(rank);
  size_t index = progress.task.load();
  if (progress.state.load() == RankProgress::Joining)
    return text + ", while joining the MPI job";
  if (progress.state.load() == RankProgress::Loading)
    return text + ", while loading";
  if (!table || index >= table->numTasks() + table->transfers().size())
    return text;
  if (index >= table->numTasks())
    return text + ", transfer '" +
           std::string(table->transfers()[index - table->numTasks()].name) + "'";
  const TaskView task = table->task(index);
  return text + ", node '" + std::string(task.source) + "' (" +
         std::string(name(task.kind())) + ")";
}

Watchdog::Watchdog(const Stages &stages, std::vector<int> ranks,
                   const RankProgress *progress, double timeout)
    : stages(stages), ranks(std::move(ranks)), progress(progress), timeout(timeout) {
  seen.resize(this->ranks.size());
}

void Watchdog::begin() {
  for (Sighting &sighting : seen)
    sighting = {0, Clock::now()};
}

std::string Watchdog::placeOf(int rank) const {
  return describePlace(&stages[stageOf(stages, rank)]->table(), rank, progress[rank]);
}

std::optional<std::string> Watchdog::look(int awaited) {
  auto time = Clock::now();
  int stuck = -1, waiting = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    int rank = ranks[i];
    const RankProgress &p = progress[rank];
    uint64_t heartbeat = p.heartbeat.load();
    uint32_t doing = p.state.load();
    if (heartbeat != seen[i].heartbeat || doing == RankProgress::Idle ||
        doing == RankProgress::Failed)
      seen[i] = {heartbeat, time};
    double idle = std::chrono::duration<double>(time - seen[i].when).count();
    if (doing != RankProgress::Waiting && idle >= timeout && stuck < 0)
      stuck = rank;
    if (doing == RankProgress::Waiting && idle >= timeout + 3 &&
        (waiting < 0 || p.task.load() < progress[waiting].task.load()))
      waiting = rank;
  }
  auto seconds = std::to_string(static_cast<int64_t>(timeout));
  if (stuck >= 0)
    return placeOf(stuck) + ": no progress for " + seconds + " s";
  if (waiting >= 0 && awaited >= 0)
    return "rank " + std::to_string(awaited) +
           ": its part of the outputs did not come within " + seconds + " s";
  if (waiting >= 0)
    return placeOf(waiting) + ": waited more than " + seconds + " s for other ranks";
  return std::nullopt;
}
