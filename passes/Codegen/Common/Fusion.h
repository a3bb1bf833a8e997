//===- Fusion.h - Which ops share a kernel or an engine call ----*- C++ -*-===//
//
// Decided before any task is formed: by a plain description of the function: first
// attentions (partita/Kernels/Attention.h), then kernels and calls
// (partita/Kernels/Group.h). Here ops are matched with their numbers in it.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_FUSION_H
#define PARTITA_PASSES_CODEGEN_COMMON_FUSION_H

#include "partita/Kernels/Attention.h"
#include "partita/Kernels/Group.h"
#include "passes/Codegen/Common/View.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace partita::codegen {

/// A function as plain data, its ops and values by their numbers there.
struct Described {
  kernels::LocalProgram program;
  std::vector<mlir::Operation *> ops;
  std::vector<mlir::Value> values;
};
Described describe(mlir::func::FuncOp function);

class Fusion {
public:
  Fusion(mlir::func::FuncOp function, const kernels::Target &target);

  /// The attention that the op is the root of, or null.
  const kernels::Attention *attentionAt(mlir::Operation *op) const;
  /// What is no part of its users' kernel or of an attention, and why: the softmax or the
  /// root of a kernel of its own, and a sentence without subject.
  std::vector<std::pair<mlir::Operation *, std::string>> apart() const;

  /// The number of the group that the op is the root of, or −1.
  int32_t groupAt(mlir::Operation *op) const { return grouping.groupAt(numberOf(op)); }
  const kernels::Group &group(int32_t number) const {
    return grouping.groups[static_cast<size_t>(number)];
  }
  /// Whether the op is computed in the group.
  bool isIn(mlir::Operation *op, int32_t group) const {
    return grouping.isIn(numberOf(op), group);
  }
  /// Whether the op is computed inside some other op's kernel or call.
  bool isAbsorbed(mlir::Operation *op) const {
    return grouping.isAbsorbed(described.program, numberOf(op));
  }

  /// The post-ops of an engine call.
  llvm::ArrayRef<kernels::PostStep> postChain(mlir::Operation *engine) const {
    return grouping.chains[static_cast<size_t>(numberOf(engine))];
  }
  /// The engine op whose call is formed when `op`, its last post-op, is reached, or null.
  mlir::Operation *engineAt(mlir::Operation *op) const;
  /// The last op at which tasks are formed that compute this one; null: at attentions.
  mlir::Operation *formedAt(mlir::Operation *op) const;
  /// The value that the call computes: the engine op's or its last post-op's result.
  mlir::Value callResult(mlir::Operation *engine) const;

  /// The function, with what attentions have of it.
  const kernels::LocalProgram &program() const { return described.program; }
  mlir::Operation *op(int32_t number) const {
    return described.ops[static_cast<size_t>(number)];
  }
  /// Null for −1.
  mlir::Value value(int32_t number) const {
    return number < 0 ? mlir::Value() : described.values[static_cast<size_t>(number)];
  }

private:
  int32_t numberOf(mlir::Operation *op) const { return numbers.at(op); }

  kernels::Attentions attentions;
  Described described;
  kernels::Grouping grouping;
  llvm::DenseMap<mlir::Operation *, int32_t> numbers;
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_FUSION_H
