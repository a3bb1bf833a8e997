//===- CutStep.cpp - A stage's step becomes segments ----------------------===//
#include "passes/Stage/Passes.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "dialects/Task/Task.h"
#include "passes/Stage/Stages.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

#include <map>

namespace partita {
#define GEN_PASS_DEF_CUTSTEPPASS
#include "passes/Stage/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

/// The layout of a value of a planned program; null: window buffers.
static dist::LayoutAttr layoutOf(Value value, dist::MeshAttr mesh) {
  auto attribute = [&](const Layout &layout) {
    return dist::LayoutAttr::get(mesh.getContext(), mesh, layout.canonicalized());
  };
  if (auto argument = dyn_cast<BlockArgument>(value))
    return dist::argumentLayout(argument.getOwner()->getParentOp(),
                                argument.getArgNumber());
  Operation *op = value.getDefiningOp();
  unsigned number = cast<OpResult>(value).getResultNumber();
  auto shape = cast<RankedTensorType>(value.getType()).getShape().vec();
  if (auto reshard = dyn_cast<dist::ReshardOp>(op))
    return attribute(reshard.getLayout().getLayout());
  if (isa<dist::WindowOp>(op))
    return {};
  if (isa<CallingOpInterface>(op)) {
    auto layout = dist::FlowEnd{dist::FlowEnd::CallResult, op, number}.layout();
    return layout ? attribute(layout.getLayout()) : attribute(Layout::replicated(shape));
  }
  if (op->getNumOperands() == 0)
    return attribute(Layout::replicated(shape));
  RuleRef facts = ruleOf(op);
  auto strategy = dist::strategyOf(op, facts->rule);
  return strategy ? attribute(resultLayout(*facts->rule, *strategy, number))
                  : dist::LayoutAttr();
}

/// The layout of a row of what has one per micro-batch in its first dim.
static dist::LayoutAttr rowLayout(dist::LayoutAttr layout) {
  Layout row = layout.getLayout();
  row.dims.erase(row.dims.begin());
  return dist::LayoutAttr::get(layout.getContext(), layout.getMesh(),
                               row.canonicalized());
}

namespace {
/// A place in the order of segments: levels before the loop, the parts of a trip, levels
/// behind it.
struct Place {
  enum Kind { Begin, Forward, Backward, Weight, End } kind = Begin;
  int64_t level = 0;
  auto operator<=>(const Place &) const = default;
  bool isOnce() const { return kind == Begin || kind == End; }
};

/// A tensor that segments share.
struct Shared {
  std::string name;
  NamedAttrList attrs; ///< graph.name, dist.state of what comes from or goes elsewhere
};

/// A value that a segment gives.
struct Given {
  Value value;
  Shared to;
  dist::LayoutAttr layout; ///< null: as the value lies
};

class Cutter {
public:
  Cutter(ModuleOp module, bool partsWeights)
      : module(module), partsWeights(partsWeights), builder(module.getContext()),
        main(module.lookupSymbol<func::FuncOp>("main")) {}

  LogicalResult run() {
    if (failed(findLoop()))
      return failure();
    placeMicroBatch();
    placeMain();
    if (failed(giveResults()) || failed(giveCarried()))
      return failure();
    // The last segment is made first: each asks earlier ones for what it reads.
    std::vector<func::FuncOp> made;
    while (!places.empty()) {
      Place place = *places.rbegin();
      places.erase(place);
      auto function = build(place);
      if (failed(function))
        return failure();
      made.push_back(*function);
    }
    main.erase();
    micro.erase();
    for (auto [i, function] : llvm::enumerate(llvm::reverse(made)))
      function->moveBefore(module.getBody(), module.getBody()->end());
    return success();
  }

private:
  LogicalResult findLoop() {
    if (!main)
      return module.emitError("has no function @main");
    for (auto it : main.getOps<graph::RepeatOp>())
      loop = it;
    if (!loop)
      return main.emitOpError("has no loop over micro-batches");
    micro = module.lookupSymbol<func::FuncOp>(loop.getBody());
    mesh = dist::findMesh(main);
    return success();
  }

