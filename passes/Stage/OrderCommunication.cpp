//===- OrderCommunication.cpp - Buckets that start early ------------------===//
#include "passes/Stage/Passes.h"
#include "passes/Stage/Stages.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Interfaces/ValueNames.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Comm/Levels.h"
#include "partita/Comm/Reuse.h"
#include "partita/Rule/Decide/ModuleNames.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"

#include <map>

namespace partita {
#define GEN_PASS_DEF_ORDERCOMMUNICATIONPASS
#include "passes/Stage/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::task_ir;

static int64_t bytesOf(Value value) {
  return elementCount(shapeOf(value)) *
         static_cast<int64_t>(byteWidth(*dtypeOf(getElementTypeOrSelf(value.getType()))));
}

namespace {
/// The parameters that arguments are, of functions that take states, and of those that a
/// loop runs, all trips of which share such an argument.
using Weights = llvm::DenseMap<Value, StringAttr>;

Weights weightsIn(ModuleOp module) {
  Weights weights;
  module.walk([&](func::FuncOp function) {
    for (BlockArgument argument : function.getArguments()) {
      const unsigned i = argument.getArgNumber();
      auto name = function.getArgAttrOfType<StringAttr>(i, parameterAttr);
      if (name && dist::argumentState(function, i))
        weights[argument] = name;
    }
  });
  module.walk([&](RepeatOp loop) {
    func::FuncOp body = loop.callee();
    const size_t first = loop.getCarried().size() + loop.getScanned().size();
    for (auto [k, operand] : llvm::enumerate(loop.getShared()))
      if (StringAttr name = weights.lookup(operand))
        weights[body.getArgument(static_cast<unsigned>(first + k))] = name;
  });
  return weights;
}

/// Numbers of communications that one prepared call may serve.
class Forms {
public:
  /// −1: the op is no communication.
  int32_t of(Operation *op) {
    auto call = dyn_cast<comm::CommOpInterface>(op);
    if (!call || call.getReceivedElements() == 0)
      return -1;
    std::vector<const void *> key{op->getName().getAsOpaquePointer(),
                                  op->getOperand(0).getType().getAsOpaquePointer()};
    for (StringAttr name : op->getName().getAttributeNames())
      if (Attribute value = op->getAttr(name); value && name != "epoch")
        key.push_back(value.getAsOpaquePointer());
    return numbers.try_emplace(std::move(key), static_cast<int32_t>(numbers.size()))
        .first->second;
  }

private:
  std::map<std::vector<const void *>, int32_t> numbers;
};

/// A function of a training step, as lib/Comm sees it.
class Step {
public:
  Step(func::FuncOp function, SmallVector<StringAttr> trainedOnes, const Weights &weights,
       Forms &forms)
      : function(function), block(function.front()), weights(weights),
        trained(std::move(trainedOnes)) {
    for (auto [number, name] : llvm::enumerate(trained))
      parameterOf[name] = number;
    for (const BlockArgument argument : function.getArguments())
      if (auto sum = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                           parameterAttr);
          sum && !dist::argumentState(function, argument.getArgNumber()))
        sums[argument] = sum;
    for (const BlockArgument argument : function.getArguments())
      if (StringAttr weight = weights.lookup(argument))
        if (auto layout = dist::argumentLayout(function, argument.getArgNumber()))
          shardedOver[weight] = layout.getLayout().shardingAxes();
    for (Operation &op : block) {
      numbers[&op] = static_cast<int32_t>(ops.size());
      ops.push_back(&op);
    }
    for (Operation *op : ops) {
      described.push_back(describe(op));
      described.back().form = forms.of(op);
    }
    keepStates();
  }

  const std::vector<buckets::Op> &description() const { return described; }
  const SmallVector<StringAttr> &parameters() const { return trained; }
  Block *body() const { return &block; }

