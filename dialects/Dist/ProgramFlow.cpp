//===- ProgramFlow.cpp - A function as a flow graph -----------------------===//
#include "dialects/Dist/ProgramFlow.h"

#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Sharding/Families.h"
#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::dist;

std::string dist::nodeName(Operation *op) {
  if (auto named = dyn_cast<NameLoc>(op->getLoc())) // the common case
    return named.getName().str();
  std::string name;
  op->getLoc()->walk([&](Location location) {
    if (auto named = dyn_cast<NameLoc>(location)) {
      name = named.getName().str();
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return name.empty() ? op->getName().getStringRef().str() : name;
}

/// The rule of something that only produces or only consumes a tensor.
static ShardingRule endRule(const std::vector<int64_t> &shape, bool isSource) {
  std::vector<int64_t> identity(shape.size());
  std::iota(identity.begin(), identity.end(), 0);
  ShardingRule rule = *transposeRule(shape, identity);
  (isSource ? rule.operands : rule.results).clear();
  return rule;
}

static int32_t addValue(ProgramFlow &flow, Value value, const std::string &name) {
  int32_t number = flow.graph.addValue(name, shapeOf(value), elementBytesOf(value));
  flow.valueOf[value] = number;
  if (auto type = dtypeOf(getElementTypeOrSelf(value.getType())))
    flow.graph.values.back().type = *type;
  return number;
}

FailureOr<std::unique_ptr<ProgramFlow>> dist::buildFlow(FunctionOpInterface function,
                                                        const Mesh &mesh) {
  auto flow = std::make_unique<ProgramFlow>(mesh);
  flow->graph.reshard = reshardOptionsOf(function);
  Block &body = function.front();
  for (BlockArgument argument : body.getArguments()) {
    std::string name = "argument " + std::to_string(argument.getArgNumber());
    if (auto given =
            function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "graph.name"))
      name = given.getValue().str();
    FlowOp source{name, FlowKind::Argument, endRule(shapeOf(argument), true), 0, 0, {},
                  {}};
    if (argumentState(function, argument.getArgNumber()))
      source.kind = FlowKind::State;
    source.results = {addValue(*flow, argument, name)};
    SmallVector<StringRef> others = otherNames(argument);
    flow->graph.values.back().otherNames.assign(others.begin(), others.end());
    flow->graph.addOp(std::move(source));
    flow->operations.push_back(nullptr);
  }
  flow->numArguments = static_cast<int32_t>(body.getNumArguments());
  for (Operation &op : body.without_terminator()) {
    auto shardable = dyn_cast<ShardingRuleOpInterface>(op);
    if (!shardable)
      return op.emitOpError("has no sharding rule");
    RuleRef facts = ruleOf(&op);
    if (!facts->rule)
      return op.emitOpError(facts->rule.error().message);
    FlowOp entry;
    entry.name = nodeName(&op);
    entry.kind = op.getNumOperands() == 0 ? FlowKind::Source : FlowKind::Compute;
    entry.priority = shardable.getPropagationPriority();
    entry.flops = shardable.getFlops();
    entry.rule = *facts->rule;
    for (Value operand : op.getOperands())
      entry.operands.push_back(flow->valueOf.lookup(operand));
    if (auto orders = op.getAttrOfType<ArrayAttr>("graph.operand_order"))
      for (Attribute order : orders) {
        auto dims = cast<DenseI64ArrayAttr>(order).asArrayRef();
        entry.operandOrder.emplace_back(dims.begin(), dims.end());
      }
    if (auto transposes = op.getAttrOfType<ArrayAttr>("graph.absorbed"))
      for (auto it : transposes.getAsRange<DictionaryAttr>()) {
        auto dims = [&](StringRef side) {
          auto order = it.getAs<DenseI64ArrayAttr>(side).asArrayRef();
          return std::vector<int32_t>(order.begin(), order.end());
        };
        entry.absorbed.push_back(
            {it.getAs<StringAttr>("name").str(),
             static_cast<int32_t>(it.getAs<IntegerAttr>("operand").getInt()),
             dims("result"), dims("input")});
      }
    // Tensors are called by their ONNX value name, ops by their node's.
    SmallVector<StringRef> names = valueNames(&op);
    for (Value result : op.getResults())
      entry.results.push_back(
          addValue(*flow, result, names.empty() ? entry.name : names.front().str()));
    if (op.getNumResults() == 1 && !names.empty())
      flow->graph.values.back().otherNames.assign(names.begin() + 1, names.end());
    flow->graph.addOp(std::move(entry));
    flow->operations.push_back(&op);
  }
  Operation *module = function->getParentOp();
  if (auto paths = module ? module->getAttrOfType<DictionaryAttr>(modulePathsAttr)
                          : DictionaryAttr())
    for (NamedAttribute path : paths)
      flow->graph.modules.emplace(path.getName().str(),
                                  cast<StringAttr>(path.getValue()).str());
  flow->firstSink = static_cast<int32_t>(flow->graph.ops.size());
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    std::string name = "result " + std::to_string(i);
    if (auto given = function.getResultAttrOfType<StringAttr>(static_cast<unsigned>(i),
                                                              "graph.name"))
      name = given.getValue().str();
    flow->graph.addOp({name,
                       FlowKind::Sink,
                       endRule(shapeOf(value), false),
                       0,
                       0,
                       {flow->valueOf.lookup(value)},
                       {}});
    flow->operations.push_back(nullptr);
  }
  for (const StateEnds &ends : statesOf(function))
    if (ends.argument >= 0 && ends.result >= 0)
      flow->graph.tie(ends.argument, flow->firstSink + ends.result);
  return flow;
}

FailureOr<std::vector<Strategy>> dist::readStrategies(FunctionOpInterface function,
                                                      const ProgramFlow &flow) {
  std::vector<Strategy> strategies;
  for (size_t i = 0; i < flow.graph.ops.size(); ++i) {
    const FlowOp &entry = flow.graph.ops[i];
    auto number = static_cast<int32_t>(i);
    if (Operation *op = flow.operations[i]) {
      auto strategy = strategyOf(op, entry.rule);
      if (!strategy)
        return op->emitOpError("has a bad dist.strategy: ") << strategy.error().message;
      strategies.push_back(std::move(*strategy));
      continue;
    }
    bool isArgument = number < flow.numArguments;
    auto index = static_cast<unsigned>(isArgument ? number : number - flow.firstSink);
    LayoutAttr layout =
        isArgument ? argumentLayout(function, index) : resultLayout(function, index);
    const TensorFactors &tensor =
        isArgument ? entry.rule.results[0] : entry.rule.operands[0];
    if (layout && layout.getLayout().dims.size() != tensor.size())
      return function.emitOpError("has a dist.layout that does not fit ")
             << (isArgument ? "argument " : "result ") << index;
    strategies.push_back(layout
                             ? strategyForLayout(entry.rule, tensor, layout.getLayout())
                             : Strategy::replicated(entry.rule));
  }
  return strategies;
}

void dist::writeStrategies(FunctionOpInterface function, const ProgramFlow &flow,
                           const std::vector<Strategy> &strategies) {
  MeshAttr mesh = findMesh(function);
  auto attribute = [&](const Layout &layout) {
    return LayoutAttr::get(function.getContext(), mesh, layout.canonicalized());
  };
  for (size_t i = 0; i < flow.graph.ops.size(); ++i) {
    const FlowOp &entry = flow.graph.ops[i];
    auto number = static_cast<int32_t>(i);
    if (number >= flow.firstSink)
      function.setResultAttr(static_cast<unsigned>(number - flow.firstSink), layoutAttr,
                             attribute(operandLayout(entry.rule, strategies[i], 0)));
    else if (number < flow.numArguments)
      function.setArgAttr(static_cast<unsigned>(number), layoutAttr,
                          attribute(partita::resultLayout(entry.rule, strategies[i], 0)));
    else if (entry.kind != FlowKind::Source)
      setStrategy(mesh, flow.operations[i], entry.rule, strategies[i]);
  }
}
