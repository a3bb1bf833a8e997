//===- PlanCallsTest.cpp - Communication in plan.json ---------------------===//
#include "TestFolder.h"

#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Files/File.h"

#include <catch2/catch.hpp>

using namespace partita;

/// A plan as it is read again from the file that it is written to.
static Plan readAgain(const Plan &plan, std::string &text) {
  Folder folder;
  text = plan.json();
  REQUIRE(writeFile(folder / "plan.json", text));
  auto read = readPlan(folder / "plan.json");
  INFO((read ? "" : read.error().message));
  REQUIRE(read);
  return *read;
}

static Plan onePlan() {
  Plan plan;
  plan.model = "/m.onnx";
  plan.entry().mode = "auto";
  plan.entry().stages.emplace_back().mesh = "dp=4";
  return plan;
}

TEST_CASE("a plan without words on communication has no such member") {
  std::string text;
  CHECK(readAgain(onePlan(), text).entry().calls == PlanCalls());
  CHECK(text.find("communication") == std::string::npos);
}

TEST_CASE("a plan gives its communication again, to the last bit") {
  Plan plan = onePlan();
  PlanCalls &calls = plan.entry().calls;
  calls.inFlight = 0;
  calls.reuse = 3;
  calls.makesBuckets = calls.allToAll = false;
  calls.hierarchical = {1.0 / 3 * 1e-6,
                        {{"host", 4, 3e11 / 7, 1.1e-6, 0, true},
                         {"network", 2, 1e9 / 3, 2e-6, 65536.5, false}}};
  std::string text;
  CHECK(readAgain(plan, text).entry().calls == calls);
  PlanCalls others;
  others.inFlight = 2;
  plan.entry().calls = others;
  CHECK(readAgain(plan, text).entry().calls == others);
}
