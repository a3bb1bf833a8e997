//===- ProgramFlow.cpp - A function as a flow graph -----------------------===//
#include "dialects/Dist/ProgramFlow.h"

#include "dialects/Dist/Manual.h"

#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Sharding/Families.h"
#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Ties.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
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

/// Of an element of an elementwise op that is a function of real numbers: the cheapest of
/// them, exp, has as many, and other ops have a few.
static constexpr int64_t functionSteps = 16;

/// The rule of something that only produces or only consumes a tensor.
static ShardingRule endRule(const std::vector<int64_t> &shape, bool isSource) {
  std::vector<int64_t> identity(shape.size());
  std::iota(identity.begin(), identity.end(), 0);
  ShardingRule rule = *transposeRule(shape, identity);
  (isSource ? rule.operands : rule.results).clear();
  return rule;
}

/// The tensor of the end may be a sum that is still to be made.
static void allowPartialSum(ShardingRule &end) {
  end.linear = {{ReduceKind::Sum, {}}};
  if (end.results.empty())
    end.linear[0].operands = {0};
}

static int32_t addCopy(ProgramFlow &flow, Value value, const std::string &name) {
  int32_t number = flow.graph.addValue(name, shapeOf(value), elementBytesOf(value));
  if (auto type = dtypeOf(getElementTypeOrSelf(value.getType())))
    flow.graph.values.back().type = *type;
  return number;
}

static int32_t addValue(ProgramFlow &flow, Value value, const std::string &name) {
  return flow.valueOf[value] = addCopy(flow, value, name);
}

namespace {
/// Adds functions to a flow graph.
class FlowBuilder {
public:
  FlowBuilder(ProgramFlow &flow, Callees callees, const DenseSet<Operation *> &local)
      : flow(flow), callees(callees), local(local) {}

  LogicalResult addFunction(FunctionOpInterface function, bool isCalled, int64_t trips);

private:
  LogicalResult addOp(Operation &op, int64_t trips);
  /// But for names and results.
  FailureOr<FlowOp> entryOf(Operation &op, int64_t trips);
  /// Copies of what is computed again for an op that is not of the forward pass.
  LogicalResult addCopiesFor(Operation &reader, int64_t trips);
  /// The number of a value as an op reads it, and as one behind the forward pass does.
  int32_t valueFor(Operation &reader, Value value) const;
  int32_t again(Value value) const;
  LogicalResult addCall(CallingOpInterface op, int64_t trips);
  void addArgument(FunctionOpInterface function, BlockArgument argument, bool isCalled,
                   int64_t trips);
  /// The number of the flow op.
  int32_t addEnd(FlowOp entry, FlowEnd end, int64_t trips);
  int32_t addSink(Value value, int32_t number, const std::string &name, FlowEnd end,
                  int64_t trips, bool hasRows = false);

  ProgramFlow &flow;
  Callees callees;
  const DenseSet<Operation *> &local;
  DenseMap<Operation *, int32_t> numberOf; ///< of ops that are computed again
  DenseMap<Operation *, int32_t> copyOf;   ///< likewise, of their copies
  DenseMap<Operation *, std::pair<int32_t, int32_t>> endsOf; ///< of callees: first, sinks
};
} // namespace

int32_t FlowBuilder::addEnd(FlowOp entry, FlowEnd end, int64_t trips) {
  entry.trips = trips;
  // A function by itself does not know whose body it is.
  if (callees == Callees::Apart)
    allowPartialSum(entry.rule);
  flow.operations.push_back(nullptr);
  flow.ends.push_back(end);
  return flow.graph.addOp(std::move(entry));
}

/// A first dim of rows is whole on every rank: each trip is everybody's.
static ShardingRule withWholeRows(ShardingRule rule, bool hasRows) {
  if (hasRows)
    for (const auto *tensors : {&rule.operands, &rule.results})
      for (const TensorFactors &tensor : *tensors)
        for (int32_t f : tensor[0])
          rule.factors[static_cast<size_t>(f)].what = loop::Replicate{};
  return rule;
}

int32_t FlowBuilder::addSink(Value value, int32_t number, const std::string &name,
                             FlowEnd end, int64_t trips, bool hasRows) {
  ShardingRule rule = withWholeRows(endRule(shapeOf(value), false), hasRows);
  FlowOp sink{name, FlowKind::Sink, std::move(rule), 0};
  sink.operands = {number};
  return addEnd(std::move(sink), end, trips);
}

static std::string nameOr(StringAttr given, const std::string &otherwise) {
  return given ? given.getValue().str() : otherwise;
}

