//===- VerifyPlanned.cpp - Gate of level L2 -------------------------------===//
#include "passes/Shard/Passes.h"

#include "dialects/Dist/Manual.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/Notes.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_VERIFYPLANNEDPASS
#include "passes/Shard/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
/// How a value of a planned program lies: in a layout, or as window buffers.
struct Held {
  Layout layout; ///< canonical
  dist::WindowsAttr windows;
};

class Checker {
public:
  Checker(func::FuncOp function, dist::MeshAttr mesh)
      : function(function), mesh(mesh.getMesh()) {}

  LogicalResult run() {
    for (BlockArgument argument : function.getArguments()) {
      auto layout = dist::argumentLayout(function, argument.getArgNumber());
      if (!layout)
        return function.emitOpError("argument ")
               << argument.getArgNumber() << " has no dist.layout";
      if (failed(checkShape(layout, argument, "argument", argument.getArgNumber())))
        return failure();
      held[argument] = {layout.getLayout().canonicalized(), {}};
    }
    for (Operation &op : function.front().without_terminator())
      if (failed(check(op)))
        return failure();
    return checkResults();
  }

private:
  LogicalResult checkShape(dist::LayoutAttr layout, Value value, StringRef what,
                           unsigned number) {
    if (layout.getLayout().globalShape() == shapeOf(value))
      return success();
    return function.emitOpError()
           << what << " " << number << " of type " << value.getType()
           << " has a dist.layout of another shape, " << layout.str();
  }

  LogicalResult check(Operation &op) {
    if (auto reshard = dyn_cast<dist::ReshardOp>(op))
      return checkReshard(reshard);
    if (auto window = dyn_cast<dist::WindowOp>(op))
      return checkWindow(window);
    if (isa<CallingOpInterface>(op))
      return checkCall(op);
    auto shardable = dyn_cast<ShardingRuleOpInterface>(op);
    if (!shardable)
      return op.emitOpError("has no sharding rule, so that it cannot be planned");
    if (op.getNumOperands() == 0) {
      for (Value result : op.getResults())
        held[result] = {Layout::replicated(shapeOf(result)), {}};
      return success();
    }
    if (!dist::strategyAttrOf(&op))
      return op.emitOpError("has no dist.strategy");
    RuleRef facts = ruleOf(&op);
    const Expected<ShardingRule> &rule = facts->rule;
    auto strategy = dist::strategyOf(&op, rule);
    if (!strategy)
      return op.emitOpError("has a bad dist.strategy: ") << strategy.error().message;
    for (unsigned i = 0; i < op.getNumOperands(); ++i)
      if (failed(checkOperand(op, i, operandForm(*rule, *strategy, i))))
        return failure();
    for (unsigned i = 0; i < op.getNumResults(); ++i)
      held[op.getResult(i)] = {resultLayout(*rule, *strategy, i).canonicalized(), {}};
    return success();
  }

  static Layout layoutOf(const dist::FlowEnd &end, Value value) {
    dist::LayoutAttr layout = end.layout();
    return layout ? layout.getLayout().canonicalized()
                  : Layout::replicated(shapeOf(value));
  }

  /// An op that runs functions takes and gives tensors in their layouts.
  LogicalResult checkCall(Operation &op) {
    if (failed(dist::checkCallees(cast<CallingOpInterface>(op))))
      return failure();
    for (OpOperand &operand : op.getOpOperands()) {
      OperandForm form;
      form.layout = layoutOf(
          {dist::FlowEnd::CallOperand, &op, operand.getOperandNumber()}, operand.get());
      if (failed(checkOperand(op, operand.getOperandNumber(), form)))
        return failure();
    }
    for (OpResult result : op.getResults())
      held[result] = {
          layoutOf({dist::FlowEnd::CallResult, &op, result.getResultNumber()}, result),
          {}};
    return success();
  }

