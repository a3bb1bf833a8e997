//===- Train.cpp - A model becomes a training step ------------------------===//
#include "passes/Train/Passes.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "passes/Train/Differentiate.h"
#include "passes/Train/Loss.h"
#include "passes/Train/Precision.h"
#include "passes/Train/Recompute.h"
#include "passes/Train/Update.h"

#include "mlir/IR/IRMapping.h"

namespace partita {
#define GEN_PASS_DEF_TRAINPASS
#include "passes/Train/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

/// The state that counts the steps that are done.
static constexpr char stepState[] = "step";
/// Those of a dynamic scale of the loss: its power of two, and the steps since it
/// changed.
static constexpr char scaleState[] = "loss_scale", scaleAgeState[] = "loss_scale.age";

/// A cotangent and a weight gradient may need the same (a normalized activation): it is
/// computed in the phase that comes first.
static void mergeAcrossPhases(Block &block) {
  auto isEqual = [](Operation *a, Operation *b) {
    auto attrs = [](Operation *op) {
      NamedAttrList list(op->getAttrDictionary());
      list.erase(phaseAttr);
      return list.getDictionary(op->getContext());
    };
    return a->getName() == b->getName() && a->getResultTypes() == b->getResultTypes() &&
           a->getOperands() == b->getOperands() && attrs(a) == attrs(b);
  };
  llvm::DenseMap<Value, SmallVector<Operation *>> readers; // by first operand
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
    if (!op.hasAttr(phaseAttr) || op.getNumOperands() == 0 || isa<CallingOpInterface>(op))
      continue;
    auto &known = readers[op.getOperand(0)];
    auto same =
        llvm::find_if(known, [&](Operation *other) { return isEqual(other, &op); });
    if (same == known.end()) {
      known.push_back(&op);
      continue;
    }
    op.replaceAllUsesWith(*same);
    op.erase();
  }
}

/// Moves each op of the update to where it can run first: behind its operands and, for a
/// state is written in place, behind those who read what the state was. So a gradient
/// lives until its update, not until the end.
static void updateEarly(Block &block) {
  DenseMap<Operation *, size_t> place;
  std::vector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    place[&op] = ops.size();
    ops.push_back(&op);
  }
  auto isUpdate = [](Operation *op) {
    auto phase = op->getAttrOfType<PhaseAttr>(phaseAttr);
    return phase && phase.getValue() == Phase::Update;
  };
  // Behind ops[i], in order; those of -1 at the beginning.
  std::vector<std::vector<Operation *>> behind(ops.size() + 1);
  DenseMap<Operation *, size_t> anchors; // one more than the place
  for (Operation *op : ops) {
    if (!isUpdate(op))
      continue;
    size_t anchor = 0;
    for (Value operand : op->getOperands()) {
      Operation *from = operand.getDefiningOp();
      if (from)
        anchor = std::max(anchor, anchors.count(from) ? anchors[from] : place[from] + 1);
      else
        for (Operation *reader : operand.getUsers())
          if (reader->getBlock() == &block && place.count(reader) && !isUpdate(reader))
            anchor = std::max(anchor, place[reader] + 1);
    }
    anchors[op] = anchor;
    behind[anchor].push_back(op);
  }
  for (size_t i = behind.size(); i-- > 0;)
    for (Operation *op : llvm::reverse(behind[i]))
      if (i == 0)
        op->moveBefore(&block, block.begin());
      else
        op->moveAfter(ops[i - 1]);
}

namespace {
/// A result of the step: a metric, or what becomes of a state.
struct Result {
  std::string name;
  Value value;
  bool isState = false;
};

class StepBuilder {
public:
  StepBuilder(func::FuncOp main, const Spec &spec)
      : main(main), spec(spec), context(main.getContext()) {}

