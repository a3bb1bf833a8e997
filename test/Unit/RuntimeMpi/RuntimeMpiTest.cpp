//===- RuntimeMpiTest.cpp - Collectives of an MPI job ---------------------===//
//
//   unit-runtime-mpi auto|on|off [SCHEDULES]
// Started by mpirun with N ranks: runs the cases of every mesh of N devices, and with a
// number that many random schedules of calls in flight instead. The first argument is
// what connectMpi gets; where ranks share memory, everything is run with buffers in that
// memory and with buffers elsewhere. Prints one line on rank 0; the exit status is 1 if
// anything is wrong on any rank.
//
//===----------------------------------------------------------------------===//
#include "../Runtime/CollectiveCases.h"
#include "partita/Runtime/Clocks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory_resource>
#include <optional>

using namespace partita;

static int runSchedules(runtime::Transport &transport, uint64_t count) {
  uint64_t number = 0;
  int wrong = 0;
  while (number < count) {
    uint64_t before = number;
    for (const char *text : collectives::flightMeshes) {
      Mesh mesh = *Mesh::parse(text);
      if (mesh.numRanks() != transport.size() || number == count)
        continue;
      auto cases = collectives::casesFor(mesh);
      // Many of a mesh in a row, as its cases take long to make.
      for (uint64_t i = 0; i < 50 && number < count; ++i, ++number)
        wrong += collectives::runFlights(
            transport, mesh, collectives::Flights(mesh, cases, number), number);
    }
    if (number == before)
      return 1;
  }
  if (transport.rank() == 0)
    std::printf("mpi schedules of %zu calls: %d on %d ranks, %d wrong on rank 0\n",
                collectives::numFlightCalls, static_cast<int>(number), transport.size(),
                wrong);
  return wrong != 0;
}

/// A clock per rank, as far apart as those of machines that were started on other days.
static int thisRank;
static double otherDay(int rank) { return 90000.25 * rank; }
static double ownClock() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count() +
         otherDay(thisRank);
}
static double sameClock() { return ownClock() - otherDay(thisRank); }

/// The ranks of this job share one clock. Clocks that differ are found to within what a
/// meeting takes; clocks that do not are left alone.
static size_t compareClocks(runtime::Transport &transport) {
  thisRank = transport.rank();
  std::vector<double> leads, none;
  double begin = sameClock();
  bool ok = runtime::compareClocks(transport, ownClock, leads);
  double took = sameClock() - begin;
  ok &= runtime::compareClocks(transport, sameClock, none);
  // What ranks have recorded comes to rank 0 by its clock.
  transport.barrier();
  RunSpan span{RunSpan::Request, 0, 0, 0, ownClock(), ownClock(), 0, 0};
  std::vector<std::vector<RunSpan>> spans(static_cast<size_t>(transport.size()));
  begin = sameClock();
  ok &= runtime::exchangeSpans(transport, {span}, spans, ownClock);
  double longest = took + sameClock() - begin + 1;
  size_t wrong = !ok;
  for (size_t r = 1; r < leads.size(); ++r)
    if (spans[r].size() != 1 || std::abs(spans[r][0].begin - span.begin) > longest) {
      std::fprintf(stderr, "wrong: the record of rank %zu is of another time\n", r);
      ++wrong;
    }
  for (size_t r = 0; r < leads.size(); ++r) {
    bool isNear = std::abs(leads[r] - otherDay(static_cast<int>(r))) <= took / 2;
    if (!isNear || none[r] != 0)
      std::fprintf(stderr, "wrong: clock of rank %zu is ahead by %.9f and by %.9f\n", r,
                   leads[r], none[r]);
    wrong += !isNear || none[r] != 0;
  }
  return wrong;
}

/// Every process gives its rank where it is even, and its rank with the sign turned.
static size_t compareMaxima(runtime::Transport &transport) {
  int64_t rank = transport.rank(), last = transport.size() - 1;
  int64_t values[] = {rank % 2 == 0 ? rank : 0, -rank, rank};
  const int64_t expected[] = {last - last % 2, 0, last};
  bool ok = transport.maximum(values) && std::ranges::equal(values, expected);
  if (!ok)
    std::fprintf(stderr, "wrong: the largest values are %d, %d, %d\n", int(values[0]),
                 int(values[1]), int(values[2]));
  return !ok;
}

/// Memory of the transport, if it has its own, as where buffers are made.
class Room {
public:
  explicit Room(runtime::Transport &transport) : block(*transport.memory(bytes)) {
    if (block)
      arena.emplace(block.get(), bytes, std::pmr::null_memory_resource());
    if (block)
      pool.emplace(&*arena);
  }
  bool isThere() const { return block != nullptr; }
  void begin() { std::pmr::set_default_resource(&*pool); }
  void end() { std::pmr::set_default_resource(nullptr); }

private:
  static constexpr uint64_t bytes = uint64_t(640) << 20;
  runtime::Memory block;
  std::optional<std::pmr::monotonic_buffer_resource> arena;
  std::optional<std::pmr::unsynchronized_pool_resource> pool;
};

