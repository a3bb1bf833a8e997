//===- CallTimelineTest.cpp - Calls in flight beside a rank's tasks -------===//
#include "partita/Comm/CallTimeline.h"

#include <catch2/catch.hpp>

using namespace partita;
using Kind = RankTask::Kind;

TEST_CASE("call timeline: what kernels hide costs nothing") {
  const std::vector<RankTask> tasks{{Kind::Compute, 1}, {Kind::Start, 0.5, 1},
                                    {Kind::Compute, 3}, {Kind::Wait, 0.25, 1},
                                    {Kind::Call, 1},    {Kind::Compute, 1}};
  CHECK(simulateCalls(tasks, 0).seconds == Approx(6.75));
  CHECK(simulateCalls(tasks, 0).calls == 2);
  // The first call is over at 1 + 1 of 4.75, the second one takes as long as before.
  CHECK(simulateCalls(tasks, 1).seconds == Approx(6.75));
  // Over at 1 + 4 = 5, then at 5 + 4 = 9.
  CHECK(simulateCalls(tasks, 4).seconds == Approx(10));
  CHECK(simulateCalls(tasks, 4).inCalls == Approx(8));
}

TEST_CASE("call timeline: calls follow each other, whatever starts meanwhile") {
  const std::vector<RankTask> tasks{{Kind::Start, 0, 1},
                                    {Kind::Start, 0, 2},
                                    {Kind::Compute, 1},
                                    {Kind::Wait, 0, 2},
                                    {Kind::Wait, 0, 1}};
  CHECK(simulateCalls(tasks, 2).seconds == Approx(4));
  // A handle that is used again is that of the later call.
  std::vector<RankTask> twice = tasks;
  twice.insert(twice.end(), tasks.begin(), tasks.end());
  CHECK(simulateCalls(twice, 2).seconds == Approx(8));
}
