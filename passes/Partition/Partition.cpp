//===- Partition.cpp - Turn a program into that of one rank ---------------===//
#include "passes/Partition/Passes.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "partita/Reference/Kernels.h"
#include "partita/Rule/Sharding/Propagation.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_PARTITIONPASS
#include "passes/Partition/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
class Partitioner {
public:
  Partitioner(func::FuncOp function, dist::ProgramFlow &flow,
              std::vector<Strategy> strategies, bool allToAll)
      : function(function), flow(flow), mesh(flow.graph.mesh),
        strategies(std::move(strategies)), reshard{allToAll},
        served(flow.graph.values.size()) {}

  LogicalResult run() {
    Block &old = function.front();
    auto *local = new Block;
    function.getBody().push_back(local);
    OpBuilder builder = OpBuilder::atBlockEnd(local);
    for (int32_t i = 0; i < flow.numArguments; ++i) {
      Value argument = old.getArgument(static_cast<unsigned>(i));
      const FlowOp &source = flow.graph.ops[i];
      Layout layout = resultLayout(source.rule, strategies[i], 0);
      Value now = local->addArgument(localType(argument, layout), argument.getLoc());
      if (failed(serve(builder, flow.valueOf.lookup(argument), layout, now)))
        return failure();
    }
    for (int32_t i = flow.numArguments; i < flow.firstSink; ++i)
      if (failed(partitionOp(builder, i)))
        return failure();
    SmallVector<Value> results;
    for (size_t i = flow.firstSink; i < flow.graph.ops.size(); ++i)
      results.push_back(use(flow.graph.ops[i].operands[0], {static_cast<int32_t>(i), 0}));
    func::ReturnOp::create(builder, old.getTerminator()->getLoc(), results);
    old.dropAllReferences();
    old.erase();
    function.setType(FunctionType::get(function.getContext(), local->getArgumentTypes(),
                                       ValueRange(results).getTypes()));
    return success();
  }

  int64_t numReshards = 0;

private:
  RankedTensorType localType(Value value, const Layout &layout) const {
    return RankedTensorType::get(layout.localShape(),
                                 getElementTypeOrSelf(value.getType()));
  }

  /// Emits what turns `produced` into each layout that users want.
  LogicalResult serve(OpBuilder &builder, int32_t value, const Layout &produced,
                      Value now) {
    served[value] = serveUses(flow.graph, strategies, value);
    std::vector<Value> &values = locals[value];
    for (const ServedLayout &entry : served[value]) {
      const Layout &from = entry.from < 0 ? produced : served[value][entry.from].layout;
      Value current = entry.from < 0 ? now : values[entry.from];
      if (entry.halo && reshard.allToAll) {
        ++numReshards;
        values.push_back(
            comm::emitHalo(builder, now.getLoc(), mesh, *entry.halo, current));
        continue;
      }
      if (failed(convert(builder, from, entry.layout, current)))
        return failure();
      if (entry.halo) {
        // Blocks change places by slices and gathers only; what is left is neighbours'.
        Halo halo = *entry.halo;
        halo.before = entry.layout;
        current = comm::emitHalo(builder, now.getLoc(), mesh, halo, current);
      }
      values.push_back(current);
    }
    return success();
  }

  /// Emits the steps from one layout to another on `value`.
  LogicalResult convert(OpBuilder &builder, const Layout &from, const Layout &to,
                        Value &value) {
    auto plan = planReshard(mesh, from, to, reshard);
    if (!plan)
      return emitError(value.getLoc(), "cannot reshard ")
             << from.str(mesh) << " to " << to.str(mesh) << ": " << plan.error().message;
    numReshards += plan->steps.empty() ? 0 : 1;
    for (const Step &step : plan->steps)
      value = comm::emitStep(builder, value.getLoc(), mesh, step, value);
    return success();
  }

  /// The local value that a use reads.
  Value use(int32_t value, FlowUse use) const {
    for (auto [i, entry] : llvm::enumerate(served[value]))
      if (llvm::is_contained(entry.uses, use))
        return locals.find(value)->second[i];
    llvm_unreachable("every use is served");
  }