/// An argument of a function that an op runs is, as a state, in the layout of its tie.
void FlowBuilder::addArgument(FunctionOpInterface function, BlockArgument argument,
                              bool isCalled, int64_t trips) {
  unsigned number = argument.getArgNumber();
  std::string name = nameOr(function.getArgAttrOfType<StringAttr>(number, "graph.name"),
                            "argument " + std::to_string(number));
  FlowOp source{name,
                isCalled || argumentState(function, number) ? FlowKind::State
                                                            : FlowKind::Argument,
                endRule(shapeOf(argument), true), 0};
  source.results = {addValue(flow, argument, name)};
  source.isBatch = function.getArgAttr(number, batchAttr) != nullptr;
  auto parameter = function.getArgAttrOfType<StringAttr>(number, parameterAttr);
  StateAttr state = argumentState(function, number);
  source.isParameter = parameter && state && state.getName() == parameter;
  SmallVector<StringRef> others = otherNames(argument);
  flow.graph.values.back().otherNames.assign(others.begin(), others.end());
  addEnd(std::move(source), {FlowEnd::Argument, function, number}, trips);
}

LogicalResult FlowBuilder::addFunction(FunctionOpInterface function, bool isCalled,
                                       int64_t trips) {
  Block &body = function.front();
  auto first = static_cast<int32_t>(flow.graph.ops.size());
  for (BlockArgument argument : body.getArguments())
    addArgument(function, argument, isCalled, trips);
  for (Operation &op : body.without_terminator())
    if (auto call = dyn_cast<CallingOpInterface>(op);
        failed(call ? addCall(call, trips) : addOp(op, trips)))
      return failure();
  endsOf[function] = {first, static_cast<int32_t>(flow.graph.ops.size())};
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    auto number = static_cast<unsigned>(i);
    addSink(value, flow.valueOf.lookup(value),
            nameOr(function.getResultAttrOfType<StringAttr>(number, "graph.name"),
                   "result " + std::to_string(i)),
            {FlowEnd::Result, function, number}, trips);
  }
  for (const StateEnds &ends : statesOf(function))
    if (ends.argument >= 0 && ends.result >= 0)
      flow.graph.tie(first + ends.argument, endsOf[function].second + ends.result);
  return success();
}

/// Sinks, the functions, what comes out; and what of these has one layout.
LogicalResult FlowBuilder::addCall(CallingOpInterface op, int64_t trips) {
  flow.hasCalls = true;
  std::string name = nodeName(op);
  std::vector<FlowTie> operands, results(op->getNumResults());
  if (failed(addCopiesFor(*op, trips)))
    return failure();
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned number = operand.getOperandNumber();
    bool hasRows = op.operandHasRows(number);
    operands.push_back({{{addSink(operand.get(), valueFor(*op, operand.get()), name,
                                  {FlowEnd::CallOperand, op, number}, trips, hasRows),
                          hasRows}}});
  }
  const auto begin = static_cast<int32_t>(flow.graph.ops.size());
  if (callees == Callees::Inlined)
    for (Operation *operation : op.getCallees()) {
      auto callee = cast<FunctionOpInterface>(operation);
      if (endsOf.contains(callee))
        return op.emitOpError("runs @")
               << callee.getName() << ", which another op runs too";
      if (failed(addFunction(callee, true, trips * op.getCallTrips())))
        return failure();
      auto [first, sinks] = endsOf[callee];
      for (unsigned i = 0; i < operands.size(); ++i)
        if (int argument = op.getArgumentOf(i); argument >= 0) {
          operands[i].members.push_back({first + argument});
          // A body reads a parameter by its argument.
          int32_t value = flow.valueOf.lookup(op->getOperand(i));
          int32_t producer = flow.graph.values[static_cast<size_t>(value)].producer;
          flow.graph.ops[static_cast<size_t>(first + argument)].isParameter =
              flow.graph.ops[static_cast<size_t>(producer)].isParameter;
        }
      for (unsigned i = 0; i < results.size(); ++i)
        results[i].members.push_back({sinks + static_cast<int32_t>(i)});
    }
  const auto end = static_cast<int32_t>(flow.graph.ops.size());
  for (OpResult result : op->getResults()) {
    unsigned number = result.getResultNumber();
    bool hasRows = op.resultHasRows(number);
    SmallVector<StringRef> names = valueNames(result);
    FlowOp entry{name, FlowKind::State,
                 withWholeRows(endRule(shapeOf(result), true), hasRows), 0};
    entry.results = {addValue(flow, result, names.empty() ? name : names.front().str())};
    if (!names.empty())
      flow.graph.values.back().otherNames.assign(names.begin() + 1, names.end());
    results[number].members.push_back(
        {addEnd(std::move(entry), {FlowEnd::CallResult, op, number}, trips), hasRows});
  }
  if (callees == Callees::Apart)
    return success();
  // What is carried goes in and comes out as one variable.
  for (size_t i = 0; i < op.getNumCarried(); ++i) {
    llvm::append_range(operands[i].members, std::exchange(results[i].members, {}));
    if (getElementTypeOrSelf(op->getResult(i).getType()).isInteger(1))
      continue; // a truth value is no sum
    for (const FlowTie::Member &member : operands[i].members)
      allowPartialSum(flow.graph.ops[static_cast<size_t>(member.op)].rule);
  }
  for (auto *ties : {&operands, &results})
    for (FlowTie &tie : *ties)
      if (tie.members.size() > 1) {
        tie.begin = begin;
        tie.end = end;
        flow.graph.ties.push_back(std::move(tie));
      }
  return success();
}

