//===- PartialSumsTest.cpp - Where partial sums are reduced ---------------===//
#include "Decided.h"

using namespace partita;

TEST_CASE("an addition of partial sums is reduced once, where its result is split") {
  Program p;
  p.argument("x", {8, 16});
  for (std::string name : {"q", "k", "v"}) {
    p.source(name + ".w", {16, 8});
    p.contract(name, "x", name + ".w", "m k, k n -> m n");
  }
  p.elementwise("two", {"q", "k"}, {{ReduceKind::Sum, {0, 1}}});
  p.elementwise("three", {"two", "v"}, {{ReduceKind::Sum, {0, 1}}});
  p.elementwise("read", {"three"});
  p.result("read");
  FlowGraph graph = p.build(*Mesh::parse("tp=2"));
  const char *hints = R"({"tensors": {"x": [null, "tp"]},
                          "nodes": {"read": {"out": [["tp", null]]}}})";
  Named found = decideByName(graph, hints);
  CHECK(found["two"] == "[{8}, {8}] pass 0 {tp}");
  CHECK(found["three"] == "[{8}, {8}] pass 0 {tp}");
  CHECK(found["read"] == "[{8: tp}, {8}]");
  CHECK(steps(graph, hints)[StepKind::ReduceScatter] == 1);
  // An addition that a hint is for does as it says.
  found = decideByName(graph, R"({"tensors": {"x": [null, "tp"]},
                                  "nodes": {"two": {"out": [["tp", null]]}}})");
  CHECK(found["two"] == "[{8: tp}, {8}]");
}

TEST_CASE("a partial value that forks is reduced before the fork") {
  Program p;
  p.argument("x", {16, 4});
  p.argument("average", {4});
  p.source("ones", {16});
  p.contract("variance", "ones", "x", "b, b n -> n");
  p.elementwise("root", {"variance"});
  p.elementwise("halved", {"variance"}, {{ReduceKind::Sum, {0}}});
  p.elementwise("doubled", {"variance"}, {{ReduceKind::Sum, {0}}});
  p.elementwise("other root", {"halved"});
  p.elementwise("running", {"average", "doubled"}, {{ReduceKind::Sum, {0, 1}}});
  p.result("running");
  p.result("root");
  p.result("other root");
  const char *hints = R"({"tensors": {"x": ["dp", null]}})";
  FlowGraph graph = p.build(*Mesh::parse("dp=2"));
  CHECK(steps(graph, hints)[StepKind::AllReduce] == 1);
  // Two readers that let the sum pass are one reduction, though none needs it whole.
  Program fork;
  fork.argument("x", {16, 4});
  fork.source("ones", {16});
  fork.contract("variance", "ones", "x", "b, b n -> n");
  fork.elementwise("halved", {"variance"}, {{ReduceKind::Sum, {0}}});
  fork.elementwise("doubled", {"variance"}, {{ReduceKind::Sum, {0}}});
  fork.elementwise("root", {"halved"});
  fork.elementwise("other root", {"doubled"});
  fork.result("root");
  fork.result("other root");
  CHECK(steps(fork.build(*Mesh::parse("dp=2")), hints)[StepKind::AllReduce] == 1);
}