  unsigned numCarried() { return loop.getCarried().size(); }

  void placeMicroBatch() {
    auto isOf = [](Operation *op, Phase phase) { return dist::phaseOf(op) == phase; };
    for (Operation &op : micro.front().without_terminator())
      placeOf[&op] = {isOf(&op, Phase::Forward)                  ? Place::Forward
                      : partsWeights && isOf(&op, Phase::Weight) ? Place::Weight
                                                                 : Place::Backward};
    // A gradient of a weight from which something else follows is not put off. Another
    // stage may read it in a weight part that its schedule has earlier than ours.
    for (OpOperand &result : main.front().getTerminator()->getOpOperands())
      if (Operation *op = isCrossing(result.getOperandNumber())
                              ? rowMaker(withoutReshards(result.get()))
                              : nullptr;
          op && op->getNumOperands() != 0)
        placeOf[op] = std::min(placeOf[op], Place{Place::Backward});
    for (Operation &op : llvm::reverse(micro.front().without_terminator()))
      for (Operation *user : op.getUsers())
        if (auto known = placeOf.find(user); known != placeOf.end())
          placeOf[&op] = std::min(placeOf[&op], known->second);
    for (Operation &op : micro.front().without_terminator())
      if (op.getNumOperands() != 0)
        places.insert(placeOf[&op]);
    places.insert({Place::Forward});
    places.insert({Place::Backward});
  }

  static Value withoutReshards(Value value) {
    while (auto reshard = value.getDefiningOp<dist::ReshardOp>())
      value = reshard.getInput();
    return value;
  }

  /// The op in the loop's body that makes the rows `value` of the loop; null: `value` is
  /// none.
  Operation *rowMaker(Value value) {
    if (value.getDefiningOp() != loop ||
        cast<OpResult>(value).getResultNumber() < numCarried())
      return nullptr;
    return micro.front()
        .getTerminator()
        ->getOperand(cast<OpResult>(value).getResultNumber())
        .getDefiningOp();
  }

