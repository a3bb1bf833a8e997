//===- VerifyPartitioned.cpp - Gate of level L3 ---------------------------===//
#include "passes/Partition/Passes.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/Notes.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_VERIFYPARTITIONEDPASS
#include "passes/Partition/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
/// What is known of a value of one rank's program.
struct State {
  bool known = false;
  Layout layout;             ///< canonical; of window buffers that of their operand
  dist::WindowsAttr windows; ///< the value is this buffer
  /// Per dim the neutral element that stands in its padding.
  std::vector<std::optional<ReduceKind>> padding;
  /// The elements are places in a block of this dim.
  std::optional<DimLayout> localIndex;

  static State of(const Layout &layout) {
    State state;
    state.known = true;
    state.layout = layout.canonicalized();
    state.padding.resize(layout.dims.size());
    return state;
  }
};

/// What follows from a rule and a strategy alone.
struct PlannedOp {
  std::vector<OperandForm> operands;
  std::vector<Layout> resultLayouts;
  std::vector<State> results;
  ShardingRule local;
  /// Rules that ops state about themselves and that are `local`.
  SmallPtrSet<const RuleFacts *, 2> own;
  SmallVector<RuleRef, 2> kept; ///< as long as their addresses are known
};
/// Equal layers have the same ones.
using PlannedOps = DenseMap<std::pair<Attribute, Attribute>, std::unique_ptr<PlannedOp>>;

/// Follows the state of every value through one function.
class Checker {
public:
  Checker(func::FuncOp function, dist::MeshAttr mesh, PlannedOps &planned)
      : function(function), mesh(mesh.getMesh()), planned(planned) {}

  LogicalResult run() {
    for (BlockArgument argument : function.getArguments())
      if (auto layout = dist::argumentLayout(function, argument.getArgNumber())) {
        if (failed(checkLocal(function, "argument", argument.getArgNumber(),
                              layout.getLayout(), argument)))
          return failure();
        states[argument] = State::of(layout.getLayout());
      }
    for (Operation &op : function.front().without_terminator())
      if (failed(check(op)))
        return failure();
    return checkResults();
  }

private:
  LogicalResult check(Operation &op) {
    // Communication of buffers: its verifier has said what can be said of one op.
    if (isa_and_nonnull<comm::CommDialect>(op.getDialect()) && op.getNumResults() == 0)
      return success();
    if (auto step = dyn_cast<comm::StepOpInterface>(op))
      return checkStep(step);
    if (auto halo = dyn_cast<comm::HaloOp>(op))
      return checkHalo(halo);
    if (auto pieces = dyn_cast<comm::PiecesOp>(op)) {
      states[pieces.getResult()] =
          State::of(Layout::replicated(shapeOf(pieces.getResult())));
      return expect(pieces, pieces.getInput(),
                    Layout::replicated(shapeOf(pieces.getInput())));
    }
    if (auto mask = dyn_cast<comm::MaskOp>(op))
      return checkMask(mask);
    if (auto index = dyn_cast<comm::LocalIndexOp>(op))
      return checkLocalIndex(index);
    if (auto claim = dyn_cast<comm::ClaimOp>(op)) {
      states[claim.getResult()] = State::of(claim.getTo().getLayout());
      return expect(claim, claim.getInput(), claim.getFrom().getLayout());
    }
    if (isa<dist::ReshardOp, dist::WindowOp, dist::ManualOp>(op))
      return op.emitOpError("does not belong in a partitioned program");
    if (auto call = dyn_cast<func::CallOp>(op))
      return checkCall(call);
    if (auto calls = dyn_cast<CallingOpInterface>(op))
      return checkCalls(calls);
    if (!isa_and_nonnull<graph::GraphDialect>(op.getDialect()) &&
        !dist::strategyAttrOf(&op))
      return success(); // of another dialect: nothing is known of what it makes
    return op.getNumOperands() == 0 ? checkSource(op) : checkOp(op);
  }

  std::string describe(const State &state) const {
    if (!state.known)
      return "a value of unknown layout";
    if (state.windows)
      return "a window buffer";
    if (state.localIndex)
      return "indices that are places in a block";
    return "layout " + state.layout.str(mesh);
  }

  LogicalResult checkLocal(Operation *op, StringRef what, unsigned number,
                           const Layout &layout, Value value) {
    if (layout.localShape() == shapeOf(value))
      return success();
    return noteOrigin(op->emitOpError()
                          << what << " " << number << " of type " << value.getType()
                          << " is not the local part of layout " << layout.str(mesh),
                      value);
  }

  /// The operand is a plain tensor in this layout. A value of unknown layout is taken at
  /// the op's word, for programs that other compilers write.
  LogicalResult expect(Operation *op, Value value, const Layout &layout) {
    const State &state = states[value];
    if (!state.known)
      return success();
    if (!state.windows && !state.localIndex && state.layout == layout.canonicalized())
      return success();
    return noteOrigin(op->emitOpError("expected an operand in layout ")
                          << layout.str(mesh) << ", got " << describe(state),
                      value);
  }

