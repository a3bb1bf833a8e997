//===- InsertReshards.cpp - Make every conversion of a plan an op ---------===//
#include "passes/Shard/ExplainValue.h"
#include "passes/Shard/KeepConverted.h"
#include "passes/Shard/Passes.h"
#include "passes/Shard/Regather.h"

#include "dialects/Dist/PlanAttributes.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/ServeUses.h"
#include "partita/Rule/Sharding/Ties.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_INSERTRESHARDSPASS
#include "passes/Shard/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

/// Ops whose local form is exact only in other words (an average pool that does not count
/// pads, read through buffers that have them) are replaced by those, with strategies.
static LogicalResult prepareSplits(func::FuncOp function, dist::MeshAttr mesh) {
  for (Operation &op :
       llvm::make_early_inc_range(function.front().without_terminator())) {
    auto shardable = dyn_cast<ShardingRuleOpInterface>(op);
    if (!shardable || !dist::strategyAttrOf(&op))
      continue;
    RuleRef facts = ruleOf(&op);
    auto strategy = dist::strategyOf(&op, facts->rule);
    if (!strategy)
      return op.emitOpError("has a bad dist.strategy: ") << strategy.error().message;
    OpBuilder builder(&op);
    Value replaced = shardable.rewriteForSplit(builder, *strategy);
    if (!replaced)
      continue;
    // New elementwise ops lie where the result of the old op does.
    Layout layout = resultLayout(*facts->rule, *strategy, 0);
    SmallPtrSet<Operation *, 4> made;
    for (auto it = std::next(Block::iterator(op)); it != builder.getInsertionPoint();
         ++it) {
      made.insert(&*it);
      it->setAttr(dist::forSplitAttr, builder.getUnitAttr());
      if (it->getNumOperands() == 0)
        continue;
      copyStepMarks(&op, &*it);
      RuleRef mine = ruleOf(&*it);
      dist::setStrategy(mesh, &*it, *mine->rule,
                        strategyForLayout(*mine->rule, mine->rule->results[0], layout));
    }
    // Its users are the new value's.
    for (StringRef name : {dist::servedAttr, dist::servedAgainAttr})
      if (Attribute served = op.removeAttr(name))
        replaced.getDefiningOp()->setAttr(name, served);
    op.removeAttr(recomputeAttr);
    op.getResult(0).replaceUsesWithIf(
        replaced, [&](OpOperand &use) { return !made.contains(use.getOwner()); });
  }
  return success();
}

namespace {
/// Serves the users of every value of one function.
class Inserter {
public:
  Inserter(func::FuncOp function, dist::MeshAttr mesh, dist::ProgramFlow &flow,
           const std::vector<Strategy> &strategies, const Servings &servings)
      : function(function), mesh(mesh), flow(flow), strategies(strategies),
        servings(servings) {}

  int64_t run() {
    for (size_t v = 0; v < flow.graph.values.size(); ++v)
      serve(flow.valueAt(static_cast<int32_t>(v)), static_cast<int32_t>(v));
    return count;
  }
  /// The conversions by which ranks receive something.
  const llvm::DenseSet<Operation *> &communicating() const { return received; }

private:
  /// By what is converted, layout or windows, and epoch.
  using Cache = DenseMap<std::tuple<Value, Attribute, int64_t>, Value>;

