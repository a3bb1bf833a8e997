//===- SplitStep.cpp - A training step as a step per stage ----------------===//
//
// Each stage takes what its results need, by demand: ops of the stage, and copies of ops
// that are everywhere (constants, numbers of the step, what follows from inputs alone).
// An op of another stage is a crossing. docs/training-pipelines.md has the rules.
//
//===----------------------------------------------------------------------===//
#include "passes/Stage/Stages.h"
#include "passes/Stage/StepPlacement.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "dialects/Task/Task.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <map>

using namespace mlir;
using namespace partita;

SmallVector<StringAttr> partita::trainedParameters(func::FuncOp step) {
  llvm::SetVector<StringAttr> names;
  for (unsigned i = 0; i < step.getNumArguments(); ++i)
    if (auto name = step.getArgAttrOfType<StringAttr>(i, parameterAttr))
      names.insert(name);
  return names.takeVector();
}

namespace {
/// The part of the step that one stage has.
struct Part {
  llvm::DenseSet<Operation *> ops;      ///< of both functions
  std::set<unsigned> operands;          ///< of the loop
  llvm::DenseSet<Value> seen;           ///< asked for, here or of another stage
  llvm::DenseMap<Value, int64_t> level; ///< of values of main
};

class Splitter {
public:
  Splitter(LoopedStep step, int32_t numStages)
      : step(step), places(step, numStages), parts(static_cast<size_t>(places.count())) {}

  Expected<SplitProgram> run() {
    for (int32_t s = 0; s < places.count(); ++s)
      if (llvm::none_of(step.micro.front(),
                        [&](Operation &op) { return places.of(&op) == s; }))
        return makeError("stage " + std::to_string(s) +
                         " has no op on which the loss depends");
    demandResults();
    if (auto ok = checkOrder(); !ok)
      return tl::unexpected(ok.error());
    nameCrossings();
    SplitProgram program;
    for (int32_t s = 0; s < places.count(); ++s)
      program.stages.push_back(build(s));
    for (auto *crossings : {&rows, &once})
      for (auto &[value, it] : *crossings)
        program.crossings.push_back(it);
    return program;
  }

private:
  using Crossings = llvm::MapVector<Value, StageCrossing>;

  bool isOfMicroBatch(Value value) const {
    return value.getParentBlock() == &step.micro.front();
  }

  Part &part(int32_t stage) { return parts[static_cast<size_t>(stage)]; }

  int32_t stageOfResult(unsigned i) const {
    Value value = step.main.front().getTerminator()->getOperand(i);
    if (auto state = dist::resultState(step.main, i))
      for (unsigned a = 0; a < step.main.getNumArguments(); ++a)
        if (dist::argumentState(step.main, a) == state ||
            (dist::argumentState(step.main, a) &&
             dist::argumentState(step.main, a).getName() == state.getName()))
          return places.ofArgument(a);
    int32_t stage = everywhere;
    if (Operation *op = value.getDefiningOp())
      stage = op == step.loop ? places.ofCarried(cast<OpResult>(value).getResultNumber())
                              : places.of(op);
    return stage == everywhere ? places.count() - 1 : stage;
  }

  void demandResults() {
    for (OpOperand &result : step.main.front().getTerminator()->getOpOperands())
      demand(result.get(), stageOfResult(result.getOperandNumber()));
  }

  void cross(Crossings &crossings, Value value, int32_t from, int32_t to) {
    StageCrossing &it = crossings[value];
    it.from = from;
    it.once = &crossings == &once;
    if (!llvm::is_contained(it.to, to))
      it.to.push_back(to);
    demand(value, from);
  }

  void demand(Value value, int32_t stage) {
    if (!part(stage).seen.insert(value).second)
      return;
    if (auto argument = dyn_cast<BlockArgument>(value))
      return demandArgument(argument, stage);
    Operation *op = value.getDefiningOp();
    if (op == step.loop) {
      unsigned carried = cast<OpResult>(value).getResultNumber();
      int32_t home = places.ofCarried(carried);
      return home == everywhere || home == stage ? demandOperand(carried, stage)
                                                 : cross(once, value, home, stage);
    }
    int32_t home = places.of(op);
    if (home != everywhere && home != stage && !places.isMadeAgain(op))
      return cross(isOfMicroBatch(value) ? rows : once, value, home, stage);
    part(stage).ops.insert(op);
    for (Value operand : op->getOperands())
      demand(operand, stage);
  }

