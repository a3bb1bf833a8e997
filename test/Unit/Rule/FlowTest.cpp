//===- FlowTest.cpp - Refinement to atoms ---------------------------------===//
#include "FlowProgram.h"

#include <catch2/catch.hpp>

#include <set>

using namespace partita;

namespace {
using Pieces = std::vector<int64_t>;

/// Refinement as it is defined: whole sweeps over all dims until nothing changes. For
/// programs without windows.
class Sweeps {
public:
  explicit Sweeps(const FlowGraph &graph) : graph(graph) {
    for (const FlowOp &op : graph.ops) {
      pieces.emplace_back();
      for (const Factor &factor : op.rule.factors)
        pieces.back().push_back({factor.size});
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const FlowValue &value : graph.values)
        for (size_t d = 0; d < value.shape.size(); ++d)
          changed |= refine(value, d);
    }
  }

  std::vector<std::vector<Pieces>> pieces;

private:
  using End = std::pair<int32_t, const std::vector<int32_t> *>;

  /// Suffix products, without those minor to a cut that may not be split.
  std::set<int64_t> cuts(const End &end) const {
    std::set<int64_t> result;
    int64_t suffix = 1;
    bool bare = true;
    for (auto f = end.second->rbegin(); f != end.second->rend(); ++f) {
      if (bare)
        result.clear();
      bare =
          bare && graph.ops[end.first].rule.factors[*f].kind() == FactorKind::Replicate;
      const Pieces &list = pieces[end.first][*f];
      for (auto piece = list.rbegin(); piece != list.rend(); ++piece)
        result.insert(suffix *= *piece);
    }
    result.erase(suffix);
    return result;
  }

  bool refine(const FlowValue &value, size_t d) {
    std::vector<End> ends{
        {value.producer, &graph.ops[value.producer].rule.results[value.result][d]}};
    for (const FlowUse &use : value.uses)
      ends.emplace_back(use.op, &graph.ops[use.op].rule.operands[use.operand][d]);
    std::set<int64_t> all;
    for (const End &end : ends)
      for (int64_t cut : cuts(end))
        all.insert(cut);
    bool changed = false;
    for (const End &end : ends)
      for (int64_t cut : all)
        changed |= apply(end, cut);
    return changed;
  }

  bool apply(const End &end, int64_t cut) {
    int64_t suffix = 1;
    for (auto f = end.second->rbegin(); f != end.second->rend(); ++f) {
      Pieces &list = pieces[end.first][*f];
      for (size_t k = list.size(); k-- > 0; suffix *= list[k]) {
        if (cut <= suffix || cut >= suffix * list[k])
          continue;
        if (cut % suffix != 0 || list[k] % (cut / suffix) != 0)
          return false;
        int64_t minor = cut / suffix;
        list[k] /= minor;
        list.insert(list.begin() + static_cast<int64_t>(k) + 1, minor);
        return true;
      }
    }
    return false;
  }

  const FlowGraph &graph;
};

/// A random chain of reshapes of 360 elements with element-wise ops of two earlier values
/// between them, sums and slices of thirds.
Program randomProgram(std::mt19937 &random) {
  const std::vector<Shape> shapes{{360},      {12, 30},   {4, 90}, {6, 60},
                                  {2, 6, 30}, {3, 4, 30}, {20, 18}};
  auto pick = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  Program p;
  std::map<Shape, std::vector<std::string>> known;
  p.argument("x", {360});
  std::string last = "x";
  Shape shape{360};
  for (int i = 0; i < 24; ++i) {
    std::string name = "v" + std::to_string(i);
    known[shape].push_back(last);
    const auto &same = known[shape];
    if (pick(3) == 0) {
      p.elementwise(name, {last, same[pick(same.size())]});
    } else {
      shape = shapes[pick(shapes.size())];
      p.reshape(name, last, shape);
    }
    last = name;
  }
  p.result(last);
  return p;
}
} // namespace