  void serve(Value value, int32_t number) {
    const FlowValue &entry = flow.graph.values[static_cast<size_t>(number)];
    const FlowOp &producer = flow.graph.ops[static_cast<size_t>(entry.producer)];
    auto given = servings.find(number);
    auto served = given != servings.end() ? given->second
                                          : serveUses(flow.graph, strategies, number);
    OpBuilder builder(function.getContext());
    builder.setInsertionPointAfterValue(value);
    // Conversions of a copy belong behind it, where it is not yet.
    isOfCopy = flow.isCopy(entry.producer);
    if (isOfCopy)
      builder.setInsertionPoint(flow.where(entry.producer));
    bool isSource = producer.kind == FlowKind::Source;
    bool isLate = isReadLate(function, producer);
    Layout produced =
        isSource
            ? Layout::replicated(entry.shape)
            : resultLayout(producer.rule, strategies[static_cast<size_t>(entry.producer)],
                           static_cast<size_t>(entry.result))
                  .canonicalized();
    Cache made;
    std::vector<Value> values;
    for (const ServedLayout &wanted : served) {
      Value from = wanted.from < 0 ? value : values[static_cast<size_t>(wanted.from)];
      const Layout &at =
          wanted.from < 0 ? produced : served[static_cast<size_t>(wanted.from)].layout;
      if (isSource ? wanted.from >= 0 : isLate)
        builder.setInsertionPoint(firstUser(served, values.size()));
      values.push_back(isSource && wanted.from < 0
                           ? readSource(builder, made, value, wanted)
                           : convert(builder, made, from, at, wanted));
    }
    for (auto [wanted, now] : llvm::zip_equal(served, values))
      for (const FlowUse &use : wanted.uses)
        if (!flow.isCopy(use.op)) // reads what partita-recompute finds for it
          setOperand(use, now);
  }

  Operation *userOf(const FlowUse &use) { return flow.where(use.op); }

  /// The first op that uses an entry, or one that comes from it: what is gathered is
  /// gathered late, so that it is in memory for a short time.
  Operation *firstUser(const std::vector<ServedLayout> &served, size_t entry) {
    Operation *first = function.front().getTerminator();
    std::vector<bool> follows(served.size(), false);
    follows[entry] = true;
    for (size_t i = entry; i < served.size(); ++i) {
      if (i > entry && served[i].from >= 0)
        follows[i] = follows[static_cast<size_t>(served[i].from)];
      for (const FlowUse &use : served[i].uses)
        if (follows[i] && userOf(use)->isBeforeInBlock(first))
          first = userOf(use);
    }
    return first;
  }

  Value convert(OpBuilder &builder, Cache &made, Value from, const Layout &at,
                const ServedLayout &wanted) {
    if (!wanted.halo && at == wanted.layout)
      return from;
    Value now = wanted.halo ? window(builder, made, from, *wanted.halo)
                            : reshard(builder, made, from, wanted.layout, wanted.epoch);
    auto steps = wanted.halo ? Expected<ReshardPlan>(makeError("windows"))
                             : planReshard(mesh.getMesh(), at, wanted.layout);
    if (!steps || steps->receivedElements > 0)
      received.insert(now.getDefiningOp());
    return now;
  }

  /// A source is read whole unless a reshard says otherwise.
  Value readSource(OpBuilder &builder, Cache &made, Value source,
                   const ServedLayout &wanted) {
    Value now = source;
    if (wanted.layout != Layout::replicated(wanted.layout.globalShape()))
      now = reshard(builder, made, now, wanted.layout);
    return wanted.halo ? window(builder, made, now, *wanted.halo) : now;
  }

  Value reshard(OpBuilder &builder, Cache &made, Value from, const Layout &to,
                int64_t epoch = 0) {
    auto layout = dist::LayoutAttr::get(builder.getContext(), mesh, to);
    Value &slot = made[{from, layout, epoch}];
    if (!slot) {
      ++count;
      slot = dist::ReshardOp::create(builder, from.getLoc(), from.getType(), from, layout,
                                     static_cast<uint64_t>(epoch));
      markOfCopy(slot);
    }
    return slot;
  }

  Value window(OpBuilder &builder, Cache &made, Value from, const Halo &halo) {
    auto windows = dist::WindowsAttr::of(mesh, halo);
    Value &slot = made[{from, windows, 0}];
    if (!slot) {
      ++count;
      slot =
          dist::WindowOp::create(builder, from.getLoc(), from.getType(), from, windows);
      markOfCopy(slot);
    }
    return slot;
  }

