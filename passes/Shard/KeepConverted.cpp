//===- KeepConverted.cpp - Communication that recompute leaves out --------===//
#include "passes/Shard/KeepConverted.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace partita;

/// Whether both lead to the same, from whatever they convert.
static bool convertAlike(Operation *a, Operation *b) {
  return dist::isConversion(a) && dist::isConversion(b) &&
         dist::formOf(a) == dist::formOf(b);
}

/// By what a copy is converted to, what the op that it repeats is converted to.
static llvm::MapVector<Value, Value> originalsOf(func::FuncOp function) {
  llvm::MapVector<Value, Value> originals;
  for (Operation &op : function.front()) {
    if (!dist::isConversion(&op) || dist::phaseOf(&op) == Phase::Forward)
      continue;
    Value from = op.getOperand(0);
    Operation *maker = from.getDefiningOp();
    dist::RecomputeAttr mark = maker ? dist::recomputeOf(maker) : nullptr;
    if (!mark || !mark.getKeepsCommunication())
      from = originals.lookup(from);
    if (!from)
      continue;
    for (Operation *user : from.getUsers())
      if (dist::phaseOf(user) == Phase::Forward && convertAlike(user, &op))
        originals[op.getResult(0)] = user->getResult(0);
  }
  return originals;
}

void partita::keepConverted(func::FuncOp function,
                            const llvm::DenseSet<Operation *> &communicating) {
  auto originals = originalsOf(function);
  for (auto [converted, kept] : originals)
    if (communicating.contains(kept.getDefiningOp()))
      converted.replaceAllUsesWith(kept);
  for (auto [converted, kept] : llvm::reverse(originals))
    if (converted.use_empty() && communicating.contains(kept.getDefiningOp()))
      converted.getDefiningOp()->erase();
  auto needed = dist::neededAgain(function);
  for (Operation &op : function.front())
    if (dist::recomputeOf(&op)) {
      op.removeAttr(recomputeAttr);
      if (needed.contains(&op))
        op.setAttr(recomputeAttr,
                   dist::RecomputeAttr::get(op.getContext(), false, false));
    }
}
