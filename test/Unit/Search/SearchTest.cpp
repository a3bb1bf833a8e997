//===- SearchTest.cpp - Plans of small programs ---------------------------===//
#include "RandomProgram.h"

#include "partita/Cost/Compute.h"
#include "partita/Search/Search.h"
#include "partita/Solver/Solve.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

static Topology host(const Mesh &mesh) {
  return topologyOfMesh(mesh, *devicePreset("cpu-core"), *levelPreset("shared-memory"),
                        Host{});
}

static const Strategy &strategyOf(const FlowGraph &graph, const Found &found,
                                  const std::string &name) {
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].name == name)
      return found.plan.strategies[i];
  FAIL("no op is named " << name);
  return found.plan.strategies[0];
}

TEST_CASE("one picture is split where it is read through windows") {
  Program program;
  program.argument("x", {3, 64, 64});
  program.source("w", {3, 256});
  // What splitting saves is more than its halo costs.
  program.windows("conv", "x", 3, 2, 1, 1);
  program.work("conv", 100000000);
  program.elementwise("relu", {"conv"});
  program.contract("mix", "relu", "w", "c h w, c o -> o h w");
  program.work("mix", 2 * 3 * 64 * 32 * 256);
  program.result("mix");
  FlowGraph graph = program.build(*Mesh::parse("tp=4"));
  Topology topology = host(graph.mesh);
  Placement placement = *Placement::create(graph.mesh, topology);
  auto found = search::search(graph, placement, {});
  REQUIRE(found);
  CHECK(found->proved);
  CHECK(!strategyOf(graph, *found, "conv").axes().empty());
  CHECK(!strategyOf(graph, *found, "mix").axes().empty());
}

TEST_CASE("a batch that moves nothing is split, the more ways the better") {
  Program program;
  program.argument("x", {8, 64, 64});
  program.source("w", {64, 64});
  program.contract("y", "x", "w", "b m k, k n -> b m n");
  program.work("y", 2LL * 8 * 64 * 64 * 64);
  program.result("y");
  FlowGraph graph = program.build(*Mesh::parse("dp=2,tp=2"));
  Topology topology = host(graph.mesh);
  Placement placement = *Placement::create(graph.mesh, topology);
  auto found = search::search(graph, placement, {});
  REQUIRE(found);
  CHECK(found->proved);
  CHECK(found->cost.receivedBytes == 0);
  CHECK(product(strategyOf(graph, *found, "y").axes()) == 4);
}

TEST_CASE("weights that no cache holds from run to run come from memory") {
  Program program;
  program.argument("x", {64, 64});
  for (int i = 0; i < 3; ++i) {
    std::string n = std::to_string(i);
    program.source("w" + n, {64, 64});
    program.contract("y" + n, i ? "y" + std::to_string(i - 1) : "x", "w" + n,
                     "m k, k n -> m n");
    program.work("y" + n, 2 * 64 * 64 * 64);
  }
  program.result("y2");
  FlowGraph graph = program.build(*Mesh::parse("tp=1"));
  const int64_t weight = 64 * 64 * 4;
  // All that one product touches fits into either cache, all weights into the larger.
  for (auto [cache, far] :
       {std::pair(3 * weight, int64_t(0)), {3 * weight - 1, weight}}) {
    Topology topology = host(graph.mesh);
    topology.device.cache = cache;
    topology.device.cacheBandwidth = 100e9;
    Placement placement = *Placement::create(graph.mesh, topology);
    auto found = search::search(graph, placement, {});
    REQUIRE(found);
    double seconds = matmulSeconds(topology.device, DType::F32, {1, 64, 64, 64},
                                   static_cast<double>(far));
    CHECK(found->cost.total() == 3 * picosOf(seconds));
  }
}

