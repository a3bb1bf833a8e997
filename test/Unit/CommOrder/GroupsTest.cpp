//===- GroupsTest.cpp - A collective by parts of its axes -----------------===//
#include "partita/Comm/Groups.h"

#include "Collectives.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

using namespace partita;

TEST_CASE("groups: each way to split a collective gives the same elements") {
  struct Case {
    StepKind kind;
    const char *before, *after;
    size_t ways; ///< that exist
  };
  const Mesh mesh = *Mesh::parse("dp=2,sp=2,tp=2");
  const Case cases[] = {
      {StepKind::AllReduce, "[{8}, {4} ] partial sum {dp, sp, tp}", "[{8}, {4} ]", 5},
      {StepKind::AllReduce, "[{8} ] partial sum {sp}, max {dp, tp}",
       "[{8} ] partial sum {sp}", 2},
      {StepKind::AllReduce, "[{8} ] partial sum {dp, tp}", "[{8} ] partial sum {tp}", 1},
      {StepKind::ReduceScatter, "[{16}, {4} ] partial sum {dp, sp, tp}",
       "[{16: dp, sp, tp}, {4} ]", 4},
      {StepKind::ReduceScatter, "[{16: sp} ] partial sum {dp, tp}", "[{16: sp, dp, tp} ]",
       2},
      {StepKind::ReduceScatter, "[{5/8} ] partial sum {dp, tp}", "[{5/8: dp, tp} ]", 2},
      {StepKind::AllGather, "[{3}, {16: tp, dp, sp} ]", "[{3}, {16} ]", 4},
      {StepKind::AllGather, "[{16: tp, dp, sp} ]", "[{16: tp} ]", 2},
      {StepKind::AllGather, "[{13/16: dp, sp} ]", "[{13/16} ]", 2},
  };
  for (const Case &c : cases) {
    INFO(c.before << " to " << c.after);
    const Step step = stepOf(mesh, c.kind, c.before, c.after);
    size_t ways = 0;
    for (const AxisParts &parts : partsOf(step)) {
      const std::vector<Step> steps = stepsByParts(mesh, step, parts);
      ways += parts.size() == 1 || !steps.empty();
      CHECK(steps.size() == (parts.size() == 1 ? 0 : parts.size()));
      std::set<AxisList> asked, made;
      for (const AxisList &part : parts)
        asked.insert(groupOf(part));
      for (const Step &one : steps)
        made.insert(groupOf(one.axes));
      if (steps.empty())
        continue;
      CHECK(asked == made);
      CHECK(areEqual(mesh, step, steps));
    }
    CHECK(ways == c.ways);
  }
}

TEST_CASE("groups: a step of other kinds stays") {
  const Mesh mesh = *Mesh::parse("dp=2,tp=2");
  const Step step =
      stepOf(mesh, StepKind::AllToAll, "[{8: dp, tp}, {8} ]", "[{8}, {8: dp, tp} ]");
  CHECK(partsOf(step) == std::vector<AxisParts>{{step.axes}});
  CHECK(stepsByParts(mesh, step, {{step.axes[0]}, {step.axes[1]}}).empty());
}

namespace {
/// The axes of a mesh by their letters.
AxisList axes(const Mesh &mesh, const std::string &letters) {
  AxisList list;
  for (char letter : letters)
    list.push_back(*mesh.parseAxis(std::string(1, letter)));
  return list;
}

/// "ab|c": parts of axes.
AxisParts parts(const Mesh &mesh, const std::string &text) {
  AxisParts result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('|', begin), text.size());
    result.push_back(axes(mesh, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return result;
}
} // namespace

TEST_CASE("groups: a pair that others use comes before single axes") {
  const Mesh mesh = *Mesh::parse("a=2,b=2,c=2");
  auto way = [&](const char *text) { return parts(mesh, text); };
  const std::vector<AxisParts> all = {way("abc"), way("ab|c"), way("ac|b"), way("bc|a"),
                                      way("a|b|c")};
  const GroupUse three{all, 10}, pair{{way("ab"), way("a|b")}, 1}, one{{way("c")}, 1};
  using Ways = std::vector<size_t>;
  CHECK(groupsWithin(3, {three, pair, one}) == Ways{0, 0, 0});
  CHECK(groupsWithin(2, {three, pair, one}) == Ways{1, 0, 0});
  // No choice has one group; {a}, {b} and {c} would be three.
  CHECK(groupsWithin(1, {three, pair, one}) == Ways{1, 0, 0});
  // The pair cannot stay beside a and b, which are there in any case.
  const GroupUse a{{way("a")}, 1}, b{{way("b")}, 1};
  CHECK(groupsWithin(3, {three, pair, one, a, b}) == Ways{4, 1, 0, 0, 0});
}

TEST_CASE("groups: many uses over many axes are chosen for in a bounded time") {
  const Mesh mesh = *Mesh::parse("a=2,b=2,c=2,d=2,e=2");
  std::vector<GroupUse> uses;
  for (const char *text : {"abcde", "abcd", "bcde", "acde", "abde", "abce", "abc", "bcd",
                           "cde", "ade", "abe", "ace", "ab", "bc", "cd", "de"}) {
    std::vector<AxisParts> ways{{}};
    for (const AxisRef &axis : axes(mesh, text)) {
      std::vector<AxisParts> more;
      for (const AxisParts &way : ways) {
        more.push_back(way);
        more.back().push_back({axis});
        if (!way.empty()) {
          more.push_back(way);
          more.back().back().push_back(axis);
        }
      }
      ways = std::move(more);
    }
    std::ranges::sort(ways, {}, [](const AxisParts &way) { return way.size(); });
    uses.push_back({ways, 1});
  }
  for (int64_t most : {5, 6, 8}) {
    const std::vector<size_t> best = groupsWithin(most, uses);
    std::set<AxisList> groups;
    for (size_t u = 0; u < uses.size(); ++u)
      for (const AxisList &part : uses[u].ways[best[u]])
        groups.insert(groupOf(part));
    CHECK(static_cast<int64_t>(groups.size()) <= most);
  }
}
