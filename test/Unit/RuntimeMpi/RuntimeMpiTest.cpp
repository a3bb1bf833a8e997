//===- RuntimeMpiTest.cpp - Collectives of an MPI job ---------------------===//
//
// Started by mpirun with N ranks: runs the cases of every mesh of N devices, and with a
// number as argument that many random schedules of calls in flight instead. Prints one
// line on rank 0; the exit status is 1 if anything is wrong on any rank.
//
//===----------------------------------------------------------------------===//
#include "../Runtime/CollectiveCases.h"
#include "partita/Runtime/Clocks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

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

int main(int argc, char **argv) {
  auto transport = runtime::connectMpi();
  if (!transport) {
    std::fprintf(stderr, "%s\n", transport.error().message.c_str());
    return 1;
  }
  if (argc > 1)
    return runSchedules(**transport, std::strtoull(argv[1], nullptr, 10));
  size_t calls = 0, wrong = compareClocks(**transport) + compareMaxima(**transport);
  for (const char *text : collectives::meshes) {
    Mesh mesh = *Mesh::parse(text);
    if (mesh.numRanks() != (*transport)->size())
      continue;
    auto cases = collectives::casesFor(mesh);
    TaskTable table = collectives::tableOf(mesh, cases);
    auto failures = collectives::runCases(**transport, mesh, cases, table);
    for (const std::string &what : failures)
      std::fprintf(stderr, "wrong: %s\n", what.c_str());
    calls += cases.size();
    wrong += failures.size();
    int ragged = 0;
    for (uint64_t seed = 0; seed < 50; ++seed)
      ragged += collectives::runRagged(**transport, mesh, seed);
    if (ragged != 0)
      std::fprintf(stderr, "wrong: %d all-to-alls by counts on %s\n", ragged, text);
    int bundled = collectives::runBuckets(**transport, mesh, cases, table);
    if (bundled != 0)
      std::fprintf(stderr, "wrong: %d results of buckets on %s\n", bundled, text);
    wrong += static_cast<size_t>(ragged + bundled);
  }
  if ((*transport)->rank() == 0)
    std::printf("mpi collectives: %zu calls on %d ranks, %zu wrong on rank 0\n", calls,
                (*transport)->size(), wrong);
  return calls == 0 || wrong != 0;
}
