//===- Partition.cpp - Turn a planned program into that of one rank -------===//
#include "passes/Partition/Passes.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Manual.h"
#include "dialects/Dist/PlanAttributes.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_PARTITIONPASS
#include "passes/Partition/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
/// Gives what is emitted for an op the op's part of a training step. Weights and
/// constants are read by ops of several parts and have none.
class PhaseMarker : public OpBuilder::Listener {
public:
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    if (op->getNumOperands() != 0 && !isa<CallingOpInterface>(op))
      dist::setPhase(op, now);
  }

  Phase now = Phase::Forward;
};

/// Lowers one function, op by op and in order. What it emits twice from the same value is
/// there once: steps that two conversions begin with, masks, places of indices.
class Partitioner {
public:
  Partitioner(func::FuncOp function, dist::MeshAttr mesh)
      : function(function), mesh(mesh), options(dist::reshardOptionsOf(function)) {}

  LogicalResult run() {
    Block &old = function.front();
    auto *local = new Block;
    function.getBody().push_back(local);
    OpBuilder builder = OpBuilder::atBlockEnd(local, &marker);
    if (failed(lowerBody(builder, old, *local))) {
      local->dropAllReferences();
      local->erase();
      return failure();
    }
    old.dropAllReferences();
    old.erase();
    Operation *terminator = local->getTerminator();
    function.setType(FunctionType::get(function.getContext(), local->getArgumentTypes(),
                                       terminator->getOperandTypes()));
    return success();
  }

  int64_t numReshards = 0;

private:
  /// One rank's part of a value of the planned program.
  struct Part {
    Value value;
    Layout layout; ///< canonical; of a window buffer that of its operand
  };

  LogicalResult lowerBody(OpBuilder &builder, Block &old, Block &local) {
    for (BlockArgument argument : old.getArguments()) {
      auto layout = dist::argumentLayout(function, argument.getArgNumber());
      if (!layout)
        return function.emitOpError("argument ")
               << argument.getArgNumber() << " has no dist.layout";
      Value now =
          local.addArgument(localType(argument, layout.getLayout()), argument.getLoc());
      parts[argument] = {now, layout.getLayout().canonicalized()};
    }
    for (Operation &op : old.without_terminator())
      if (failed(lower(builder, op)))
        return failure();
    SmallVector<Value> results;
    for (Value value : old.getTerminator()->getOperands())
      results.push_back(part(builder, value).value);
    marker.now = Phase::Forward;
    func::ReturnOp::create(builder, old.getTerminator()->getLoc(), results);
    return success();
  }

  LogicalResult lower(OpBuilder &builder, Operation &op) {
    marker.now = dist::phaseOf(&op);
    if (auto reshard = dyn_cast<dist::ReshardOp>(op))
      return lowerReshard(builder, reshard);
    if (auto window = dyn_cast<dist::WindowOp>(op))
      return lowerWindow(builder, window);
    if (auto manual = dyn_cast<dist::ManualOp>(op))
      return lowerManual(builder, manual);
    if (isa<CallingOpInterface>(op))
      return lowerCall(builder, op);
    if (!isa<ShardingRuleOpInterface>(op))
      return op.emitOpError("has no sharding rule");
    // Sources are made where they are read, in the layouts in which they are.
    return op.getNumOperands() == 0 ? success() : lowerOp(builder, op);
  }

  RankedTensorType localType(Value value, const Layout &layout) const {
    return RankedTensorType::get(layout.localShape(),
                                 getElementTypeOrSelf(value.getType()));
  }

  static bool isSource(Value value) {
    Operation *op = value.getDefiningOp();
    return op && op->getNumOperands() == 0;
  }

  Part part(OpBuilder &builder, Value value) {
    if (!isSource(value))
      return parts.lookup(value);
    Layout whole = Layout::replicated(shapeOf(value));
    return {readSource(builder, value.getDefiningOp(), whole), whole};
  }

  /// What was emitted for an op before and serves another belongs to the earlier part.
  void share(Value emitted) const {
    Operation *op = emitted.getDefiningOp();
    if (orderOf(marker.now) < orderOf(dist::phaseOf(op)))
      dist::setPhase(op, marker.now);
  }

  /// The attribute of a layout is its identity in the memos below.
  dist::LayoutAttr attribute(const Layout &layout) const {
    return dist::LayoutAttr::get(mesh.getContext(), mesh, layout);
  }

