//===- Recompute.cpp - What is marked is computed again -------------------===//
#include "passes/Shard/Passes.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace partita {
#define GEN_PASS_DEF_RECOMPUTEPASS
#include "passes/Shard/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
/// Makes the copies of one function, in its order: whatever is visited has read copies.
class Repeater {
public:
  explicit Repeater(func::FuncOp function)
      : function(function),
        isBody(isRun(function->getParentOfType<ModuleOp>(), function)) {}

  /// Number of copies. Absent: nothing is marked, and nothing changed.
  std::optional<int64_t> run() {
    for (Operation &op : function.front())
      if (dist::recomputeOf(&op))
        numberOf[&op] = static_cast<int64_t>(numberOf.size());
    if (numberOf.empty())
      return std::nullopt;
    for (Operation &op : function.front()) // copies come before the op, unvisited
      visit(op);
    for (const auto &entry : numberOf)
      entry.first->removeAttr(recomputeAttr);
    eraseUnread();
    return static_cast<int64_t>(copyOf.size());
  }

private:
  void visit(Operation &op) {
    Value root;
    if (dist::isConversion(&op)) {
      root = rootOf(op.getOperand(0));
      rootOfConverted[op.getResult(0)] = root;
    }
    if (dist::phaseOf(&op) != Phase::Forward) {
      addCopiesFor(op);
      for (OpOperand &operand : op.getOpOperands())
        operand.set(again(operand.get()));
      // A conversion is called after what it converts.
      if (root && op.getOperand(0) != root && root == rootOf(root) &&
          copyOf.contains(root.getDefiningOp()))
        op.setLoc(copyOf.lookup(root.getDefiningOp())->getLoc());
    }
    if (root)
      converted[{root, dist::formOf(&op)}] = op.getResult(0);
    else
      for (Value operand : op.getOperands())
        read.insert(operand);
  }

  Value rootOf(Value value) const {
    Value root = rootOfConverted.lookup(value);
    return root ? root : value;
  }

  /// What an op reads, directly or by the copy of another one, and is not there yet.
  void addCopiesFor(Operation &reader) {
    std::map<int64_t, Operation *> missing; // in the order of the program
    for (SmallVector<Operation *> readers{&reader}; !readers.empty();)
      for (Value operand : readers.pop_back_val()->getOperands())
        if (Operation *maker = operand.getDefiningOp();
            maker && numberOf.count(maker) && !copyOf.contains(maker) &&
            missing.try_emplace(numberOf[maker], maker).second)
          readers.push_back(maker);
    for (auto [number, op] : missing)
      copy(op, reader);
  }

  void copy(Operation *op, Operation &reader) {
    OpBuilder builder(&reader);
    Operation *made = copyOf[op] = builder.clone(*op);
    made->removeAttr(recomputeAttr);
    dist::setPhase(made, Phase::Backward);
    made->setLoc(
        NameLoc::get(builder.getStringAttr(dist::nodeName(op) + dist::copySuffix)));
    for (OpOperand &operand : made->getOpOperands()) {
      Value from = operand.get();
      if (Operation *conversion = from.getDefiningOp();
          conversion && dist::isConversion(conversion)) {
        operand.set(converted.at({rootOf(from), dist::formOf(conversion)}));
        sink(operand.get(), made);
      } else {
        operand.set(again(from));
      }
      read.insert(operand.get());
    }
  }

  Value again(Value value) const {
    Operation *made = copyOf.lookup(value.getDefiningOp());
    return made ? Value(made->getResult(cast<OpResult>(value).getResultNumber())) : value;
  }

  /// What is gathered is gathered late: a conversion of a state stands before the op that
  /// reads it first.
  void sink(Value value, Operation *reader) {
    auto argument = dyn_cast<BlockArgument>(rootOf(value));
    if (!argument || (!isBody && !dist::argumentState(function, argument.getArgNumber())))
      return;
    for (Operation *op = value.getDefiningOp();
         op && dist::isConversion(op) && !read.contains(op->getResult(0));
         reader = op, op = op->getOperand(0).getDefiningOp()) {
      op->moveBefore(reader);
      if (op->getNumOperands() == 0 || !op->getOperand(0).hasOneUse())
        return;
    }
  }

  void eraseUnread() {
    SmallPtrSet<Operation *, 16> made;
    for (const auto &entry : copyOf)
      made.insert(entry.second);
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
      if (op.use_empty() && (made.contains(&op) || dist::isConversion(&op)))
        op.erase();
  }

  func::FuncOp function;
  const bool isBody;                              ///< of an op that runs functions
  llvm::MapVector<Operation *, int64_t> numberOf; ///< of marked ops
  DenseMap<Operation *, Operation *> copyOf;      ///< by marked op
  DenseMap<Value, Value> rootOfConverted;         ///< what a conversion converts at first
  DenseMap<std::pair<Value, Attribute>, Value> converted; ///< the last one of a form
  llvm::DenseSet<Value> read; ///< by what was visited, conversions aside
};

struct RecomputePass : partita::impl::RecomputePassBase<RecomputePass> {
  void runOnOperation() override {
    bool isChanged = false;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        if (auto count = Repeater(function).run()) {
          numCopies += static_cast<unsigned>(*count);
          isChanged = true;
        }
    if (!isChanged)
      markAllAnalysesPreserved(); // the verifier need not run again
  }
};
} // namespace