TEST_CASE("memory: weights are split where they do not fit, and who has none is named") {
  Program program;
  program.argument("x", {1024, 256});
  for (int i = 0; i < 4; ++i) {
    std::string n = std::to_string(i);
    program.source("w" + n, {256, 256});
    program.contract("y" + n, i ? "y" + std::to_string(i - 1) : "x", "w" + n,
                     "m k, k n -> m n");
    program.work("y" + n, 2 * 1024 * 256 * 256);
  }
  program.result("y3");
  FlowGraph graph = program.build(*Mesh::parse("dp=2,tp=2"));
  Topology topology = host(graph.mesh);
  Placement placement = *Placement::create(graph.mesh, topology);
  constexpr int64_t weights = 4 * 256 * 256 * 4;
  SearchOptions options;
  auto free = search::search(graph, placement, options);
  REQUIRE(free);
  CHECK(free->memory.weights == weights); // rows of x are split instead
  // Rows split four ways are half of a weight's bytes twice.
  CHECK(free->memory.peak() == weights + weights / 2);
  // Split two ways, weights take half, and rows of which each rank has one of two and
  // half of the columns three quarters.
  options.memoryLimit = weights / 2 + weights * 3 / 4;
  auto tight = search::search(graph, placement, options);
  REQUIRE(tight);
  CHECK(tight->proved);
  CHECK(tight->memory.peak() <= *options.memoryLimit);
  CHECK(tight->cost.total() > free->cost.total());
  options.memoryLimit = weights / 8;
  auto none = search::search(graph, placement, options);
  REQUIRE(!none);
  CHECK(none.error().message.find("infeasible") != std::string::npos);
  REQUIRE(none.error().least);
  CHECK(none.error().least->weights == weights / 4);
  CHECK(none.error().least->largest.size() == 5);
}

TEST_CASE("pins are followed, and impossible ones are an error") {
  Program program;
  program.argument("x", {8, 8});
  program.source("w", {8, 8});
  program.contract("y", "x", "w", "m k, k n -> m n");
  program.result("y");
  FlowGraph graph = program.build(*Mesh::parse("tp=4"));
  Topology topology = host(graph.mesh);
  Placement placement = *Placement::create(graph.mesh, topology);
  int32_t op = 0;
  while (graph.ops[static_cast<size_t>(op)].name != "y")
    ++op;
  for (size_t f = 0; f < 3; ++f) {
    SearchOptions options;
    int32_t atom = graph.atomsOf(op, static_cast<int32_t>(f))[0];
    options.pins[atom] = graph.mesh.all();
    auto found = search::search(graph, placement, options);
    REQUIRE(found);
    CHECK(strategyOf(graph, *found, "y").factors[f].sharded());
    // Half of the axis is a unit of its own then.
    options.pins[atom] = {{0, 1, 2}};
    found = search::search(graph, placement, options);
    REQUIRE(found);
    CHECK(strategyOf(graph, *found, "y").factors[f].factors[0].shards() == 2);
  }
  SearchOptions options;
  for (size_t f = 0; f < 2; ++f)
    options.pins[graph.atomsOf(op, static_cast<int32_t>(f))[0]] = graph.mesh.all();
  auto none = search::search(graph, placement, options);
  REQUIRE(!none);
  CHECK(none.error().message == "'y' has no strategy that follows what is asked of it");
}

TEST_CASE("memory of a plan is never more than the model's rows say") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    test::RandomProgram make(seed);
    Mesh mesh = *Mesh::parse(seed % 2 ? "a=4" : "a=2,b=2");
    FlowGraph graph = make.make(5).build(mesh);
    Topology topology = make.topology(mesh);
    Placement placement = *Placement::create(mesh, topology);
    Timing timing(graph, placement);
    auto model = buildModel(timing, {int64_t(1) << 40, {}});
    REQUIRE(model);
    auto solution = solver::solve(model->problem);
    REQUIRE(solution);
    auto price = solver::verify(model->problem, solution->choices);
    REQUIRE(price);
    MemoryUse use = memoryOf(timing, model->decide(timing, solution->choices));
    INFO("seed " << seed);
    CHECK(use.peak() <= static_cast<int64_t>(price->peakBytes) + model->fixedBytes);
  }
}