  /// Brings the function into this order.
  void apply(const buckets::Order &order) {
    Operation *end = block.getTerminator();
    OpBuilder builder(end);
    std::vector<StartOp> starts(order.buckets.size());
    for (const auto [kind, number] : order.steps) {
      auto n = static_cast<size_t>(number);
      if (kind == buckets::Step::Kind::Run)
        ops[n]->moveBefore(end);
      else if (kind == buckets::Step::Kind::Start)
        starts[n] = start(builder, order.buckets[n]);
      else
        wait(builder, starts[n]);
    }
  }

private:
  /// A state is written in place: behind those who read what it was.
  void keepStates() {
    llvm::DenseMap<StringAttr, Value> old;
    for (auto [i, argument] : llvm::enumerate(function.getArguments()))
      if (auto state = dist::argumentState(function, static_cast<unsigned>(i)))
        old[state.getName()] = argument;
    for (OpOperand &given : block.getTerminator()->getOpOperands()) {
      auto state = dist::resultState(function, given.getOperandNumber());
      Operation *maker = given.get().getDefiningOp();
      if (!state || !maker || !old.contains(state.getName()))
        continue;
      for (Operation *reader : old[state.getName()].getUsers())
        if (numbers.at(reader) < numbers.at(maker))
          described[static_cast<size_t>(numbers.at(maker))].reads.push_back(
              numbers.at(reader));
    }
  }

  buckets::Op describe(Operation *op) {
    buckets::Op result;
    result.phase = dist::phaseOf(op);
    for (Value operand : op->getOperands())
      if (Operation *from = operand.getDefiningOp())
        result.reads.push_back(numbers.at(from));
    auto step = dyn_cast<comm::StepOpInterface>(op);
    auto kind = step ? callKindOf(step.getStepKind()) : std::nullopt;
    if (!kind || step.getReceivedElements() == 0)
      return result;
    std::string key = std::to_string(static_cast<int>(*kind)) + " " +
                      std::to_string(static_cast<int>(step.getStep().reduce));
    for (const AxisRef &axis : step.getAxes())
      key += " " + step.getDevices().str(axis);
    int32_t number =
        keys.try_emplace(key, static_cast<int32_t>(keys.size())).first->second;
    const int64_t source = bytesOf(op->getOperand(0)), target = bytesOf(op->getResult(0));
    const bool inPlace = *kind == buckets::CallKind::AllReduce;
    result.call = {*kind, number, std::max(source, target),
                   source + (inPlace ? 0 : target), parameterFor(op)};
    if (StringAttr weight =
            *kind == buckets::CallKind::AllGather ? weightOf(op) : StringAttr())
      describeWeight(weight, *result.call);
    if (*kind == buckets::CallKind::ReduceScatter && result.call->parameter >= 0)
      describeGradient(step.getAxes(), *result.call);
    return result;
  }

  /// The parameter whose parts a gather collects, through what only changes their form;
  /// null: it is none's.
  StringAttr weightOf(Operation *op) const {
    constexpr int mostForms = 8;
    for (int i = 0; i < mostForms && op && op->getNumOperands() == 1; ++i) {
      if (auto argument = dyn_cast<BlockArgument>(op->getOperand(0)))
        return weights.lookup(argument);
      op = op->getOperand(0).getDefiningOp();
      if (op && isa<comm::StepOpInterface>(op))
        break;
    }
    return {};
  }

  void describeWeight(StringAttr weight, buckets::Call &call) {
    if (auto found = parameterOf.find(weight); found != parameterOf.end())
      call.parameter = static_cast<int32_t>(found->second);
    call.layer = layerNumber(weight);
  }

  /// The gradient of a weight that lies in parts goes to where these are.
  void describeGradient(const AxisList &axes, buckets::Call &call) {
    StringAttr weight = trained[static_cast<size_t>(call.parameter)];
    const AxisList parts = primes(shardedOver.lookup(weight));
    if (llvm::all_of(primes(axes), [&](const AxisRef &axis) {
          return llvm::is_contained(parts, axis);
        }))
      call.layer = layerNumber(weight);
  }

  int32_t layerNumber(StringAttr weight) {
    return layers.try_emplace(layerOf(weight.str()), static_cast<int32_t>(layers.size()))
        .first->second;
  }

  /// The parameter that an op belongs to, or to whose sum of gradients it adds; −1: none.
  int32_t parameterAt(Operation *op) const {
    auto name = op->getAttrOfType<StringAttr>(parameterAttr);
    for (Value operand : op->getOperands())
      if (!name)
        name = sums.lookup(operand);
    auto found = parameterOf.find(name);
    return found == parameterOf.end() ? -1 : static_cast<int32_t>(found->second);
  }

