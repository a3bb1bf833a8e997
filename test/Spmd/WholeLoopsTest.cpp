//===- WholeLoopsTest.cpp - What needs a loop whole says why --------------===//
#include "Cases.h"

#include "dialects/Graph/Graph.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

/// The words of a text, one space apart.
static std::string words(const std::string &text) {
  std::istringstream in(text);
  std::string joined;
  for (std::string word; in >> word;)
    joined += (joined.empty() ? "" : " ") + word;
  return joined;
}

/// What the page of the dialect says of each op, in words.
static std::map<std::string, std::string> descriptions() {
  std::ifstream page(PARTITA_SPMD_DIR "/../../docs/dialects/graph.md");
  std::map<std::string, std::string> sections;
  std::string op;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("### `"))
      op = line.substr(5, line.find('`', 5) - 5);
    else if (!op.empty())
      sections[op] += line + "\n";
  }
  for (auto &[name, text] : sections)
    text = words(text);
  return sections;
}

static bool hasWholeLoop(const ShardingRule &rule) {
  return std::any_of(rule.factors.begin(), rule.factors.end(), [](const Factor &factor) {
    return factor.kind() == FactorKind::Replicate;
  });
}

TEST_CASE("an op with a loop that is needed whole says why") {
  MLIRContext context;
  loadDialects(context);
  auto cases = allCases(context);
  INFO((cases ? "" : cases.error().message));
  REQUIRE(cases);
  std::map<std::string, std::string> reasons;
  std::set<std::string> whole;
  for (const OpCase &opCase : *cases) {
    auto program = buildProgram(context, opCase);
    INFO((program ? "" : program.error().message));
    REQUIRE(program);
    std::string why = cast<ShardingRuleOpInterface>(program->op).getWhyWhole().str();
    reasons[opCase.op] = why;
    if (!hasWholeLoop(program->rule))
      continue;
    whole.insert(opCase.op);
    if (why.empty())
      FAIL_CHECK(opCase.name() << " has the rule " << program->rule.str()
                               << ", and its op no `whole` that says why");
  }
  CHECK(whole.size() > 10);
  auto pages = descriptions();
  for (const auto &[op, why] : reasons) {
    if (why.empty())
      continue;
    if (!whole.count(op))
      FAIL_CHECK(op << " says why it needs loops whole, and no case of it has one");
    if (pages[op].find("*Needed whole.* " + words(why)) == std::string::npos)
      FAIL_CHECK("the description of " << op << " does not have its `proof`: " << why);
  }
}
