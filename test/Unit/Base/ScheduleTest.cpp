//===- ScheduleTest.cpp - Good schedules pass, damaged ones do not --------===//
//
// The judge is a simulation that shares nothing with the check: it runs a schedule with
// random timing on symbolic values, where a transfer moves its data at some moment
// between the second start and the first wait. A damaged schedule is one that hangs, or
// gives other outputs than the whole one, under some timing.
//
//===----------------------------------------------------------------------===//
#include "Pipelines.h"

#include <catch2/catch.hpp>

#include <map>
#include <optional>
#include <random>
#include <set>

using namespace partita;
using namespace partita::schedule;
using pipelines::Kind;

namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  return (x ^ (x >> 29)) * 0x94d049bb133111eb + 1;
}

/// Runs a pipeline once. Numbers that lead nowhere are the damage of other tests.
class Simulation {
public:
  Simulation(const Pipeline &pipeline, uint64_t seed) : p(pipeline), random(seed) {
    for (size_t i = 0; i < p.programs.size(); ++i)
      for (const Schedule &schedule : p.programs[i].schedules)
        units.push_back(unit(i, schedule));
  }

  /// The values of all outputs; none if it hangs.
  std::optional<std::vector<uint64_t>> run() {
    while (std::ranges::any_of(units, [](const Unit &u) { return !u.isDone(); })) {
      std::vector<size_t> order;
      for (size_t i = 0; i < units.size() + 1; ++i)
        order.push_back(i);
      std::shuffle(order.begin(), order.end(), random);
      bool moved = false;
      for (size_t i = 0; i < order.size() && !moved; ++i)
        moved = order[i] == units.size() ? copy() : advance(units[order[i]]);
      if (!moved)
        return std::nullopt;
    }
    while (copy())
      ;
    std::vector<uint64_t> outputs;
    for (const Unit &u : units)
      for (size_t b = 0; b < u.slots.size(); ++b)
        if (p.programs[u.program].buffers[b].output)
          outputs.insert(outputs.end(), u.slots[b].begin(), u.slots[b].end());
    if (!fits)
      outputs.push_back(1);
    return outputs;
  }

private:
  struct Unit {
    size_t program = 0;
    const Schedule *schedule = nullptr;
    std::vector<std::vector<uint64_t>> slots;
    size_t at = 0, collectives = 0;
    bool isIn = false;
    std::set<Flight> started;
    bool isDone() const { return at == schedule->entries.size(); }
  };
  struct Moving {
    std::vector<size_t> ends; ///< units that have started it
    bool copied = false;
  };

  Unit unit(size_t program, const Schedule &schedule) {
    Unit u;
    u.program = program;
    u.schedule = &schedule;
    for (const Buffer &b : p.programs[program].buffers) {
      auto &list = u.slots.emplace_back(static_cast<size_t>(b.slots), 0);
      for (size_t s = 0; b.input && s < list.size(); ++s)
        list[s] = mix(std::hash<std::string>()(b.name), s);
    }
    return u;
  }

  uint64_t &slot(Unit &u, int64_t buffer, int64_t m) {
    auto &list = u.slots[static_cast<size_t>(buffer)];
    return list[static_cast<size_t>(m) % list.size()];
  }

  size_t endsOf(const Transfer &t) const {
    return p.programs[static_cast<size_t>(t.from)].schedules.size() +
           p.programs[static_cast<size_t>(t.to)].schedules.size();
  }

  /// Moves the data of one transfer that both ends have started.
  bool copy() {
    std::vector<Flight> ready;
    for (auto &[flight, moving] : flights)
      if (!moving.copied &&
          moving.ends.size() == endsOf(p.transfers[static_cast<size_t>(flight.transfer)]))
        ready.push_back(flight);
    if (ready.empty())
      return false;
    Flight flight = ready[random() % ready.size()];
    Moving &moving = flights[flight];
    const Transfer &t = p.transfers[static_cast<size_t>(flight.transfer)];
    uint64_t value = 0;
    for (size_t e : moving.ends)
      if (units[e].program == static_cast<size_t>(t.from))
        value = mix(value, slot(units[e], t.fromBuffer, flight.microBatch));
    for (size_t e : moving.ends)
      if (units[e].program == static_cast<size_t>(t.to))
        slot(units[e], t.toBuffer, flight.microBatch) = value;
    moving.copied = true;
    return true;
  }

  void start(Unit &u, Flight flight) {
    auto number = static_cast<size_t>(&u - units.data());
    if (!u.started.insert(flight).second)
      fits = false; // in flight twice
    Moving &moving = flights[flight];
    moving.ends.push_back(number);
    const Transfer &t = p.transfers[static_cast<size_t>(flight.transfer)];
    // A message may come in pieces.
    if (u.program == static_cast<size_t>(t.to))
      slot(u, t.toBuffer, flight.microBatch) = random();
  }

