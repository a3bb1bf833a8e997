//===- RecomputeBoundTest.cpp - Bounds of steps that repeat something -----===//
#include "TwoLayers.h"

#include "partita/Search/RecomputeBound.h"
#include "partita/Solver/Solve.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

static int64_t pricedBytes(const std::vector<solver::Usage> &usages, size_t choice,
                           int64_t price) {
  int64_t sum = 0;
  for (const solver::Usage &usage : usages)
    sum += usage.bytes[choice] * price;
  return sum;
}

/// A plan that is the least for costs with something random and a price of all bytes
/// added.
static Decided randomPlan(Timing &timing, test::RandomProgram &random) {
  ModelOptions options;
  options.memoryLimit = int64_t(1) << 40;
  auto model = buildModel(timing, options);
  REQUIRE(model);
  const size_t noise[] = {1, 1000, 20'000'000};
  const int64_t prices[] = {0, 100, 10'000, 1'000'000};
  const size_t most = noise[random.below(3)];
  const int64_t price = prices[random.below(4)];
  for (solver::Variable &variable : model->problem.variables)
    for (size_t c = 0; c < variable.costs.size(); ++c)
      if (variable.costs[c] < solver::forbidden)
        variable.costs[c] += static_cast<int64_t>(random.below(most)) +
                             pricedBytes(variable.usages, c, price);
  for (solver::Edge &edge : model->problem.edges) {
    std::vector<int64_t> costs(edge.costs.begin(), edge.costs.end());
    for (size_t c = 0; c < costs.size(); ++c)
      if (costs[c] < solver::forbidden)
        costs[c] += pricedBytes(edge.usages, c, price);
    edge.costs = std::move(costs);
  }
  auto solution = solver::solve(model->problem);
  REQUIRE(solution);
  REQUIRE(!solution->choices.empty());
  return model->decide(timing, solution->choices);
}

TEST_CASE("no random plan that repeats something is below the bound under its memory") {
  const std::set<std::string> variants[] = {{}, {"h0"}, {"y0"}, {"h0", "y0"}};
  int above = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    test::RandomProgram random(seed);
    const Shape shape = test::randomSizes(random);
    Mesh mesh = *Mesh::parse(seed % 2 ? "a=2,b=2" : "a=4");
    Topology topology = random.topology(mesh);
    Placement placement = *Placement::create(mesh, topology);
    FlowGraph plain = test::TwoLayers(shape, {}).make().build(mesh);
    auto free = boundOfAnyRecompute(plain, placement, {});
    REQUIRE(free);
    REQUIRE(free->has_value());
    for (const std::set<std::string> &repeated : variants) {
      FlowGraph graph = test::TwoLayers(shape, repeated).make().build(mesh);
      Timing timing(graph, placement);
      for (int draw = 0; draw < 3; ++draw) {
        INFO("seed " << seed << ", " << repeated.size() << " repeated, draw " << draw);
        Decided plan = randomPlan(timing, random);
        SearchOptions options;
        options.memoryLimit = memoryOf(timing, plan).peak();
        auto bound = boundOfAnyRecompute(plain, placement, options);
        REQUIRE(bound);
        REQUIRE(bound->has_value());
        CHECK((*bound)->time <= evaluate(timing, plan).total());
        CHECK((*bound)->time >= (*free)->time);
        above += (*bound)->time > (*free)->time;
      }
    }
  }
  // The limit has to be felt, or the test says nothing of memory.
  CHECK(above > 20);
}

TEST_CASE("an answer that repeats nothing has the time and bytes of its plan") {
  int compared = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    test::RandomProgram random(seed);
    const Shape shape = test::randomSizes(random);
    Mesh mesh = *Mesh::parse(seed % 2 ? "a=2,b=2" : "a=4");
    Topology topology = random.topology(mesh);
    Placement placement = *Placement::create(mesh, topology);
    FlowGraph graph = test::TwoLayers(shape, {}).make().build(mesh);
    Timing timing(graph, placement);
    const Decided plan = randomPlan(timing, random);
    ModelOptions options;
    options.memoryLimit = int64_t(1) << 40;
    options.given = &plan.strategies;
    auto plain = buildModel(timing, options);
    options.anyRecompute = true;
    auto again = buildModel(timing, options);
    REQUIRE(plain);
    REQUIRE(again);
    auto one = solver::solve(plain->problem), two = solver::solve(again->problem);
    REQUIRE(one);
    REQUIRE(two);
    CHECK(two->cost <= one->cost); // repeating may save traffic
    bool isRepeated = false;
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (again->variables[op] >= 0 && again->repeatedBlocks[op] > 0)
        isRepeated |= two->choices[static_cast<size_t>(again->variables[op])] >=
                      again->choices[op]->size();
    if (isRepeated)
      continue;
    ++compared;
    CHECK(int64_t(two->cost) == int64_t(one->cost));
    CHECK(solver::priceOf(again->problem, two->choices)->peakBytes ==
          solver::priceOf(plain->problem, one->choices)->peakBytes);
  }
  CHECK(compared > 10);
}