  /// A rank reads its slices; nothing moves.
  Value readSource(OpBuilder &builder, Operation *op, const Layout &layout) {
    dist::LayoutAttr at = attribute(layout);
    Value &slot = sources[{op, at}];
    if (slot)
      return slot;
    auto shardable = cast<ShardingRuleOpInterface>(op);
    Operation *local =
        shardable.materializeLocal(builder, {}, {localType(op->getResult(0), layout)},
                                   Strategy::replicated(*ruleOf(op)->rule));
    local->setAttr(dist::layoutAttr, at);
    return slot = local->getResult(0);
  }

  LogicalResult lowerReshard(OpBuilder &builder, dist::ReshardOp op) {
    Layout to = op.getLayout().getLayout().canonicalized();
    Part from = read(builder, op.getInput(), to);
    return convert(builder, op, from, to, op.getEpoch(), op.getResult());
  }

  /// A source as a reader in this layout has it, before partial values are made; any
  /// other value as it is.
  Part read(OpBuilder &builder, Value input, const Layout &to) {
    auto constant = input.getDefiningOp<graph::ConstantOp>();
    // A small constant that differs by element stays whole and is sliced.
    bool sliced = constant && !constant.getValue().isSplat();
    if (!isSource(input) || sliced)
      return part(builder, input);
    Part from{{}, to};
    from.layout.partial.clear();
    from.value = readSource(builder, input.getDefiningOp(), from.layout);
    return from;
  }

  LogicalResult convert(OpBuilder &builder, Operation *op, Part from, const Layout &to,
                        uint64_t epoch, Value result) {
    auto plan = planReshard(mesh.getMesh(), from.layout, to, options);
    if (!plan)
      return op->emitOpError("cannot be lowered: ") << plan.error().message;
    numReshards += plan->steps.empty() ? 0 : 1;
    for (const Step &step : plan->steps)
      from.value = emit(builder, op->getLoc(), step, epoch, from.value);
    parts[result] = {from.value, to};
    return success();
  }

  Value emit(OpBuilder &builder, Location location, const Step &step, uint64_t epoch,
             Value input) {
    if (step.kind == StepKind::View)
      return input;
    auto key = std::tuple(input, static_cast<int>(step.kind), attribute(step.before),
                          attribute(step.after), epoch);
    Value &slot = steps[key];
    if (!slot) {
      slot = comm::emitStep(builder, location, mesh, step, input);
      // Readings of different epochs are never merged.
      if (epoch != 0)
        slot.getDefiningOp()->setAttr(
            "epoch", builder.getI64IntegerAttr(static_cast<int64_t>(epoch)));
    }
    share(slot);
    return slot;
  }

  /// The rank's value is called whole around the op, as all of a program written per
  /// rank.
  LogicalResult lowerManual(OpBuilder &builder, dist::ManualOp op) {
    if (op.getPieces()) {
      Value now = comm::PiecesOp::create(builder, op.getLoc(), op.getType(),
                                         part(builder, op.getInput()).value,
                                         /*out=*/Value(), *op.getPieces())
                      .getResult();
      parts[op.getResult()] = {now, Layout::replicated(shapeOf(now)).canonicalized()};
      ++numReshards;
      return success();
    }
    Layout to =
        op.getLeave() ? dist::outerLayout(op) : op.getTo().getLayout().canonicalized();
    Part now = op.getEnter() ? read(builder, op.getInput(), to)
                             : claim(builder, op, part(builder, op.getInput()),
                                     op.getFrom().getLayout());
    if (failed(convert(builder, op, now, to, 0, op.getResult())))
      return failure();
    Part &result = parts[op.getResult()];
    if (!op.getLeave())
      result = claim(builder, op, result, Layout::replicated(shapeOf(op.getResult())));
    return success();
  }

  Part claim(OpBuilder &builder, Operation *op, const Part &part,
             const Layout &as) const {
    if (part.layout == as.canonicalized())
      return part;
    Value now = comm::ClaimOp::create(builder, op->getLoc(), part.value.getType(),
                                      part.value, attribute(part.layout), attribute(as));
    return {now, as.canonicalized()};
  }

  LogicalResult lowerWindow(OpBuilder &builder, dist::WindowOp op) {
    Part from = part(builder, op.getInput());
    Halo halo = op.getWindows().from(from.layout);
    parts[op.getResult()] = {comm::emitHalo(builder, op.getLoc(), mesh, halo, from.value),
                             from.layout};
    ++numReshards;
    return success();
  }