  bool mayPass(const Unit &u, Flight flight) {
    if (!u.started.count(flight))
      return true; // nothing is in flight: a runtime does not wait
    return flights[flight].copied;
  }

  bool advance(Unit &u) {
    if (u.isDone())
      return false;
    const Entry &entry = u.schedule->entries[u.at];
    const Program &program = p.programs[u.program];
    bool meets = entry.segment >= 0 &&
                 program.segments[static_cast<size_t>(entry.segment)].communicates;
    if (!u.isIn) {
      for (Flight flight : entry.waits)
        if (!mayPass(u, flight))
          return false;
      u.isIn = true;
      if (meets)
        calls[u.program].resize(std::max(calls[u.program].size(), u.collectives + 1));
      if (meets)
        calls[u.program][u.collectives++].push_back({entry.segment, entry.microBatch});
      return true;
    }
    if (meets && !meet(u))
      return false;
    if (entry.segment >= 0)
      runSegment(u, program.segments[static_cast<size_t>(entry.segment)], entry);
    for (Flight flight : entry.starts)
      start(u, flight);
    ++u.at;
    u.isIn = false;
    return true;
  }

  /// The k-th collective of all ranks is one call.
  bool meet(Unit &u) {
    auto &call = calls[u.program][u.collectives - 1];
    if (call.size() < p.programs[u.program].schedules.size())
      return false;
    fits &= std::ranges::all_of(call, [&](auto &c) { return c == call[0]; });
    return true;
  }

  void runSegment(Unit &u, const Segment &segment, const Entry &entry) {
    uint64_t inputs = mix(std::hash<std::string>()(segment.name), 7);
    auto isSum = [&](int64_t b) { return std::ranges::count(segment.writes, b) != 0; };
    for (int64_t b : segment.reads)
      if (!isSum(b))
        inputs = mix(inputs, slot(u, b, entry.microBatch));
    for (int64_t b : segment.writes) {
      bool sums = std::ranges::count(segment.reads, b) != 0;
      uint64_t value = mix(inputs, static_cast<uint64_t>(b));
      uint64_t &to = slot(u, b, entry.microBatch);
      to = sums ? to + value : value;
    }
  }

  const Pipeline &p;
  std::mt19937_64 random;
  std::vector<Unit> units;
  std::map<Flight, Moving> flights;
  std::map<size_t, std::vector<std::vector<std::pair<int64_t, int64_t>>>> calls;
  bool fits = true;
};

const std::vector<pipelines::Shape> shapes = {{Kind::AllForward, 4, 1, 8, 1},
                                              {Kind::OneForwardOneBackward, 4, 1, 8, 1},
                                              {Kind::Interleaved, 4, 2, 8, 1},
                                              {Kind::ZeroBubble, 4, 1, 8, 1},
                                              {Kind::OneForwardOneBackward, 2, 1, 4, 2},
                                              {Kind::ZeroBubble, 3, 1, 5, 2},
                                              {Kind::Interleaved, 2, 3, 4, 2},
                                              {Kind::OneForwardOneBackward, 8, 1, 16, 1}};

std::vector<uint64_t> outputsOf(const Pipeline &p) { return *Simulation(p, 1).run(); }

bool isWrong(const Pipeline &p, const std::vector<uint64_t> &expected, int timings) {
  for (int t = 0; t < timings; ++t) {
    auto outputs = Simulation(p, static_cast<uint64_t>(t) * 77 + 5).run();
    if (!outputs || *outputs != expected)
      return true;
  }
  return false;
}

/// One change that a hand or a tool could have made.
class Damage {
public:
  Damage(Pipeline &p, std::mt19937 &random) : p(p), random(random) {}

  std::string make() {
    Program &program = pick(p.programs);
    entries = &pick(program.schedules).entries;
    switch (random() % 9) {
    case 0:
      return drop(&Entry::waits, "a wait dropped");
    case 1:
      return drop(&Entry::starts, "a start dropped");
    case 2: {
      Buffer &b = pick(program.buffers);
      if (b.slots == 1 || b.input || b.output)
        return "";
      --b.slots;
      return "slots fewer";
    }
    case 3:
      std::swap(pick(*entries), pick(*entries));
      return "entries exchanged";
    case 4: {
      size_t at = random() % entries->size();
      Entry moved = (*entries)[at];
      entries->erase(entries->begin() + static_cast<std::ptrdiff_t>(at));
      entries->insert(entries->begin() +
                          static_cast<std::ptrdiff_t>(random() % (entries->size() + 1)),
                      moved);
      return "an entry moved";
    }
    case 5:
      entries->erase(entries->begin() +
                     static_cast<std::ptrdiff_t>(random() % entries->size()));
      return "an entry dropped";
    case 6:
      pick(*entries).microBatch = static_cast<int64_t>(random()) % p.microBatches;
      return "another micro-batch";
    case 7:
      return move(&Entry::waits, "a wait moved");
    default:
      return move(&Entry::starts, "a start moved");
    }
  }

private:
  template <typename T> T &pick(std::vector<T> &list) {
    return list[random() % list.size()];
  }
  using List = std::vector<Flight> Entry::*;
  std::string drop(List list, const char *what) {
    auto &flights = pick(*entries).*list;
    if (flights.empty())
      return "";
    flights.erase(flights.begin() +
                  static_cast<std::ptrdiff_t>(random() % flights.size()));
    return what;
  }
  std::string move(List list, const char *what) {
    auto &flights = pick(*entries).*list;
    if (flights.empty())
      return "";
    Flight flight = flights.back();
    flights.pop_back();
    (pick(*entries).*list).push_back(flight);
    return what;
  }