  void demandArgument(BlockArgument argument, int32_t stage) {
    unsigned i = argument.getArgNumber();
    if (isOfMicroBatch(argument))
      return demandOperand(i, stage);
    if (int32_t home = places.ofArgument(i); home != everywhere && home != stage)
      cross(once, argument, home, stage);
  }

  /// An operand of the loop; of a carried one what a trip makes of it, too.
  void demandOperand(unsigned i, int32_t stage) {
    if (!part(stage).operands.insert(i).second)
      return;
    demand(step.loop->getOperand(i), stage);
    if (step.isCarried(i))
      demand(step.next(i), stage);
  }

  /// Forward values go to later stages, cotangents to earlier ones. What another stage
  /// carries changes while a pipeline is under way.
  Expected<void> checkOrder() {
    for (auto &[value, it] : rows)
      for (int32_t to : it.to) {
        const bool isForward = dist::phaseOf(value.getDefiningOp()) == Phase::Forward;
        if ((it.from < to) != isForward)
          return makeError("'" + dist::nodeName(value.getDefiningOp()) + "' of stage " +
                           std::to_string(it.from) + " is read in stage " +
                           std::to_string(to) + ", which runs " +
                           (isForward ? "before it" : "behind it in the backward pass"));
      }
    for (int32_t s = 0; s < places.count(); ++s)
      for (unsigned i : part(s).operands)
        if (int32_t home = step.isCarried(i) ? places.ofCarried(i) : everywhere;
            home != everywhere && home != s)
          return makeError("what stage " + std::to_string(home) +
                           " sums over micro-batches is read in the loop of stage " +
                           std::to_string(s));
    return {};
  }

  void nameCrossings() {
    std::set<std::string> names;
    for (func::FuncOp function : {step.main, step.micro}) {
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        if (auto name = function.getArgAttrOfType<StringAttr>(i, "graph.name"))
          names.insert(name.str());
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        if (auto name = function.getResultAttrOfType<StringAttr>(i, "graph.name"))
          names.insert(name.str());
    }
    for (auto *crossings : {&rows, &once})
      for (auto &[value, it] : *crossings) {
        // A row has another shape than all rows, of which hints are not.
        std::string base = baseName(value) + (crossings == &rows ? "/rows" : "");
        it.name = base;
        for (int k = 2; !names.insert(it.name).second; ++k)
          it.name = base + "_" + std::to_string(k);
        llvm::sort(it.to);
      }
  }

  std::string baseName(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return cast<StringAttr>(step.main.getArgAttr(argument.getArgNumber(), "graph.name"))
          .str();
    Operation *op = value.getDefiningOp();
    if (op == step.loop) {
      Value sum = step.next(cast<OpResult>(value).getResultNumber());
      return dist::nodeName(sum.getDefiningOp()) + "/sum";
    }
    SmallVector<StringRef> own = valueNames(cast<OpResult>(value));
    return own.empty() ? dist::nodeName(op) : own[0].str();
  }

  //===--------------------------------------------------------------------===//
  // Levels: what waits for what between stages, outside of the loop
  //===--------------------------------------------------------------------===//

  /// The level of the segment of a stage that has a value of main: 0 for what the stage
  /// begins with, levelBehindLoop for what the loop gives, one more for each crossing.
  int64_t levelOf(Value value, int32_t stage) {
    if (auto known = part(stage).level.find(value); known != part(stage).level.end())
      return known->second;
    int64_t level = 0;
    Operation *op = value.getDefiningOp();
    if (auto crossing = once.find(value); crossing != once.end() &&
                                          crossing->second.from != stage &&
                                          llvm::is_contained(crossing->second.to, stage))
      level = levelOf(value, crossing->second.from) + 1;
    else if (op == step.loop)
      level = levelBehindLoop;
    else if (op)
      for (Value operand : op->getOperands())
        level = std::max(level, levelOf(operand, stage));
    return part(stage).level[value] = level;
  }