  Expected<void> run() {
    if (spec.compute != Compute::F32) {
      Builder builder(context);
      Type narrow = spec.compute == Compute::F16 ? Type(builder.getF16Type())
                                                 : Type(builder.getBF16Type());
      if (auto ok = computeIn(main, narrow); !ok)
        return ok;
    }
    auto loss = buildLoss(main, spec.loss);
    if (!loss)
      return tl::unexpected(loss.error());
    if (auto ok = checkSupported(); !ok)
      return ok;
    findStates();
    if (parameters.empty())
      return makeError("no parameter trains: the model has no float initializer that "
                       "\"parameters\" names");
    if (auto ok = differentiateLoss(*loss); !ok)
      return ok;
    markArguments();
    if (spec.accumulation > 1)
      accumulate();
    return update();
  }

private:
  /// States that are only read are parameters; those that have a result already, running
  /// moments, are what the batch makes of them.
  void findStates() {
    Operation *end = main.front().getTerminator();
    for (unsigned i = 0; i < main.getNumResults(); ++i)
      if (auto state = dist::resultState(main, i))
        running.push_back({state.getName().str(), end->getOperand(i), true});
    for (unsigned i = 0; i < main.getNumArguments(); ++i) {
      auto state = dist::argumentState(main, i);
      if (!state)
        continue;
      std::string name = state.getName().str();
      Value argument = main.getArgument(i);
      if (name == stepState)
        step = argument; // import has made it
      else if (llvm::none_of(running, [&](const Result &r) { return r.name == name; }) &&
               isReal(argument))
        parameters.push_back({name, argument, Value(), decays(name)});
    }
  }

  /// What the specification can say and nothing does yet.
  Expected<void> checkSupported() const {
    for (const Recompute &asked : spec.recompute)
      if (!asked.modelParallelCommunication)
        return makeError("recompute of '" + asked.nodes +
                         "': \"mp_comm_recompute\": false is not there yet");
    return {};
  }

  /// What those who decide layouts ask of the step.
  void markArguments() {
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      if (!dist::argumentState(main, i) && !shapeOf(main.getArgument(i)).empty())
        main.setArgAttr(i, batchAttr, UnitAttr::get(context));
    for (const Parameter &p : parameters)
      main.setArgAttr(cast<BlockArgument>(p.value).getArgNumber(), parameterAttr,
                      StringAttr::get(context, p.name));
    const OptimizerParallel &knobs = spec.optimizerParallel;
    if (!knobs.enable)
      return;
    Builder builder(context);
    auto number = [&](const char *name, int64_t value) {
      return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
    };
    if (knobs.level >= 3)
      for (const Parameter &p : parameters)
        main.setArgAttr(cast<BlockArgument>(p.value).getArgNumber(), regatherAttr,
                        builder.getUnitAttr());
    int level = knobs.accumulationShard ? std::max(knobs.level, 2) : knobs.level;
    main->setAttr(optimizerParallelAttr,
                  builder.getDictionaryAttr({number("level", level),
                                             number("threshold", knobs.thresholdBytes),
                                             number("shard_size", knobs.shardSize)}));
  }

  bool decays(const std::string &name) const {
    return llvm::none_of(spec.optimizer.noDecay, [&](const std::string &glob) {
      return matchesGlob(glob, name);
    });
  }

  /// The terminator then gives the loss, the gradients, and what runs along.
  Expected<void> differentiateLoss(Value loss) {
    Operation *end = main.front().getTerminator();
    OpBuilder builder(end);
    Formula f(builder, NameLoc::get(builder.getStringAttr("loss/backward")));
    Values wanted;
    for (const Parameter &p : parameters)
      wanted.push_back(p.value);
    auto gradients = differentiate(main.front(), Seed{loss, scaleOf(f, loss)}, wanted);
    if (!gradients)
      return tl::unexpected(gradients.error());
    for (auto [p, gradient] : llvm::zip_equal(parameters, *gradients))
      p.gradient = gradient;
    // A parameter that the loss does not see stays as it is.
    for (const Parameter &p : parameters)
      if (!p.gradient)
        unused.push_back(p.name);
    llvm::erase_if(parameters, [](const Parameter &p) { return !p.gradient; });
    if (parameters.empty())
      return makeError("the loss depends on no parameter");
    this->loss = f.type(loss).isF64() ? loss : f.cast(loss, f.f32());
    merge();
    return repeatForward(main, spec.recompute);
  }

  /// What the loss is multiplied by, so that small gradients are no zeros in a narrow
  /// type: a number, or 2 to the power of a state, which begins as 0.
  Value scaleOf(Formula &f, Value loss) {
    if (!spec.lossScale)
      return f.like(loss, 1);
    if (!spec.lossScale->dynamic)
      return f.like(loss, spec.lossScale->initial);
    power = addState(scaleState, RankedTensorType::get({}, f.f32()));
    Value scale = f.map(std::to_string(spec.lossScale->initial) + " * pow(2, x)", power);
    return f.cast(scale, f.type(loss));
  }