  /// The parameter that an update or a sum of what the collective gives is for, or one
  /// that made what it is given.
  int32_t parameterFor(Operation *op) const {
    SmallVector<Operation *> next{op};
    for (size_t i = 0; i < next.size() && i < 64; ++i)
      for (Operation *user : next[i]->getUsers()) {
        if (int32_t number = parameterAt(user); number >= 0)
          return number;
        next.push_back(user);
      }
    Operation *maker = op->getOperand(0).getDefiningOp();
    return maker ? parameterAt(maker) : -1;
  }

  StartOp start(OpBuilder &builder, ArrayRef<int32_t> bucket) {
    SmallVector<Value> results;
    SmallVector<Type> types;
    SmallVector<Location> places;
    for (int32_t member : bucket) {
      results.push_back(ops[static_cast<size_t>(member)]->getResult(0));
      types.push_back(results.back().getType());
      places.push_back(results.back().getLoc());
    }
    auto handle = HandleType::get(builder.getContext(), types);
    // The node that its task is named after.
    auto start = StartOp::create(builder, places.front(), handle);
    Block &body = start.getBody().emplaceBlock();
    for (int32_t member : bucket)
      ops[static_cast<size_t>(member)]->moveBefore(&body, body.end());
    OpBuilder inside = OpBuilder::atBlockEnd(&body);
    YieldOp::create(inside, start.getLoc(), results);
    return start;
  }

  static void wait(OpBuilder &builder, StartOp start) {
    auto wait =
        WaitOp::create(builder, start.getLoc(), start.getHandle().getType().getTensors(),
                       start.getHandle());
    for (auto [op, result] : llvm::zip_equal(start.communications(), wait.getResults()))
      op.getResult(0).replaceUsesWithIf(result, [&](OpOperand &use) {
        return use.getOwner()->getBlock() != &start.getBody().front();
      });
  }

  func::FuncOp function;
  Block &block;
  const Weights &weights;
  std::vector<Operation *> ops;
  llvm::DenseMap<Operation *, int32_t> numbers;
  std::map<std::string, int32_t> keys, layers;
  SmallVector<StringAttr> trained; ///< parameters
  llvm::DenseMap<StringAttr, size_t> parameterOf;
  llvm::DenseMap<StringAttr, AxisList> shardedOver; ///< by a weight's name
  /// Names of parameters, by argument that is a sum of gradients of micro-batches.
  llvm::DenseMap<Value, StringAttr> sums;
  std::vector<buckets::Op> described;
};

/// The training file's words on one kind, by the numbers of this step's parameters.
FailureOr<buckets::Fusion> resolve(const train::CommFusion::Kind &kind, StringRef name,
                                   func::FuncOp function,
                                   ArrayRef<StringAttr> parameters) {
  auto error = [&] { return function.emitError("comm_fusion: ") << name << ": "; };
  buckets::Fusion fusion = kind.fusion;
  if (!fusion.index.empty() &&
      fusion.index.back() >= static_cast<int64_t>(parameters.size()))
    return error() << "it has index " << fusion.index.back() << ", the step trains "
                   << parameters.size() << " parameters";
  fusion.groups.assign(parameters.size(), -1);
  for (auto [number, globs] : llvm::enumerate(kind.groups))
    for (const std::string &glob : globs) {
      bool isAny = false;
      for (auto [parameter, group] : llvm::zip_equal(parameters, fusion.groups)) {
        if (!matchesGlob(glob, parameter.str()))
          continue;
        isAny = true;
        group = group < 0 ? static_cast<int32_t>(number) : group;
      }
      if (!isAny)
        return error() << "group " << number << " has '" << glob
                       << "', which no trained parameter is called";
    }
  return fusion;
}

/// Puts the functions of one module in order.
class Ordering {
public:
  Ordering(ModuleOp module, const train::CommFusion &fusion,
           const buckets::Options &options)
      : module(module), fusion(fusion), options(options), weights(weightsIn(module)) {}