  //===--------------------------------------------------------------------===//
  // The module of a stage
  //===--------------------------------------------------------------------===//

  static Type withRows(int64_t rows, Type type) {
    auto tensor = cast<RankedTensorType>(type);
    SmallVector<int64_t> shape(tensor.getShape());
    shape.insert(shape.begin(), rows);
    return RankedTensorType::get(shape, tensor.getElementType());
  }

  int64_t trips() { return static_cast<int64_t>(step.loop.getTrips()); }

  /// Rows of a micro-batch: what its inputs begin with.
  int64_t rowsOfMicroBatch() {
    if (step.loop.getScanned().empty())
      return -1;
    return cast<RankedTensorType>(step.loop.getScanned()[0].getType()).getShape()[1];
  }

  static void copyOp(OpBuilder &builder, Operation &op, IRMapping &mapping) {
    builder.clone(op, mapping)->removeAttr(stageAttr);
  }

  /// The values that a stage takes with each micro-batch, or gives.
  SmallVector<Value> rowsOf(int32_t stage, bool taken) const {
    SmallVector<Value> values = {};
    for (const auto &[value, it] : rows)
      if (taken ? llvm::is_contained(it.to, stage) : it.from == stage)
        values.push_back(value);
    return values;
  }

  struct MainBuilder {
    OpBuilder builder;
    func::FuncOp main = {};
    Block *block = nullptr;
    IRMapping mapping = {};
    SmallVector<DictionaryAttr> arguments = {}, results = {};
    SmallVector<Value> values = {};
  };

  DictionaryAttr named(OpBuilder &builder, const std::string &name,
                       ArrayRef<NamedAttribute> more = {}) {
    NamedAttrList attrs(more);
    attrs.set("graph.name", builder.getStringAttr(name));
    return attrs.getDictionary(builder.getContext());
  }

  OwningOpRef<ModuleOp> build(int32_t stage) {
    Location loc = step.main.getLoc();
    auto module = ModuleOp::create(loc);
    for (NamedAttribute attr : step.main->getParentOp()->getDiscardableAttrs())
      module->setDiscardableAttr(attr.getName(), attr.getValue());
    const SmallVector<StringAttr> trained = trainedParameters(step.main);
    module->setAttr(
        task_ir::trainedAttr,
        ArrayAttr::get(step.main.getContext(),
                       SmallVector<Attribute>(trained.begin(), trained.end())));
    MainBuilder it{OpBuilder(step.main.getContext())};
    it.builder.setInsertionPointToEnd(module.getBody());
    func::FuncOp micro = buildMicroBatch(it.builder, stage);
    it.main =
        func::FuncOp::create(it.builder, loc, "main", it.builder.getFunctionType({}, {}));
    for (NamedAttribute attr : step.main->getDiscardableAttrs())
      it.main->setDiscardableAttr(attr.getName(), attr.getValue());
    it.block = it.main.addEntryBlock();
    it.builder.setInsertionPointToEnd(it.block);
    addArguments(it, stage);
    for (Operation &op : step.main.front().without_terminator()) {
      if (&op == step.loop)
        buildLoop(it, micro, stage);
      else if (part(stage).ops.contains(&op))
        copyOp(it.builder, op, it.mapping);
    }
    addResults(it, stage);
    func::ReturnOp::create(it.builder, loc, it.values);
    it.main.setFunctionType(it.builder.getFunctionType(it.block->getArgumentTypes(),
                                                       ValueRange(it.values).getTypes()));
    it.main.setAllArgAttrs(it.arguments);
    it.main.setAllResultAttrs(it.results);
    return module;
  }

  bool hasArgument(unsigned i, int32_t stage) {
    return part(stage).seen.contains(step.main.getArgument(i));
  }