  LogicalResult checkOperand(Operation &op, unsigned i, const OperandForm &form) {
    Value value = op.getOperand(i);
    const Held &now = held[value];
    if (form.window) {
      Halo wanted = *form.window;
      auto windows = dist::WindowsAttr::of(dist::findMesh(function), wanted);
      if (now.windows == windows)
        return success();
      return noteOrigin(
          op.emitOpError("operand ")
              << i << " is read through split windows: expected a dist.window to "
              << windows << ", got "
              << (now.windows ? "other windows" : "layout " + now.layout.str(mesh)),
          value);
    }
    if (now.windows)
      return noteOrigin(op.emitOpError("operand ")
                            << i << " is a window buffer, expected layout "
                            << form.layout.str(mesh),
                        value);
    if (now.layout != form.layout)
      return noteOrigin(op.emitOpError("operand ")
                            << i << ": expected layout " << form.layout.str(mesh)
                            << ", got " << now.layout.str(mesh),
                        value);
    return success();
  }

  LogicalResult unique(Operation *op, Attribute form, uint64_t epoch) {
    // Those of a value that is computed again are its own or its copy's.
    Operation *maker = op->getOperand(0).getDefiningOp();
    const unsigned isOfCopy =
        maker && dist::recomputeOf(maker) && dist::phaseOf(op) != Phase::Forward;
    auto [it, added] = conversions.try_emplace(
        {{op->getOperand(0), isOfCopy}, {form, epoch}}, op->getResult(0));
    if (added)
      return success();
    InFlightDiagnostic error =
        op->emitOpError("converts a value again that already has this form in epoch ")
        << epoch;
    error.attachNote(it->second.getLoc()) << "the first conversion is here";
    return error;
  }

  LogicalResult checkReshard(dist::ReshardOp op) {
    const Held now = held[op.getInput()];
    if (now.windows)
      return noteOrigin(op.emitOpError("cannot reshard a window buffer"), op.getInput());
    Layout to = op.getLayout().getLayout().canonicalized();
    if (now.layout == to)
      return noteOrigin(op.emitOpError("leads to the layout that the value has, ")
                            << op.getLayout().str(),
                        op.getInput());
    held[op.getResult()] = {to, {}};
    return unique(op, op.getLayout().canonical(), op.getEpoch());
  }

  LogicalResult checkWindow(dist::WindowOp op) {
    const Held now = held[op.getInput()];
    if (now.windows)
      return noteOrigin(op.emitOpError("cannot read windows of a window buffer"),
                        op.getInput());
    if (now.layout.partial != op.getWindows().getPositions().getLayout().partial)
      return noteOrigin(
          op.emitOpError("has other partial axes than its operand, which has "
                         "layout ")
              << now.layout.str(mesh),
          op.getInput());
    held[op.getResult()] = {now.layout, op.getWindows()};
    return unique(op, op.getWindows(), op.getEpoch());
  }

  LogicalResult checkResults() {
    Operation *terminator = function.front().getTerminator();
    for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
      auto number = static_cast<unsigned>(i);
      auto layout = dist::resultLayout(function, number);
      if (!layout)
        return function.emitOpError("result ") << number << " has no dist.layout";
      if (failed(checkShape(layout, value, "result", number)))
        return failure();
      const Held &now = held[value];
      if (now.windows || now.layout != layout.getLayout().canonicalized())
        return noteOrigin(terminator->emitOpError("result ")
                              << number << ": expected layout " << layout.str()
                              << ", got "
                              << (now.windows ? "a window buffer" : now.layout.str(mesh)),
                          value);
    }
    return success();
  }

  func::FuncOp function;
  const Mesh &mesh;
  DenseMap<Value, Held> held;
  DenseMap<std::pair<std::pair<Value, unsigned>, std::pair<Attribute, uint64_t>>, Value>
      conversions;
};

struct VerifyPlannedPass : partita::impl::VerifyPlannedPassBase<VerifyPlannedPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved(); // nothing changes: the verifier need not run again
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      dist::MeshAttr mesh = dist::findMesh(function);
      if (!mesh) {
        function.emitOpError("is not planned: no enclosing op has a dist.mesh attribute");
        return signalPassFailure();
      }
      if (failed(dist::verifyPhases(function)) ||
          failed(dist::verifyRecompute(function)) ||
          failed(Checker(function, mesh).run()))
        return signalPassFailure();
    }
    if (failed(dist::verifyManual(getOperation())))
      signalPassFailure();
  }
};
} // namespace
