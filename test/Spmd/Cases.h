//===- Cases.h - Every graph op, with shapes, types and data ----*- C++ -*-===//
//
// The list on which the strategy, linearity and mutation tests run. Ops with a scalar
// payload are covered from their definition; every other registered op has its cases
// written out. An op without a case is an error, so a new op cannot go untested.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TEST_SPMD_CASES_H
#define PARTITA_TEST_SPMD_CASES_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Rule/Sharding/ShardingRule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <random>
#include <string>
#include <vector>

namespace partita::spmd {

/// From where the values of an operand are drawn.
/// Few: -1, 0 or 1, so that values meet; WithNaN: one in four is NaN; WithInfinity:
/// likewise; Unit: inside (-1, 1); AboveOne: from 1 to 4.
struct Data {
  enum Kind {
    Any,
    Positive,
    NonZero,
    Few,
    WithNaN,
    WithInfinity,
    Unit,
    AboveOne,
    Index
  } kind = Any;
  int64_t limit = 0; ///< Index: values in [-limit, limit)
};

struct OpCase {
  std::string op;                    ///< "graph.add"
  std::vector<std::string> operands; ///< types, "4x6xf32"
  std::string attributes;            ///< "axis = 1 : i64", without braces
  std::string result;                ///< type; empty: inferred
  std::vector<Data> data;            ///< per operand; missing ones are Any

  /// One line that identifies the case: op, operand types, attributes.
  std::string name() const;
  Data dataOf(size_t operand) const {
    return operand < data.size() ? data[operand] : Data{};
  }
};

/// A context with the dialects of partitioned programs.
void loadDialects(mlir::MLIRContext &context);

/// Every case, and an error naming the registered ops that have none.
Expected<std::vector<OpCase>> allCases(mlir::MLIRContext &context);

/// The case as a program of one op: `func @main(operands) -> result`.
struct Program {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  mlir::Operation *op = nullptr;
  ShardingRule rule;
};
Expected<Program> buildProgram(mlir::MLIRContext &context, const OpCase &opCase);

using Random = std::mt19937_64;

/// A tensor of values from `data`.
HostTensor draw(DType type, const std::vector<int64_t> &shape, const Data &data,
                Random &random);

/// `parts` tensors whose reduction is `whole`. Some of them hold the neutral element, as
/// ranks without valid elements do.
std::vector<HostTensor> decompose(const HostTensor &whole, ReduceKind kind, int64_t parts,
                                  Random &random);

} // namespace partita::spmd

#endif // PARTITA_TEST_SPMD_CASES_H