  /// `mostCalls`: distinct ones; 0 is any number.
  LogicalResult run(int64_t mostCalls) {
    if (failed(describe()))
      return failure();
    const std::set<int32_t> elsewhere = formsElsewhere();
    buckets::Orders orders = buckets::ordersOf(functions, elsewhere);
    if (mostCalls > 0 && failed(limit(mostCalls, orders, elsewhere)))
      return failure();
    llvm::MapVector<Operation *, Told> told;
    for (auto [step, order, program] : llvm::zip_equal(steps, orders.orders, programs)) {
      if (!order.buckets.empty())
        step->apply(order);
      if (program)
        told[program].add(order);
    }
    for (auto &[program, sums] : told)
      tell(cast<ProgramOp>(program), sums);
    return success();
  }

  int64_t numCollectives = 0, numCalls = 0; ///< of functions that update parameters

private:
  /// Describes the functions that are put in order: steps of programs, then trips.
  LogicalResult describe() {
    llvm::SetVector<Operation *> known;
    for (auto program : module.getOps<ProgramOp>())
      for (auto segment : program.getBody().front().getOps<SegmentOp>())
        if (func::FuncOp function = segment.callee(); partOf(function) == Part::Step &&
                                                      known.insert(function) &&
                                                      failed(describe(function, program)))
          return failure();
    // Modules of programs have some, too.
    WalkResult described = module.walk([&](func::FuncOp function) {
      return partOf(function) == Part::Trip ? WalkResult(describe(function, {}))
                                            : WalkResult::advance();
    });
    return failure(described.wasInterrupted());
  }

  /// `program`: null for a trip.
  LogicalResult describe(func::FuncOp function, ProgramOp program) {
    buckets::Options own = options;
    own.makesBuckets = static_cast<bool>(program);
    SmallVector<StringAttr> trained = trainedBy(function);
    for (size_t k = 0; k < buckets::numCallKinds; ++k) {
      auto resolved =
          resolve(fusion.kinds[k], buckets::name(static_cast<buckets::CallKind>(k)),
                  function, trained);
      if (failed(resolved))
        return failure();
      own.fusion[k] = std::move(*resolved);
    }
    steps.push_back(std::make_unique<Step>(function, std::move(trained), weights, forms));
    functions.push_back({steps.back()->description(), std::move(own)});
    programs.push_back(program);
    return success();
  }

  /// Step: updates parameters. Trip: computes cotangents for others to update by, as a
  /// micro-batch or the backward segment of a stage does, or reads weights that train, as
  /// a forward segment does. Other: the rest, and what has calls that are started
  /// already.
  enum class Part { Step, Trip, Other };
  Part partOf(func::FuncOp function) const {
    bool isTrip = llvm::any_of(function.getArguments(), [&](BlockArgument argument) {
      return weights.contains(argument);
    });
    bool updates = false;
    for (Operation &op : function.front()) {
      if (isa<StartOp>(op))
        return Part::Other;
      isTrip |= dist::phaseOf(&op) == Phase::Backward;
      updates |= dist::phaseOf(&op) == Phase::Update;
    }
    return updates ? Part::Step : isTrip ? Part::Trip : Part::Other;
  }

  /// Sums over the functions of a program that update parameters.
  struct Told {
    int64_t members = 0, calls = 0, met = 0;
    int64_t gradientBytes = 0, earlyBytes = 0, inFlight = 0;
    bool isAny = false;

    void add(const buckets::Order &order) {
      if (order.buckets.empty())
        return;
      isAny = true;
      members += order.calls - static_cast<int64_t>(order.buckets.size());
      for (const auto &bucket : order.buckets)
        members += static_cast<int64_t>(bucket.size());
      calls += order.calls;
      met += order.met;
      gradientBytes += order.gradientBytes;
      earlyBytes += order.earlyBytes;
      inFlight = std::max(inFlight, order.maxBytesInFlight);
    }
  };

  /// The trained parameters in the model's order. A step in stages has them on its
  /// module; a whole one, or an evaluation, has them as arguments, but its trips do not.
  SmallVector<StringAttr> trainedBy(func::FuncOp function) {
    if (auto names = module->getAttrOfType<ArrayAttr>(trainedAttr))
      return llvm::to_vector(names.getAsRange<StringAttr>());
    SmallVector<StringAttr> own = trainedParameters(function);
    return own.empty() && !steps.empty() ? steps.front()->parameters() : own;
  }