  /// What is returned survives merging.
  void merge() {
    Operation *end = main.front().getTerminator();
    Values live{loss};
    for (const Parameter &p : parameters)
      live.push_back(p.gradient);
    for (const Result &r : running)
      live.push_back(r.value);
    end->setOperands(live);
    mergeAcrossPhases(main.front());
    auto next = end->operand_begin();
    loss = *next++;
    for (Parameter &p : parameters)
      p.gradient = *next++;
    for (Result &r : running)
      r.value = *next++;
  }

  void accumulate();
  Expected<void> update();
  Value unscale(Formula &f);
  void keepUnlessFinite(Formula &f, Value isFinite, std::vector<Result> &results);
  Value inUpdate(Value value) {
    Operation *op = value.getDefiningOp();
    if (op && !isa<ConstantOp>(op))
      op->setAttr(phaseAttr, PhaseAttr::get(context, Phase::Update));
    return value;
  }
  void finish(const std::vector<Result> &results);
  Value addState(const std::string &name, RankedTensorType type,
                 StringRef parameter = {});

  func::FuncOp main;
  const Spec &spec;
  MLIRContext *context;
  Value step, loss;
  Value power; ///< of a dynamic scale of the loss
  std::vector<Parameter> parameters;
  std::vector<Result> running;

public:
  std::vector<std::string> unused;
};
} // namespace

Value StepBuilder::addState(const std::string &name, RankedTensorType type,
                            StringRef parameter) {
  Builder builder(context);
  StringAttr text = builder.getStringAttr(name);
  NamedAttrList attrs;
  attrs.set("graph.name", text);
  attrs.set(dist::stateAttr, dist::StateAttr::get(context, text, StringAttr()));
  if (!parameter.empty())
    attrs.set(parameterAttr, builder.getStringAttr(parameter));
  unsigned place = main.getNumArguments();
  if (failed(main.insertArgument(place, type, attrs.getDictionary(context),
                                 NameLoc::get(text))))
    llvm_unreachable("an argument can be added to a function");
  return main.getArgument(place);
}

Expected<void> StepBuilder::update() {
  Operation *end = main.front().getTerminator();
  OpBuilder builder(end);
  builder.setInsertionPoint(end);
  Formula f(builder, NameLoc::get(builder.getStringAttr("step")));
  if (!step)
    step = addState(stepState, RankedTensorType::get({}, builder.getI64Type()));
  Value count = inUpdate(f.add(step, 1));
  Value isFinite = unscale(f);
  auto updated =
      buildUpdate(main.front(), spec, count, parameters,
                  [&](const Parameter &p, const std::string &state) {
                    return addState(p.name + "." + state,
                                    cast<RankedTensorType>(p.value.getType()), p.name);
                  });
  if (!updated)
    return tl::unexpected(updated.error());
  std::vector<Result> results{{"loss", loss}, {"learning_rate", updated->rate}};
  if (updated->norm)
    results.push_back({"gradient_norm", updated->norm});
  for (auto [p, value] : llvm::zip_equal(parameters, updated->parameters))
    results.push_back({p.name, value, true});
  for (auto &[name, value] : updated->states)
    results.push_back({name, value, true});
  llvm::append_range(results, running);
  results.push_back({stepState, count, true});
  if (isFinite)
    keepUnlessFinite(f, isFinite, results);
  finish(results);
  updateEarly(main.front());
  return {};
}

/// Takes the scale of the loss out of the gradients. With a dynamic one: whether all of
/// them are finite; x · 0 is NaN where x is not.
Value StepBuilder::unscale(Formula &f) {
  if (!spec.lossScale)
    return nullptr;
  double initial = spec.lossScale->initial;
  Value inverse =
      power ? inUpdate(f.map("pow(2, -x) / " + std::to_string(initial), power)) : Value();
  Value sum = nullptr;
  for (Parameter &p : parameters) {
    p.gradient = inUpdate(
        inverse ? f.mul(p.gradient, inUpdate(f.cast(inverse, f.type(p.gradient))))
                : f.mul(p.gradient, 1 / initial));
    if (!power)
      continue;
    Value zeros = inUpdate(f.map("x * 0", p.gradient));
    Value part = inUpdate(f.sum(zeros, f.dimsFrom(0, zeros), /*keep=*/false));
    sum = sum ? inUpdate(f.add(sum, part)) : part;
  }
  return power ? inUpdate(f.equal(sum, 0)) : nullptr;
}

