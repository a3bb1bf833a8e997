//===- Step.cpp - A model becomes a training step -------------------------===//
#include "passes/Train/Step.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "passes/Train/Differentiate.h"
#include "passes/Train/Order.h"

#include <set>

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

Expected<void> StepBuilder::run() {
  auto built =
      buildLoss(main, spec.loss, spec.choosesAccumulation && spec.accumulation > 1);
  if (!built)
    return tl::unexpected(built.error());
  if (auto ok = findStates(); !ok)
    return ok;
  if (parameters.empty())
    return makeError("no parameter trains: the model has no float initializer that "
                     "\"parameters\" names");
  if (failed(dist::spreadManual(main)))
    return makeError("what the graph says per rank does not hold for its training step");
  if (auto ok = differentiateLoss(*built); !ok)
    return ok;
  main->getParentOp()->walk([](dist::ManualOp op) {
    if (!dist::isSpread(op))
      return;
    op.getResult().replaceAllUsesWith(op.getInput());
    op.erase();
  });
  markArguments();
  // A pipeline runs the loop over micro-batches as a schedule, of one as of several.
  const bool isStaged =
      llvm::any_of(main.front(), [](Operation &op) { return op.hasAttr(stageAttr); });
  if (spec.accumulation > 1 || isStaged)
    accumulate();
  return update();
}

/// States that are only read are parameters; those that have a result already, running
/// moments, are what the batch makes of them.
Expected<void> StepBuilder::findStates() {
  Operation *end = main.front().getTerminator();
  std::set<std::string> seen;
  for (unsigned i = 0; i < main.getNumResults(); ++i)
    if (auto state = dist::resultState(main, i))
      running.push_back({state.getName().str(), end->getOperand(i), true});
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    auto state = dist::argumentState(main, i);
    if (!state)
      continue;
    std::string name = state.getName().str();
    if (!seen.insert(name).second)
      return makeError("two states are called '" + name +
                       "': a parameter must have another name");
    Value argument = main.getArgument(i);
    if (name == stepState)
      step = argument; // import has made it
    else if (llvm::none_of(running, [&](const Result &r) { return r.name == name; }) &&
             isReal(argument))
      parameters.push_back({name, argument, Value(), decays(name)});
  }
  return {};
}

bool StepBuilder::decays(const std::string &name) const {
  return llvm::none_of(spec.optimizer.noDecay,
                       [&](const std::string &glob) { return matchesGlob(glob, name); });
}

/// The terminator then gives the loss, the gradients, and what runs along.
Expected<void> StepBuilder::differentiateLoss(const BuiltLoss &built) {
  Value output = built.value;
  Operation *end = main.front().getTerminator();
  OpBuilder builder(end);
  Formula f(builder, NameLoc::get(builder.getStringAttr("loss/backward")));
  Values wanted;
  for (const Parameter &p : parameters)
    wanted.push_back(p.value);
  auto gradients = differentiate(main.front(), Seed{output, scaleOf(f, output)}, wanted);
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
  auto wide = [&](Value value) {
    return f.type(value).isF64() ? value : f.cast(value, f.f32());
  };
  loss = wide(output);
  counted = built.counted ? wide(built.counted) : nullptr;
  merge();
  return {};
}

/// What is returned survives merging.
void StepBuilder::merge() {
  Operation *end = main.front().getTerminator();
  Values live{loss};
  for (const Parameter &p : parameters)
    live.push_back(p.gradient);
  for (const Result &r : running)
    live.push_back(r.value);
  if (counted)
    live.push_back(counted);
  end->setOperands(live);
  dropCenteredSums(main.front());
  mergeAcrossPhases(main.front());
  findTapsForward(main.front());
  auto next = end->operand_begin();
  loss = *next++;
  for (Parameter &p : parameters)
    p.gradient = *next++;
  for (Result &r : running)
    r.value = *next++;
  if (counted)
    counted = *next++;
}

/// What those who decide layouts ask of the step.
void StepBuilder::markArguments() {
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
  int level = knobs.accumulationShard ? std::max(knobs.level, 2) : knobs.level;
  main->setAttr(optimizerParallelAttr,
                builder.getDictionaryAttr({number("level", level),
                                           number("threshold", knobs.thresholdBytes),
                                           number("shard_size", knobs.shardSize)}));
}

Value StepBuilder::inUpdate(Value value) {
  Operation *op = value.getDefiningOp();
  if (op && !isa<ConstantOp>(op))
    dist::setPhase(op, Phase::Update);
  return value;
}

Value StepBuilder::inUpdateOf(const Parameter &parameter, Value value) {
  if (Operation *op = inUpdate(value).getDefiningOp())
    markParameter(op, parameter);
  return value;
}

Value StepBuilder::stateNamed(const std::string &name) {
  for (unsigned i = 0; i < main.getNumArguments(); ++i)
    if (auto state = dist::argumentState(main, i); state && state.getName() == name)
      return main.getArgument(i);
  return nullptr;
}

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
  const bool skips = power || spec.onNan == OnNan::Skip;
  if (isFinite)
    results.push_back({skips ? skippedOutput : stopOutput,
                       inUpdate(f.map("1 - x", inUpdate(f.cast(isFinite, f.f32()))))});
  for (auto [p, value] : llvm::zip_equal(parameters, updated->parameters))
    results.push_back({p.name, value, true});
  for (auto &[name, value] : updated->states)
    results.push_back({name, value, true});
  llvm::append_range(results, running);
  results.push_back({stepState, count, true});
  if (skips)
    keepUnlessFinite(f, isFinite, results);
  if (power)
    updateScale(f, isFinite, results);
  finish(results);
  updateEarly(main.front());
  return {};
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
