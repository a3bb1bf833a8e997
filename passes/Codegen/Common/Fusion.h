//===- Fusion.h - Which ops share a kernel or an engine call ----*- C++ -*-===//
//
// Decided before any task is formed. First, attentions (Attention.h). Then, by two passes
// over the other ops:
//
// 1. Forward: behind each op that takes post-ops, the chain of pointwise ops, each the
//    only user of the one before, that the engine can apply.
// 2. Backward, users first: an op with a payload, a row op or an indexed op is computed
//
//    - in the kernel of its users, if it fits there and nobody else reads it;
//    - likewise, and *kept*: the kernel stores it for others, which all run later;
//    - again in each of the kernels of its users, if these are all;
//    - in a kernel of its own,
//
//    whatever takes least (FusionCost.h). A value is kept only if the kernel holds no
//    more for it than it stores; in a step of training, only if it holds nothing for it.
//
//      %r = add %a, %b               kernel of %n: loads a, b; stores n, and r, which is
//      %n = layer_norm %r            kept: the last op reads it
//      %y = contract %n, %w
//      %z = add %y, %r
//
//    An op fits into a kernel whose points are its elements, or to whose points it
//    broadcasts; row ops into one with rows along the same dims.
//
// A kernel has one set of row dims: row ops over other dims start a kernel of their own.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_FUSION_H
#define PARTITA_PASSES_CODEGEN_COMMON_FUSION_H

#include "partita/Base/Bundle/TaskTable.h"
#include "passes/Codegen/Common/Attention.h"
#include "passes/Codegen/Common/FusionCost.h"
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
  /// What is computed in the kernel and read from memory by others, beside the results of
  /// the root.
  llvm::SmallVector<mlir::Value> kept = {};
  KernelCost cost = {};
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
  /// What is no part of its users' kernel or of an attention, and why: the softmax or the
  /// root of a kernel of its own, and a sentence without subject.
  const std::vector<std::pair<mlir::Operation *, std::string>> &apart() const {
    return whyApart;
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
  /// The last op at which tasks are formed that compute this one; null: at attentions.
  mlir::Operation *formedAt(mlir::Operation *op) const;
  /// The value that the call computes: the engine op's or its last post-op's result.
  mlir::Value callResult(mlir::Operation *engine) const;

private:
  /// Who reads the results of an op.
  struct Readers {
    llvm::SmallVector<Group *, 2> groups; ///< at their points
    bool others = false;                  ///< anybody else
  };
  /// Where an op is computed, and what all kernels that this concerns take then.
  struct Place {
    llvm::SmallVector<Group *, 2> groups; ///< none: of its own
    bool isKept = false;
    double steps = 0;
  };

  void findChains(mlir::func::FuncOp function);
  void findGroups(mlir::func::FuncOp function);
  Readers readersOf(mlir::Operation *op) const;
  /// The op at which the first task is formed that reads results of `op` from memory, if
  /// it is not computed again in the kernels that read it; null: unknown.
  mlir::Operation *firstReading(mlir::Operation *op, const Group *except) const;
  /// Why the kernel cannot compute the op and store it for others; empty: it can.
  std::string whyNotKept(mlir::Operation *op, const Group &group) const;
  /// Movement (FusionCost.h) of what `op` reads and nobody needs once it has run, if it
  /// runs in the kernel of `root` instead.
  double heldLonger(mlir::Operation *op, mlir::Operation *root) const;
  Place choosePlace(mlir::Operation *op, const Readers &readers, std::string &why) const;
  bool fits(mlir::Operation *op, const Group &group) const;
  void join(mlir::Operation *op, Group &group);

  bool isStep = false; ///< of training: ops have parts
  Attentions attentions;
  std::vector<std::unique_ptr<Group>> groups;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Group *, 1>> groupsOf;
  llvm::DenseMap<mlir::Operation *, std::vector<PostStep>> chains;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> engines;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> chained; ///< to their engine op
  std::vector<std::pair<mlir::Operation *, std::string>> whyApart;
};

/// Whether the value is a uniform graph.constant.
bool isUniform(mlir::Value value);
/// Its element, as double.
double uniformValue(mlir::Value value);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_FUSION_H