  /// Sources are produced in every wanted layout directly: a rank reads its slices.
  LogicalResult partitionSource(OpBuilder &builder, int32_t number) {
    Operation *op = flow.operations[number];
    int32_t value = flow.graph.ops[number].results[0];
    auto constant = dyn_cast<graph::ConstantOp>(op);
    bool whole = constant && !constant.getValue().isSplat();
    if (whole) {
      // A small constant that differs by element stays whole and is sliced.
      Value now = builder.clone(*op)->getResult(0);
      now.getDefiningOp()->removeAttr(dist::strategyAttr);
      return serve(builder, value,
                   resultLayout(flow.graph.ops[number].rule,
                                Strategy::replicated(flow.graph.ops[number].rule), 0),
                   now);
    }
    served[value] = serveUses(flow.graph, strategies, value);
    auto shardable = cast<ShardingRuleOpInterface>(op);
    for (ServedLayout &entry : served[value]) {
      Layout layout = entry.layout;
      layout.partial.clear();
      Operation *local = shardable.materializeLocal(
          builder, {}, {localType(op->getResult(0), layout)}, strategies[number]);
      local->removeAttr(dist::strategyAttr);
      if (isa<graph::WeightOp>(local))
        local->setAttr(dist::layoutAttr, builder.getStringAttr(layout.str(mesh)));
      Value current = local->getResult(0);
      if (failed(convert(builder, layout, entry.layout, current)))
        return failure();
      if (entry.halo)
        current = comm::emitHalo(builder, op->getLoc(), mesh, *entry.halo, current);
      locals[value].push_back(current);
    }
    return success();
  }

  /// The padding kind an operand needs because the op reduces over a padded factor.
  std::optional<ReduceKind> reducedPadding(const ShardingRule &rule,
                                           const Strategy &strategy, size_t operand,
                                           SmallVectorImpl<int64_t> &dims) const {
    std::optional<ReduceKind> kind;
    for (auto [d, factors] : llvm::enumerate(rule.operands[operand]))
      for (int32_t f : factors)
        if (rule.factors[f].kind == FactorKind::Reduction && rule.factors[f].index < 0 &&
            strategy.factors[f].padded() != strategy.factors[f].size()) {
          kind = rule.factors[f].reduce;
          dims.push_back(static_cast<int64_t>(d));
        }
    return kind;
  }

  Value clean(OpBuilder &builder, ShardingRuleOpInterface op, const ShardingRule &rule,
              const Strategy &strategy, unsigned operand, Value now) const {
    Layout layout = operandLayout(rule, strategy, operand);
    SmallVector<int64_t> dims;
    auto kind = reducedPadding(rule, strategy, operand, dims);
    if (auto fill = op.getPaddingFill(operand)) {
      kind = fill;
      dims.clear();
      for (int64_t d = 0; d < layout.rank(); ++d)
        if (layout.dims[d].padded() != layout.dims[d].size())
          dims.push_back(d);
    }
    // A window buffer has the neutral element in all padding already.
    if (!kind || dims.empty() || operandHalo(rule, strategy, operand))
      return now;
    return comm::MaskOp::create(builder, now.getLoc(), now.getType(), now,
                                layout.str(mesh), dims, name(*kind));
  }

  /// Indices of a split factor become places in the rank's block.
  void localizeIndices(OpBuilder &builder, const ShardingRule &rule,
                       const Strategy &strategy, MutableArrayRef<Value> operands) const {
    for (auto [factor, dim] : llvm::zip_equal(rule.factors, strategy.factors)) {
      if (factor.index < 0 || (!dim.sharded() && dim.padded() == dim.size()))
        continue;
      Value &indices = operands[static_cast<size_t>(factor.index)];
      Layout layout;
      layout.dims = {dim};
      indices = comm::LocalIndexOp::create(builder, indices.getLoc(), indices.getType(),
                                           indices, layout.str(mesh));
    }
  }