  Pipeline &p;
  std::mt19937 &random;
  std::vector<Entry> *entries = nullptr;
};

} // namespace

TEST_CASE("known schedules pass the check and give one result whatever the timing") {
  for (const pipelines::Shape &shape : shapes) {
    Pipeline p = pipelines::make(shape);
    INFO(pipelines::nameOf(shape.kind) << ", " << shape.programs << " programs");
    auto ok = check(p);
    INFO((ok ? "" : ok.error().message));
    REQUIRE(ok);
    CHECK(!isWrong(p, outputsOf(p), 50));
  }
}

TEST_CASE("a 1F1B schedule needs as many slots as stages lie behind") {
  Pipeline p = pipelines::make({Kind::OneForwardOneBackward, 4, 1, 8, 1});
  for (size_t i = 0; i < 4; ++i)
    CHECK(p.programs[i].buffers[pipelines::Kept].slots == static_cast<int64_t>(4 - i));
}

TEST_CASE("damaged schedules are refused, and no good one") {
  std::mt19937 random(7);
  std::map<std::string, int> damaged;
  int wrong = 0, missed = 0, harmless = 0, strict = 0;
  std::vector<Pipeline> good;
  std::vector<std::vector<uint64_t>> expected;
  for (const pipelines::Shape &shape : shapes) {
    good.push_back(pipelines::make(shape));
    expected.push_back(outputsOf(good.back()));
  }
  while (wrong < 400) {
    size_t k = random() % good.size();
    Pipeline p = good[k];
    std::string what = Damage(p, random).make();
    if (what.empty())
      continue;
    auto ok = check(p);
    bool bad = isWrong(p, expected[k], 25);
    ++(bad ? wrong : harmless);
    strict += !bad && !ok;
    if (bad)
      ++damaged[what];
    if (bad && ok) {
      ++missed;
      UNSCOPED_INFO(what << " in " << pipelines::nameOf(shapes[k].kind)
                         << " was not seen");
    }
  }
  CHECK(missed == 0);
  CHECK(damaged.size() == 9);
  std::printf("schedules: %d damaged, %d not refused; %d changes that do no harm, %d of "
              "them refused\n",
              wrong, missed, harmless, strict);
}

/// A segment that reads a state, one that updates it, one that reads what it is then.
static Pipeline withState(int64_t microBatches, int64_t slots, bool once) {
  Pipeline p;
  p.microBatches = microBatches;
  Program &program = p.programs.emplace_back();
  program.name = "p";
  program.buffers = {{"s", slots, false, false, true}, {"a", slots}, {"b", slots}};
  program.segments = {{"before", once, false, {0}, {1}},
                      {"update", once, false, {0, 1}, {0}},
                      {"behind", once, false, {0}, {2}}};
  return p;
}

static std::string stateCheck(Pipeline p,
                              std::vector<std::pair<int64_t, int64_t>> order) {
  schedule::Schedule &s = p.programs[0].schedules.emplace_back();
  for (auto [segment, m] : order)
    s.entries.push_back({segment, m, {}, {}});
  auto ok = check(p);
  return ok ? "none" : ok.error().message;
}