/// Each rank computes something else: no axis has a part of it. The positions of windows
/// are not as many as the elements that are read through them, whose dim becomes a loop
/// of its own.
static void makeWhole(ShardingRule &rule) {
  const size_t count = rule.factors.size();
  for (size_t f = 0; f < count; ++f) {
    if (const loop::Window *given = rule.factors[f].window()) {
      const loop::Window window = *given;
      const int32_t read = rule.addFactor(window.input, loop::Replicate{});
      for (size_t o = 0; o < rule.operands.size(); ++o)
        if (window.reads(static_cast<int32_t>(o)))
          for (std::vector<int32_t> &dim : rule.operands[o])
            llvm::replace(dim, static_cast<int32_t>(f), read);
    }
    rule.factors[f].what = loop::Replicate{};
  }
  rule.linear.clear();
}

FailureOr<FlowOp> FlowBuilder::entryOf(Operation &op, int64_t trips) {
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
  entry.steps = shardable.getKernelSteps();
  entry.isFunction =
      entry.priority == 0 && op.getNumResults() == 1 &&
      entry.steps >= functionSteps * elementCount(shapeOf(op.getResult(0)));
  entry.whyWhole = shardable.getWhyWhole();
  entry.phase = phaseOf(&op);
  entry.trips = trips;
  entry.facts = kernelFactsOf(&op);
  entry.isLiteral = op.hasTrait<OpTrait::ConstantLike>();
  entry.uniform = entry.isLiteral ? uniformOf(op.getResult(0)) : std::nullopt;
  entry.rule = *facts->rule;
  if (local.contains(&op))
    makeWhole(entry.rule);
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
  for (StringRef node : makersOf(&op))
    entry.madeFor.push_back(node.str());
  return entry;
}

LogicalResult FlowBuilder::addCopiesFor(Operation &reader, int64_t trips) {
  if (phaseOf(&reader) == Phase::Forward)
    return success();
  std::map<int32_t, Operation *> missing; // in the order of the program
  for (SmallVector<Operation *> readers{&reader}; !readers.empty();)
    for (Value operand : readers.pop_back_val()->getOperands())
      if (Operation *maker = operand.getDefiningOp();
          maker && numberOf.contains(maker) && !copyOf.contains(maker) &&
          missing.try_emplace(numberOf.at(maker), maker).second)
        readers.push_back(maker);
  for (auto [number, op] : missing) {
    auto entry = entryOf(*op, trips);
    if (failed(entry))
      return failure();
    for (Value operand : op->getOperands())
      entry->operands.push_back(again(operand));
    entry->name += copySuffix;
    entry->phase = Phase::Backward;
    entry->repeats = number;
    for (OpResult made : op->getResults())
      entry->results.push_back(addCopy(flow, made, entry->name));
    int32_t copy = copyOf[op] = flow.graph.addOp(std::move(*entry));
    flow.operations.push_back(op);
    flow.ends.emplace_back();
    flow.readerOf[copy] = &reader;
  }
  return success();
}

int32_t FlowBuilder::again(Value value) const {
  auto copy = copyOf.find(value.getDefiningOp());
  if (copy == copyOf.end())
    return flow.valueOf.lookup(value);
  unsigned result = cast<OpResult>(value).getResultNumber();
  return flow.graph.ops[static_cast<size_t>(copy->second)].results[result];
}

int32_t FlowBuilder::valueFor(Operation &reader, Value value) const {
  return phaseOf(&reader) == Phase::Forward ? flow.valueOf.lookup(value) : again(value);
}

