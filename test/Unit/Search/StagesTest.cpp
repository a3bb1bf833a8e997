//===- StagesTest.cpp - Cuts into stages ----------------------------------===//
#include "RandomProgram.h"

#include "partita/Comm/StepTimeline.h"
#include "partita/Search/StepCut.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>

using namespace partita;
using namespace partita::search;

namespace {
/// The slowest stage of an assignment, and the bytes that cross borders, each border that
/// a value crosses once.
std::pair<double, double> costOf(const FlowGraph &graph, const StageCost &cost,
                                 const std::vector<int32_t> &stage, int32_t stages) {
  std::vector<double> time(static_cast<size_t>(stages), 0);
  std::vector<double> crossing(static_cast<size_t>(stages) + 1, 0);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (stage[i] >= 0)
      time[static_cast<size_t>(stage[i])] += cost.seconds[i];
  double all = 0;
  for (const FlowValue &value : graph.values) {
    int32_t from = stage[static_cast<size_t>(value.producer)], last = from;
    if (from < 0)
      continue;
    for (const FlowUse &use : value.uses)
      last = std::max(last, stage[static_cast<size_t>(use.op)]);
    for (int32_t border = from + 1; border <= last; ++border) {
      auto bytes = static_cast<double>(elementCount(value.shape) * value.elementBytes);
      crossing[static_cast<size_t>(border)] += bytes;
      all += bytes;
    }
  }
  double slowest = 0;
  for (size_t s = 0; s < time.size(); ++s)
    slowest =
        std::max(slowest, time[s] / (cost.ranks.empty() ? 1 : cost.ranks[s]) +
                              (crossing[s] + crossing[s + 1]) / cost.bytesPerSecond);
  return {slowest, all};
}

/// Every cut of the ops in their order.
std::pair<double, double> bestOf(const FlowGraph &graph, const StageCost &cost,
                                 const std::vector<size_t> &ops, int32_t stages) {
  std::pair<double, double> best{1e300, 1e300};
  std::vector<int32_t> stage(graph.ops.size(), -1);
  auto place = [&](auto &self, size_t next, int32_t now) -> void {
    if (next == ops.size()) {
      if (now == stages - 1)
        best = std::min(best, costOf(graph, cost, stage, stages));
      return;
    }
    for (int32_t s : {now, now + 1})
      if (s < stages && (next > 0 || s == 0)) {
        stage[ops[next]] = s;
        self(self, next + 1, s);
      }
  };
  place(place, 0, 0);
  return best;
}

/// A chain with skips: x₀ → x₁ → …, some of which read an older one as well.
FlowGraph chain(std::mt19937 &random, size_t length) {
  Program p;
  p.argument("x0", {4});
  for (size_t i = 1; i <= length; ++i) {
    std::vector<std::string> operands{"x" + std::to_string(i - 1)};
    if (random() % 3 == 0 && i > 2)
      operands.push_back("x" + std::to_string(1 + random() % (i - 2)));
    p.elementwise("x" + std::to_string(i), operands);
  }
  p.result("x" + std::to_string(length));
  return p.build(*Mesh::parse(""));
}
} // namespace

TEST_CASE("stages: no cut is better") {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    FlowGraph graph = chain(random, 4 + random() % 8);
    StageCost cost;
    cost.bytesPerSecond = round % 2 ? 4 : 1000;
    std::vector<size_t> ops;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      cost.seconds.push_back(1 + random() % 9);
      if (graph.ops[i].kind == FlowKind::Compute)
        ops.push_back(i);
    }
    for (int32_t stages : {1, 2, 3, 4}) {
      // Half of them with stages of different sizes.
      cost.ranks.clear();
      for (int32_t s = 0; round % 4 > 1 && s < stages; ++s)
        cost.ranks.push_back(1 + random() % 4);
      auto found = cutIntoStages(graph, cost, stages);
      REQUIRE(found);
      auto best = bestOf(graph, cost, ops, stages),
           ours = costOf(graph, cost, *found, stages);
      CHECK(ours.first == Approx(best.first));
      CHECK(ours.second == Approx(best.second));
    }
  }
}

