//===- FormulasTest.cpp - What kernels compute, as text -------------------===//
#include "partita/Base/Bundle/Formulas.h"

#include <catch2/catch.hpp>

#include <limits>

using namespace partita;
using Node = KernelFormula::Node;

/// A kernel of two reads, one at computed places, and all kinds of nodes.
static Formulas sample() {
  KernelFormula kernel;
  kernel.domain = {4, 8};
  kernel.rowDims = 1;
  kernel.storedPoints = 6;
  kernel.isWhole = false;
  kernel.ownReads = 1;
  kernel.reads = {{DType::F32, 3, {8, 1}, {}, false, -1},
                  {DType::BF16, 0, {}, {{16, -2}, {3, 32}}, false, -1}};
  kernel.writes = {{DType::F16, 0, {1, 0}, {}, true, 4}};
  kernel.nodes = {
      {Node::Load, DType::F32, 0, {}, {}, {}, {}},
      {Node::Constant,
       DType::F32,
       -1,
       {},
       {},
       {-std::numeric_limits<double>::infinity()},
       {}},
      {Node::Payload, DType::F32, -1, {0, 1}, {}, {0.1, 1e300}, "x * slope + y"},
      {Node::Opaque, DType::F32, -1, {}, {1}, {}, {}},
      {Node::Row, DType::F16, -1, {2}, {}, {}, "reduce sum"},
  };
  Formulas formulas;
  formulas.kernels = {kernel, KernelFormula{{1}, 0, -1, true, 0, {}, {}, {}}};
  formulas.names[7] = {{"a node", "its value"}, {}, {"b", "b"}};
  return formulas;
}

TEST_CASE("formulas are read as they were written") {
  Formulas formulas = sample();
  auto read = Formulas::parse(formulas.text());
  REQUIRE(read);
  CHECK(read->kernels == formulas.kernels);
  CHECK(read->names == formulas.names);
  CHECK(read->text() == formulas.text());
  CHECK(Formulas::parse("")->kernels.empty());
}

TEST_CASE("damaged formulas are an error and no crash") {
  const std::string text = sample().text();
  CHECK(Formulas::parse("kernel 1 x 0 -1 1 0\n").error().message ==
        "the formulas of the task table are damaged: line 1");
  CHECK(Formulas::parse("kernel 1 4 0 -1 1 0\nnode 0 0 3 0 0 0 \n").error().message ==
        "the formulas of the task table are damaged: kernel 0");
  size_t refused = 0;
  for (size_t i = 0; i < text.size(); ++i)
    for (char letter : {'9', ' ', '\n', '-'}) {
      std::string changed = text;
      changed[i] = letter;
      refused += !Formulas::parse(changed);
    }
  CHECK(refused > text.size());
}