LogicalResult FlowBuilder::addOp(Operation &op, int64_t trips) {
  auto made = entryOf(op, trips);
  if (failed(made) || failed(addCopiesFor(op, trips)))
    return failure();
  FlowOp &entry = *made;
  for (Value operand : op.getOperands())
    entry.operands.push_back(valueFor(op, operand));
  // Tensors are called by their ONNX value name, ops by their node's.
  for (OpResult result : op.getResults()) {
    SmallVector<StringRef> names = valueNames(result);
    entry.results.push_back(
        addValue(flow, result, names.empty() ? entry.name : names.front().str()));
    if (!names.empty())
      flow.graph.values.back().otherNames.assign(names.begin() + 1, names.end());
  }
  if (recomputeOf(&op))
    numberOf[&op] = static_cast<int32_t>(flow.graph.ops.size());
  flow.graph.addOp(std::move(entry));
  flow.operations.push_back(&op);
  flow.ends.emplace_back();
  return success();
}

FailureOr<std::unique_ptr<ProgramFlow>>
dist::buildFlow(FunctionOpInterface function, const Mesh &mesh, Callees callees) {
  auto flow = std::make_unique<ProgramFlow>(mesh);
  flow->graph.reshard = reshardOptionsOf(function);
  if (auto kept = function->getAttrOfType<IntegerAttr>(keptMicroBatchesAttr))
    flow->graph.keptMicroBatches = kept.getInt();
  auto local = localOps(function);
  if (failed(local) ||
      failed(FlowBuilder(*flow, callees, *local).addFunction(function, false, 1)))
    return failure();
  Operation *module = function->getParentOp();
  if (auto paths = module ? module->getAttrOfType<DictionaryAttr>(modulePathsAttr)
                          : DictionaryAttr())
    for (NamedAttribute path : paths)
      flow->graph.modules.emplace(path.getName().str(),
                                  cast<StringAttr>(path.getValue()).str());
  if (auto nodes = module ? module->getAttrOfType<DictionaryAttr>(nodeInputsAttr)
                          : DictionaryAttr())
    for (NamedAttribute node : nodes) {
      auto &names = flow->graph.nodeInputs[node.getName().str()];
      for (auto name : cast<ArrayAttr>(node.getValue()).getAsRange<StringAttr>())
        names.push_back(name.str());
    }
  return flow;
}

//===----------------------------------------------------------------------===//
// Ends
//===----------------------------------------------------------------------===//

/// The layout of all rows of what has `layout`.
static LayoutAttr inRows(LayoutAttr layout, int64_t rows) {
  Layout all = layout.getLayout();
  all.dims.insert(all.dims.begin(), Layout::replicated({rows}).dims[0]);
  return LayoutAttr::get(layout.getContext(), layout.getMesh(), all);
}

LayoutAttr FlowEnd::layout() const {
  if (kind == Argument)
    return argumentLayout(cast<FunctionOpInterface>(op), number);
  if (kind == Result)
    return dist::resultLayout(cast<FunctionOpInterface>(op), number);
  bool isOperand = kind == CallOperand;
  auto call = cast<CallingOpInterface>(op);
  int at = isOperand ? call.getArgumentOf(number) : static_cast<int>(number);
  if (at < 0)
    return {}; // a condition: whole
  auto callee = cast<FunctionOpInterface>(call.getCallees().front());
  LayoutAttr layout = isOperand ? argumentLayout(callee, static_cast<unsigned>(at))
                                : dist::resultLayout(callee, static_cast<unsigned>(at));
  bool hasRows = isOperand ? call.operandHasRows(number) : call.resultHasRows(number);
  if (!layout || !hasRows)
    return layout;
  Value value = isOperand ? op->getOperand(number) : Value(op->getResult(number));
  return inRows(layout, shapeOf(value)[0]);
}

void FlowEnd::setLayout(LayoutAttr layout) const {
  if (kind == Argument)
    cast<FunctionOpInterface>(op).setArgAttr(number, layoutAttr, layout);
  if (kind == Result)
    cast<FunctionOpInterface>(op).setResultAttr(number, layoutAttr, layout);
}

OpOperand &FlowEnd::use() const {
  Operation *user =
      kind == Result ? cast<FunctionOpInterface>(op).front().getTerminator() : op;
  return user->getOpOperand(number);
}