  /// What is converted is made in the forward pass, its copy behind it.
  void markOfCopy(Value conversion) {
    if (isOfCopy)
      dist::setPhase(conversion.getDefiningOp(), Phase::Backward);
  }

  void setOperand(const FlowUse &use, Value now) {
    if (Operation *op = flow.operations[static_cast<size_t>(use.op)])
      op->setOperand(static_cast<unsigned>(use.operand), now);
    else
      flow.ends[static_cast<size_t>(use.op)].use().set(now);
  }

  func::FuncOp function;
  dist::MeshAttr mesh;
  dist::ProgramFlow &flow;
  const std::vector<Strategy> &strategies;
  const Servings &servings;
  int64_t count = 0;
  bool isOfCopy = false; ///< what is served now
  llvm::DenseSet<Operation *> received;
};

/// What nothing is said of, an op, argument or result, is whole on every rank.
void writeWhole(dist::MeshAttr mesh, const dist::ProgramFlow &flow,
                const std::vector<Strategy> &strategies) {
  auto attribute = [&](const Layout &layout) {
    return dist::LayoutAttr::get(mesh.getContext(), mesh, layout.canonicalized());
  };
  for (size_t i = 0; i < flow.graph.ops.size(); ++i)
    if (Operation *op = flow.operations[i];
        op && op->getNumOperands() != 0 && !dist::strategyAttrOf(op))
      dist::setStrategy(mesh, op, flow.graph.ops[i].rule, strategies[i]);
  for (size_t i = 0; i < flow.graph.ops.size(); ++i)
    if (!flow.operations[i] && !flow.ends[i].layout())
      flow.ends[i].setLayout(
          attribute(endLayout(flow.graph, static_cast<int32_t>(i), strategies[i])));
}

struct InsertReshardsPass : partita::impl::InsertReshardsPassBase<InsertReshardsPass> {
  using InsertReshardsPassBase::InsertReshardsPassBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(insert(function)))
        return signalPassFailure();
    // Only who says what he wants of a plan speaks of modules.
    getOperation()->removeAttr(modulePathsAttr);
    getOperation()->removeAttr(nodeInputsAttr);
  }

private:
  LogicalResult insert(func::FuncOp function) {
    dist::MeshAttr mesh = dist::findMesh(function);
    if (!mesh)
      return function.emitOpError("cannot be planned: no enclosing op has a dist.mesh "
                                  "attribute");
    if (failed(prepareSplits(function, mesh)))
      return failure();
    auto flow = dist::buildFlow(function, mesh.getMesh());
    if (failed(flow))
      return failure();
    auto strategies = dist::readStrategies(function, **flow);
    if (failed(strategies))
      return failure();
    auto servings = dist::readServings(function, **flow, *strategies);
    if (failed(servings))
      return failure();
    dist::clearServed(function);
    regather(function, **flow, *strategies, *servings);
    writeWhole(mesh, **flow, *strategies);
    Inserter inserter(function, mesh, **flow, *strategies, *servings);
    numConversions += static_cast<unsigned>(inserter.run());
    explainValues(function, **flow, *strategies);
    keepConverted(function, inserter.communicating());
    dist::markConversions(function);
    return success();
  }

  void explainValues(func::FuncOp function, const dist::ProgramFlow &flow,
                     const std::vector<Strategy> &strategies) {
    if (explain.empty())
      return;
    for (size_t v = 0; v < flow.graph.values.size(); ++v) {
      const FlowValue &entry = flow.graph.values[v];
      if (matchesGlob(explain, entry.name) ||
          isNamed(flow.graph, flow.graph.ops[static_cast<size_t>(entry.producer)],
                  explain))
        emitRemark(function.getLoc(),
                   explainValue(flow, strategies, static_cast<int32_t>(v),
                                flow.valueAt(static_cast<int32_t>(v))));
    }
  }
};
} // namespace