TEST_CASE("under a limit more and more is proposed, and nothing that does not fit") {
  Mesh mesh = *Mesh::parse("a=4");
  test::RandomProgram random(3);
  Topology topology = random.topology(mesh);
  Placement placement = *Placement::create(mesh, topology);
  FlowGraph graph = test::TwoLayers({32, 32, 32, 32}, {}).make().build(mesh);
  size_t most = 0;
  for (int64_t limit = 30'000; limit > 4'000; limit -= 500) {
    SearchOptions options;
    options.memoryLimit = limit;
    auto proposed = proposeRecompute(graph, placement, options);
    REQUIRE(proposed);
    if (!proposed->has_value())
      break;
    for (const RecomputeChoice::Node &node : (*proposed)->nodes)
      CHECK((node.name == "h0" || node.name == "y0" || node.name == "y1"));
    most = std::max(most, (*proposed)->nodes.size());
    std::set<std::string> names;
    for (const RecomputeChoice::Node &node : (*proposed)->nodes)
      if (node.name != "y1")
        names.insert(node.name);
    FlowGraph step = test::TwoLayers({32, 32, 32, 32}, names).make().build(mesh);
    auto found = search::search(step, placement, options);
    CHECK(found.has_value());
  }
  CHECK(most > 0);
}

TEST_CASE("states alone that exceed a limit leave no step") {
  Mesh mesh = *Mesh::parse("a=4");
  test::RandomProgram random(1);
  Topology topology = random.topology(mesh);
  Placement placement = *Placement::create(mesh, topology);
  FlowGraph graph = test::TwoLayers({8, 8, 8, 8}, {}).make().build(mesh);
  SearchOptions options;
  options.memoryLimit = 3 * 8 * 8 * 4 / 4 - 1; // of weights and moment, split over all
  auto bound = boundOfAnyRecompute(graph, placement, options);
  REQUIRE(bound);
  CHECK(!bound->has_value());
}

/// Square layers `y = h w`, `h' = f(y)` and their backward pass, in which a gradient
/// reads y of all layers but the last.
static Program equalLayers(int64_t layers) {
  Program p;
  auto name = [](const char *of, int64_t layer) { return of + std::to_string(layer); };
  p.argument("h0", {8, 8});
  for (int64_t l = 1; l <= layers; ++l) {
    p.argument(name("w", l), {8, 8});
    p.contract(name("y", l), name("h", l - 1), name("w", l), "m k, k n -> m n");
    p.work(name("y", l), 1024);
    p.elementwise(name("h", l), {name("y", l)});
  }
  std::string gradient = name("h", layers);
  for (int64_t l = layers; l >= 1; --l) {
    std::vector<std::string> read{gradient};
    if (l < layers)
      read.push_back(name("y", l));
    p.elementwise(name("dy", l), read);
    p.backward(name("h", l), name("dy", l));
    p.contract(name("dh", l), name("dy", l), name("w", l), "m n, k n -> m k");
    p.work(name("dh", l), 1024);
    p.backward(name("y", l), name("dh", l));
    gradient = name("dh", l);
  }
  return p;
}

TEST_CASE("equal layers are tied where they may repeat alike") {
  Mesh mesh = *Mesh::parse("a=4");
  test::RandomProgram random(1);
  Topology topology = random.topology(mesh);
  Placement placement = *Placement::create(mesh, topology);
  FlowGraph graph = equalLayers(8).build(mesh);
  Timing timing(graph, placement, /*anyRecompute=*/true);
  SearchOptions options;
  options.memoryLimit = int64_t(1) << 20;
  options.model.anyRecompute = true;
  size_t layers = 0;
  auto model = modelOf(timing, options, Rows::Least, &layers);
  REQUIRE(model);
  CHECK(layers >= 4);
  const solver::Problem &problem = model->problem;
  for (const solver::Class &tied : problem.classes)
    for (const auto &copy : tied.copies)
      CHECK(problem.variables[copy[0]].costs.size() ==
            problem.variables[tied.copies[0][0]].costs.size());
  // The last product has no gradient that reads it: what reads it may find it kept or
  // computed again.
  std::set<size_t> blocks;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (graph.ops[op].name.starts_with("h") && graph.ops[op].kind == FlowKind::Compute &&
        graph.ops[op].isForward())
      blocks.insert(
          problem.variables[static_cast<size_t>(model->variables[op])].costs.size() /
          model->choices[op]->size());
  CHECK(blocks == std::set<size_t>{2, 3});
}