/// A step with a gradient that is not finite changes nothing but the scale, which it
/// halves; after `growEvery` others the scale doubles.
void StepBuilder::keepUnlessFinite(Formula &f, Value isFinite,
                                   std::vector<Result> &results) {
  auto argumentOf = [&](const std::string &name) -> Value {
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      if (auto state = dist::argumentState(main, i); state && state.getName() == name)
        return main.getArgument(i);
    return nullptr;
  };
  for (Result &result : results)
    if (result.isState)
      result.value = inUpdate(f.select(isFinite, result.value, argumentOf(result.name)));
  Value age = addState(scaleAgeState, RankedTensorType::get({}, f.f32()));
  std::string every = std::to_string(spec.lossScale->growEvery);
  Value flag = inUpdate(f.cast(isFinite, f.f32()));
  std::string grows = "(x + 1 >= " + every + ")";
  Value nextAge =
      inUpdate(f.map("select(y > 0 && !" + grows + ", x + 1, 0)", {age, flag}));
  Value next =
      inUpdate(f.map("select(z > 0, select(y + 1 >= " + every + ", x + 1, x), x - 1)",
                     {power, age, flag}));
  results.push_back({scaleState, next, true});
  results.push_back({scaleAgeState, nextAge, true});
}

/// Replaces what the function gives, names and states with it.
void StepBuilder::finish(const std::vector<Result> &results) {
  Operation *end = main.front().getTerminator();
  SmallVector<Value> values;
  SmallVector<Attribute> attrs;
  for (const Result &result : results) {
    values.push_back(result.value);
    auto name = StringAttr::get(context, result.name);
    NamedAttribute attr(StringAttr::get(context, "graph.name"), name);
    if (result.isState)
      attr = NamedAttribute(StringAttr::get(context, dist::stateAttr),
                            dist::StateAttr::get(context, name, StringAttr()));
    attrs.push_back(DictionaryAttr::get(context, attr));
  }
  end->setOperands(values);
  main.setType(
      FunctionType::get(context, main.getArgumentTypes(), ValueRange(values).getTypes()));
  main.setResAttrsAttr(ArrayAttr::get(context, attrs));
}

//===----------------------------------------------------------------------===//
// Accumulation
//===----------------------------------------------------------------------===//