Operation *ProgramFlow::where(int32_t number) const {
  const FlowEnd &end = ends[static_cast<size_t>(number)];
  switch (end.kind) {
  case FlowEnd::None:
    return isCopy(number) ? readerOf.at(number) : operations[static_cast<size_t>(number)];
  case FlowEnd::Argument:
    return &cast<FunctionOpInterface>(end.op).front().front();
  case FlowEnd::Result:
    return cast<FunctionOpInterface>(end.op).front().getTerminator();
  case FlowEnd::CallOperand:
  case FlowEnd::CallResult:
    return end.op;
  }
}

Value ProgramFlow::valueAt(int32_t number) const {
  const FlowValue &it = graph.values[static_cast<size_t>(number)];
  auto producer = static_cast<size_t>(it.producer);
  if (Operation *op = operations[producer])
    return op->getResult(static_cast<unsigned>(it.result));
  const FlowEnd &end = ends[producer];
  if (end.kind == FlowEnd::CallResult)
    return end.op->getResult(end.number);
  return cast<FunctionOpInterface>(end.op).getArgument(end.number);
}

/// Null and whole are one.
static bool areEqual(LayoutAttr a, LayoutAttr b) {
  auto isWhole = [](LayoutAttr layout) {
    return !layout || layout.getLayout().canonicalized() ==
                          Layout::replicated(layout.getLayout().globalShape());
  };
  if (!a || !b)
    return isWhole(a) && isWhole(b);
  return a.getLayout().canonicalized() == b.getLayout().canonicalized();
}

LogicalResult dist::checkCallees(CallingOpInterface op) {
  SmallVector<Operation *> callees = op.getCallees();
  auto first = cast<FunctionOpInterface>(callees.front());
  for (unsigned i = 0; i < op.getNumCarried(); ++i)
    if (!areEqual(argumentLayout(first, i), dist::resultLayout(first, i)))
      return op.emitOpError("carries value ")
             << i << ", which goes into @" << first.getName()
             << " in another layout than it comes out";
  for (Operation *operation : ArrayRef(callees).drop_front()) {
    auto other = cast<FunctionOpInterface>(operation);
    for (unsigned i = 0; i < first.getNumArguments(); ++i)
      if (!areEqual(argumentLayout(first, i), argumentLayout(other, i)))
        return op.emitOpError("gives @") << first.getName() << " and @" << other.getName()
                                         << " argument " << i << " in two layouts";
    for (unsigned i = 0; i < first.getNumResults(); ++i)
      if (!areEqual(dist::resultLayout(first, i), dist::resultLayout(other, i)))
        return op.emitOpError("has result ")
               << i << " of @" << first.getName() << " and @" << other.getName()
               << " in two layouts";
  }
  return success();
}

int64_t dist::tripsOf(FunctionOpInterface function) {
  if (auto trips = function->getAttrOfType<IntegerAttr>(tripsAttr))
    return trips.getInt();
  auto module = function->getParentOfType<mlir::ModuleOp>();
  if (!module || !function.isPrivate())
    return 1;
  int64_t trips = 0;
  bool isCalled = false;
  module.walk([&](CallingOpInterface op) {
    if (!llvm::is_contained(op.getCallees(), function.getOperation()))
      return;
    isCalled = true;
    trips += tripsOf(op->getParentOfType<FunctionOpInterface>()) * op.getCallTrips();
  });
  return isCalled ? trips : 1;
}

FailureOr<std::vector<Strategy>> dist::readStrategies(FunctionOpInterface function,
                                                      const ProgramFlow &flow) {
  std::vector<Strategy> strategies;
  for (size_t i = 0; i < flow.graph.ops.size(); ++i) {
    const FlowOp &entry = flow.graph.ops[i];
    if (Operation *op = flow.operations[i]) {
      auto strategy = strategyOf(op, entry.rule);
      if (!strategy)
        return op->emitOpError("has a bad dist.strategy: ") << strategy.error().message;
      strategies.push_back(std::move(*strategy));
      continue;
    }
    const FlowEnd &end = flow.ends[i];
    LayoutAttr layout = end.layout();
    const TensorFactors &tensor = flow.graph.endFactors(static_cast<int32_t>(i));
    if (layout && layout.getLayout().dims.size() != tensor.size())
      return function.emitOpError("has a dist.layout that does not fit ")
             << (end.kind == FlowEnd::Argument ? "argument " : "result ") << end.number;
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
    if (!flow.operations[i])
      flow.ends[i].setLayout(
          attribute(endLayout(flow.graph, static_cast<int32_t>(i), strategies[i])));
    else if (entry.kind != FlowKind::Source && !flow.isCopy(static_cast<int32_t>(i)))
      setStrategy(mesh, flow.operations[i], entry.rule, strategies[i]);
  }
}