/// Gives every choice a cost that no rule knows of, and every copy of a source one.
static void addBiases(Model &model, test::RandomProgram &make) {
  for (solver::Variable &variable : model.problem.variables)
    for (int64_t &cost : variable.costs)
      cost += static_cast<int64_t>(make.below(2'000'000));
  for (const SharedSource &source : model.sources)
    for (uint32_t copy : source.copies)
      model.problem.variables[copy].costs = {0, 1};
}

namespace {
/// A small program or training step on four ranks, with a model that counts all bytes.
struct Counted {
  Counted(uint64_t seed, Rows rows)
      : make(seed), graph((seed % 4 < 2 ? make.make(5) : make.step())
                              .build(*Mesh::parse(seed % 2 ? "a=4" : "a=2,b=2"))),
        topology(make.topology(graph.mesh)),
        placement(*Placement::create(graph.mesh, topology)), timing(graph, placement) {
    ModelOptions options;
    options.memoryLimit = int64_t(1) << 40;
    options.rows = rows;
    options.smallSource = options.leastGathered = 64;
    model = *buildModel(timing, options);
    model.problem.memoryLimit.reset(); // bytes are only counted
  }
  test::RandomProgram make;
  FlowGraph graph;
  Topology topology;
  Placement placement;
  Timing timing;
  Model model;
};
} // namespace

TEST_CASE("memory of a plan is never less than the model's least rows say") {
  int equal = 0, working = 0, count = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Counted it(seed, Rows::Least);
    addBiases(it.model, it.make);
    auto solution = solver::solve(it.model.problem);
    REQUIRE(solution);
    auto price = solver::priceOf(it.model.problem, solution->choices);
    REQUIRE(price);
    MemoryUse use = memoryOf(it.timing, it.model.decide(it.timing, solution->choices));
    CHECK(use.peak() >= static_cast<int64_t>(price->peakBytes));
    const NecessaryMemory sums =
        necessaryMemory(it.timing, it.graph.mesh.numRanks(), true);
    CHECK(use.peak() >= sums.bytes());
    working += sums.working > 0;
    equal += use.peak() == static_cast<int64_t>(price->peakBytes);
    ++count;
  }
  CHECK(equal > count / 2);
  CHECK(working > count / 10);
}

TEST_CASE("an answer stands for the plan that is read off it") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Counted it(seed, Rows::Most);
    const solver::Problem plain = it.model.problem;
    addBiases(it.model, it.make);
    auto solution = solver::solve(it.model.problem);
    REQUIRE(solution);
    const Decided plan = it.model.decide(it.timing, solution->choices);
    auto answer = it.model.answerOf(it.timing, plan);
    REQUIRE(answer);
    auto given = solver::verify(plain, solution->choices),
         read = solver::verify(plain, *answer);
    REQUIRE(read);
    // Copies that nobody reads are no part of a plan.
    CHECK(read->cost <= given->cost);
    CHECK(evaluate(it.timing, it.model.decide(it.timing, *answer)).total() <=
          evaluate(it.timing, plan).total());
  }
}

TEST_CASE("weights that do not fit are kept in parts and gathered before they are read") {
  Program program;
  program.argument("x", {4096, 256});
  for (int i = 0; i < 4; ++i) {
    std::string n = std::to_string(i);
    program.source("w" + n, {256, 256});
    program.contract("y" + n, i ? "y" + std::to_string(i - 1) : "x", "w" + n,
                     "m k, k n -> m n");
    program.work("y" + n, 2LL * 4096 * 256 * 256);
  }
  program.result("y3");
  FlowGraph graph = program.build(*Mesh::parse("dp=4"));
  Topology topology = host(graph.mesh);
  Placement placement = *Placement::create(graph.mesh, topology);
  constexpr int64_t weight = 256 * 256 * 4, rows = 4096 / 4 * 256 * 4;
  SearchOptions options;
  // All weights in parts, one of them whole, and what it reads and makes.
  options.memoryLimit = 4 * weight / 4 + weight + 2 * rows;
  auto found = search::search(graph, placement, options);
  REQUIRE(found);
  CHECK(found->proved);
  CHECK(found->memory.peak() <= *options.memoryLimit);
  CHECK(found->plan.servings.size() >= 3);
  for (const auto &[value, served] : found->plan.servings) {
    REQUIRE(served.size() == 2);
    CHECK(served[0].layout.localElements() * 4 == weight / 4);
    CHECK(served[1].from == 0);
    CHECK(served[1].layout.localElements() * 4 == weight);
  }
  // A gather brings three quarters of a weight.
  CHECK(found->cost.receivedBytes ==
        static_cast<int64_t>(found->plan.servings.size()) * weight * 3 / 4);
}