  /// Inputs, what crosses, states.
  void addArguments(MainBuilder &it, int32_t stage) {
    auto add = [&](Value value, Type type, DictionaryAttr attrs) {
      it.mapping.map(value, it.block->addArgument(type, value.getLoc()));
      it.arguments.push_back(attrs ? attrs : it.builder.getDictionaryAttr({}));
    };
    auto addOwn = [&](bool states) {
      for (BlockArgument argument : step.main.getArguments()) {
        unsigned i = argument.getArgNumber();
        int32_t home = places.ofArgument(i);
        if (hasArgument(i, stage) && (home == everywhere || home == stage) &&
            bool(dist::argumentState(step.main, i)) == states)
          add(argument, argument.getType(), step.main.getArgAttrDict(i));
      }
    };
    addOwn(false);
    for (auto &[value, crossing] : once)
      if (llvm::is_contained(crossing.to, stage))
        add(value, value.getType(),
            named(it.builder, crossing.name,
                  it.builder.getNamedAttr(
                      levelAttr, it.builder.getI64IntegerAttr(levelOf(value, stage)))));
    for (Value value : rowsOf(stage, /*taken=*/true)) {
      auto type = cast<RankedTensorType>(value.getType());
      const bool hasBatch =
          type.getRank() > 0 && type.getDimSize(0) == rowsOfMicroBatch();
      auto attrs = named(it.builder, rows[value].name,
                         hasBatch ? ArrayRef(it.builder.getNamedAttr(
                                        batchAttr, it.builder.getUnitAttr()))
                                  : ArrayRef<NamedAttribute>());
      auto withTrips = cast<RankedTensorType>(withRows(trips(), type));
      if (!hasBatch) {
        add(value, withTrips, attrs);
        continue;
      }
      SmallVector<int64_t> shape(type.getShape());
      shape[0] *= trips();
      add(value, RankedTensorType::get(shape, type.getElementType()), attrs);
      auto name = NameLoc::get(it.builder.getStringAttr(rows[value].name));
      it.mapping.map(value, graph::ReshapeOp::create(it.builder, name, withTrips,
                                                     it.mapping.lookup(value))
                                .getResult());
    }
    addOwn(true);
  }

  void addResults(MainBuilder &it, int32_t stage) {
    auto add = [&](Value value, DictionaryAttr attrs) {
      it.values.push_back(value);
      it.results.push_back(attrs ? attrs : it.builder.getDictionaryAttr({}));
    };
    auto addOwn = [&](bool states) {
      for (OpOperand &result : step.main.front().getTerminator()->getOpOperands()) {
        unsigned i = result.getOperandNumber();
        if (stageOfResult(i) == stage && bool(dist::resultState(step.main, i)) == states)
          add(it.mapping.lookup(result.get()), step.main.getResultAttrDict(i));
      }
    };
    auto crossingNamed = [&](const std::string &name) {
      return named(it.builder, name,
                   it.builder.getNamedAttr(crossingAttr, it.builder.getUnitAttr()));
    };
    addOwn(false);
    for (auto &[value, crossing] : once)
      if (crossing.from == stage)
        add(it.mapping.lookup(value), crossingNamed(crossing.name));
    for (Value value : rowsOf(stage, /*taken=*/false))
      add(given.lookup(value), crossingNamed(rows[value].name));
    addOwn(true);
  }

  SmallVector<unsigned> operandsOf(int32_t stage,
                                   bool (LoopedStep::*kind)(unsigned) const) {
    SmallVector<unsigned> list;
    for (unsigned i : part(stage).operands)
      if ((step.*kind)(i))
        list.push_back(i);
    return list;
  }

  SmallVector<unsigned> sharedOf(int32_t stage) {
    SmallVector<unsigned> list;
    for (unsigned i : part(stage).operands)
      if (!step.isCarried(i) && !step.isScanned(i))
        list.push_back(i);
    return list;
  }