  /// Communications of functions that are not put in order.
  std::set<int32_t> formsElsewhere() {
    llvm::SmallPtrSet<Block *, 8> ordered;
    for (const std::unique_ptr<Step> &step : steps)
      ordered.insert(step->body());
    std::set<int32_t> result;
    module.walk([&](comm::CommOpInterface op) {
      if (!ordered.contains(op->getBlock()))
        if (const int32_t form = forms.of(op); form >= 0)
          result.insert(form);
    });
    return result;
  }

  /// Brings the orders below the limit of distinct calls, and says what that costs.
  LogicalResult limit(int64_t mostCalls, buckets::Orders &orders,
                      const std::set<int32_t> &elsewhere) {
    const int64_t distinct = orders.distinct;
    auto sums = [&] {
      std::string text = std::to_string(orders.distinct) + " distinct call" +
                         (orders.distinct == 1 ? "" : "s");
      if (const int64_t bytes = orders.gradientBytes())
        text += " (" + std::to_string(orders.calls()) + " in all, " +
                std::to_string(100 * orders.earlyBytes() / bytes) +
                "% of the gradients' bytes start before the last backward op)";
      return text;
    };
    const std::string before = sums();
    orders = buckets::ordersWithin(mostCalls, functions, elsewhere);
    if (orders.distinct > mostCalls)
      return module.emitError("--comm-reuse ")
             << mostCalls << ": the program has at least " << orders.distinct
             << " distinct communication calls";
    module.emitRemark("--comm-reuse ")
        << mostCalls << ": "
        << (orders.distinct == distinct ? before : before + " became " + sums());
    return success();
  }

  /// A step in stages says of each group of ranks what its updates wait for.
  void tell(ProgramOp program, const Told &told) {
    numCollectives += told.members;
    numCalls += told.calls;
    if (!told.isAny)
      return;
    const bool isStaged = module->hasAttr(trainedAttr);
    program.emitRemark()
        << (isStaged ? program.getSymName().str() + ": the update has " : "a step has ")
        << told.members << " collectives in " << told.calls << " calls; "
        << (told.gradientBytes ? 100 * told.earlyBytes / told.gradientBytes : 0)
        << "% of " << told.gradientBytes
        << " bytes of gradients start before the last backward op; at most "
        << told.inFlight << " bytes are in flight"
        << (told.met ? "; " + std::to_string(told.met) + " small collectives meet" : "");
  }

  ModuleOp module;
  const train::CommFusion &fusion;
  const buckets::Options options;
  const Weights weights;
  Forms forms;
  // Members by function that is put in order.
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<buckets::Ordered> functions;
  std::vector<ProgramOp> programs; ///< null: a trip's
};

struct OrderCommunicationPass
    : partita::impl::OrderCommunicationPassBase<OrderCommunicationPass> {
  using OrderCommunicationPassBase::OrderCommunicationPassBase;
  OrderCommunicationPass(train::CommFusion fusion, int64_t inFlight, int64_t mostCalls)
      : fusion(std::move(fusion)) {
    this->inFlight = static_cast<int>(inFlight);
    this->mostCalls = mostCalls;
  }

  void runOnOperation() override {
    buckets::Options options;
    options.maxInFlight = inFlight;
    options.autoBuckets = autoBuckets;
    options.minBytes = minBytes;
    options.minSplit = minSplit;
    Ordering ordering(getOperation(), fusion, options);
    if (failed(ordering.run(mostCalls)))
      return signalPassFailure();
    numCollectives += static_cast<unsigned>(ordering.numCollectives);
    numCalls += static_cast<unsigned>(ordering.numCalls);
  }

  train::CommFusion fusion;
};
} // namespace

std::unique_ptr<Pass> partita::createOrderCommunicationPass(train::CommFusion fusion,
                                                            int64_t inFlight,
                                                            int64_t mostCalls) {
  return std::make_unique<OrderCommunicationPass>(std::move(fusion), inFlight, mostCalls);
}
