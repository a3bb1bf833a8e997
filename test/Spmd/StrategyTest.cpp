//===- StrategyTest.cpp - Every op × every legal strategy -----------------===//
#include "Runner.h"
#include "Strategies.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <fstream>
#include <iostream>
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
    auto strategies = enumerateStrategies(mesh, runner->rule(), depth);
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
          count(part[i], split[opCase.name()]);
    }
    split[opCase.name()];
    rules[opCase.name()] = runner->rule().str();
  }

  void fail(const std::string &message) {
    if (++wrong <= 20)
      std::cout << "WRONG " << message << "\n";
  }

  size_t cases = 0, wrong = 0;
  std::map<std::string, std::set<size_t>> split;
  std::map<std::string, std::string> rules;

private:
  void count(const Strategy &strategy, std::set<size_t> &factors) {
    ++cases;
    for (size_t f = 0; f < strategy.factors.size(); ++f)
      if (strategy.factors[f].sharded())
        factors.insert(f);
  }
};
} // namespace

static std::string tableOf(const Sweep &sweep) {
  std::string text;
  for (const auto &[name, factors] : sweep.split) {
    text += name + "\n  " + sweep.rules.at(name) + "\n  splits:";
    for (size_t f : factors)
      text += std::string(" ") + static_cast<char>('a' + f);
    text += "\n";
  }
  return text;
}

TEST_CASE("every op by every legal strategy equals the op on one rank") {
  MLIRContext context;
  loadDialects(context);
  auto cases = allCases(context);
  INFO((cases ? "" : cases.error().message));
  REQUIRE(cases);
  Sweep sweep;
  for (const OpCase &c : *cases) {
    auto start = std::chrono::steady_clock::now();
    size_t before = sweep.cases;
    for (const char *mesh : {"tp=2", "tp=3", "tp=4", "tp=6", "dp=2,tp=2", "dp=2,tp=3"})
      sweep.run(context, c, mesh, Depth::Arrangements, Feed::Direct);
    std::cout
        << c.name() << ": " << sweep.cases - before << " in "
        << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()
        << " s" << std::endl;
  }
  std::cout << "spmd: " << sweep.cases << " strategies equal, " << sweep.wrong
            << " wrong\n";
  std::ofstream("/tmp/spmd-table.txt") << tableOf(sweep);
  CHECK(sweep.wrong == 0);
}