/// Moves what `main` computes so far into a function of one micro-batch, which a loop
/// runs: it carries the sums of loss and gradients, running moments and the number of the
/// micro-batch; inputs are its rows; parameters are shared.
void StepBuilder::accumulate() {
  int64_t trips = spec.accumulation;
  Block &block = main.front();
  OpBuilder builder(context);
  Values carriedIn; // values of main's block that a trip takes as carried, or null: a sum
  Values carriedOut; // what it makes of them
  carriedIn.push_back(Value()), carriedOut.push_back(loss);
  for (const Parameter &p : parameters)
    carriedIn.push_back(Value()), carriedOut.push_back(p.gradient);
  auto argumentOf = [&](const std::string &name) -> Value {
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      if (auto state = dist::argumentState(main, i); state && state.getName() == name)
        return main.getArgument(i);
    return nullptr;
  };
  for (const Result &r : running)
    carriedIn.push_back(argumentOf(r.name)), carriedOut.push_back(r.value);
  if (step)
    carriedIn.push_back(step), carriedOut.push_back(Value());

  Values scanned, shared;
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    Value argument = main.getArgument(i);
    bool isInput = !dist::argumentState(main, i);
    if (isInput && !shapeOf(argument).empty())
      scanned.push_back(argument);
    else if (!llvm::is_contained(carriedIn, argument))
      shared.push_back(argument);
  }

  SmallVector<Type> types;
  for (auto [in, out] : llvm::zip_equal(carriedIn, carriedOut))
    types.push_back(in ? in.getType() : out.getType());
  for (const Values *list : {&scanned, &shared})
    for (Value value : *list)
      types.push_back(value.getType());
  auto module = main->getParentOfType<ModuleOp>();
  builder.setInsertionPoint(main);
  auto name = NameLoc::get(builder.getStringAttr("accumulate"));
  auto micro = func::FuncOp::create(builder, name, "micro_batch",
                                    builder.getFunctionType(types, {}));
  SymbolTable(module).insert(micro);
  micro.setPrivate();
  Block *body = micro.addEntryBlock();
  IRMapping mapping;
  unsigned next = 0;
  for (Value value : carriedIn) {
    if (value)
      mapping.map(value, body->getArgument(next));
    ++next;
  }
  for (const Values *list : {&scanned, &shared})
    for (Value value : *list)
      mapping.map(value, body->getArgument(next++));
  for (auto [i, p] : llvm::enumerate(parameters))
    micro.setArgAttr(static_cast<unsigned>(i) + 1, parameterAttr,
                     builder.getStringAttr(p.name));
  builder.setInsertionPointToEnd(body);
  for (Operation &op : block.without_terminator())
    builder.clone(op, mapping);
  Formula g(builder, name);
  Values results;
  for (auto [i, out] : llvm::enumerate(carriedOut)) {
    Value before = body->getArgument(static_cast<unsigned>(i));
    if (!out)
      results.push_back(g.add(before, 1));
    else if (carriedIn[i])
      results.push_back(mapping.lookupOrDefault(out));
    else
      results.push_back(g.add(before, mapping.lookupOrDefault(out)));
    if (i > 0 && out && !carriedIn[i])
      results.back().getDefiningOp()->setAttr(phaseAttr,
                                              PhaseAttr::get(context, Phase::Weight));
  }
  func::ReturnOp::create(builder, name, results);
  micro.setType(
      builder.getFunctionType(body->getArgumentTypes(), ValueRange(results).getTypes()));

  // In main only the loop remains. Inputs have the rows of all micro-batches.
  Operation *end = block.getTerminator();
  end->setOperands({});
  while (end->getPrevNode())
    end->getPrevNode()->erase();
  builder.setInsertionPoint(end);
  Formula f(builder, name);
  Values carried, rows;
  for (auto [in, type] : llvm::zip(carriedIn, types)) {
    if (!in) {
      auto tensor = cast<RankedTensorType>(type);
      carried.push_back(f.zeros(tensor.getElementType(), tensor.getShape().vec()));
    } else if (in == step) {
      carried.push_back(f.mul(step, static_cast<double>(trips)));
    } else {
      carried.push_back(in);
    }
  }
  for (Value value : scanned) {
    auto argument = cast<BlockArgument>(value);
    Shape one = shapeOf(argument), all = one, split = one;
    all[0] *= trips;
    split.insert(split.begin(), trips);
    argument.setType(
        RankedTensorType::get(all, getElementTypeOrSelf(argument.getType())));
    rows.push_back(f.reshape(argument, split));
  }
  main.setType(builder.getFunctionType(block.getArgumentTypes(), main.getResultTypes()));
  SmallVector<Type> made(types.begin(),
                         types.begin() + static_cast<int64_t>(carried.size()));
  auto loop = RepeatOp::create(builder, name, made,
                               FlatSymbolRefAttr::get(micro.getSymNameAttr()),
                               builder.getI64IntegerAttr(trips), carried, rows, shared);
  double share = 1.0 / static_cast<double>(trips);
  unsigned result = 0;
  loss = f.mul(loop->getResult(result++), share);
  for (Parameter &p : parameters) {
    p.gradient = loop->getResult(result++);
    if (!spec.sumGradients)
      p.gradient = f.mul(p.gradient, share);
  }
  for (Result &r : running)
    r.value = loop->getResult(result++);
}

namespace {
struct TrainPass : partita::impl::TrainPassBase<TrainPass> {
  using TrainPassBase::TrainPassBase;

  void runOnOperation() override {
    auto main = getOperation().lookupSymbol<func::FuncOp>("main");
    auto read = readSpec(spec);
    auto fail = [&](const std::string &message) {
      (main ? main.getOperation() : getOperation().getOperation())->emitError(message);
      signalPassFailure();
    };
    if (!main)
      return fail("the module has no function 'main'");
    if (!read)
      return fail(read.error().message);
    StepBuilder step(main, *read);
    if (auto ok = step.run(); !ok)
      return fail(ok.error().message);
    for (const std::string &name : step.unused)
      main->emitRemark("parameter '")
          << name << "' does not train: the loss does not depend on it";
  }
};
} // namespace