TEST_CASE("a state is touched in the order of the program") {
  using Order = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(stateCheck(withState(1, 1, true), Order{{0, 0}, {1, 0}, {2, 0}}) == "none");
  CHECK(stateCheck(withState(1, 1, true), Order{{1, 0}, {0, 0}, {2, 0}}) ==
        "program p, entry 0 (update): buffer a is read and holds nothing");
  CHECK(stateCheck(withState(1, 1, true), Order{{0, 0}, {2, 0}, {1, 0}}) ==
        "program p, entry 2 (update): state s is written after behind, which the program "
        "lists later");
  // One for all micro-batches: each of them reads the same.
  Pipeline shared = withState(2, 1, false);
  shared.programs[0].buffers[1].slots = shared.programs[0].buffers[2].slots = 2;
  CHECK(stateCheck(shared, Order{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}) ==
        "none");
  CHECK(stateCheck(shared, Order{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {2, 1}}) ==
        "program p, entry 2 (before of micro-batch 1): state s is read after update, "
        "which the program lists later");
  CHECK(stateCheck(shared, Order{{0, 0}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {2, 1}}) ==
        "program p, entry 3 (update of micro-batch 0): state s is read after "
        "micro-batch 1");
  // One for each.
  CHECK(stateCheck(withState(2, 2, false),
                   Order{{0, 1}, {1, 1}, {0, 0}, {2, 1}, {1, 0}, {2, 0}}) == "none");
  Pipeline three = withState(3, 2, false);
  CHECK(stateCheck(three, Order{}) ==
        "program p: buffer s has 2 slots for 3 micro-batches");
  // What may be skipped leaves what was there.
  Pipeline skipped = withState(1, 1, true);
  skipped.programs[0].segments[1].mayBeSkipped = true;
  CHECK(stateCheck(skipped, Order{{0, 0}, {1, 0}, {2, 0}}) == "none");
  skipped.programs[0].segments[2].mayBeSkipped = true;
  CHECK(stateCheck(skipped, Order{{0, 0}, {1, 0}, {2, 0}}) ==
        "program p: segment behind may be skipped and writes buffer b, which it does not "
        "read");
}

TEST_CASE("the check says what is wrong where") {
  auto reason = [](auto edit) {
    Pipeline p = pipelines::make({Kind::OneForwardOneBackward, 2, 1, 2, 1});
    edit(p);
    auto ok = check(p);
    return ok ? std::string("none") : ok.error().message;
  };
  auto find = [](Pipeline &p, size_t program, int64_t segment, int64_t m) -> Entry & {
    for (Entry &entry : p.programs[program].schedules[0].entries)
      if (entry.segment == segment && entry.microBatch == m)
        return entry;
    throw 1;
  };
  using namespace pipelines;
  CHECK(reason([](Pipeline &) {}) == "none");
  CHECK(reason([&](Pipeline &p) { find(p, 1, Forward, 1).waits.clear(); }) ==
        "program p1, entry 5 (forward1 of micro-batch 1): buffer in1 is being filled by "
        "transfer act0");
  CHECK(reason([&](Pipeline &p) {
          find(p, 0, Forward, 1).starts.clear();
        }).find("of micro-batch 1, which it has not started") != std::string::npos);
  CHECK(reason([&](Pipeline &p) { p.programs[0].buffers[Kept].slots = 1; }) ==
        "program p0, entry 4 (backward0 of micro-batch 0): buffer kept0 is read for "
        "micro-batch 0 and holds micro-batch 1");
  CHECK(reason([&](Pipeline &p) {
          find(p, 1, Weights, 1).segment = -1;
        }).find("there is no micro-batch 1") != std::string::npos);
  CHECK(reason([&](Pipeline &p) {
          std::swap(find(p, 1, Weights, 1), find(p, 1, Update, 0));
        }).find("update1): buffer sum1 is read and holds a sum of 1 runs") !=
        std::string::npos);
  // Each waits for what the other starts behind its own wait: the first stage gives
  // micro-batch 1 when it has the gradient of 0, the last one wants it before.
  Pipeline p = ordered({Kind::OneForwardOneBackward, 2, 1, 2, 1});
  auto sequence = [&](size_t program, std::vector<std::pair<Part, int64_t>> steps) {
    auto &entries = p.programs[program].schedules[0].entries;
    entries.clear();
    for (auto [part, m] : steps)
      entries.push_back({part, m, {}, {}});
  };
  sequence(0, {{Zero, 0},
               {Forward, 0},
               {Backward, 0},
               {Weights, 0},
               {Forward, 1},
               {Backward, 1},
               {Weights, 1},
               {Update, 0}});
  sequence(1, {{Zero, 0},
               {Forward, 0},
               {Forward, 1},
               {Backward, 0},
               {Weights, 0},
               {Backward, 1},
               {Weights, 1},
               {Update, 0}});
  complete(p);
  CHECK(check(p).error().message ==
        "the schedules never end: program p0, entry 3 (backward0 of micro-batch 0) waits "
        "for transfer grad0 of micro-batch 0, which program p1 has not started then");
  CHECK(reason([&](Pipeline &p) { p.programs[0].numRanks = 2; }) ==
        "program p0: only 1 of 2 ranks have a schedule");
  CHECK(reason([&](Pipeline &p) { p.transfers[0].toBuffer = 99; }) ==
        "transfer act0: it has no buffer at one of its ends");
  CHECK(reason([&](Pipeline &p) {
          p.programs[0].schedules[0].entries[3].segment = 77;
        }) == "program p0, entry 3: there is no segment 77");
}