/// Everything but schedules; the number of calls.
static size_t runAll(runtime::Transport &transport, size_t &wrong) {
  size_t calls = 0;
  for (const char *text : collectives::meshes) {
    Mesh mesh = *Mesh::parse(text);
    if (mesh.numRanks() != transport.size())
      continue;
    auto cases = collectives::casesFor(mesh);
    TaskTable table = collectives::tableOf(mesh, cases);
    auto failures = collectives::runCases(transport, mesh, cases, table);
    for (const std::string &what : failures)
      std::fprintf(stderr, "wrong: %s\n", what.c_str());
    calls += cases.size();
    wrong += failures.size();
    int ragged = 0;
    for (uint64_t seed = 0; seed < 50; ++seed)
      ragged += collectives::runRagged(transport, mesh, seed);
    if (ragged != 0)
      std::fprintf(stderr, "wrong: %d all-to-alls by counts on %s\n", ragged, text);
    int bundled = collectives::runBuckets(transport, mesh, cases, table);
    if (bundled != 0)
      std::fprintf(stderr, "wrong: %d results of buckets on %s\n", bundled, text);
    int other = collectives::runBits(transport, mesh, cases, table);
    if (other != 0)
      std::fprintf(stderr, "wrong: %d results have other bits than threads give on %s\n",
                   other, text);
    wrong += static_cast<size_t>(ragged + bundled + other);
  }
  return calls;
}

/// More memory than there are addresses is an error, and leaves all as it was.
static size_t askTooMuch(runtime::Transport &transport) {
  auto memory = transport.memory(uint64_t(1) << 50);
  bool isRefused = !memory && memory.error().message.starts_with(
                                  "cannot allocate 1125899906842624 bytes that ranks");
  if (!isRefused)
    std::fprintf(stderr, "wrong: 2^50 bytes of shared memory are not refused\n");
  return !isRefused;
}

/// A thread beside the rank does its share while the rank does nothing.
static size_t leaveToThread(runtime::Transport &transport) {
  Mesh mesh = *Mesh::create({{"a", transport.size()}});
  auto cases = collectives::casesFor(mesh);
  TaskTable table = collectives::tableOf(mesh, cases);
  auto large = std::ranges::find_if(cases, [](const collectives::Case &c) {
    return c.what == "all-reduce" && c.sourceCount == 5000 && !c.inPlace;
  });
  if (auto ok = transport.beginThread(); !ok || large == cases.end())
    return 1;
  const auto number = static_cast<size_t>(large - cases.begin());
  auto source = collectives::sourceOf(transport.rank(), large->sourceCount, large->reduce,
                                      large->type);
  collectives::Bytes target = collectives::emptyTarget(*large);
  void *places[] = {source.data(), target.data()};
  const int call = *transport.prepare(table, table.task(number));
  bool ok = transport.start(call, places);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (transport.movedMeanwhile() == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool isMoved = transport.movedMeanwhile() > 0;
  ok &= transport.wait(call) &&
        target == collectives::expectedOf(*large, mesh, transport.rank());
  if (!ok || !isMoved)
    std::fprintf(stderr, "wrong: a share that is left to a thread is %s\n",
                 ok ? "not done" : "done wrong");
  return (!ok || !isMoved) + static_cast<size_t>(runSchedules(transport, 10));
}

int main(int argc, char **argv) {
  auto asked = runtime::parseMpiWindow(argc > 1 ? argv[1] : "auto");
  if (!asked)
    return 1;
  auto transport = runtime::connectMpi(*asked);
  if (!transport) {
    std::fprintf(stderr, "%s\n", transport.error().message.c_str());
    return 1;
  }
  Room room(**transport);
  const uint64_t schedules = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  size_t calls = schedules, wrong = 0;
  for (bool isInside : {true, false}) {
    if (isInside && !room.isThere())
      continue;
    if (isInside)
      room.begin();
    if (schedules != 0)
      wrong += static_cast<size_t>(runSchedules(**transport, schedules));
    else
      calls += runAll(**transport, wrong);
    room.end();
  }
  if (schedules == 0) {
    wrong += compareClocks(**transport) + compareMaxima(**transport);
    if (room.isThere())
      wrong += askTooMuch(**transport) + leaveToThread(**transport);
  }
  const bool isShared = room.isThere();
  if ((*asked == runtime::MpiWindow::Off && isShared) ||
      (*asked == runtime::MpiWindow::On && !isShared && (*transport)->size() > 1)) {
    std::fprintf(stderr, "wrong: ranks %s memory\n", isShared ? "share" : "do not share");
    ++wrong;
  }
  if ((*transport)->rank() == 0)
    std::printf("mpi collectives: %zu calls on %d ranks, %zu wrong on rank 0\n", calls,
                (*transport)->size(), wrong);
  return calls == 0 || wrong != 0;
}