TEST_CASE("stages: the ops of a state are in one") {
  Program p;
  p.argument("x0", {4});
  p.argument("s", {4});
  for (int i = 1; i <= 6; ++i) {
    std::vector<std::string> operands{"x" + std::to_string(i - 1)};
    if (i == 3)
      operands.push_back("s");
    p.elementwise("x" + std::to_string(i), operands);
  }
  p.result("x6");
  p.update("s", "x4"); // which x5 reads too
  FlowGraph graph = p.build(*Mesh::parse(""));
  StageCost cost{std::vector<double>(graph.ops.size(), 1), 1000};
  auto stageOf = [&](const std::vector<int32_t> &stages, const std::string &name) {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (graph.ops[i].name == name)
        return stages[i];
    return -2;
  };
  for (int32_t stages : {2, 3, 4}) {
    auto found = cutIntoStages(graph, cost, stages);
    REQUIRE(found);
    CHECK(stageOf(*found, "x3") == stageOf(*found, "x4"));
    CHECK(stageOf(*found, "x3") == stageOf(*found, "x5"));
  }
  auto found = cutIntoStages(graph, cost, 5);
  REQUIRE(!found);
  CHECK(found.error().message == "the program can be cut into 4 stages at most, as the "
                                 "ops of a state are in one stage; 5 are asked for");
  auto named = stagesByGlob(graph, {{"x5", 1}}, "hints");
  REQUIRE(!named);
  CHECK(
      named.error().message ==
      "hints: state 's' is used by 'x3' in stage 0 and by 'x5' in stage 1; a state lies "
      "in one stage");
}

TEST_CASE("stages: more than ops is an error") {
  std::mt19937 random(7);
  FlowGraph graph = chain(random, 3);
  StageCost cost{std::vector<double>(graph.ops.size(), 1), 1};
  auto found = cutIntoStages(graph, cost, 4);
  REQUIRE(!found);
  CHECK(found.error().message == "the program has 3 ops, too few for 4 stages");
}

TEST_CASE("stages: by glob") {
  Program p;
  p.argument("x", {4});
  p.elementwise("a", {"x"});
  p.elementwise("b", {"a"});
  p.elementwise("c", {"b"});
  p.elementwise("d", {"c", "a"});
  p.result("d");
  FlowGraph graph = p.build(*Mesh::parse(""));
  auto of = [&](const std::vector<int32_t> &stages, const std::string &name) {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (graph.ops[i].name == name)
        return stages[i];
    return -2;
  };
  auto found = stagesByGlob(graph, {{"b", 1}, {"d", 2}}, "hints");
  REQUIRE(found);
  CHECK(of(*found, "a") == 0);
  CHECK(of(*found, "b") == 1);
  CHECK(of(*found, "c") == 1);
  CHECK(of(*found, "d") == 2);
  CHECK(of(*found, "x") == -1);
  auto error = [&](const std::vector<std::pair<std::string, int32_t>> &globs) {
    auto result = stagesByGlob(graph, globs, "hints");
    return result ? "" : result.error().message;
  };
  CHECK(error({{"b", 1}, {"c", 0}}) ==
        "hints: node 'c' is to be in stage 0 and reads 'b', which is in stage 1");
  CHECK(error({{"b", 1}, {"[bc]", 2}}) ==
        "hints: node 'b' is to be in stage 1 by 'b' and in stage 2 by '[bc]'");
  CHECK(error({{"d", 2}}) == "hints: stage 1 has no node");
  CHECK(error({{"e", 1}}).starts_with("hints: no node and no module is named 'e'"));
}

namespace {
/// Seconds of a step whose ops are in these stages, to the end of the last updates.
double stepSeconds(const FlowGraph &graph, const StepWork &work, double bytesPerSecond,
                   const PipelineStep &step, const std::vector<int32_t> &stage) {
  std::vector<StepTimes> times(step.groupOf.size(), {0, 0, 0, 0});
  std::vector<double> updates(step.turns.size(), 0);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (stage[i] < 0)
      continue;
    const auto s = static_cast<size_t>(stage[i]);
    times[s].forward += work.forward[i];
    times[s].backward += work.backward[i];
    times[s].weight += work.weight[i];
    updates[static_cast<size_t>(step.groupOf[s])] += work.update[i];
  }
  for (const FlowValue &value : graph.values) {
    const int32_t from = stage[static_cast<size_t>(value.producer)];
    int32_t last = from;
    for (const FlowUse &use : value.uses)
      last = std::max(last, stage[static_cast<size_t>(use.op)]);
    for (int32_t s = from; from >= 0 && s < last; ++s)
      times[static_cast<size_t>(s)].transfer +=
          static_cast<double>(elementCount(value.shape) * value.elementBytes) /
          bytesPerSecond;
  }
  const StepTimeline line = simulate(step, times);
  double seconds = 0;
  for (size_t g = 0; g < updates.size(); ++g)
    seconds = std::max(seconds, line.spans[g].back().end + updates[g]);
  return seconds;
}

