//===- Wrong.h - Attributes made wrong, and who must notice -----*- C++ -*-===//
#ifndef PARTITA_TEST_SPMD_WRONG_H
#define PARTITA_TEST_SPMD_WRONG_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

#include <string>
#include <utility>
#include <vector>

namespace partita::spmd {

/// Other values of an attribute, each with a word on how it differs. A null one: without
/// the attribute.
using Variants = std::vector<std::pair<std::string, mlir::Attribute>>;

/// Of an attribute that says where data lies: a layout, strategy, rule, window buffer, a
/// kind of reduction of a comm op, masked dims. None for others.
Variants wrongPlaces(mlir::Operation *op, mlir::NamedAttribute attr);

/// Of an attribute that says what an op computes: an axis, a list, a mode, a number.
Variants wrongComputations(mlir::Operation *op, mlir::NamedAttribute attr);

/// The verifiers and the gate of level L3.
class Gate {
public:
  explicit Gate(mlir::MLIRContext &context);
  bool refuses(mlir::ModuleOp module);

private:
  mlir::PassManager manager;
};

} // namespace partita::spmd

#endif // PARTITA_TEST_SPMD_WRONG_H
