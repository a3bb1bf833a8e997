//===- ScheduleCheck.cpp - Schedules that are right without running -------===//
#include "partita/Base/Bundle/Schedule.h"

#include "SlotContents.h"

#include <algorithm>
#include <map>

using namespace partita;
using namespace partita::schedule;

std::string schedule::textOf(const Pipeline &p, Flight flight) {
  const Transfer &t = p.transfers[static_cast<size_t>(flight.transfer)];
  return "transfer " + t.name +
         (t.once ? "" : " of micro-batch " + std::to_string(flight.microBatch));
}

std::string schedule::textOf(const Program &program, const Entry &entry) {
  if (entry.segment < 0)
    return "no segment";
  const Segment &s = program.segments[static_cast<size_t>(entry.segment)];
  return s.name + (s.once ? "" : " of micro-batch " + std::to_string(entry.microBatch));
}

static std::string placeOf(const Program &program, const Schedule &schedule,
                           size_t entry) {
  std::string text = "program " + program.name;
  if (!schedule.ranks.empty() && program.schedules.size() > 1)
    text += ", rank " + std::to_string(schedule.ranks[0]);
  return text + ", entry " + std::to_string(entry) + " (" +
         textOf(program, schedule.entries[entry]) + ")";
}

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

namespace {

/// Numbers that lead somewhere, so that the rest may use them.
class Ranges {
public:
  explicit Ranges(const Pipeline &pipeline) : p(pipeline) {}

  Expected<void> run() {
    constexpr int64_t most = int64_t(1) << 20;
    if (p.microBatches < 1 || p.microBatches > most)
      return makeError("there are " + std::to_string(p.microBatches) +
                       " micro-batches, expected 1 to " + std::to_string(most));
    for (const Program &program : p.programs)
      if (auto ok = this->program(program); !ok)
        return makeError("program " + program.name + ": " + ok.error().message);
    for (const Transfer &transfer : p.transfers)
      if (auto ok = this->transfer(transfer); !ok)
        return makeError("transfer " + transfer.name + ": " + ok.error().message);
    for (const Program &program : p.programs)
      for (const Schedule &schedule : program.schedules)
        if (auto ok = entries(program, schedule); !ok)
          return ok;
    return {};
  }

private:
  template <typename List> static bool has(const List &list, int64_t index) {
    return index >= 0 && index < static_cast<int64_t>(list.size());
  }

  Expected<void> program(const Program &program) {
    for (const Buffer &b : program.buffers) {
      bool isBound = b.input || b.output || b.state;
      if (b.slots < 1 || (isBound && b.slots != 1 && b.slots != p.microBatches))
        return makeError("buffer " + b.name + " has " + std::to_string(b.slots) +
                         " slots for " + std::to_string(p.microBatches) +
                         " micro-batches");
    }
    for (const Segment &s : program.segments)
      for (const auto *list : {&s.reads, &s.writes})
        for (int64_t index : *list) {
          if (!has(program.buffers, index))
            return makeError("segment " + s.name + " has no buffer " +
                             std::to_string(index));
          const Buffer &b = program.buffers[static_cast<size_t>(index)];
          if (s.once && b.slots != 1)
            return makeError("segment " + s.name + " runs once, buffer " + b.name +
                             " has " + std::to_string(b.slots) + " slots");
          if (list == &s.writes && b.input)
            return makeError("segment " + s.name + " writes input " + b.name);
          if (list == &s.writes && s.mayBeSkipped && !b.state &&
              std::ranges::find(s.reads, index) == s.reads.end())
            return makeError("segment " + s.name + " may be skipped and writes buffer " +
                             b.name + ", which it does not read");
        }
    return ranks(program);
  }

  Expected<void> ranks(const Program &program) {
    if (program.schedules.empty())
      return makeError("it has no schedule");
    std::vector<bool> seen(static_cast<size_t>(program.numRanks), false);
    size_t count = 0;
    for (const Schedule &schedule : program.schedules) {
      if (schedule.ranks.empty() && program.schedules.size() == 1)
        return {};
      for (int64_t rank : schedule.ranks) {
        if (!has(seen, rank) || seen[static_cast<size_t>(rank)])
          return makeError("rank " + std::to_string(rank) +
                           " is not one of its ranks, or has two schedules");
        seen[static_cast<size_t>(rank)] = true;
        ++count;
      }
      if (schedule.ranks.empty())
        return makeError("one of its schedules is for no rank");
    }
    if (count != seen.size())
      return makeError("only " + std::to_string(count) + " of " +
                       std::to_string(seen.size()) + " ranks have a schedule");
    return {};
  }