TEST_CASE("refinement by what a cut touches is that of whole sweeps") {
  std::mt19937 random(11);
  size_t cut = 0;
  for (int trial = 0; trial < 200; ++trial) {
    FlowGraph graph = randomProgram(random).build(*Mesh::parse("tp=2"));
    Sweeps expected(graph);
    for (size_t op = 0; op < graph.ops.size(); ++op)
      for (size_t f = 0; f < graph.ops[op].rule.factors.size(); ++f) {
        Pieces found;
        for (int32_t a : graph.atomsOf(static_cast<int32_t>(op), static_cast<int32_t>(f)))
          found.push_back(graph.atoms[a].size);
        cut += found.size() - 1;
        CHECK(found == expected.pieces[op][f]);
      }
  }
  CHECK(cut > 1000);
}

TEST_CASE("a detached loop is whole, linked to nothing, and cuts no neighbour") {
  Program p;
  p.argument("x", {8, 3});
  p.elementwise("a", {"x"});
  p.reshape("apart", "a", {2, 4, 3});
  p.elementwise("b", {"apart"});
  p.result("b");
  FlowGraph graph = p.build(*Mesh::parse("tp=2"));
  REQUIRE(graph.atomsOf(1, 0).size() == 2);
  graph.finalize({{1, 0, {}}});
  REQUIRE(graph.atomsOf(1, 0).size() == 1);
  const Atom &whole = graph.atoms[graph.atomsOf(1, 0)[0]];
  CHECK(whole.detached);
  CHECK(whole.size == 8);
  CHECK(whole.canPad);
  CHECK(whole.links.empty());
  // The input is linked with nothing that cuts it any more; the other dim is as it was.
  CHECK(graph.atomsOf(0, 0).size() == 1);
  CHECK(!graph.atoms[graph.atomsOf(1, 1)[0]].links.empty());
  for (const Atom &atom : graph.atoms)
    for (const Atom::Link &link : atom.links)
      CHECK(!graph.atoms[link.atom].detached);
  // In pieces of its own.
  graph.finalize({{1, 0, {4, 2}}});
  CHECK(graph.atomsOf(1, 0).size() == 2);
  CHECK(graph.atoms[graph.atomsOf(1, 0)[1]].canPad == false);
  CHECK(graph.atomsOf(0, 0).size() == 1);
  // As at first.
  graph.finalize();
  CHECK(graph.atomsOf(1, 0).size() == 2);
  CHECK(graph.atomsOf(0, 0).size() == 2);
}

TEST_CASE("ends of a loop that are one variable are cut alike") {
  Program p;
  p.argument("weight", {4, 12});
  p.result("weight");
  p.argument("all", {5, 4, 12}); // five rows, of which a trip reads one
  p.argument("weight of a trip", {4, 12});
  p.reshape("thirds", "weight of a trip", {4, 3, 4});
  p.result("thirds");
  p.argument("row", {4, 12});
  p.reshape("halves", "row", {2, 2, 12});
  p.result("halves");
  FlowGraph graph = p.build(*Mesh::parse("tp=2"));
  auto producer = [&](const std::string &name) {
    auto value = std::ranges::find(graph.values, name, &FlowValue::name);
    return value->producer;
  };
  auto pieces = [&](int32_t op, size_t dim) {
    Pieces found;
    for (int32_t a : graph.dimAtoms(op, graph.endFactors(op)[dim]))
      found.push_back(graph.atoms[static_cast<size_t>(a)].size);
    return found;
  };
  const int32_t weight = producer("weight"), all = producer("all");
  CHECK(pieces(weight, 1) == Pieces{12});
  auto sink = std::ranges::find(graph.ops, "result of weight", &FlowOp::name);
  graph.ties = {{{{static_cast<int32_t>(sink - graph.ops.begin())},
                  {producer("weight of a trip")}}},
                {{{all, true}, {producer("row")}}}};
  graph.finalize();
  CHECK(pieces(weight, 0) == Pieces{4});
  CHECK(pieces(weight, 1) == Pieces{3, 4});
  CHECK(pieces(all, 0) == Pieces{5});
  CHECK(pieces(all, 1) == Pieces{2, 2});
  CHECK(pieces(all, 2) == Pieces{12});
}
