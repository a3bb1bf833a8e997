//===- StrategyTest.cpp - Every op × every legal strategy -----------------===//
#include "Runner.h"
#include "Strategies.h"
#include "Tier.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <regex>
#include <set>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

namespace {
/// Runs the strategies of one case and remembers which factors were split correctly.
class Sweep {
public:
  void run(MLIRContext &context, const OpCase &opCase, const std::string &meshText,
           Depth depth, Feed feed) {
    auto runner = Runner::create(context, opCase, 1 + cases);
    if (!runner)
      return fail(runner.error().message);
    Mesh mesh = *Mesh::parse(meshText);
    std::vector<Strategy> strategies =
        choose(enumerateStrategies(mesh, runner->rule(), depth), opCase.name());
    constexpr size_t batch = 256;
    for (size_t begin = 0; begin < strategies.size(); begin += batch) {
      std::vector<Strategy> part(
          strategies.begin() + static_cast<int64_t>(begin),
          strategies.begin() +
              static_cast<int64_t>(std::min(begin + batch, strategies.size())));
      auto module = runner->partition(mesh, part, feed);
      if (!module)
        return fail(module.error().message);
      for (size_t i = 0; i < part.size(); ++i)
        if (auto ok = runner->check(**module, mesh, part[i], i, feed); !ok)
          fail(ok.error().message);
        else
          noteSplits(part[i], opCase.name());
    }
    split[opCase.name()];
    rules[opCase.name()] = runner->rule();
  }

  void fail(const std::string &message) {
    if (++wrong <= 20)
      std::cout << "WRONG " << message << "\n";
  }

  size_t cases = 0, wrong = 0;
  std::map<std::string, std::set<size_t>> split;
  std::map<std::string, size_t> counts;
  std::map<std::string, ShardingRule> rules;
  test::TierSample sample{"spmd-strategies"};

private:
  /// The strategies of this tier: the quick one has the first that splits a factor or
  /// lets a linear set pass, and a tenth of the others. All count as legal.
  std::vector<Strategy> choose(std::vector<Strategy> all, const std::string &name) {
    counts[name] += all.size();
    auto &[factors, sets] = tried[name];
    std::erase_if(all, [&](const Strategy &strategy) {
      bool isNew = false;
      for (size_t f = 0; f < strategy.factors.size(); ++f)
        isNew |= strategy.factors[f].sharded() && factors.insert(f).second;
      for (const auto &passing : strategy.passing)
        isNew |= sets.insert(passing.set).second;
      return !sample.takes(isNew);
    });
    return all;
  }

  void noteSplits(const Strategy &strategy, const std::string &name) {
    std::set<size_t> &factors = split[name];
    ++cases;
    for (size_t f = 0; f < strategy.factors.size(); ++f)
      if (strategy.factors[f].sharded())
        factors.insert(f);
  }

  /// By case: factors that are split and linear sets that pass in a chosen strategy.
  std::map<std::string, std::pair<std::set<size_t>, std::set<int32_t>>> tried;
};
} // namespace

/// The lines of the table for one case: which factors were split with an equal result,
/// how many strategies are legal, for one that has become illegal is no failure
/// otherwise.
static std::string tableEntry(const Sweep &sweep, const std::string &name) {
  const ShardingRule &rule = sweep.rules.at(name);
  std::string text = "  " + rule.str() + "\n  splits:";
  for (size_t f : sweep.split.at(name))
    text += " " + rule.loopName(f);
  auto count = sweep.counts.find(name);
  return text + " in " + std::to_string(count == sweep.counts.end() ? 0 : count->second) +
         " strategies\n";
}

/// must-shard.txt: three lines per case, as tableEntry writes them below the name.
static std::map<std::string, std::string> readTable(const std::string &path) {
  std::map<std::string, std::string> table;
  std::ifstream file(path);
  for (std::string name, rule, splits; std::getline(file, name);) {
    if (name.empty() || name[0] == '#')
      continue;
    std::getline(file, rule);
    std::getline(file, splits);
    table[name] = rule + "\n" + splits + "\n";
  }
  return table;
}

/// PARTITA_SPMD_CASES=PATTERN runs the cases in whose name the regular expression is
/// found, while working on one op.
static const char *onlyCases() { return std::getenv("PARTITA_SPMD_CASES"); }

/// The table says what must split, and everything that splits is in the table. Where only
/// some cases were run, the others stay as they are.
static void checkTable(const Sweep &sweep) {
  auto table = readTable(PARTITA_SPMD_DIR "/must-shard.txt");
  if (const char *path = std::getenv("PARTITA_WRITE_MUST_SHARD")) {
    if (!onlyCases())
      table.clear();
    for (const auto &[name, factors] : sweep.split)
      table[name] = tableEntry(sweep, name);
    std::ofstream file(path);
    for (const auto &[name, entry] : table)
      file << name << "\n" << entry;
    return;
  }
  for (const auto &[name, factors] : sweep.split) {
    std::string entry = tableEntry(sweep, name);
    if (table[name] != entry)
      FAIL_CHECK("must-shard.txt says for " << name << "\n"
                                            << table[name] << "found\n"
                                            << entry);
    table.erase(name);
  }
  for (const auto &[name, entry] : table)
    if (!onlyCases())
      FAIL_CHECK("must-shard.txt has a case that was not run: " << name);
}

/// Which meshes, how deep and how fed. Direct on all; the partitioner's own reshards
/// around the op on fewer, for they are tested by themselves (ReshardTest).
static void sweepCase(Sweep &sweep, MLIRContext &context, const OpCase &opCase) {
  for (const char *mesh : {"tp=2", "tp=3", "tp=4", "tp=6", "tp=8", "dp=2,tp=2",
                           "dp=2,tp=3", "dp=2,tp=4", "dp=2,cp=2,tp=2"})
    sweep.run(context, opCase, mesh, Depth::Arrangements, Feed::Direct);
  for (const char *mesh : {"tp=3", "dp=2,tp=2", "dp=2,tp=3"})
    sweep.run(context, opCase, mesh, Depth::Assignments, Feed::Whole);
  for (const char *mesh : {"tp=3", "dp=2,tp=2"})
    sweep.run(context, opCase, mesh, Depth::Assignments, Feed::Weights);
}

TEST_CASE("every op by every legal strategy equals the op on one rank") {
  MLIRContext context;
  loadDialects(context);
  auto cases = allCases(context);
  INFO((cases ? "" : cases.error().message));
  REQUIRE(cases);
  Sweep sweep;
  for (const OpCase &c : *cases)
    if (sweep.wrong < 20 && // a defect shows at once: no need to wait for the rest
        (!onlyCases() || std::regex_search(c.name(), std::regex(onlyCases()))))
      sweepCase(sweep, context, c);
  std::cout << "spmd: " << cases->size() << " cases, " << sweep.cases << " of "
            << sweep.sample.total() << " strategies equal, " << sweep.wrong << " wrong\n";
  CHECK((onlyCases() || sweep.sample.total() > 100000));
  CHECK(sweep.wrong == 0);
  checkTable(sweep);
}
