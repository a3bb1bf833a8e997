//===- CompleteSchedule.cpp - When transfers start and are waited for ------===//
#include "partita/Base/Bundle/Schedule.h"

#include <algorithm>
#include <optional>
#include <set>

using namespace partita;
using namespace partita::schedule;

namespace {

bool lists(const std::vector<int64_t> &list, int64_t value) {
  return std::ranges::find(list, value) != list.end();
}

/// The transfers of one schedule.
class Completion {
public:
  Completion(const Pipeline &pipeline, size_t program, Schedule &schedule)
      : p(pipeline), program(p.programs[program]), number(static_cast<int64_t>(program)),
        schedule(schedule), given(schedule.entries.size()) {}

  void run() {
    std::set<int64_t> named;
    for (const Entry &entry : schedule.entries)
      for (const auto *list : {&entry.waits, &entry.starts})
        for (Flight flight : *list)
          named.insert(flight.transfer);
    before.resize(given), behind.resize(given);
    for (size_t i = 0; i < p.transfers.size(); ++i) {
      const Transfer &t = p.transfers[i];
      if ((t.from != number && t.to != number) || named.count(static_cast<int64_t>(i)))
        continue;
      for (int64_t m = 0; m < (t.once ? 1 : p.microBatches); ++m) {
        Flight flight{static_cast<int64_t>(i), m};
        t.from == number ? send(t, flight) : receive(t, flight);
      }
    }
    finish();
  }

private:
  /// Whether the entry touches the slot of this micro-batch, and whether for it.
  bool touches(size_t entry, int64_t buffer, int64_t m, bool same, bool writes) const {
    const Entry &e = schedule.entries[entry];
    if (e.segment < 0)
      return false;
    const Segment &s = program.segments[static_cast<size_t>(e.segment)];
    int64_t slots = program.buffers[static_cast<size_t>(buffer)].slots;
    bool mine = same ? e.microBatch == m || s.once : e.microBatch % slots == m % slots;
    return mine && (lists(s.writes, buffer) || (!writes && lists(s.reads, buffer)));
  }

  /// Behind the last writing for the micro-batch; before the next writing of its slot.
  void send(const Transfer &t, Flight flight) {
    std::optional<size_t> filled;
    for (size_t e = 0; e < given; ++e)
      if (touches(e, t.fromBuffer, flight.microBatch, true, true))
        filled = e;
    if (!filled)
      return first.push_back(flight), last.push_back(flight); // an input
    behind[*filled].push_back(flight);
    for (size_t e = *filled + 1; e < given; ++e)
      if (touches(e, t.fromBuffer, flight.microBatch, false, true))
        return before[e].push_back(flight);
    last.push_back(flight);
  }

  /// Before the first reading for the micro-batch; behind the last touch before that.
  void receive(const Transfer &t, Flight flight) {
    size_t read = 0;
    while (read < given && !touches(read, t.toBuffer, flight.microBatch, true, false))
      ++read;
    (read < given ? before[read] : last).push_back(flight);
    for (size_t e = read; e-- > 0;)
      if (touches(e, t.toBuffer, flight.microBatch, false, false))
        return behind[e].push_back(flight);
    first.push_back(flight);
  }

  void finish() {
    auto append = [](std::vector<Flight> &to, const std::vector<Flight> &more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    for (size_t e = 0; e < given; ++e) {
      append(schedule.entries[e].waits, before[e]);
      append(schedule.entries[e].starts, behind[e]);
    }
    if (!first.empty())
      schedule.entries.insert(schedule.entries.begin(), Entry{-1, 0, {}, first});
    if (!last.empty())
      schedule.entries.push_back({-1, 0, last, {}});
  }

  const Pipeline &p;
  const Program &program;
  int64_t number;
  Schedule &schedule;
  size_t given; ///< entries
  std::vector<std::vector<Flight>> before, behind;
  std::vector<Flight> first, last;
};

} // namespace

void schedule::complete(Pipeline &pipeline) {
  for (size_t i = 0; i < pipeline.programs.size(); ++i)
    for (Schedule &schedule : pipeline.programs[i].schedules)
      Completion(pipeline, i, schedule).run();
}