PipelineStep stepOf(const char *schedule, int64_t stages, int64_t groups, int64_t count) {
  auto placed = placedStages(*stepScheduleOf(schedule), stages, groups);
  REQUIRE(placed);
  auto step = makeStep(*stepScheduleOf(schedule), *placed, count);
  REQUIRE(step);
  return *step;
}

StepWork randomWork(std::mt19937 &random, size_t ops) {
  StepWork work;
  for (auto *part : {&work.forward, &work.backward, &work.weight, &work.update})
    for (size_t i = 0; i < ops; ++i)
      part->push_back(static_cast<double>(random() % 9));
  return work;
}
} // namespace

TEST_CASE("stages: no cut of a step is faster") {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    FlowGraph graph = chain(random, 4 + random() % 7);
    const StepWork work = randomWork(random, graph.ops.size());
    std::vector<size_t> ops;
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (graph.ops[i].kind == FlowKind::Compute)
        ops.push_back(i);
    for (const PipelineStep &step :
         {stepOf("1f1b", 2, 2, 4), stepOf("zb-h1", 3, 3, 4), stepOf("zb-v", 4, 2, 4),
          stepOf("interleaved", 4, 2, 4)}) {
      const StageCost link{{}, round % 2 ? 16.0 : 1000.0};
      auto found = cutStep(graph, work, link, step);
      REQUIRE(found);
      double best = 1e300;
      std::vector<int32_t> stage(graph.ops.size(), -1);
      auto place = [&](auto &self, size_t next, int32_t now) -> void {
        if (next == ops.size()) {
          if (now == step.stages() - 1)
            best = std::min(best,
                            stepSeconds(graph, work, link.bytesPerSecond, step, stage));
          return;
        }
        for (int32_t s : {now, now + 1})
          if (s < step.stages() && (next > 0 || s == 0)) {
            stage[ops[next]] = s;
            self(self, next + 1, s);
          }
      };
      place(place, 0, 0);
      CHECK(stepSeconds(graph, work, link.bytesPerSecond, step, found->stages) ==
            Approx(best));
    }
  }
}

TEST_CASE("stages: moves make a large step faster than even stages") {
  std::mt19937 random(12);
  FlowGraph graph = chain(random, 300);
  const StepWork work = randomWork(random, graph.ops.size());
  const StageCost link{{}, 1000};
  for (const PipelineStep &step : {stepOf("1f1b", 6, 6, 12), stepOf("zb-v", 8, 4, 8),
                                   stepOf("interleaved", 8, 4, 8)}) {
    StageCost even = link;
    even.seconds = work.perMicroBatch(step.microBatches);
    auto found = cutStep(graph, work, link, step);
    auto before = cutIntoStages(graph, even, static_cast<int32_t>(step.stages()));
    REQUIRE(found);
    REQUIRE(before);
    auto seconds = [&](const std::vector<int32_t> &stage) {
      return stepSeconds(graph, work, link.bytesPerSecond, step, stage);
    };
    CHECK(seconds(found->stages) <= seconds(*before));
    // Even groups take under 1F1B their share of all work and as much of a bubble as
    // there are groups less one, of m micro-batches.
    double all = 0;
    for (double op : even.seconds)
      all += op * static_cast<double>(step.microBatches);
    const double waits =
        static_cast<double>(step.groups() - 1) / static_cast<double>(step.microBatches);
    CHECK(seconds(found->stages) <
          1.05 * (1 + waits) * all / static_cast<double>(step.groups()));
  }
}

