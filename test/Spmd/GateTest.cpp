//===- GateTest.cpp - No wrong attribute or operand passes the gate -------===//
//
// Small programs are partitioned; then every attribute of every op that says where data
// lies is made wrong in every way listed here, and every operand is replaced by every
// other value of its type. The op's verifier or the gate of level L3 must refuse each
// wrong attribute, and each operand in another form; an operand in the same form is
// another tensor, so that the program is another one, which no layout can tell.
//
//===----------------------------------------------------------------------===//
#include "Cases.h"
#include "Samples.h"
#include "Wrong.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <catch2/catch.hpp>

#include <cstdio>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

namespace {
struct Tally {
  size_t refused = 0, sameForm = 0;
};

void tryAttributes(Gate &gate, ModuleOp module, const char *program, Operation *op,
                   Tally &tally) {
  SmallVector<NamedAttribute> attributes(op->getAttrs());
  for (NamedAttribute attr : attributes)
    for (auto &[change, value] : wrongPlaces(op, attr)) {
      op->setAttr(attr.getName(), value);
      bool refused = gate.refuses(module);
      op->setAttr(attr.getName(), attr.getValue());
      tally.refused += refused;
      if (!refused) {
        std::string text;
        llvm::raw_string_ostream stream(text);
        stream << program << ": " << *op << ": " << attr.getName() << ": " << change
               << ", " << value;
        FAIL_CHECK(text);
      }
    }
}

/// Any other value of the type. Those in the same form are counted.
void tryOperands(Gate &gate, ModuleOp module, Operation *op, Tally &tally) {
  for (OpOperand &operand : op->getOpOperands()) {
    Value old = operand.get();
    for (Operation &other : *op->getBlock()) {
      if (&other == op)
        break;
      for (Value value : other.getResults()) {
        if (value == old || value.getType() != old.getType())
          continue;
        operand.set(value);
        ++(gate.refuses(module) ? tally.refused : tally.sameForm);
        operand.set(old);
      }
    }
  }
}
} // namespace

TEST_CASE("no wrong attribute of a partitioned program passes the gate") {
  MLIRContext context;
  loadDialects(context);
  Gate gate(context);
  Tally attributes, operands;
  for (const Sample &sample : samples()) {
    OwningOpRef<ModuleOp> local = partitioned(context, sample);
    REQUIRE(local);
    REQUIRE(!gate.refuses(*local));
    std::vector<Operation *> ops;
    local->walk([&](Operation *op) {
      if (!isa<ModuleOp, func::FuncOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      tryAttributes(gate, *local, sample.name, op, attributes);
      tryOperands(gate, *local, op, operands);
    }
    REQUIRE(!gate.refuses(*local));
  }
  std::printf(
      "gate: %zu wrong attributes refused; %zu exchanged operands refused, %zu are "
      "in the same form\n",
      attributes.refused, operands.refused, operands.sameForm);
  CHECK(operands.refused > 0);
  CHECK(attributes.refused > 1000);
}