  Expected<void> transfer(const Transfer &t) {
    if (!has(p.programs, t.from) || !has(p.programs, t.to) || t.from == t.to)
      return makeError("it does not lead from one program to another");
    const Program &from = p.programs[static_cast<size_t>(t.from)];
    const Program &to = p.programs[static_cast<size_t>(t.to)];
    if (!has(from.buffers, t.fromBuffer) || !has(to.buffers, t.toBuffer))
      return makeError("it has no buffer at one of its ends");
    const Buffer &source = from.buffers[static_cast<size_t>(t.fromBuffer)];
    const Buffer &target = to.buffers[static_cast<size_t>(t.toBuffer)];
    if (target.input || target.state)
      return makeError("it writes " + std::string(target.input ? "input " : "state ") +
                       target.name + " of program " + to.name);
    if (t.once && (source.slots != 1 || target.slots != 1))
      return makeError("it happens once, one of its buffers has several slots");
    return {};
  }

  Expected<void> entries(const Program &program, const Schedule &schedule) {
    for (size_t i = 0; i < schedule.entries.size(); ++i) {
      const Entry &entry = schedule.entries[i];
      std::string at = "program " + program.name + ", entry " + std::to_string(i) + ": ";
      if (entry.segment != -1 && !has(program.segments, entry.segment))
        return makeError(at + "there is no segment " + std::to_string(entry.segment));
      bool once =
          entry.segment < 0 || program.segments[static_cast<size_t>(entry.segment)].once;
      if (!isMicroBatch(entry.microBatch, once))
        return makeError(at + "there is no micro-batch " +
                         std::to_string(entry.microBatch));
      for (const auto *list : {&entry.waits, &entry.starts})
        for (Flight flight : *list) {
          if (!has(p.transfers, flight.transfer))
            return makeError(at + "there is no transfer " +
                             std::to_string(flight.transfer));
          const Transfer &t = p.transfers[static_cast<size_t>(flight.transfer)];
          if (!isMicroBatch(flight.microBatch, t.once))
            return makeError(at + "transfer " + t.name + " has no micro-batch " +
                             std::to_string(flight.microBatch));
          if (&program != &p.programs[static_cast<size_t>(t.from)] &&
              &program != &p.programs[static_cast<size_t>(t.to)])
            return makeError(at + "transfer " + t.name + " is between other programs");
        }
    }
    return {};
  }

  bool isMicroBatch(int64_t m, bool once) const {
    return m >= 0 && m < (once ? 1 : p.microBatches);
  }

  const Pipeline &p;
};

//===----------------------------------------------------------------------===//
// Order of collectives, deadlock
//===----------------------------------------------------------------------===//

bool communicates(const Program &program, const Entry &entry) {
  return entry.segment >= 0 &&
         program.segments[static_cast<size_t>(entry.segment)].communicates;
}

Expected<void> checkOrder(const Program &program) {
  auto calls = [&](const Schedule &schedule) {
    std::vector<size_t> list;
    for (size_t i = 0; i < schedule.entries.size(); ++i)
      if (communicates(program, schedule.entries[i]))
        list.push_back(i);
    return list;
  };
  const Schedule &first = program.schedules[0];
  std::vector<size_t> wanted = calls(first);
  for (const Schedule &other : program.schedules) {
    std::vector<size_t> found = calls(other);
    for (size_t k = 0; k < std::min(wanted.size(), found.size()); ++k) {
      const Entry &a = first.entries[wanted[k]], &b = other.entries[found[k]];
      if (a.segment != b.segment || a.microBatch != b.microBatch)
        return makeError("program " + program.name +
                         ": its ranks come to their collectives in different orders: " +
                         std::to_string(k) + " is " + textOf(program, a) + " on rank " +
                         std::to_string(first.ranks[0]) + ", " + textOf(program, b) +
                         " on rank " + std::to_string(other.ranks[0]));
    }
  }
  return {};
}

/// Every schedule goes as far as it can, in turns, until nobody gets any further.
class Greedy {
public:
  explicit Greedy(const Pipeline &pipeline) : p(pipeline) {
    for (size_t i = 0; i < p.programs.size(); ++i)
      for (const Schedule &schedule : p.programs[i].schedules)
        units.push_back({&p.programs[i], &schedule, i});
  }