TEST_CASE("stages: of cuts of a step one that fits is taken") {
  std::mt19937 random(13);
  FlowGraph graph = chain(random, 24);
  StepWork work;
  for (auto *part : {&work.forward, &work.backward, &work.weight, &work.update})
    part->assign(graph.ops.size(), 1);
  work.kept.assign(graph.ops.size(), 10);
  work.states.assign(graph.ops.size(), 1);
  const StageCost link{{}, 1e9};
  const PipelineStep step = stepOf("1f1b", 4, 4, 8);
  // Stage s keeps 4 − s micro-batches, and what it is sent.
  auto mostBytes = [&](const std::vector<int32_t> &stages) {
    std::vector<double> bytes(4, 0);
    for (size_t i = 0; i < stages.size(); ++i) {
      if (stages[i] < 0)
        continue;
      const auto s = static_cast<size_t>(stages[i]);
      bytes[s] += 1 + 10 * (4.0 - static_cast<double>(s));
      for (int32_t result : graph.ops[i].results) {
        const FlowValue &value = graph.values[static_cast<size_t>(result)];
        int32_t last = stages[i];
        for (const FlowUse &use : value.uses)
          last = std::max(last, stages[static_cast<size_t>(use.op)]);
        for (int32_t to = stages[i] + 1; to <= last; ++to)
          bytes[static_cast<size_t>(to)] +=
              static_cast<double>(value.bytes()) * (4.0 - to);
      }
    }
    return std::ranges::max(bytes);
  };
  auto free = cutStep(graph, work, link, step);
  REQUIRE(free);
  CHECK(free->bytes == Approx(mostBytes(free->stages)));
  const double limit = 0.9 * free->bytes;
  auto fitting = cutStep(graph, work, link, step, {limit});
  REQUIRE(fitting);
  CHECK(fitting->bytes == Approx(mostBytes(fitting->stages)));
  CHECK(fitting->bytes <= limit);
  auto seconds = [&](const std::vector<int32_t> &stages) {
    return stepSeconds(graph, work, link.bytesPerSecond, step, stages);
  };
  CHECK(seconds(fitting->stages) >= seconds(free->stages));
  auto none = cutStep(graph, work, link, step, {1});
  REQUIRE(none);
  CHECK(none->stages == free->stages);
  // Ranks share what is kept, and states if they may.
  StageCost two = link;
  two.ranks.assign(4, 2);
  auto shared = cutStep(graph, work, two, step);
  auto whole = cutStep(graph, work, two, step, {1e9, /*sharesStates=*/false});
  REQUIRE(shared);
  REQUIRE(whole);
  CHECK(shared->bytes < whole->bytes);
}

TEST_CASE("stages: what follows from a parameter is where it is read") {
  // Copies of all weights stand before the first op that reads one.
  Program p;
  p.argument("x0", {4});
  for (int i = 1; i <= 6; ++i) {
    const std::string n = std::to_string(i);
    p.source("w" + n, {4});
    p.elementwise("c" + n, {"w" + n});
  }
  for (int i = 1; i <= 6; ++i)
    p.elementwise("x" + std::to_string(i),
                  {"x" + std::to_string(i - 1), "c" + std::to_string(i)});
  p.elementwise("y", {"x6", "c2"}); // of two stages: in the first
  p.result("y");
  const FlowGraph graph = p.build(*Mesh::parse(""));
  StageCost cost{std::vector<double>(graph.ops.size(), 1), 1e9};
  auto stages = cutIntoStages(graph, cost, 3);
  REQUIRE(stages);
  std::map<std::string, int32_t> of;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    of[graph.ops[i].name] = (*stages)[i];
  for (int i = 1; i <= 6; ++i)
    CHECK(of.at("c" + std::to_string(i)) == of.at("x" + std::to_string(i)));
  CHECK(of.at("y") == 2);
  CHECK(of.at("c2") < 2);
}

TEST_CASE("stages: a program beside another has its nodes where those are") {
  Program p;
  p.argument("x", {4});
  p.argument("labels", {4});
  p.argument("s", {4});
  p.elementwise("a", {"x"});
  p.elementwise("b", {"a", "s"});
  p.elementwise("new", {"b"});
  p.elementwise("c", {"new"});
  p.elementwise("hot", {"labels"});
  p.elementwise("loss", {"c", "hot"});
  p.result("loss");
  FlowGraph graph = p.build(*Mesh::parse(""));
  for (FlowOp &op : graph.ops)
    if (op.name == "s")
      op.kind = FlowKind::State;
  using Stages = std::map<std::string, int32_t>;
  auto found = [&](const Stages &nodes, const Stages &states) {
    auto stages = stagesBeside(graph, nodes, states);
    Stages named;
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (graph.ops[i].kind == FlowKind::Compute)
        named[graph.ops[i].name] = stages[i];
    return named;
  };
  // Nodes that the other has not follow what they read, or come to who reads them.
  CHECK(found({{"a", 0}, {"b", 1}, {"c", 2}}, {{"s", 1}}) ==
        Stages{{"a", 0}, {"b", 1}, {"new", 1}, {"c", 2}, {"hot", 2}, {"loss", 2}});
  // Readers of a later stage, or of a state there, are there too.
  CHECK(found({{"a", 1}, {"b", 0}, {"c", 1}}, {{"s", 2}}) ==
        Stages{{"a", 1}, {"b", 2}, {"new", 2}, {"c", 2}, {"hot", 2}, {"loss", 2}});
  CHECK(found({}, {})["loss"] == 0);
}