/// Products one after the other, whose weights are most of what there is.
static Program chain(test::RandomProgram &make) {
  Program program;
  int64_t rows = static_cast<int64_t>(4 << make.below(3)), columns = 8;
  program.argument("x", {rows, columns});
  std::string before = "x";
  for (size_t i = 0, n = 2 + make.below(3); i < n; ++i) {
    std::string name = "y" + std::to_string(i);
    int64_t next = static_cast<int64_t>(8 << make.below(3));
    program.source(name + ".w", {columns, next});
    program.contract(name, before, name + ".w", "m k, k n -> m n");
    program.work(name, 2 * rows * columns * next);
    before = name;
    columns = next;
  }
  program.result(before);
  return program;
}

TEST_CASE("under memory: rounds find what the solver finds with all moments at once") {
  size_t gathered = 0, tight = 0, equal = 0, proved = 0, only = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    test::RandomProgram make(seed);
    Mesh mesh = *Mesh::parse(seed % 2 ? "a=4" : "a=2,b=2");
    FlowGraph graph = (seed % 3 ? make.make(5) : chain(make)).build(mesh);
    Topology topology = make.topology(mesh);
    Placement placement = *Placement::create(mesh, topology);
    Timing timing(graph, placement);
    ModelOptions model{int64_t(1) << 40, {}};
    model.smallSource = model.leastGathered = 1;
    auto free = buildModel(timing, model);
    REQUIRE(free);
    auto fastest = solver::solve(free->problem);
    REQUIRE(fastest);
    auto price = solver::priceOf(free->problem, fastest->choices);
    REQUIRE(price);
    // Less than the fastest plan takes.
    SearchOptions options;
    options.model = model;
    options.memoryLimit = static_cast<int64_t>(price->peakBytes) * (seed / 3 % 3 + 3) / 7;
    model.memoryLimit = options.memoryLimit;
    auto limited = buildModel(timing, model);
    REQUIRE(limited);
    auto all = solver::solve(limited->problem);
    REQUIRE(all);
    auto found = search::search(graph, placement, options);
    // Usages have all copies of a value alive as long as one is, so the solver may miss a
    // plan that fits, or the fastest that does.
    REQUIRE((found.has_value() || all->choices.empty()));
    if (!found)
      continue;
    CHECK(found->memory.peak() <= *options.memoryLimit);
    // A known plan may be outside of the space that the bound speaks of.
    if (found->cost.total() < found->bound.time) {
      CHECK(found->bound.within != 0);
      CHECK(!found->proved);
    }
    if (all->choices.empty()) {
      ++only;
      continue;
    }
    ++tight;
    REQUIRE(found->cost.total() <= static_cast<Picos>(all->cost));
    bool isEqual = found->cost.total() == static_cast<Picos>(all->cost);
    equal += isEqual;
    proved += found->proved;
    for (const auto &[value, served] : found->plan.servings)
      gathered +=
          graph
              .ops[static_cast<size_t>(graph.values[static_cast<size_t>(value)].producer)]
              .kind == FlowKind::Source;
  }
  CHECK(tight > 60);
  CHECK(only < 5);
  CHECK(equal + 5 > tight);
  CHECK(proved + 5 > tight);
  CHECK(gathered > 10);
}
