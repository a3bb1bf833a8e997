//===- BruteForceTest.cpp - The least plan of small programs, by enumeration ===//
#include "RandomProgram.h"

#include "partita/Search/Model.h"
#include "partita/Solver/Solve.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

static const char *const meshes[] = {"a=2", "a=3", "a=4", "a=2,b=2", "a=2,b=3", "a=6"};

/// Per op and choice a cost that no rule knows of, so that the least plan is one with
/// conversions of every kind, not just the one that needs none.
using Biases = std::vector<std::vector<Picos>>;

namespace {
/// All strategies of all ops, depth first in the order of ops, with the best service of
/// every value whose users are decided. Knows nothing of the model but the lists of
/// choices: services are enumerated here.
class BruteForce {
public:
  BruteForce(Timing &timing, const Model &model, const Biases &biases)
      : timing(timing), graph(timing.graph), model(model), biases(biases),
        taken(graph.ops.size(), 0) {
    // A value is priced when the last of its users is decided.
    ready.resize(graph.ops.size());
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const FlowValue &value = graph.values[v];
      if (value.producer < 0 || value.uses.empty() || !model.choices[at(value.producer)])
        continue;
      int32_t last = 0;
      for (const FlowUse &use : value.uses)
        last = std::max(last, use.op);
      ready[at(last)].push_back(static_cast<int32_t>(v));
    }
  }

  Picos run() {
    best = std::numeric_limits<Picos>::max();
    visit(0, 0);
    return best;
  }
  double combinations() const {
    double product = 1;
    for (const auto &list : model.choices)
      product *= list ? static_cast<double>(list->size()) : 1;
    return product;
  }

private:
  static size_t at(int32_t number) { return static_cast<size_t>(number); }

  void visit(size_t op, Picos sum) {
    if (sum >= best)
      return;
    if (op == graph.ops.size()) {
      best = sum;
      return;
    }
    if (!model.choices[op])
      return visit(op + 1, sum);
    for (size_t c = 0; c < model.choices[op]->size(); ++c) {
      taken[op] = c;
      if (!keepsState(op))
        continue;
      Picos more = timing.op(static_cast<int32_t>(op), model.choices[op]->strategies[c]) +
                   biases[op][c];
      bool possible = true;
      for (int32_t value : ready[op])
        possible = possible && serve(value, more);
      if (possible)
        visit(op + 1, sum + more);
    }
  }

  /// Whether a state goes out as it came in; true for whatever is not the end of one.
  bool keepsState(size_t op) const {
    const FlowOp &it = graph.ops[op];
    if (it.kind != FlowKind::Sink || it.tied < 0)
      return true;
    return model.choices[op]->operands[0][taken[op]] ==
           model.choices[at(it.tied)]->results[0][taken[at(it.tied)]];
  }

  /// Adds the least time of serving a value; false if it cannot be.
  bool serve(int32_t number, Picos &sum) {
    const FlowValue &value = graph.values[at(number)];
    const OpChoices &producer = *model.choices[at(value.producer)];
    int32_t produced = producer.results[at(value.result)][taken[at(value.producer)]];
    std::set<int32_t> wanted, homes;
    for (const FlowUse &use : value.uses) {
      const OpChoices &user = *model.choices[at(use.op)];
      wanted.insert(user.operands[at(use.operand)][taken[at(use.op)]]);
      // Any layout that the users may want can be the home.
      for (int32_t form : user.operands[at(use.operand)])
        homes.insert(form);
    }
    std::vector<int32_t> key{number, produced};
    key.insert(key.end(), wanted.begin(), wanted.end());
    auto [found, added] = services.try_emplace(key, -1);
    if (added)
      found->second = leastService(value, produced, wanted, homes);
    if (found->second < 0)
      return false;
    sum += found->second;
    int32_t first = *wanted.begin();
    if (wanted.size() == 1 && first != produced)
      sum += timing.breaking(number, produced, first);
    return true;
  }

