//===- ReadTest.cpp - Problem files, good and bad -------------------------===//
#include "partita/Solver/Read.h"
#include "partita/Base/Files/File.h"
#include "partita/Solver/Solve.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <unistd.h>
#include <zlib.h>

using namespace partita;
using namespace partita::solver;

static const char *const small = R"({"problem": {"name": "small",
  "nodes": {"intervals": [[0, 4], [2, 6], [5, 5]],
            "costs": [[1, 9], [3, 4, 2], [7]],
            "usages": [[8, 1], [6, 2, 9], [5]]},
  "edges": {"nodes": [[0, 1], [2, 1]],
            "costs": [[5, 0, 1000000000000000000, 2, 2, 2], [0, 1, 3]]},
  "usage_limit": 10}})";

/// The message of the error that `text` with `from` replaced by `to` gives.
static std::string errorOf(const std::string &from, const std::string &to) {
  std::string text = small;
  size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  auto problem = parseProblem(text, "p.json");
  return problem ? "no error" : problem.error().message;
}

TEST_CASE("a file becomes a problem, and its answer is the least") {
  auto problem = parseProblem(small, "p.json");
  REQUIRE(problem);
  CHECK(problem->variables.size() == 3);
  CHECK(problem->edges.size() == 2);
  CHECK(problem->variables[1].usages[0].end == 6);
  auto solution = solve(*problem);
  REQUIRE(solution);
  CHECK(solution->status == Status::Optimal);
  // (0, 1): 1 + 4 + 7 + 0 + 1 = 13 bytes 8 + 2; (0, 0) would use 14.
  CHECK(solution->choices == std::vector<uint32_t>{0, 1, 0});
  CHECK(toString(solution->cost) == "13");
}

TEST_CASE("gzip and plain files read the same; damaged ones are errors") {
  std::string path = "/tmp/partita-solver-test-" + std::to_string(getpid());
  REQUIRE(writeFile(path, small));
  auto plain = readProblem(path);
  REQUIRE(plain);
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, small, static_cast<unsigned>(std::string(small).size()));
  gzclose(file);
  auto packed = readProblem(path);
  REQUIRE(packed);
  CHECK(packed->edges[0].costs == plain->edges[0].costs);
  std::string bytes = *readFile(path);
  REQUIRE(writeFile(path, bytes.substr(0, bytes.size() / 2)));
  auto cut = readProblem(path);
  REQUIRE(!cut);
  CHECK(cut.error().message.find("damaged or cut short") != std::string::npos);
  std::remove(path.c_str());
  CHECK(!readProblem(path));
  CHECK(!readProblem("/tmp"));
}

TEST_CASE("every truncation of a file is one error, never a crash") {
  std::string text = small;
  for (size_t n = 0; n < text.size(); ++n) {
    auto problem = parseProblem(std::string_view(text).substr(0, n), "p.json");
    REQUIRE(!problem);
    CHECK(problem.error().message.rfind("p.json: ", 0) == 0);
  }
}

TEST_CASE("errors name the place") {
  CHECK(errorOf("[1, 9]", "[1, -9]") ==
        "p.json: problem/nodes/costs[0][1]: expected an integer from 0 to "
        "1000000000000000000, got -9");
  CHECK(errorOf("[8, 1]", "[8, -1]") ==
        "p.json: problem/nodes/usages[0][1]: expected an integer from 0 to "
        "1000000000000000000, got -1");
  CHECK(errorOf("[8, 1]", "[8, " + std::string(100, '7') + "]") ==
        "p.json: problem/nodes/usages[0][1]: expected an integer from 0 to "
        "1000000000000000000, got one of 100 digits");
  CHECK(errorOf("[8, 1]", "[8, \"x\"]") ==
        "p.json: problem/nodes/usages[0][1]: expected an integer, got a string");
  CHECK(errorOf("[8, 1]", "[8, 1.5]") ==
        "p.json: problem/nodes/usages[0][1]: expected an integer, got a number with a "
        "fraction or an exponent");
  CHECK(errorOf("[8, 1]", "[8]") == "p.json: variable 0: 1 usages for 2 costs");
  CHECK(errorOf("[0, 1], [2, 1]", "[0, 1], [3, 1]") ==
        "p.json: edge 1: there is no variable 3, only 3");
  CHECK(errorOf("[0, 1], [2, 1]", "[0, 1], [1, 1]") ==
        "p.json: edge 1: joins variable 1 to itself");
  CHECK(errorOf("[0, 1, 3]", "[0, 1]") == "p.json: edge 1: 2 costs, expected 1 x 3");
  CHECK(errorOf("[0, 1], [2, 1]", "[0, 1]") ==
        "p.json: problem/edges/costs: 2 entries, expected 1");
  CHECK(errorOf("[5, 5]", "[5, 4]") ==
        "p.json: variable 2: the interval [5, 4) is not inside [0, 1000000000000)");
  CHECK(errorOf("[5, 5]", "[5]") ==
        "p.json: problem/nodes/intervals[2]: expected 2 integers, got 1");
  CHECK(errorOf("\"usage_limit\": 10", "\"usage_limit\": 0") ==
        "p.json: problem/usage_limit: expected an integer from 1 to "
        "1000000000000000000, got 0");
  CHECK(errorOf("usage_limit", "usage-limit") ==
        "p.json: problem/usage-limit: unknown member; known are name, nodes, edges, "
        "usage_limit, classes");
  CHECK(errorOf("\"usage_limit\"", "\"name\"") ==
        "p.json: problem/name: the member appears twice");
  CHECK(errorOf("10}}", "10}} x").find("expected the end of the file") !=
        std::string::npos);
  CHECK(errorOf("[7]", "[]").find("variable 2: has no choices") != std::string::npos);
}