  LogicalResult partitionOp(OpBuilder &builder, int32_t number) {
    const FlowOp &entry = flow.graph.ops[number];
    Operation *op = flow.operations[number];
    if (entry.kind == FlowKind::Source)
      return partitionSource(builder, number);
    auto shardable = cast<ShardingRuleOpInterface>(op);
    const Strategy &strategy = strategies[number];
    SmallVector<Value> operands;
    for (auto [i, value] : llvm::enumerate(entry.operands)) {
      Value now = use(value, {number, static_cast<int32_t>(i)});
      operands.push_back(
          clean(builder, shardable, entry.rule, strategy, static_cast<unsigned>(i), now));
    }
    localizeIndices(builder, entry.rule, strategy, operands);
    SmallVector<Type> types;
    std::vector<Layout> layouts;
    for (size_t i = 0; i < entry.results.size(); ++i) {
      layouts.push_back(resultLayout(entry.rule, strategy, i));
      types.push_back(localType(op->getResult(static_cast<unsigned>(i)), layouts.back()));
    }
    Operation *local = shardable.materializeLocal(builder, operands, types, strategy);
    local->removeAttr(dist::strategyAttr);
    for (auto [i, value] : llvm::enumerate(entry.results)) {
      Value result = local->getResult(static_cast<unsigned>(i));
      if (failed(scaleWindows(builder, shardable, entry.rule, strategy, i, result)) ||
          failed(serve(builder, value, layouts[i], result)))
        return failure();
    }
    return success();
  }

  /// Multiplies result `i` by what split windows make the op miscount, along each dim.
  LogicalResult scaleWindows(OpBuilder &builder, ShardingRuleOpInterface op,
                             const ShardingRule &rule, const Strategy &strategy, size_t i,
                             Value &result) {
    Layout layout = resultLayout(rule, strategy, i);
    size_t rank = rule.results[i].size();
    for (size_t d = 0; d < rank; ++d) {
      const std::vector<int32_t> &dim = rule.results[i][d];
      if (dim.empty() || rule.factors[dim[0]].kind != FactorKind::Window ||
          !strategy.factors[dim[0]].sharded())
        continue;
      std::vector<double> scale = op.getWindowScale(static_cast<unsigned>(d));
      if (scale.empty())
        continue;
      auto dtype = dtypeOf(getElementTypeOrSelf(result.getType()));
      if (!dtype || !isFloat(*dtype))
        return op->emitOpError("cannot be split in dim ")
               << d << ": its result is not of a float type";
      std::vector<int64_t> shape(rank, 1);
      shape[d] = static_cast<int64_t>(scale.size());
      Layout whole = Layout::replicated(shape), split = whole;
      split.dims[d] = layout.dims[d];
      HostTensor values = reference::tensor<double>(*dtype, shape, scale);
      Value factor = graph::ConstantOp::create(
          builder, op->getLoc(), graph::toAttribute(builder.getContext(), values));
      if (failed(convert(builder, whole, split, factor)))
        return failure();
      result =
          graph::MulOp::create(builder, op->getLoc(), result.getType(), result, factor);
    }
    return success();
  }

  func::FuncOp function;
  dist::ProgramFlow &flow;
  const Mesh &mesh;
  std::vector<Strategy> strategies;
  ReshardOptions reshard;
  std::vector<std::vector<ServedLayout>> served;
  llvm::DenseMap<int32_t, std::vector<Value>> locals;
};

struct PartitionPass : partita::impl::PartitionPassBase<PartitionPass> {
  using PartitionPassBase::PartitionPassBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      auto mesh = dist::meshOf(function);
      if (!mesh) {
        function.emitOpError("cannot be partitioned: ") << mesh.error().message;
        return signalPassFailure();
      }
      auto flow = dist::buildFlow(function, *mesh);
      if (failed(flow))
        return signalPassFailure();
      auto strategies = dist::readStrategies(function, **flow);
      if (failed(strategies))
        return signalPassFailure();
      Partitioner partitioner(function, **flow, std::move(*strategies), allToAll);
      if (failed(partitioner.run()))
        return signalPassFailure();
      numReshards += static_cast<unsigned>(partitioner.numReshards);
    }
  }
};
} // namespace
