//===- RowPasses.h - Shorthands of row ops ----------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_EMIT_ROWPASSES_H
#define PARTITA_PASSES_CODEGEN_EMIT_ROWPASSES_H

#include "passes/Codegen/Emit/KernelEmitter.h"
#include "passes/Codegen/Emit/RealFunctions.h"

namespace partita::codegen {

/// One Row node while its passes are emitted.
class Passes {
public:
  Passes(KernelEmitter &emitter, int number)
      : e(emitter), b(emitter.builder), at(emitter.location), number(number),
        node(emitter.node(number)), type(emitter.computeType(node.type)) {}

  mlir::Value x() { return e.value(node.args[0]); }
  mlir::Value constant(double value) { return e.constant(type, value); }
  template <typename Op> mlir::Value make(mlir::Value a) { return Op::create(b, at, a); }
  template <typename Op> mlir::Value make(mlir::Value a, mlir::Value c) {
    return Op::create(b, at, a, c, mlir::arith::FastMathFlags::contract);
  }
  /// Σ over the row; the order of additions is free, so that it runs in vectors.
  mlir::Value add(mlir::Value a, mlir::Value c) {
    return mlir::arith::AddFOp::create(b, at, a, c,
                                       mlir::arith::FastMathFlags::reassoc |
                                           mlir::arith::FastMathFlags::contract);
  }
  mlir::Value exp(mlir::Value a) { return emitRealFunction(b, at, ScalarOp::Exp, a); }

  /// `a` and `c` by `kind`, in any order of the row's elements…
  mlir::Value combine(ReduceKind kind, mlir::Value a, mlir::Value c);
  /// … or in the order in which they come.
  mlir::Value inOrder(ReduceKind kind, mlir::Value a, mlir::Value c);
  mlir::Value neutral(ReduceKind kind);
  mlir::Value reduceRow(ReduceKind kind, llvm::function_ref<mlir::Value()> element) {
    return e.reduceRow(neutral(kind), element,
                       [&](mlir::Value a, mlir::Value c) { return combine(kind, a, c); });
  }
  /// The operand's element, kept in scratch from the first pass on if it is computed.
  mlir::Value kept() { return isLoad() ? x() : e.loadRow(number, 0, type); }
  mlir::Value keep() {
    mlir::Value element = x();
    if (!isLoad())
      e.storeRow(number, 0, element);
    return element;
  }
  bool isLoad() const { return e.node(node.args[0]).kind == KernelNode::Load; }

  KernelEmitter &e;
  mlir::OpBuilder &b;
  mlir::Location at;
  int number;
  const KernelNode &node;
  mlir::Type type;
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_EMIT_ROWPASSES_H
