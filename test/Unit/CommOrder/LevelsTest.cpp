//===- LevelsTest.cpp - A collective as several ---------------------------===//
#include "partita/Comm/Levels.h"

#include "Collectives.h"

#include <catch2/catch.hpp>

using namespace partita;

namespace {
Topology cluster(const std::vector<int64_t> &sizes) {
  Topology topology;
  for (int64_t size : sizes)
    topology.levels.push_back({"l", size, 1e9, 1e-6});
  return topology;
}

std::vector<Step> byLevel(const Mesh &mesh, const Step &step,
                          const std::vector<int64_t> &sizes) {
  const Topology topology = cluster(sizes);
  return stepsByLevel(
      mesh, step, Placement::create(mesh, topology)->divide(step.axes, sizes.size() - 1));
}
} // namespace

TEST_CASE("levels: an all-reduce sends a part of its bytes across hosts") {
  const Mesh mesh = *Mesh::parse("dp=8");
  const Step step =
      stepOf(mesh, StepKind::AllReduce, "[{3}, {16} ] partial sum {dp}", "[{3}, {16} ]");
  const std::vector<Step> steps = byLevel(mesh, step, {4, 2});
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].kind == StepKind::ReduceScatter);
  CHECK(mesh.str(steps[0].axes) == "{dp:(2)4}");
  CHECK(steps[0].dim == 1); // 3 rows are no 4 parts
  CHECK(steps[1].kind == StepKind::AllReduce);
  CHECK(mesh.str(steps[1].axes) == "{dp:(1)2}");
  CHECK(steps[1].before.localElements() == 12);
  CHECK(steps[1].receivedElements == 12); // of 48
  CHECK(steps[2].kind == StepKind::AllGather);
  CHECK(areEqual(mesh, step, steps));
}

TEST_CASE("levels: every split of steps and meshes gives the same elements") {
  struct Case {
    const char *mesh;
    StepKind kind;
    const char *before, *after;
    std::vector<int64_t> cluster;
    size_t steps;
  };
  const Case cases[] = {
      {"dp=8", StepKind::AllGather, "[{16: dp}, {3} ]", "[{16}, {3} ]", {4, 2}, 2},
      {"dp=8", StepKind::AllGather, "[{5}, {24: dp} ]", "[{5}, {24} ]", {2, 4}, 2},
      {"dp=8",
       StepKind::ReduceScatter,
       "[{16}, {3} ] partial sum {dp}",
       "[{16: dp}, {3} ]",
       {4, 2},
       2},
      {"dp=6",
       StepKind::ReduceScatter,
       "[{2}, {12}, {2} ] partial sum {dp}",
       "[{2}, {12: dp}, {2} ]",
       {3, 2},
       2},
      {"dp=4,tp=2",
       StepKind::AllReduce,
       "[{8: tp}, {3} ] partial sum {dp}",
       "[{8: tp}, {3} ]",
       {4, 2},
       3},
      {"dp=4,tp=2",
       StepKind::AllReduce,
       "[{6}, {4} ] partial sum {dp, tp}",
       "[{6}, {4} ]",
       {4, 2},
       3},
      {"dp=4,tp=2", StepKind::AllGather, "[{16: tp, dp} ]", "[{16: tp} ]", {4, 2}, 2},
      {"dp=4,tp=2", StepKind::AllGather, "[{16: dp, tp} ]", "[{16} ]", {4, 2}, 2},
      // Another reduction is around it.
      {"dp=4,tp=2",
       StepKind::AllReduce,
       "[{8} ] partial sum {tp}, max {dp}",
       "[{8} ] partial sum {tp}",
       {4, 2},
       3},
      // The ranks of a host do not have neighbouring blocks.
      {"dp=4,tp=2", StepKind::AllGather, "[{16: tp, dp} ]", "[{16} ]", {4, 2}, 0},
      // 6 elements are no 4 parts; 13 rows have padding.
      {"dp=8", StepKind::AllReduce, "[{6} ] partial sum {dp}", "[{6} ]", {4, 2}, 0},
      {"dp=8", StepKind::AllGather, "[{13/16: dp} ]", "[{13/16} ]", {4, 2}, 0},
      // All ranks are in one unit, or each in its own.
      {"dp=2,tp=4", StepKind::AllReduce, "[{8} ] partial sum {tp}", "[{8} ]", {4, 2}, 0},
      {"dp=2,tp=4", StepKind::AllReduce, "[{8} ] partial sum {dp}", "[{8} ]", {4, 2}, 0},
  };
  for (const Case &c : cases) {
    const Mesh mesh = *Mesh::parse(c.mesh);
    const Step step = stepOf(mesh, c.kind, c.before, c.after);
    const std::vector<Step> steps = byLevel(mesh, step, c.cluster);
    INFO(c.mesh << " " << c.before << " to " << c.after);
    CHECK(steps.size() == c.steps);
    if (!steps.empty())
      CHECK(areEqual(mesh, step, steps));
  }
}