  Expected<void> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Unit &unit : units)
        while (advance(unit))
          moved = true;
    }
    for (const Unit &unit : units)
      if (!isDone(unit))
        return makeError("the schedules never end: " + reason(unit));
    return {};
  }

private:
  struct Unit {
    const Program *program;
    const Schedule *schedule;
    size_t number;     ///< of the program
    size_t at = 0;     ///< entry
    int64_t met = 0;   ///< collectives that it has come to
    bool isIn = false; ///< past the waits of its entry
  };

  static bool isDone(const Unit &u) { return u.at == u.schedule->entries.size(); }

  /// Schedules at both ends.
  size_t endsOf(Flight flight) const {
    const Transfer &t = p.transfers[static_cast<size_t>(flight.transfer)];
    return p.programs[static_cast<size_t>(t.from)].schedules.size() +
           p.programs[static_cast<size_t>(t.to)].schedules.size();
  }
  bool isStarted(Flight flight) const {
    auto found = starts.find(flight);
    return found != starts.end() && found->second.size() == endsOf(flight);
  }

  bool advance(Unit &u) {
    if (isDone(u))
      return false;
    const Entry &entry = u.schedule->entries[u.at];
    if (!u.isIn) {
      if (!std::ranges::all_of(entry.waits, [&](Flight f) { return isStarted(f); }))
        return false;
      u.isIn = true;
      u.met += communicates(*u.program, entry);
      return true;
    }
    if (communicates(*u.program, entry) && !allMet(u))
      return false;
    for (Flight flight : entry.starts)
      starts[flight].push_back(u.schedule);
    ++u.at;
    u.isIn = false;
    return true;
  }

  bool allMet(const Unit &u) const {
    return std::ranges::all_of(units, [&](const Unit &other) {
      return other.number != u.number || other.met >= u.met;
    });
  }

  std::string reason(const Unit &u) const {
    std::string at = placeOf(*u.program, *u.schedule, u.at);
    for (Flight flight : u.schedule->entries[u.at].waits) {
      if (isStarted(flight))
        continue;
      const Transfer &t = p.transfers[static_cast<size_t>(flight.transfer)];
      return at + " waits for " + textOf(p, flight) + ", which program " +
             p.programs[missing(t, flight)].name + " has not started then";
    }
    return at + " waits for the other ranks of its program, which do not come to it";
  }

  size_t missing(const Transfer &t, Flight flight) const {
    auto found = starts.find(flight);
    for (const Unit &unit : units)
      if ((unit.number == static_cast<size_t>(t.from) ||
           unit.number == static_cast<size_t>(t.to)) &&
          (found == starts.end() || !std::ranges::count(found->second, unit.schedule)))
        return unit.number;
    return static_cast<size_t>(t.from);
  }

  const Pipeline &p;
  std::vector<Unit> units;
  std::map<Flight, std::vector<const Schedule *>> starts;
};

} // namespace

Expected<void> schedule::checkRanges(const Pipeline &pipeline) {
  return Ranges(pipeline).run();
}

Expected<void> schedule::check(const Pipeline &pipeline) {
  if (auto ok = checkRanges(pipeline); !ok)
    return ok;
  for (size_t i = 0; i < pipeline.programs.size(); ++i) {
    const Program &program = pipeline.programs[i];
    for (const Schedule &schedule : program.schedules) {
      SlotContents contents(pipeline, i);
      for (size_t e = 0; e < schedule.entries.size(); ++e)
        if (auto ok = contents.next(schedule.entries[e]); !ok)
          return makeError(placeOf(program, schedule, e) + ": " + ok.error().message);
      if (auto ok = contents.end(); !ok)
        return makeError("program " + program.name + ": " + ok.error().message);
    }
    if (auto ok = checkOrder(program); !ok)
      return ok;
  }
  return Greedy(pipeline).run();
}
