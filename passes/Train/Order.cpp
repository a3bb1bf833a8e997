//===- Order.cpp - Which op of a training step runs when ------------------===//
#include "passes/Train/Order.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

static bool hasWindowsOf(PoolOp a, MaxPoolOp b) {
  return a.getKind() == PoolKind::Max && a.getWindow() == b.getWindow() &&
         a.getStrides() == b.getStrides() && a.getDilations() == b.getDilations() &&
         a.getPads() == b.getPads();
}

void train::findTapsForward(Block &block) {
  for (MaxPoolOp taps : llvm::make_early_inc_range(block.getOps<MaxPoolOp>())) {
    // An engine's pool is faster than a kernel that counts many taps.
    if (dist::phaseOf(taps.getOperation()) == Phase::Forward ||
        !graph::detail::areFewTaps(taps.getWindow()))
      continue;
    for (Operation *reader : taps.getInput().getUsers()) {
      auto pool = dyn_cast<PoolOp>(reader);
      if (!pool || pool->getBlock() != &block || !hasWindowsOf(pool, taps) ||
          dist::phaseOf(pool.getOperation()) != Phase::Forward)
        continue;
      taps->moveBefore(pool);
      taps->setDiscardableAttrs(pool->getDiscardableAttrDictionary());
      taps->setLoc(pool->getLoc());
      pool.getResult().replaceAllUsesWith(taps.getLargest());
      pool->erase();
      break;
    }
  }
}

void train::mergeAcrossPhases(Block &block) {
  auto isEqual = [](Operation *a, Operation *b) {
    auto attrs = [](Operation *op) {
      NamedAttrList list(op->getAttrDictionary());
      list.erase(phaseAttr);
      list.erase(stageAttr);
      return list.getDictionary(op->getContext());
    };
    return a->getName() == b->getName() && a->getResultTypes() == b->getResultTypes() &&
           a->getOperands() == b->getOperands() && attrs(a) == attrs(b);
  };
  llvm::DenseMap<Value, SmallVector<Operation *>> readers; // by first operand
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
    if (!op.hasAttr(phaseAttr) || op.getNumOperands() == 0 || isa<CallingOpInterface>(op))
      continue;
    auto &known = readers[op.getOperand(0)];
    auto same =
        llvm::find_if(known, [&](Operation *other) { return isEqual(other, &op); });
    if (same == known.end()) {
      known.push_back(&op);
      continue;
    }
    dist::setPhase(*same, std::min(dist::phaseOf(*same), dist::phaseOf(&op)));
    op.replaceAllUsesWith(*same);
    op.erase();
  }
}

/// Tells if the value is a sum over rows, or a view of one.
static bool isSumOfRows(Value value) {
  Operation *op = value.getDefiningOp();
  while (op && kernelFactsOf(op).kind == kernels::OpKind::View)
    op = op->getOperand(0).getDefiningOp();
  return op && kernelFactsOf(op).reducesRow;
}

void train::updateEarly(Block &block) {
  DenseMap<Operation *, size_t> place;
  std::vector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    place[&op] = ops.size();
    ops.push_back(&op);
  }
  auto isUpdate = [](Operation *op) { return dist::phaseOf(op) == Phase::Update; };
  // Places behind the kernels from each op on, up to a call.
  std::vector<size_t> kernelsEnd(ops.size() + 1, ops.size());
  for (size_t i = ops.size(), end = 0; i-- > 0;) {
    // An `end` of 0: no kernel lies between the op and the next call.
    if (!isUpdate(ops[i]) && ops[i]->getNumOperands() != 0) {
      const kernels::OpFacts facts = kernelFactsOf(ops[i]);
      const bool isKernel = facts.isFusable() || facts.kind == kernels::OpKind::View;
      end = isKernel ? std::max(end, i + 1) : 0;
    }
    kernelsEnd[i] = std::max(end, i);
  }
  // Behind ops[i], in order; those of -1 at the beginning.
  std::vector<std::vector<Operation *>> behind(ops.size() + 1);
  DenseMap<Operation *, size_t> anchors; // one more than the place
  for (Operation *op : ops) {
    if (!isUpdate(op))
      continue;
    size_t anchor = 0;
    for (Value operand : op->getOperands()) {
      Operation *from = operand.getDefiningOp();
      if (from && anchors.count(from))
        anchor = std::max(anchor, anchors[from]);
      else if (from)
        anchor = std::max(anchor, isSumOfRows(operand) ? kernelsEnd[place[from] + 1]
                                                       : place[from] + 1);
      else
        for (Operation *reader : operand.getUsers())
          if (reader->getBlock() == &block && place.count(reader) && !isUpdate(reader))
            anchor = std::max(anchor, place[reader] + 1);
    }
    anchors[op] = anchor;
    behind[anchor].push_back(op);
  }
  for (size_t i = behind.size(); i-- > 0;)
    for (Operation *op : llvm::reverse(behind[i]))
      if (i == 0)
        op->moveBefore(&block, block.begin());
      else
        op->moveAfter(ops[i - 1]);
}