  /// Masks and places of indices, as the operand's form asks for.
  Value prepare(OpBuilder &builder, Value now, const OperandForm &form) {
    for (ReduceKind kind :
         {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod}) {
      std::vector<int64_t> dims = form.dimsOf(kind);
      if (dims.empty())
        continue;
      auto dimsAttr = builder.getDenseI64ArrayAttr(dims);
      auto kindAttr = dist::KindAttr::get(builder.getContext(), kind);
      auto layout = attribute(form.layout);
      Value &slot = forms[{now, builder.getArrayAttr({dimsAttr, kindAttr, layout})}];
      if (!slot)
        slot = comm::MaskOp::create(builder, now.getLoc(), now.getType(), now, Value(),
                                    dimsAttr, kindAttr, layout)
                   .getResult();
      share(slot);
      now = slot;
    }
    if (form.localIndex) {
      Layout dim;
      dim.dims = {*form.localIndex};
      auto layout = attribute(dim.canonicalized());
      Value &slot = forms[{now, layout}];
      if (!slot)
        slot = comm::LocalIndexOp::create(builder, now.getLoc(), now.getType(), now,
                                          Value(), layout)
                   .getResult();
      share(slot);
      now = slot;
    }
    return now;
  }

  LogicalResult lowerOp(OpBuilder &builder, Operation &op) {
    auto shardable = cast<ShardingRuleOpInterface>(op);
    RuleRef facts = ruleOf(&op);
    const Expected<ShardingRule> &rule = facts->rule;
    auto strategy = dist::strategyOf(&op, rule);
    if (!strategy)
      return op.emitOpError("has a bad dist.strategy: ") << strategy.error().message;
    SmallVector<Value> operands;
    for (auto [i, value] : llvm::enumerate(op.getOperands()))
      operands.push_back(
          prepare(builder, part(builder, value).value, operandForm(*rule, *strategy, i)));
    SmallVector<Type> types;
    std::vector<Layout> layouts;
    for (auto [i, result] : llvm::enumerate(op.getResults())) {
      layouts.push_back(resultLayout(*rule, *strategy, i).canonicalized());
      types.push_back(localType(result, layouts.back()));
    }
    Operation *local = shardable.materializeLocal(builder, operands, types, *strategy);
    dist::setStrategy(mesh, local, *rule, *strategy);
    local->setAttr(dist::ruleAttr, dist::RuleAttr::get(op.getContext(), *rule));
    for (auto [i, result] : llvm::enumerate(op.getResults()))
      parts[result] = {local->getResult(static_cast<unsigned>(i)), layouts[i]};
    return success();
  }

  /// An op that runs functions is the same of their parts.
  LogicalResult lowerCall(OpBuilder &builder, Operation &op) {
    SmallVector<Value> operands;
    for (Value value : op.getOperands())
      operands.push_back(part(builder, value).value);
    SmallVector<Type> types;
    std::vector<Layout> layouts;
    for (OpResult result : op.getResults()) {
      auto layout =
          dist::FlowEnd{dist::FlowEnd::CallResult, &op, result.getResultNumber()}
              .layout();
      layouts.push_back(layout ? layout.getLayout().canonicalized()
                               : Layout::replicated(shapeOf(result)));
      types.push_back(localType(result, layouts.back()));
    }
    Operation *local = partita::detail::cloneWithTypes(&op, builder, operands, types);
    for (auto [result, now, layout] :
         llvm::zip_equal(op.getResults(), local->getResults(), layouts))
      parts[result] = {now, layout};
    return success();
  }

  func::FuncOp function;
  dist::MeshAttr mesh;
  PhaseMarker marker;
  ReshardOptions options;
  DenseMap<Value, Part> parts;
  DenseMap<std::pair<Operation *, Attribute>, Value> sources;
  DenseMap<std::pair<Value, Attribute>, Value> forms;
  DenseMap<std::tuple<Value, int, Attribute, Attribute, uint64_t>, Value> steps;
};

struct PartitionPass : partita::impl::PartitionPassBase<PartitionPass> {
  using PartitionPassBase::PartitionPassBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      dist::MeshAttr mesh = dist::findMesh(function);
      if (!mesh) {
        function.emitOpError(
            "cannot be partitioned: no enclosing op has a dist.mesh attribute");
        return signalPassFailure();
      }
      Partitioner partitioner(function, mesh);
      if (failed(partitioner.run()))
        return signalPassFailure();
      numReshards += static_cast<unsigned>(partitioner.numReshards);
    }
    // Decisions of L2: one rank's program is the same whoever asked for them.
    getOperation()->removeDiscardableAttr(dist::planAttr);
    getOperation()->removeDiscardableAttr(dist::certificateAttr);
  }
};
} // namespace
