//===- Fusion.h - Which ops share a kernel or an engine call ----*- C++ -*-===//
//
// Decided before any task is formed. First, attentions (Attention.h). Then, by two passes
// over the other ops:
//
// 1. Forward: behind each op that takes post-ops, the chain of pointwise ops, each the
//    only user of the one before, that the engine can apply.
// 2. Backward: an op with a payload, a row op or an indexed op joins the kernel of its
//    users if they are all in one kernel and the op's elements are the kernel's points,
//    so that nothing is computed twice; ops on fewer elements join if they are cheap or
//    constant along the kernel's rows.
//
// A kernel has one set of row dims: row ops over other dims start a kernel of their own.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_FUSION_H
#define PARTITA_PASSES_CODEGEN_COMMON_FUSION_H

#include "partita/Base/Bundle/TaskTable.h"
#include "passes/Codegen/Common/Attention.h"
#include "passes/Codegen/Common/View.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <memory>

namespace partita::codegen {

/// The ops of one kernel.
struct Group {
  mlir::Operation *root = nullptr;
  Shape domain;                 ///< shape of the points, before refinement
  std::vector<int64_t> rowDims; ///< ascending; empty without row ops
  int numOps = 1;
};

/// A pointwise op behind an engine call.
struct PostStep {
  mlir::Operation *op = nullptr; ///< the last one
  task::PostOp post;
  mlir::Value operand; ///< of binary ones; null otherwise
  /// Earlier ops that the post-op stands for too.
  std::vector<mlir::Operation *> merged = {};
};

class Fusion {
public:
  /// With or without kernels of attention.
  Fusion(mlir::func::FuncOp function, bool streamsAttention);

  /// The attention that the op is the root of, or null.
  const Attention *attentionAt(mlir::Operation *op) const;
  /// Softmax ops between products that are none, and why.
  const std::vector<std::pair<mlir::Operation *, std::string>> &apart() const {
    return attentions.apart;
  }

  /// The group that the op is the root of, or null.
  const Group *groupAt(mlir::Operation *op) const;
  /// Whether the op is computed in the group.
  bool isIn(mlir::Operation *op, const Group &group) const;
  /// Whether the op is computed inside some other op's kernel or call.
  bool isAbsorbed(mlir::Operation *op) const;

  /// The post-ops of an engine call.
  llvm::ArrayRef<PostStep> postChain(mlir::Operation *engine) const;
  /// The engine op whose call is formed when `op` is reached, or null.
  mlir::Operation *engineAt(mlir::Operation *op) const;
  /// The op at which the tasks are formed that compute this one; null: at several.
  mlir::Operation *formedAt(mlir::Operation *op) const;
  /// The value that the call computes: the engine op's or its last post-op's result.
  mlir::Value callResult(mlir::Operation *engine) const;

private:
  void findChains(mlir::func::FuncOp function);
  void findGroups(mlir::func::FuncOp function);
  bool join(mlir::Operation *op, Group &group) const;

  Attentions attentions;
  std::vector<std::unique_ptr<Group>> groups;
  llvm::DenseMap<mlir::Operation *, Group *> groupOf;
  llvm::DenseMap<mlir::Operation *, std::vector<PostStep>> chains;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> engines;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> chained; ///< to their engine op
};

/// Whether the value is a uniform graph.constant.
bool isUniform(mlir::Value value);
/// Its element, as double.
double uniformValue(mlir::Value value);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_FUSION_H
