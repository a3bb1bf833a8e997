//===- Precision.cpp - A forward pass in a narrower type ------------------===//
#include "passes/Train/Precision.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/ValueNames.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

namespace {
class Narrower {
public:
  Narrower(func::FuncOp main, Type narrow)
      : main(main), narrow(narrow), wide(Float32Type::get(main.getContext())) {}

  Expected<void> run() {
    SmallVector<Operation *> ops;
    for (Operation &op : main.front().without_terminator())
      ops.push_back(&op);
    // Running moments are no data: what is made of them stays as it is.
    for (BlockArgument argument : main.getArguments()) {
      unsigned number = argument.getArgNumber();
      if (dist::argumentState(main, number) && !isRead(number))
        precise.insert(argument);
    }
    for (Operation *op : ops) {
      if (isa<CallingOpInterface>(op))
        return makeError("\"compute\": node '" + dist::nodeName(op) +
                         "' runs functions, which stay f32: only a model without loops "
                         "can compute in a narrower type");
      if (op->getNumOperands() != 0)
        convert(op);
    }
    // What the function gives has the types that it says.
    Operation *end = main.front().getTerminator();
    for (OpOperand &operand : end->getOpOperands())
      if (type(operand.get()) == narrow)
        operand.set(as(operand.get(), wide, end));
    return {};
  }

private:
  static Type type(Value value) { return getElementTypeOrSelf(value.getType()); }

  /// A state that is only read: a parameter.
  bool isRead(unsigned argument) {
    StringAttr name = dist::argumentState(main, argument).getName();
    for (unsigned i = 0; i < main.getNumResults(); ++i)
      if (auto state = dist::resultState(main, i); state && state.getName() == name)
        return false;
    return true;
  }

  static bool isSum(Operation *op) {
    return isa<LayerNormOp, RmsNormOp, SoftmaxOp, LogSoftmaxOp, ReduceOp, CumSumOp,
               CumProdOp>(op);
  }

  /// Made of precise values and constants alone.
  bool isOfPrecise(Operation *op) const {
    bool any = false;
    for (Value operand : op->getOperands()) {
      if (operand.getDefiningOp<ConstantOp>() || !isa<FloatType>(type(operand)))
        continue;
      if (!precise.contains(operand))
        return false;
      any = true;
    }
    return any;
  }

  void convert(Operation *op) {
    bool staysWide = isSum(op) || isOfPrecise(op);
    Type compute = staysWide ? wide : narrow;
    for (OpOperand &operand : op->getOpOperands())
      if (type(operand.get()) == wide || type(operand.get()) == narrow)
        operand.set(as(operand.get(), compute, op));
    if (auto cast = dyn_cast<CastOp>(op); cast && cast.getTo() == wide && !staysWide)
      cast.setTo(narrow);
    for (Value result : op->getResults()) {
      if (type(result) != wide)
        continue;
      if (staysWide)
        precise.insert(result);
      else
        result.setType(cast<RankedTensorType>(result.getType()).clone(narrow));
    }
  }

  Value as(Value value, Type element, Operation *user) {
    if (type(value) == element)
      return value;
    Value &known = casts[{value, element}];
    if (!known) {
      OpBuilder builder(user);
      Formula f(builder, user->getLoc());
      known = f.cast(value, element);
    }
    return known;
  }

  func::FuncOp main;
  Type narrow, wide;
  llvm::DenseSet<Value> precise;
  DenseMap<std::pair<Value, Type>, Value> casts;
};
} // namespace

Expected<void> train::computeIn(func::FuncOp main, Type narrow) {
  return Narrower(main, narrow).run();
}
