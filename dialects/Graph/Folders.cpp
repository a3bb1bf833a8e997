//===- Folders.cpp - Ops that change nothing ------------------------------===//
//
// Each folds to its operand. An op that carries attributes of another dialect (where its
// result lies, say) states more than its result and stays.
//
//===----------------------------------------------------------------------===//
#include "dialects/Graph/Graph.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

static OpFoldResult unchanged(Operation *op, bool isUnchanged) {
  if (!isUnchanged || !op->getDiscardableAttrDictionary().empty() ||
      op->getOperand(0).getType() != op->getResult(0).getType())
    return {};
  return op->getOperand(0);
}

/// Whether every element is `neutral`.
static bool isAll(Value value, float neutral) {
  auto constant = value.getDefiningOp<ConstantOp>();
  if (!constant || !constant.getValue().isSplat())
    return false;
  HostTensor splat = toHostTensor(constant.getValue());
  return splat.type == DType::F32 && splat.size() != 0 &&
         splat.data<float>()[0] == neutral;
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) { return unchanged(*this, true); }

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  for (auto [i, d] : llvm::enumerate(getPermutation()))
    if (static_cast<int64_t>(i) != d)
      return {};
  return unchanged(*this, true);
}

OpFoldResult AddOp::fold(FoldAdaptor) { return unchanged(*this, isAll(getRhs(), 0)); }
OpFoldResult SubOp::fold(FoldAdaptor) { return unchanged(*this, isAll(getRhs(), 0)); }
OpFoldResult MulOp::fold(FoldAdaptor) { return unchanged(*this, isAll(getRhs(), 1)); }
OpFoldResult DivOp::fold(FoldAdaptor) { return unchanged(*this, isAll(getRhs(), 1)); }