  func::FuncOp buildMicroBatch(OpBuilder &builder, int32_t stage) {
    OpBuilder::InsertionGuard guard(builder);
    Location loc = step.micro.getLoc();
    auto micro = func::FuncOp::create(builder, loc, step.micro.getSymName(),
                                      builder.getFunctionType({}, {}));
    micro.setPrivate();
    Block *block = micro.addEntryBlock();
    IRMapping mapping = {};
    SmallVector<DictionaryAttr> attrs;
    auto add = [&](Value value, DictionaryAttr own) {
      mapping.map(value, block->addArgument(value.getType(), value.getLoc()));
      attrs.push_back(own ? own : builder.getDictionaryAttr({}));
    };
    auto addOperand = [&](unsigned i) {
      add(step.micro.getArgument(i), step.micro.getArgAttrDict(i));
    };
    llvm::for_each(operandsOf(stage, &LoopedStep::isCarried), addOperand);
    llvm::for_each(operandsOf(stage, &LoopedStep::isScanned), addOperand);
    for (Value value : rowsOf(stage, /*taken=*/true))
      add(value, {});
    llvm::for_each(sharedOf(stage), addOperand);
    builder.setInsertionPointToEnd(block);
    for (Operation &op : step.micro.front().without_terminator())
      if (part(stage).ops.contains(&op))
        copyOp(builder, op, mapping);
    SmallVector<Value> results;
    for (unsigned i : operandsOf(stage, &LoopedStep::isCarried))
      results.push_back(mapping.lookup(step.next(i)));
    for (Value value : rowsOf(stage, /*taken=*/false))
      results.push_back(mapping.lookup(value));
    func::ReturnOp::create(builder, loc, results);
    micro.setFunctionType(builder.getFunctionType(block->getArgumentTypes(),
                                                  ValueRange(results).getTypes()));
    micro.setAllArgAttrs(attrs);
    return micro;
  }

  void buildLoop(MainBuilder &it, func::FuncOp micro, int32_t stage) {
    SmallVector<Value> carried, scanned, shared;
    SmallVector<unsigned> numbers = operandsOf(stage, &LoopedStep::isCarried);
    auto operand = [&](unsigned i) {
      return it.mapping.lookup(step.loop->getOperand(i));
    };
    for (unsigned i : numbers)
      carried.push_back(operand(i));
    for (unsigned i : operandsOf(stage, &LoopedStep::isScanned))
      scanned.push_back(operand(i));
    for (Value value : rowsOf(stage, /*taken=*/true))
      scanned.push_back(it.mapping.lookup(value));
    for (unsigned i : sharedOf(stage))
      shared.push_back(operand(i));
    SmallVector<Type> types(micro.getResultTypes());
    for (size_t i = numbers.size(); i < types.size(); ++i)
      types[i] = withRows(trips(), types[i]);
    auto loop = graph::RepeatOp::create(it.builder, step.loop.getLoc(), types,
                                        FlatSymbolRefAttr::get(micro.getSymNameAttr()),
                                        it.builder.getI64IntegerAttr(trips()), carried,
                                        scanned, shared);
    for (auto [place, number] : llvm::enumerate(numbers))
      it.mapping.map(step.loop->getResult(number),
                     loop->getResult(static_cast<unsigned>(place)));
    given.clear();
    for (auto [place, value] : llvm::enumerate(rowsOf(stage, /*taken=*/false)))
      given[value] = loop->getResult(static_cast<unsigned>(numbers.size() + place));
  }

  LoopedStep step;
  StepPlacement places;
  std::vector<Part> parts;
  Crossings rows, once;
  llvm::DenseMap<Value, Value> given; ///< rows that the stage at hand gives
};
} // namespace

static Expected<LoopedStep> loopedStep(ModuleOp module) {
  LoopedStep step;
  step.main = module.lookupSymbol<func::FuncOp>("main");
  for (auto loop : step.main.getOps<graph::RepeatOp>())
    step.loop = loop;
  if (!step.loop)
    return makeError("the step has no loop over micro-batches");
  step.micro = module.lookupSymbol<func::FuncOp>(step.loop.getBody());
  return step;
}

Expected<llvm::DenseMap<Operation *, int32_t>> partita::stagesOfStep(ModuleOp module) {
  return loopedStep(module).map(
      [](const LoopedStep &step) { return StepPlacement(step, /*numStages=*/0).all(); });
}

Expected<SplitProgram> partita::splitStep(ModuleOp module, int32_t numStages) {
  auto step = loopedStep(module);
  if (!step)
    return tl::unexpected(step.error());
  sumApart(*step);
  return Splitter(*step, numStages).run();
}
