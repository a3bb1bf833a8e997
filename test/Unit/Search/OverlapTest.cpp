//===- OverlapTest.cpp - Collectives beside kernels, and the bound of it --===//
#include "RandomProgram.h"

#include "../../../lib/Search/Loads.h"
#include "partita/Search/OverlapBound.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

static const char *const meshes[] = {"a=2", "a=3", "a=4", "a=2,b=2", "a=2,b=3"};

static Work kernel(Picos time, std::vector<int32_t> after = {}) {
  return {time, Work::On::Kernel, 0, std::move(after)};
}
static Work local(Picos time, std::vector<int32_t> after = {}) {
  return {time, Work::On::Local, 0, std::move(after)};
}
static Work links(uint32_t levels, Picos time, std::vector<int32_t> after = {}) {
  return {time, Work::On::Links, levels, std::move(after)};
}

TEST_CASE("what needs nothing of each other runs at once, slower by the contention") {
  CHECK(makespan({}) == 0);
  CHECK(makespan({kernel(100)}) == 100);
  for (double factor : {1.0, 1.1, 1.2, 1.5, 2.0, 3.0})
    for (Picos other : {0, 10, 70, 100, 250})
      CHECK(makespan({kernel(100), links(1, other)}, factor) ==
            Approx(overlapped(100, static_cast<double>(other), factor).together));
  // Links do not slow each other down.
  CHECK(makespan({links(1, 100), links(2, 60)}, 1.5) == Approx(100));
  CHECK(makespan({links(1, 100), links(3, 60)}, 1.5) == Approx(160));
  // 60 beside both take 90; then 40 of the collective are left.
  CHECK(makespan({kernel(60), links(1, 100), links(2, 60)}, 1.5) == Approx(130));
}

TEST_CASE("work waits for what it needs, and for its turn") {
  // A chain.
  CHECK(makespan({kernel(10), links(1, 5, {0}), kernel(3, {1}), local(2, {2})}, 1.2) ==
        Approx(20));
  // The last kernel needs nothing, but kernels are in their order.
  CHECK(makespan({kernel(10), links(1, 5, {0}), kernel(3, {1}), kernel(7)}, 1.2) ==
        Approx(25));
  // Collectives too: the second would be ready at once.
  CHECK(makespan({kernel(10), links(1, 5, {0}), links(1, 4), kernel(1, {2})}, 1) ==
        Approx(20));
  // What unpacks a collective stands in the way of no kernel: it runs at 30.
  CHECK(makespan({kernel(10), links(1, 12, {0}), local(5, {1}), kernel(20)}, 1) ==
        Approx(35));
  // Where both can begin, the first of the program does.
  CHECK(makespan({kernel(10), local(5), kernel(2, {1}), links(1, 4, {1})}, 1) ==
        Approx(19));
  // What only takes time slows down nothing.
  CHECK(makespan({kernel(10), {25, Work::On::Nothing}, links(1, 10)}, 2) == Approx(25));
}

namespace {
/// A program on a mesh with its choices.
struct Case {
  Case(FlowGraph made, test::RandomProgram &make)
      : graph(std::move(made)), topology(make.topology(graph.mesh)),
        placement(*Placement::create(graph.mesh, topology)), timing(graph, placement) {}

  void build(const SearchOptions &options = {}) {
    auto made = modelOf(timing, options);
    REQUIRE(made);
    model = std::move(*made);
  }
  double combinations() const {
    double product = 1;
    for (const solver::Variable &variable : model.problem.variables)
      product *= static_cast<double>(variable.costs.size());
    return product;
  }

  FlowGraph graph;
  Topology topology;
  Placement placement;
  Timing timing;
  Model model;
};

/// Visits all answers of a problem that are not forbidden.
template <typename Visit> class Answers {
public:
  Answers(const solver::Problem &problem, Visit visit)
      : problem(problem), visit(visit), answer(problem.variables.size()),
        ending(problem.variables.size()) {
    for (const solver::Edge &edge : problem.edges)
      ending[std::max(edge.first, edge.second)].push_back(&edge);
  }
  void run(size_t variable = 0) {
    if (variable == answer.size())
      return visit(answer);
    const auto &costs = problem.variables[variable].costs;
    for (size_t c = 0; c < costs.size(); ++c) {
      answer[variable] = static_cast<uint32_t>(c);
      if (costs[c] < solver::forbidden && fits(variable))
        run(variable + 1);
    }
  }

private:
  bool fits(size_t variable) const {
    for (const solver::Edge *edge : ending[variable])
      if (edge->costs[answer[edge->first] * problem.variables[edge->second].costs.size() +
                      answer[edge->second]] >= solver::forbidden)
        return false;
    return true;
  }
  const solver::Problem &problem;
  Visit visit;
  std::vector<uint32_t> answer;
  std::vector<std::vector<const solver::Edge *>> ending;
};
} // namespace

static bool equal(const Occupied &a, const Occupied &b) {
  return a.time == b.time && a.device == b.device && a.links == b.links;
}

/// What rounding of a simulation may leave.
static double above(Picos time) { return static_cast<double>(time) * (1 + 1e-9) + 1; }