  LogicalResult checkStep(comm::StepOpInterface op) {
    if (failed(expect(op, op->getOperand(0), op.getFrom().getLayout())))
      return failure();
    states[op->getResult(0)] = State::of(op.getTo().getLayout());
    return success();
  }

  LogicalResult checkHalo(comm::HaloOp op) {
    if (failed(expect(op, op.getInput(), op.getFrom().getLayout())))
      return failure();
    State state = State::of(op.getFrom().getLayout());
    state.windows = op.getTo();
    states[op.getResult()] = std::move(state);
    return success();
  }

  LogicalResult checkMask(comm::MaskOp op) {
    const Layout &layout = op.getLayout().getLayout();
    if (failed(expect(op, op.getInput(), layout)))
      return failure();
    State state = states[op.getInput()];
    if (!state.known)
      state = State::of(layout);
    for (int64_t dim : op.getDims())
      state.padding[static_cast<size_t>(dim)] = op.getKind().getValue();
    states[op.getResult()] = std::move(state);
    return success();
  }

  LogicalResult checkLocalIndex(comm::LocalIndexOp op) {
    State state = states[op.getIndices()];
    if (state.localIndex || state.windows)
      return noteOrigin(op.emitOpError("expected indices of a whole dim, got ")
                            << describe(state),
                        op.getIndices());
    state.localIndex = op.getLayout().getLayout().dims[0];
    states[op.getResult()] = std::move(state);
    return success();
  }

  /// What the function says of its arguments and results; nothing is known of others.
  LogicalResult checkCall(func::CallOp call) {
    auto callee =
        SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
    for (unsigned i = 0; callee && i < call.getNumOperands(); ++i)
      if (auto layout = dist::argumentLayout(callee, i))
        if (failed(expect(call, call.getOperand(i), layout.getLayout())))
          return failure();
    for (unsigned i = 0; callee && i < call.getNumResults(); ++i)
      if (auto layout = dist::resultLayout(callee, i)) {
        if (failed(checkLocal(call, "result", i, layout.getLayout(), call.getResult(i))))
          return failure();
        states[call.getResult(i)] = State::of(layout.getLayout());
      }
    return success();
  }