TEST_CASE("classes are read from a file, and bad ones refused") {
  // Two layers of two nodes each.
  std::string text = R"({"problem": {
    "nodes": {"intervals": [[0, 4], [0, 4], [0, 4], [0, 4]],
              "costs": [[1, 9], [3, 4], [1, 9], [3, 4]],
              "usages": [[8, 1], [6, 2], [8, 1], [6, 2]]},
    "usage_limit": 24, "classes": [{"copies": [[0, 1], [2, 3]], "runs": 2}]}})";
  auto with = [&](const std::string &from, const std::string &to) {
    std::string changed = text;
    size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return parseProblem(changed.replace(at, from.size(), to), "p.json");
  };
  auto apart = with("limit", "limit");
  REQUIRE(apart);
  REQUIRE(apart->classes.size() == 1);
  CHECK(apart->classes[0].copies == std::vector<std::vector<uint32_t>>{{0, 1}, {2, 3}});
  CHECK(apart->classes[0].runs == 2);
  // One of the second nodes takes its small choice.
  CHECK(toString(solve(*apart)->cost) == "9");
  auto tied = with(", \"runs\": 2", "");
  REQUIRE(tied);
  CHECK(tied->classes[0].runs == 1);
  CHECK(toString(solve(*tied)->cost) == "10");
  auto message = [&](const std::string &from, const std::string &to) {
    auto problem = with(from, to);
    return problem ? "no error" : problem.error().message;
  };
  CHECK(
      message("\"runs\": 2", "\"runs\": 0") ==
      "p.json: problem/classes[0]/runs: expected an integer from 1 to 4294967295, got 0");
  CHECK(message("[2, 3]]", "[2, 4]]") ==
        "p.json: class 0, copy 1: there is no variable 4, only 4");
  CHECK(message("[2, 3]]", "[2]]") ==
        "p.json: class 0, copy 1: 1 variables, expected 2 as in copy 0");
  CHECK(message("[2, 3]]", "[2, -3]]") ==
        "p.json: problem/classes[0]/copies[1][1]: expected an integer from 0 to "
        "4294967295, got -3");
  CHECK(message("[[0, 1], [2, 3]]", "[]") == "p.json: class 0: has no copies");
  CHECK(message("\"copies\": [[0, 1], [2, 3]], ", "") ==
        "p.json: problem/classes[0]: the member \"copies\" is missing");
  CHECK(message("\"runs\"", "\"split\"") ==
        "p.json: problem/classes[0]/split: unknown member; known are copies, runs");
  CHECK(message("[{\"copies\": [[0, 1], [2, 3]], \"runs\": 2}]", "[[0, 1]]")
            .rfind("p.json: problem/classes[0]: expected an object", 0) == 0);
}

TEST_CASE("an empty problem is an error") {
  auto problem = parseProblem(
      R"({"problem": {"nodes": {"intervals": [], "costs": [], "usages": []}}})", "p");
  REQUIRE(!problem);
  CHECK(problem.error().message == "p: the problem is empty: it has no variables");
  CHECK(!parseProblem("{}", "p"));
  CHECK(!parseProblem("", "p"));
  CHECK(!parseProblem("[]", "p"));
  CHECK(!parseProblem(std::string(100000, '['), "p"));
}
