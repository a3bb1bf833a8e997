//===- OrderCommunication.cpp - Buckets that start early ------------------===//
#include "passes/Stage/Passes.h"
#include "passes/Stage/Stages.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Interfaces/ValueNames.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Bundle/Plan.h"
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

static std::optional<buckets::CallKind> kindOf(StepKind kind) {
  switch (kind) {
  case StepKind::AllReduce:
    return buckets::CallKind::AllReduce;
  case StepKind::AllGather:
    return buckets::CallKind::AllGather;
  case StepKind::ReduceScatter:
    return buckets::CallKind::ReduceScatter;
  default:
    return std::nullopt;
  }
}

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

/// A function of a training step, as lib/Comm sees it.
class Step {
public:
  Step(func::FuncOp function, ArrayRef<StringAttr> trained, const Weights &weights)
      : function(function), block(function.front()), weights(weights), trained(trained) {
    for (auto [number, name] : llvm::enumerate(trained))
      parameterOf[name] = number;
    for (const BlockArgument argument : function.getArguments())
      if (StringAttr weight = weights.lookup(argument))
        if (auto layout = dist::argumentLayout(function, argument.getArgNumber()))
          shardedOver[weight] = layout.getLayout().shardingAxes();
    for (Operation &op : block) {
      numbers[&op] = static_cast<int32_t>(ops.size());
      ops.push_back(&op);
    }
    for (Operation *op : ops)
      described.push_back(describe(op));
    keepStates();
  }

  const std::vector<buckets::Op> &description() const { return described; }

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
    auto kind = step ? kindOf(step.getStepKind()) : std::nullopt;
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
  void describeGradient(ArrayRef<AxisRef> axes, buckets::Call &call) {
    StringAttr weight = trained[static_cast<size_t>(call.parameter)];
    const AxisList parts = shardedOver.lookup(weight);
    if (llvm::all_of(
            axes, [&](const AxisRef &axis) { return llvm::is_contained(parts, axis); }))
      call.layer = layerNumber(weight);
  }

  int32_t layerNumber(StringAttr weight) {
    return layers.try_emplace(layerOf(weight.str()), static_cast<int32_t>(layers.size()))
        .first->second;
  }

  /// The parameter that an update of what the collective gives is for, or one that made
  /// what it is given.
  int32_t parameterFor(Operation *op) const {
    auto named = [&](Operation *at) {
      auto found = parameterOf.find(at->getAttrOfType<StringAttr>(parameterAttr));
      return found == parameterOf.end() ? -1 : static_cast<int32_t>(found->second);
    };
    SmallVector<Operation *> next{op};
    for (size_t i = 0; i < next.size() && i < 64; ++i)
      for (Operation *user : next[i]->getUsers()) {
        if (int32_t number = user->hasAttr(parameterAttr) ? named(user) : -1; number >= 0)
          return number;
        next.push_back(user);
      }
    Operation *maker = op->getOperand(0).getDefiningOp();
    return maker && maker->hasAttr(parameterAttr) ? named(maker) : -1;
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
  ArrayRef<StringAttr> trained; ///< parameters
  llvm::DenseMap<StringAttr, size_t> parameterOf;
  llvm::DenseMap<StringAttr, AxisList> shardedOver; ///< by a weight's name
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

struct OrderCommunicationPass
    : partita::impl::OrderCommunicationPassBase<OrderCommunicationPass> {
  using OrderCommunicationPassBase::OrderCommunicationPassBase;
  OrderCommunicationPass(train::CommFusion fusion, int64_t inFlight)
      : fusion(std::move(fusion)) {
    this->inFlight = static_cast<int>(inFlight);
  }

  void runOnOperation() override {
    buckets::Options options;
    options.maxInFlight = inFlight;
    options.autoBuckets = autoBuckets;
    options.minBytes = minBytes;
    options.minSplit = minSplit;
    weights = weightsIn(getOperation());
    for (auto program : getOperation().getOps<ProgramOp>()) {
      llvm::SetVector<Operation *> steps;
      for (auto segment : program.getBody().front().getOps<SegmentOp>())
        if (func::FuncOp function = segment.callee(); partOf(function) == Part::Step)
          steps.insert(function);
      Told told;
      for (Operation *step : steps)
        if (failed(order(cast<func::FuncOp>(step), options, told)))
          return signalPassFailure();
      tell(program, told);
    }
    options.makesBuckets = false;
    SmallVector<func::FuncOp> trips; // of modules of programs, too
    getOperation().walk([&](func::FuncOp function) {
      if (partOf(function) == Part::Trip)
        trips.push_back(function);
    });
    for (func::FuncOp trip : trips)
      if (Told told; failed(order(trip, options, told)))
        return signalPassFailure();
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
  };

  /// The trained parameters in the model's order, which a step in stages has on its
  /// module, and a whole one as its arguments.
  SmallVector<StringAttr> trainedBy(func::FuncOp function) {
    if (auto names = getOperation()->getAttrOfType<ArrayAttr>(trainedAttr))
      return llvm::to_vector(names.getAsRange<StringAttr>());
    return trainedParameters(function);
  }

  LogicalResult order(func::FuncOp function, buckets::Options options, Told &told) {
    const SmallVector<StringAttr> trained = trainedBy(function);
    Step step(function, trained, weights);
    for (size_t k = 0; k < buckets::numCallKinds; ++k) {
      auto resolved =
          resolve(fusion.kinds[k], buckets::name(static_cast<buckets::CallKind>(k)),
                  function, trained);
      if (failed(resolved))
        return failure();
      options.fusion[k] = std::move(*resolved);
    }
    buckets::Order order = buckets::orderOf(step.description(), options);
    if (order.buckets.empty())
      return success();
    step.apply(order);
    told.isAny = true;
    told.members += order.calls - static_cast<int64_t>(order.buckets.size());
    for (const auto &bucket : order.buckets)
      told.members += static_cast<int64_t>(bucket.size());
    told.calls += order.calls;
    told.met += order.met;
    told.gradientBytes += order.gradientBytes;
    told.earlyBytes += order.earlyBytes;
    told.inFlight = std::max(told.inFlight, order.maxBytesInFlight);
    return success();
  }

  /// A step in stages says of each group of ranks what its updates wait for.
  void tell(ProgramOp program, const Told &told) {
    numCollectives += static_cast<unsigned>(told.members);
    numCalls += static_cast<unsigned>(told.calls);
    if (!told.isAny)
      return;
    const bool isStaged = getOperation()->hasAttr(trainedAttr);
    program.emitRemark()
        << (isStaged ? program.getSymName().str() + ": the update has " : "a step has ")
        << told.members << " collectives in " << told.calls << " calls; "
        << (told.gradientBytes ? 100 * told.earlyBytes / told.gradientBytes : 0)
        << "% of " << told.gradientBytes
        << " bytes of gradients start before the last backward op; at most "
        << told.inFlight << " bytes are in flight"
        << (told.met ? "; " + std::to_string(told.met) + " small collectives meet" : "");
  }

  train::CommFusion fusion;
  Weights weights;
};
} // namespace

std::unique_ptr<Pass> partita::createOrderCommunicationPass(train::CommFusion fusion,
                                                            int64_t inFlight) {
  return std::make_unique<OrderCommunicationPass>(std::move(fusion), inFlight);
}