TEST_CASE("all plans of random programs: bound <= simulated <= the sum of all work") {
  size_t programs = 0, plans = 0, faster = 0, tight = 0, between = 0, others = 0,
         best = 0;
  for (uint64_t seed = 0; programs < 120; ++seed) {
    test::RandomProgram make(seed);
    Mesh mesh = *Mesh::parse(meshes[seed % std::size(meshes)]);
    Program program = seed % 4 == 0 ? make.step() : make.make(seed % 5 < 3 ? 5 : 2);
    Case it(program.build(mesh), make);
    it.build();
    if (it.combinations() > 6'000)
      continue;
    ++programs;
    INFO("seed " << seed << " on " << mesh.str());
    OverlapOptions options;
    options.contention = std::vector<double>{1, 1.2, 1.7, 2.5}[seed / 4 % 4];
    const double factor = effectiveContention(*options.contention);
    auto bound = overlapBound(it.timing, it.model, options);
    REQUIRE(bound);
    ModelLoads loads(it.timing, it.model);
    const auto extremes = extremeMultipliers(it.topology.levels.size(), factor);
    Picos least = std::numeric_limits<Picos>::max();
    Answers(it.model.problem, [&](const std::vector<uint32_t> &answer) {
      Decided plan = it.model.decide(it.timing, answer);
      Simulated simulated = simulate(it.timing, plan, options.contention);
      const Picos total = evaluate(it.timing, plan).total();
      Loads its = loads.of(answer);
      Occupied sum;
      for (const Occupied &load : its)
        sum += load;
      // Loads of choices and of the plan's own steps are the same.
      if (!equal(sum, simulated.occupied) || sum.time != total)
        FAIL("loads differ: " << sum.time << ", " << simulated.occupied.time << ", "
                              << total);
      if (static_cast<double>(simulated.time) > above(total))
        FAIL("overlap takes " << simulated.time << ", turns " << total);
      for (const Multipliers &extreme : extremes)
        if (extreme(its) > above(simulated.time))
          FAIL("multipliers say " << extreme(its) << " of " << simulated.time);
      faster += simulated.time < total;
      between += its[static_cast<size_t>(Place::Between)].time > 0;
      others += its[static_cast<size_t>(Place::Anywhere)].time > 0;
      least = std::min(least, simulated.time);
      ++plans;
    }).run();
    REQUIRE(static_cast<double>(*bound) <= above(least));
    tight += static_cast<double>(*bound) > 0.99 * static_cast<double>(least);
    // With a search's own plans.
    auto found = planOverlapped(it.timing, it.model, {}, {}, options);
    REQUIRE(found);
    REQUIRE(found->plan);
    CHECK(simulate(it.timing, *found->plan, options.contention).time == found->time);
    CHECK(found->time >= least);
    CHECK(static_cast<double>(found->lowerBound) <= above(least));
    best += found->time == least;
  }
  std::printf("%zu programs, %zu plans, %zu of them faster than in turns; bound within a "
              "percent %zu times, best plan found %zu times\n",
              programs, plans, faster, tight, best);
  // The generator must keep making programs that are not trivial.
  CHECK(plans > 20'000);
  CHECK(faster > 1'000);
  CHECK(between > 1'000);
  CHECK(others > 1'000);
  CHECK(tight > 90);
  CHECK(best > 100);
}

TEST_CASE("a chain takes its sum, and the bound knows that") {
  size_t converted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    test::RandomProgram make(seed);
    Program program;
    program.argument("x", {12, 8});
    std::string last = "x";
    for (int i = 0; i < 4; ++i) {
      std::string name = "y" + std::to_string(i);
      if (make.below(2)) {
        program.transpose(name, last, {1, 0});
        program.work(name, 1);
      } else {
        program.rows(name, last);
        program.work(name, 4000);
      }
      last = name;
    }
    program.result(last);
    Case it(program.build(*Mesh::parse(meshes[seed % 4])), make);
    it.build();
    INFO("seed " << seed);
    auto found = search::search(it.graph, it.placement, {});
    REQUIRE(found);
    REQUIRE(found->proved);
    const Picos total = found->cost.total();
    CHECK(simulate(it.timing, found->plan).time == total);
    auto bound = overlapBound(it.timing, it.model);
    REQUIRE(bound);
    // Only what converts the argument may run beside the first kernel.
    CHECK(*bound <= total);
    CHECK(static_cast<double>(*bound) >= 0.999 * static_cast<double>(total));
    converted += found->cost.collectives > 0;
  }
  CHECK(converted > 5);
}

/// y = x w and r = softmax y, and z = u v and t = softmax z, which need nothing of each
/// other; s = r t. In the program z and t stand between y and r, or behind both.
static Program besides(bool isBetween) {
  Program program;
  for (const char *name : {"x", "u"})
    program.argument(name, {64, 64});
  for (const char *name : {"w", "v"})
    program.source(name, {64, 64});
  auto product = [&](const char *name, const char *a, const char *b) {
    program.contract(name, a, b, "m k, k n -> m n");
    program.work(name, 2 * 64 * 64 * 64);
  };
  product("y", "x", "w");
  if (!isBetween)
    program.rows("r", "y");
  product("z", "u", "v");
  program.rows("t", "z");
  if (isBetween)
    program.rows("r", "y");
  product("s", "r", "t");
  program.result("s");
  return program;
}

static int32_t opOf(const FlowGraph &graph, const std::string &name) {
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (graph.ops[op].name == name)
      return static_cast<int32_t>(op);
  FAIL("no op is named " << name);
  return -1;
}

TEST_CASE("necks, sections, and what can be anywhere") {
  Program program;
  program.argument("x", {12, 8});
  program.rows("n", "x");
  program.rows("y", "n");
  program.rows("z", "n");
  program.elementwise("m", {"y", "z"});
  program.rows("k", "m");
  program.elementwise("e", {"k", "n", "z"});
  program.result("e");
  FlowGraph graph = program.build(*Mesh::parse("a=2"));
  Places places = placesOf(graph);
  std::map<std::string, Place> ops, values;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    ops[graph.ops[op].name] = places.ops[op];
  for (size_t v = 0; v < graph.values.size(); ++v)
    values[graph.values[v].name] = places.values[v];
  for (const char *neck : {"n", "m", "k", "e"})
    CHECK(ops[neck] == Place::Alone);
  for (const char *other : {"y", "z"})
    CHECK(ops[other] == Place::Between);
  // m is read by k, k by e and by nothing else, and nothing can run at the same time.
  CHECK(values["m"] == Place::Alone);
  CHECK(values["k"] == Place::Alone);
  // y is the only value that is converted between n and m, but z runs there.
  CHECK(values["y"] == Place::Between);
  CHECK(values["x"] == Place::Between);
  // n and z are read behind m, too.
  CHECK(values["n"] == Place::Anywhere);
  CHECK(values["z"] == Place::Anywhere);
}

TEST_CASE("one reduction beside a product, by hand") {
  for (bool isBetween : {true, false}) {
    FlowGraph graph = besides(isBetween).build(*Mesh::parse("tp=2"));
    Device device;
    device.name = "test";
    device.peak = {{DType::F32, 1e9}};
    device.memory = 1 << 30;
    device.memoryBandwidth = 1e9;
    LinkLevel level;
    level.bandwidth = 1e8;
    Topology topology = topologyOfMesh(graph.mesh, device, level, Host{});
    Placement placement = *Placement::create(graph.mesh, topology);
    Timing timing(graph, placement);
    // y's sum is split, so that y is partial; all else is whole.
    SearchOptions options;
    for (const char *name : {"y", "r", "z", "t", "s"})
      for (int32_t atom : graph.allAtoms(opOf(graph, name)))
        options.pins[atom] = {};
    options.pins[graph.atomsOf(opOf(graph, "y"), 1)[0]] = graph.mesh.all();
    auto found = search::search(graph, placement, options);
    REQUIRE(found);
    REQUIRE(found->cost.collectives == 1);
    // Seconds of one rank. A product reads and writes three tensors of 16 KiB beside its
    // arithmetic, y halves of two; softmax reads one and writes one. The ring of two
    // sends half of y twice.
    const double tensor = 64 * 64 * 4 / 1e9, work = 2.0 * 64 * 64 * 64 / 1e9;
    const double y = std::hypot(work / 2, 2 * tensor),
                 product = std::hypot(work, 3 * tensor), rows = 2 * tensor,
                 reduce = 64 * 64 * 4 / 1e8;
    auto seconds = [](Picos time) { return static_cast<double>(time) * 1e-12; };
    const double sum = y + reduce + rows + product + rows + product;
    CHECK(seconds(found->cost.total()) == Approx(sum).epsilon(1e-6));
    // Else r waits for the reduction, and z for r, as kernels are in their order.
    const double taken =
        isBetween ? y + overlapped(product + rows, reduce, 1.2).together + rows + product
                  : sum;
    CHECK(seconds(simulate(timing, found->plan, 1.2).time) ==
          Approx(taken).epsilon(1e-6));
    // In any order: y, r, z and t are all before s. Of what is in front of it the device
    // works at full speed, and the links at a fifth.
    auto model = modelOf(timing, options);
    REQUIRE(model);
    auto bound = overlapBound(timing, *model);
    REQUIRE(bound);
    CHECK(seconds(*bound) == Approx(std::max(y + rows + product + rows + 0.2 * reduce,
                                             0.2 * (y + rows + product + rows) + reduce) +
                                    product)
                                 .epsilon(1e-3));
    // Nothing crosses the beginning of a loop: were z and t one, of three trips, they
    // would wait for the reduction.
    if (!isBetween)
      continue;
    FlowGraph looped = graph;
    for (const char *name : {"z", "t"})
      looped.ops[static_cast<size_t>(opOf(looped, name))].trips = 3;
    Timing again(looped, placement);
    CHECK(seconds(simulate(again, found->plan, 1.2).time) ==
          Approx(sum + 2 * (product + rows)).epsilon(1e-6));
  }
}
