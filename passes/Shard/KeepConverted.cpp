//===- KeepConverted.cpp - Communication that recompute leaves out --------===//
#include "passes/Shard/KeepConverted.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"

using namespace mlir;
using namespace partita;

/// Whether both lead to the same, from whatever they convert.
static bool convertAlike(Operation *a, Operation *b) {
  auto reshard = dyn_cast<dist::ReshardOp>(a), other = dyn_cast<dist::ReshardOp>(b);
  if (reshard && other)
    return reshard.getLayout() == other.getLayout();
  auto window = dyn_cast<dist::WindowOp>(a), otherWindow = dyn_cast<dist::WindowOp>(b);
  return window && otherWindow && window.getWindows() == otherWindow.getWindows();
}

static bool isConversion(Operation *op) {
  return isa<dist::ReshardOp, dist::WindowOp>(op);
}

/// By the copy's value that of the op it repeats, and likewise what both are converted
/// to.
static DenseMap<Value, Value> originalsOf(func::FuncOp function) {
  DenseMap<Attribute, Operation *> repeated;
  DenseMap<Value, Value> originals;
  for (Operation &op : function.front()) {
    if (Attribute number = op.getAttr(repeatedAttr))
      repeated[number] = &op;
    Attribute number = op.hasAttr(keepsAttr) ? op.getAttr(repeatsAttr) : Attribute();
    if (Operation *original = number ? repeated.lookup(number) : nullptr)
      for (auto [copy, value] : llvm::zip_equal(op.getResults(), original->getResults()))
        originals[copy] = value;
    Value from = isConversion(&op) ? originals.lookup(op.getOperand(0)) : Value();
    if (!from)
      continue;
    for (Operation *user : from.getUsers())
      if (convertAlike(user, &op))
        originals[op.getResult(0)] = user->getResult(0);
  }
  return originals;
}

void partita::keepConverted(func::FuncOp function,
                            const llvm::DenseSet<Operation *> &communicating) {
  DenseMap<Value, Value> originals = originalsOf(function);
  for (Operation &op : function.front())
    if (isConversion(&op))
      if (Value kept = originals.lookup(op.getResult(0)))
        if (communicating.contains(kept.getDefiningOp()))
          op.getResult(0).replaceAllUsesWith(kept);
  for (Operation *op = function.front().getTerminator(); op;) {
    Operation *now = op;
    op = op->getPrevNode();
    bool isOfCopy = now->hasAttr(repeatsAttr) ||
                    (isConversion(now) && originals.contains(now->getResult(0)));
    if (isOfCopy && now->use_empty()) {
      now->erase();
      continue;
    }
    for (const char *attribute : {repeatedAttr, repeatsAttr, keepsAttr, gathersAttr})
      now->removeAttr(attribute);
  }
}