  int64_t levelOf(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto level = main.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), levelAttr);
      return level ? level.getInt() : 0;
    }
    return value.getDefiningOp() == loop ? levelBehindLoop
                                         : placeOf[value.getDefiningOp()].level;
  }

  /// Ops that the loop needs, or that others wait for before the loop, stand before it.
  void placeMain() {
    llvm::DenseSet<Operation *> before;
    SmallVector<Value> list(loop.getCarried());
    llvm::append_range(list, loop.getShared()); // of rows each trip takes its own
    for (Operation &op : main.front().without_terminator())
      if (&op != loop) {
        int64_t level = 0;
        for (Value operand : op.getOperands())
          level = std::max(level, levelOf(operand));
        placeOf[&op] = {Place::End, level};
      }
    for (OpOperand &result : main.front().getTerminator()->getOpOperands())
      if (isCrossing(result.getOperandNumber()) && result.get().getDefiningOp() != loop &&
          levelOf(result.get()) < levelBehindLoop)
        list.push_back(result.get());
    while (!list.empty()) {
      Operation *op = list.pop_back_val().getDefiningOp();
      if (op && op != loop && before.insert(op).second)
        llvm::append_range(list, op->getOperands());
    }
    for (Operation &op : main.front().without_terminator())
      if (&op != loop) {
        Place &place = placeOf[&op];
        if (before.contains(&op))
          place.kind = Place::Begin;
        else
          place.level = std::max(place.level, levelBehindLoop);
      }
  }

  /// Tells whether a result of main goes to another stage.
  bool isCrossing(unsigned result) {
    return main.getResultAttr(result, crossingAttr) != nullptr;
  }

  void give(Place place, Given given) {
    for (Given &known : gives[place])
      if (known.to.name == given.to.name)
        return;
    places.insert(place);
    gives[place].push_back(std::move(given));
  }

  Place placeOfMain(Value value) {
    Operation *op = value.getDefiningOp();
    if (op == loop)
      return {Place::End, levelBehindLoop};
    if (op && op->getNumOperands() != 0)
      return placeOf[op];
    return {Place::Begin, levelOf(value)};
  }

  LogicalResult giveResults() {
    for (OpOperand &result : main.front().getTerminator()->getOpOperands()) {
      unsigned i = result.getOperandNumber();
      NamedAttrList attrs(main.getResultAttrDict(i));
      Shared to{"result" + std::to_string(i), attrs};
      if (auto state = dist::resultState(main, i))
        to.name = "state " + state.getName().str();
      Value value = result.get();
      SmallVector<dist::ReshardOp> conversions;
      while (auto reshard = value.getDefiningOp<dist::ReshardOp>()) {
        conversions.push_back(reshard);
        value = reshard.getInput();
      }
      if (value.getDefiningOp() == loop &&
          cast<OpResult>(value).getResultNumber() >= numCarried()) {
        giveRow(value, to,
                conversions.empty() ? dist::LayoutAttr()
                                    : conversions.front().getLayout());
        continue;
      }
      Place place = placeOfMain(result.get());
      // A state that is everywhere as it was changes nowhere.
      if (dist::resultState(main, i) && place.kind == Place::Begin)
        place = {Place::End, levelBehindLoop};
      give(place, {result.get(), to, {}});
    }
    return success();
  }

  /// A row of what the loop gives, in the layout in which all rows lie.
  void giveRow(Value value, Shared to, dist::LayoutAttr layout) {
    Value row = micro.front().getTerminator()->getOperand(
        cast<OpResult>(value).getResultNumber());
    Place place = placeOfTrip(row);
    if (!layout)
      buffers[row] = to;
    give(place, {row, to, layout ? rowLayout(layout) : layout});
  }

  Place placeOfTrip(Value value) {
    Operation *op = value.getDefiningOp();
    return op && op->getNumOperands() != 0 ? placeOf[op] : Place{Place::Forward};
  }

  Shared carriedBuffer(unsigned i) {
    Shared buffer{"carried" + std::to_string(i), {}};
    if (Attribute parameter = micro.getArgAttr(i, parameterAttr))
      buffer.attrs.set(parameterAttr, parameter);
    return buffer;
  }

  Place lastBegin() {
    Place last{Place::Begin, 0};
    for (Value operand : loop.getCarried())
      if (Place place = placeOfMain(operand); place.kind == Place::Begin)
        last = std::max(last, place);
    return last;
  }

  LogicalResult giveCarried() {
    for (unsigned i = 0; i < numCarried(); ++i) {
      BlockArgument before = micro.getArgument(i);
      for (Value end : {Value(before), Value(loop->getResult(i))})
        buffers[end] = carriedBuffer(i);
      give(lastBegin(),
           {loop.getCarried()[i], carriedBuffer(i), dist::argumentLayout(micro, i)});
      Value next = micro.front().getTerminator()->getOperand(i);
      if (next == before)
        continue;
      Place place = placeOfTrip(next);
      give(place, {next, carriedBuffer(i), {}});
      for (Operation *user : before.getUsers())
        if (auto known = placeOf.find(user);
            known != placeOf.end() && known->second < place)
          return user->emitOpError("reads what a later part of each micro-batch changes, "
                                   "so that the forward pass cannot run ahead");
    }
    return success();
  }

  /// The op of main whose value the loop takes as rows, or shares among its trips.
  Value source(Value operand, bool isScanned) {
    while (isScanned)
      if (Operation *op = operand.getDefiningOp();
          isa_and_nonnull<graph::ReshapeOp, dist::ReshardOp>(op))
        operand = op->getOperand(0);
      else
        break;
    return operand;
  }

  /// The buffer from which a segment reads a value that it does not make, which whoever
  /// makes it then gives.
  FailureOr<Shared> bufferOf(Value value, Place reader) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      unsigned i = argument.getArgNumber();
      if (argument.getOwner() == &main.front())
        return ofArgument(i);
      if (i < numCarried())
        return beforeTrip(argument, reader);
      auto scanned = i < numCarried() + loop.getScanned().size();
      Value from = source(loop->getOperand(i), scanned);
      if (auto outer = dyn_cast<BlockArgument>(from))
        return ofArgument(outer.getArgNumber());
      if (scanned)
        return loop->emitOpError("takes rows of what is computed before it");
      return bufferOf(from, reader);
    }
    auto known = buffers.find(value);
    if (value.getDefiningOp() == loop)
      return known->second;
    if (known == buffers.end())
      known = buffers.insert({value, {"value" + std::to_string(numValues++), {}}}).first;
    Shared to = known->second;
    give(value.getParentBlock() == &micro.front() ? placeOfTrip(value)
                                                  : placeOf[value.getDefiningOp()],
         {value, to, {}});
    return to;
  }

  Shared ofArgument(unsigned i) {
    NamedAttrList attrs(main.getArgAttrDict(i));
    if (auto state = dist::argumentState(main, i))
      return {"state " + state.getName().str(), attrs};
    return {"argument" + std::to_string(i), attrs};
  }

  /// A carried value may have changed when a later part of the trip reads it.
  Shared beforeTrip(BlockArgument argument, Place reader) {
    Value next = micro.front().getTerminator()->getOperand(argument.getArgNumber());
    Place changed = placeOfTrip(next);
    if (next == argument || changed >= reader || reader.isOnce())
      return buffers[argument];
    Shared kept{"before" + std::to_string(argument.getArgNumber()), {}};
    give(changed, {argument, kept, {}});
    return kept;
  }

  /// Ops that a segment makes again, if another has made them: nothing is computed, or
  /// what is made cannot be kept.
  static bool isMadeAgain(Operation *op) {
    return op->getNumOperands() == 0 || isa<graph::ReshapeOp, dist::WindowOp>(op);
  }

  struct Building {
    func::FuncOp function;
    IRMapping mapping;
    Place place;
    std::map<std::string, Value> arguments; ///< by buffer
    SmallVector<DictionaryAttr> attrs;
  };

  FailureOr<Value> read(Building &it, Value value) {
    if (Value known = it.mapping.lookupOrNull(value))
      return known;
    Operation *op = value.getDefiningOp();
    if (op && op != loop && isMadeAgain(op)) {
      if (failed(copy(it, *op)))
        return failure();
      return it.mapping.lookup(value);
    }
    // An argument that the trips share may be a constant of main.
    if (auto argument = dyn_cast<BlockArgument>(value);
        argument && argument.getOwner() == &micro.front() &&
        argument.getArgNumber() >= numCarried() + loop.getScanned().size()) {
      Value outer = loop->getOperand(argument.getArgNumber());
      if (Operation *maker = outer.getDefiningOp();
          maker && maker->getNumOperands() == 0) {
        auto made = read(it, outer);
        if (succeeded(made))
          it.mapping.map(value, *made);
        return made;
      }
    }
    auto buffer = bufferOf(value, it.place);
    if (failed(buffer))
      return failure();
    Value &argument = it.arguments[buffer->name];
    if (!argument) {
      argument = it.function.front().addArgument(value.getType(), value.getLoc());
      buffer->attrs.erase(levelAttr);
      buffer->attrs.set(task_ir::bufferAttr, builder.getStringAttr(buffer->name));
      buffer->attrs.set(dist::layoutAttr, layoutOf(value, mesh));
      it.attrs.push_back(buffer->attrs.getDictionary(builder.getContext()));
    }
    it.mapping.map(value, argument);
    return argument;
  }

  LogicalResult copy(Building &it, Operation &op) {
    for (Value operand : op.getOperands())
      if (failed(read(it, operand)))
        return failure();
    if (!it.mapping.lookupOrNull(op.getResult(0)))
      builder.clone(op, it.mapping);
    return success();
  }

  std::string nameOf(Place place) {
    auto numbered = [&](const char *name, int64_t first) {
      return name + (place.level == first ? "" : std::to_string(place.level - first));
    };
    switch (place.kind) {
    case Place::Begin:
      return numbered("begin", 0);
    case Place::Forward:
      return "forward";
    case Place::Backward:
      return "backward";
    case Place::Weight:
      return "weight";
    case Place::End:
      return numbered("end", levelBehindLoop);
    }
    return {};
  }

  /// The ops of a segment that its results follow from.
  llvm::DenseSet<Operation *> neededIn(Place place) {
    llvm::DenseSet<Operation *> needed;
    SmallVector<Value> list;
    for (const Given &given : gives[place])
      list.push_back(given.value);
    while (!list.empty()) {
      Operation *op = list.pop_back_val().getDefiningOp();
      if (op && op != loop && (isMadeAgain(op) || placeOf[op] == place) &&
          needed.insert(op).second)
        llvm::append_range(list, op->getOperands());
    }
    return needed;
  }

  FailureOr<func::FuncOp> build(Place place) {
    builder.setInsertionPointToEnd(module.getBody());
    func::FuncOp from = place.isOnce() ? main : micro;
    Building it{func::FuncOp::create(builder, from.getLoc(), nameOf(place),
                                     builder.getFunctionType({}, {})),
                {},
                place,
                {},
                {}};
    Block *block = it.function.addEntryBlock();
    builder.setInsertionPointToEnd(block);
    // Conversions of rows that each trip takes by itself serve nobody any more.
    llvm::DenseSet<Operation *> needed = neededIn(place);
    for (Operation &op : from.front().without_terminator())
      if (needed.contains(&op) && !isMadeAgain(&op) &&
          !it.mapping.contains(op.getResult(0)))
        if (failed(copy(it, op)))
          return failure();
    SmallVector<Value> values;
    SmallVector<DictionaryAttr> results;
    for (const Given &given : gives[place]) {
      auto value = read(it, given.value);
      if (failed(value))
        return failure();
      dist::LayoutAttr layout = layoutOf(given.value, mesh);
      if (given.layout && given.layout.canonical() != layout.canonical()) {
        auto reshard =
            dist::ReshardOp::create(builder, given.value.getLoc(), *value, given.layout);
        if (place.kind != Place::Forward && !place.isOnce())
          dist::setPhase(reshard, Phase::Backward);
        *value = reshard;
        layout = given.layout;
      }
      values.push_back(*value);
      NamedAttrList attrs = given.to.attrs;
      attrs.set(task_ir::bufferAttr, builder.getStringAttr(given.to.name));
      attrs.set(dist::layoutAttr, layout);
      results.push_back(attrs.getDictionary(builder.getContext()));
    }
    func::ReturnOp::create(builder, from.getLoc(), values);
    it.function.setFunctionType(builder.getFunctionType(block->getArgumentTypes(),
                                                        ValueRange(values).getTypes()));
    it.function.setAllArgAttrs(it.attrs);
    it.function.setAllResultAttrs(results);
    if (place.isOnce())
      it.function->setAttr(task_ir::onceAttr, builder.getI64IntegerAttr(place.level));
    else
      it.function->setAttr(dist::tripsAttr, loop.getTripsAttr());
    return it.function;
  }

  ModuleOp module;
  bool partsWeights;
  OpBuilder builder;
  func::FuncOp main, micro;
  graph::RepeatOp loop;
  dist::MeshAttr mesh;
  DenseMap<Operation *, Place> placeOf; ///< of both functions
  std::set<Place> places;               ///< that are still to be made
  std::map<Place, std::vector<Given>> gives;
  llvm::DenseMap<Value, Shared> buffers;
  int64_t numValues = 0;
};

struct CutStepPass : partita::impl::CutStepPassBase<CutStepPass> {
  using CutStepPassBase::CutStepPassBase;

  void runOnOperation() override {
    if (failed(Cutter(getOperation(), partsWeights).run()))
      signalPassFailure();
  }
};
} // namespace