  /// The least over all trees of conversions that reach what is wanted: every layout that
  /// the users may want can be on the way, at most two in all where users are several
  /// ops.
  Picos leastService(const FlowValue &value, int32_t produced,
                     const std::set<int32_t> &wanted, const std::set<int32_t> &homes) {
    bool one = std::all_of(value.uses.begin(), value.uses.end(), [&](const FlowUse &use) {
      return use.op == value.uses[0].op;
    });
    std::set<int32_t> missing = wanted;
    missing.erase(produced);
    if (!one && missing.size() > 2)
      return -1;
    Picos least = leastTree(value, {produced}, missing);
    bool hasHalo = std::any_of(wanted.begin(), wanted.end(), [&](int32_t form) {
      return timing.forms[form].halo.has_value();
    });
    if (one ? !hasHalo : missing.size() > 1)
      return least;
    for (int32_t form : one ? wanted : homes) {
      std::set<int32_t> more = missing;
      more.insert(one || timing.forms[form].halo
                      ? timing.forms.add(timing.forms[form].layout)
                      : form);
      more.erase(produced);
      Picos time = leastTree(value, {produced}, more);
      if (time >= 0 && (least < 0 || time < least))
        least = time;
    }
    return least;
  }

  /// Adds one of the missing forms after the other, from any that is there.
  Picos leastTree(const FlowValue &value, std::vector<int32_t> there,
                  const std::set<int32_t> &missing) {
    if (missing.empty())
      return 0;
    Picos least = -1;
    for (int32_t next : missing)
      for (int32_t from : there) {
        if (timing.forms[from].halo)
          continue;
        Conversion way = timing.convert(from, next, value.elementBytes);
        if (!way.possible)
          continue;
        std::vector<int32_t> more = there;
        more.push_back(next);
        std::set<int32_t> rest = missing;
        rest.erase(next);
        Picos time = leastTree(value, std::move(more), rest);
        if (time >= 0 && (least < 0 || way.time + time < least))
          least = way.time + time;
      }
    return least;
  }

  Timing &timing;
  const FlowGraph &graph;
  const Model &model;
  const Biases &biases;
  std::vector<size_t> taken;
  std::vector<std::vector<int32_t>> ready; ///< values per op
  std::map<std::vector<int32_t>, Picos> services;
  Picos best = 0;
};
} // namespace

/// Adds them to the problem.
static Biases addBiases(Model &model, test::RandomProgram &make, bool none) {
  Biases biases(model.choices.size());
  for (size_t op = 0; op < model.choices.size(); ++op) {
    if (!model.choices[op])
      continue;
    biases[op].resize(model.choices[op]->size());
    auto &costs = model.problem.variables[static_cast<size_t>(model.variables[op])].costs;
    for (size_t c = 0; c < costs.size() && !none; ++c) {
      biases[op][c] = static_cast<Picos>(make.below(2'000'000));
      costs[c] += biases[op][c];
    }
  }
  return biases;
}

/// Solves a program and compares with enumeration, and the plan's own price with both.
/// Nothing if there is too much to enumerate.
static std::optional<std::pair<Decided, PlanCost>>
checked(Timing &timing, test::RandomProgram &make, bool withoutBiases) {
  ModelOptions options;
  options.mostStates = 1'000'000; // as many as the enumeration has
  auto model = buildModel(timing, options);
  REQUIRE(model);
  Biases biases = addBiases(*model, make, withoutBiases);
  REQUIRE(solver::check(model->problem));
  BruteForce brute(timing, *model, biases);
  if (brute.combinations() > 3e6)
    return std::nullopt;
  auto solution = solver::solve(model->problem);
  REQUIRE(solution);
  REQUIRE(solution->status == solver::Status::Optimal);
  REQUIRE(static_cast<Picos>(solution->cost) == brute.run());
  REQUIRE(solution->lowerBound == solution->cost);
  // The plan costs what the problem says, counted by the conversions it has.
  Decided plan = model->decide(timing, solution->choices);
  PlanCost cost = evaluate(timing, plan);
  Picos total = cost.total();
  for (size_t op = 0; op < biases.size(); ++op)
    if (!biases[op].empty())
      total += biases[op][solution->choices[static_cast<size_t>(model->variables[op])]];
  REQUIRE(total == static_cast<Picos>(solution->cost));
  return std::pair(std::move(plan), cost);
}