  /// Of an op that runs functions the layouts are theirs.
  LogicalResult checkCalls(CallingOpInterface op) {
    if (failed(dist::checkCallees(op)))
      return failure();
    auto layoutOf = [&](dist::FlowEnd::Kind kind, unsigned i) {
      return dist::FlowEnd{kind, op, i}.layout();
    };
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      auto layout = layoutOf(dist::FlowEnd::CallOperand, i);
      if (failed(expect(op, op->getOperand(i),
                        layout ? layout.getLayout()
                               : Layout::replicated(shapeOf(op->getOperand(i))))))
        return failure();
    }
    for (unsigned i = 0; i < op->getNumResults(); ++i) {
      auto layout = layoutOf(dist::FlowEnd::CallResult, i);
      Layout now =
          layout ? layout.getLayout() : Layout::replicated(shapeOf(op->getResult(i)));
      if (failed(checkLocal(op, "result", i, now, op->getResult(i))))
        return failure();
      states[op->getResult(i)] = State::of(now);
    }
    return success();
  }

  LogicalResult checkSource(Operation &op) {
    auto layout = dist::sourceLayout(&op);
    if (!layout)
      return op.emitOpError("has no dist.layout");
    if (!layout.getLayout().partial.empty())
      return op.emitOpError("is read in a layout with partial axes, ") << layout.str();
    if (auto constant = dyn_cast<graph::ConstantOp>(op);
        constant && !constant.getValue().isSplat() &&
        layout.getLayout().canonicalized() !=
            Layout::replicated(layout.getLayout().globalShape()))
      return op.emitOpError("differs by element and cannot be a part of a tensor in "
                            "layout ")
             << layout.str();
    states[op.getResult(0)] = State::of(layout.getLayout());
    return success();
  }

  /// The op's strategy for its rule on whole tensors, which must be the rule that the op
  /// states about itself, made local.
  LogicalResult checkOp(Operation &op) {
    auto global = op.getAttrOfType<dist::RuleAttr>(dist::ruleAttr);
    auto strategyAttr = dist::strategyAttrOf(&op);
    if (!global || !strategyAttr)
      return op.emitOpError("has no ") << (global ? "dist.strategy" : "dist.rule");
    const ShardingRule &rule = global.getRule();
    std::unique_ptr<PlannedOp> &known = planned[{global, strategyAttr}];
    if (!known) {
      auto strategy = strategyAttr.resolve(rule);
      if (!strategy)
        return op.emitOpError("has a bad dist.strategy: ") << strategy.error().message;
      known = std::make_unique<PlannedOp>(plannedOf(rule, *strategy));
    }
    if (rule.operands.size() != op.getNumOperands() ||
        rule.results.size() != op.getNumResults())
      return op.emitOpError("has a dist.rule for ")
             << rule.operands.size() << " operands and " << rule.results.size()
             << " results";
    for (unsigned i = 0; i < op.getNumOperands(); ++i)
      if (failed(checkOperand(op, i, known->operands[i])))
        return failure();
    for (unsigned i = 0; i < op.getNumResults(); ++i) {
      if (failed(checkLocal(&op, "result", i, known->resultLayouts[i], op.getResult(i))))
        return failure();
      states[op.getResult(i)] = known->results[i];
    }
    return checkRule(op, *known);
  }

  static PlannedOp plannedOf(const ShardingRule &rule, const Strategy &strategy) {
    PlannedOp result;
    for (unsigned i = 0; i < rule.operands.size(); ++i)
      result.operands.push_back(operandForm(rule, strategy, i));
    for (unsigned i = 0; i < rule.results.size(); ++i) {
      result.resultLayouts.push_back(resultLayout(rule, strategy, i));
      result.results.push_back(State::of(result.resultLayouts.back()));
    }
    result.local = localRule(rule, strategy);
    return result;
  }

  LogicalResult checkRule(Operation &op, PlannedOp &known) {
    RuleRef facts = ruleOf(&op);
    if (known.own.contains(facts.get()))
      return success();
    const Expected<ShardingRule> &own = facts->rule;
    if (!own)
      return noteOperands(op.emitOpError(own.error().message), &op);
    if (!equalUpToNames(*own, known.local))
      return noteOperands(
          op.emitOpError("has a dist.rule that is not its own: on one rank it would be ")
              << known.local.str() << ", but the op's is " << own->str(),
          &op);
    known.own.insert(facts.get());
    known.kept.push_back(std::move(facts));
    return success();
  }

  LogicalResult checkOperand(Operation &op, unsigned i, const OperandForm &form) {
    Value value = op.getOperand(i);
    const State &state = states[value];
    if (form.window)
      return checkWindows(op, i, state, *form.window);
    if (!state.known || state.windows || state.layout != form.layout)
      return noteOrigin(op.emitOpError("operand ")
                            << i << ": expected layout " << form.layout.str(mesh)
                            << ", got " << describe(state),
                        value);
    for (size_t d = 0; d < form.padding.size(); ++d)
      if (form.padding[d] && state.padding[d] != form.padding[d])
        return noteOrigin(
            op.emitOpError("operand ")
                << i << ": expected the neutral element of " << name(*form.padding[d])
                << " in the padding of dim " << d << ", got "
                << (state.padding[d] ? name(*state.padding[d]) : "anything"),
            value);
    if (state.localIndex != form.localIndex)
      return noteOrigin(op.emitOpError("operand ")
                            << i << ": expected indices "
                            << (form.localIndex ? "that are places in the rank's block"
                                                : "of the whole dim"),
                        value);
    return success();
  }

  LogicalResult checkWindows(Operation &op, unsigned i, const State &state,
                             const Halo &halo) {
    auto wanted = dist::WindowsAttr::of(dist::findMesh(function), halo);
    Value value = op.getOperand(i);
    if (state.windows != wanted)
      return noteOrigin(op.emitOpError("operand ")
                            << i << " is read through split windows: expected the buffer "
                            << wanted << ", got " << describe(state),
                        value);
    if (halo.shape() != shapeOf(value))
      return noteOrigin(op.emitOpError("operand ") << i << " of type " << value.getType()
                                                   << " is not the buffer " << wanted,
                        value);
    return success();
  }

  LogicalResult checkResults() {
    Operation *terminator = function.front().getTerminator();
    for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
      auto number = static_cast<unsigned>(i);
      auto layout = dist::resultLayout(function, number);
      const State &state = states[value];
      if (!layout && !state.known)
        continue;
      if (!layout)
        return function.emitOpError("result ") << number << " has no dist.layout";
      if (state.known && !state.windows && !state.localIndex &&
          state.layout == layout.getLayout().canonicalized())
        continue;
      return noteOrigin(terminator->emitOpError("result ")
                            << number << ": expected layout " << layout.str() << ", got "
                            << describe(state),
                        value);
    }
    return success();
  }

  func::FuncOp function;
  const Mesh &mesh;
  PlannedOps &planned;
  DenseMap<Value, State> states;
};

struct VerifyPartitionedPass
    : partita::impl::VerifyPartitionedPassBase<VerifyPartitionedPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved(); // nothing changes: the verifier need not run again
    if (failed(verifyPartitioned(getOperation().getBody()->getOps<func::FuncOp>())))
      signalPassFailure();
  }
};
} // namespace

LogicalResult partita::verifyPartitioned(
    llvm::iterator_range<Block::op_iterator<func::FuncOp>> functions) {
  PlannedOps planned;
  for (func::FuncOp function : functions) {
    if (function.isExternal())
      continue;
    dist::MeshAttr mesh = dist::findMesh(function);
    if (!mesh)
      return function.emitOpError(
          "is not partitioned: no enclosing op has a dist.mesh attribute");
    if (failed(dist::verifyPhases(function)) ||
        failed(Checker(function, mesh, planned).run()))
      return failure();
  }
  return success();
}