TEST_CASE("300 random training steps: the answer is the least, by enumeration") {
  int converted = 0, served = 0;
  size_t count = 0;
  for (uint64_t seed = 0; count < 300; ++seed) {
    test::RandomProgram make(seed);
    Mesh mesh = *Mesh::parse(meshes[seed % 4]);
    FlowGraph graph = make.step().build(mesh);
    Topology topology = make.topology(mesh);
    Placement placement = *Placement::create(mesh, topology);
    Timing timing(graph, placement);
    INFO("seed " << seed << " on " << mesh.str());
    auto found = checked(timing, make, seed % 3 == 0);
    if (!found)
      continue;
    ++count;
    converted += found->second.collectives > 0;
    served += !found->first.servings.empty();
  }
  CHECK(converted > 100);
  CHECK(served > 5);
}

TEST_CASE("1,500 random programs: the answer is the least, by enumeration") {
  int converted = 0, shared = 0, hubs = 0, served = 0, states = 0;
  size_t count = 0;
  for (uint64_t seed = 0; count < 1500; ++seed) {
    test::RandomProgram make(seed);
    Mesh mesh = *Mesh::parse(meshes[seed % std::size(meshes)]);
    FlowGraph graph = make.make(mesh.axes().size() > 1 ? 3 : 5).build(mesh);
    Topology topology = make.topology(mesh);
    Placement placement = *Placement::create(mesh, topology);
    Timing timing(graph, placement);
    INFO("seed " << seed << " on " << mesh.str());
    auto found = checked(timing, make, seed % 3 == 0);
    if (!found)
      continue;
    ++count;
    converted += found->second.collectives > 0;
    shared += std::any_of(graph.values.begin(), graph.values.end(), [&](const auto &it) {
      return it.producer >= 0 && it.uses.size() > 1 &&
             graph.ops[static_cast<size_t>(it.producer)].kind != FlowKind::Source &&
             it.uses.front().op != it.uses.back().op;
    });
    for (const auto &[value, list] : found->first.servings)
      for (const ServedLayout &entry : list)
        hubs += entry.from >= 0;
    served += !found->first.servings.empty();
    for (const FlowOp &op : graph.ops)
      states += op.kind == FlowKind::State;
  }
  // The generator must keep making programs that are not trivial.
  CHECK(converted > 100);
  CHECK(shared > 300);
  CHECK(served >= 15);
  CHECK(hubs >= 15);
  CHECK(states >= 200);
}

TEST_CASE("60 attentions in one kernel: the answer is the least, by enumeration") {
  int broken = 0;
  size_t count = 0;
  for (uint64_t seed = 0; count < 60; ++seed) {
    test::RandomProgram make(seed);
    Program program;
    program.argument("q", {2, 16, 4});
    program.argument("kv", {2, 16, 4});
    program.contract("scores", "q", "kv", "b m d, b n d -> b m n");
    program.work("scores", 2 * 2 * 16 * 16 * 4);
    program.elementwise("scaled", {"scores"}, {{ReduceKind::Sum, {0}}});
    program.rows("weights", "scaled");
    program.function("weights", 2 * 16 * 16 * 30);
    program.contract("y", "weights", "kv", "b m n, b n d -> b m d");
    program.work("y", 2 * 2 * 16 * 16 * 4);
    program.result("y");
    Mesh mesh = *Mesh::parse(meshes[seed % 3]);
    FlowGraph graph = program.build(mesh);
    Topology topology = make.topology(mesh);
    topology.device.pointwise = 1e9;
    topology.device.matmul.streamsAttention = true;
    Placement placement = *Placement::create(mesh, topology);
    Timing timing(graph, placement);
    for (const FlowOp &op : graph.ops)
      if (op.name == "scores" || op.name == "weights")
        REQUIRE(timing.isStreamed(op.results[0]));
    INFO("seed " << seed << " on " << mesh.str());
    auto found = checked(timing, make, seed % 3 == 0);
    if (!found)
      continue;
    ++count;
    broken += found->second.collectives > 0;
  }
  CHECK(broken > 5);
}
