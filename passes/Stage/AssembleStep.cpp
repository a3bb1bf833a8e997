//===- AssembleStep.cpp - Segments become programs of a pipeline ----------===//
#include "passes/Stage/Stages.h"

#include "dialects/Task/Task.h"

#include "mlir/IR/Builders.h"

#include <map>

using namespace mlir;
using namespace partita;

namespace {
/// One program around the functions of a stage.
class ProgramBuilder {
public:
  ProgramBuilder(OpBuilder &builder, ModuleOp module, const PipelineStep &shape,
                 int64_t stage, const std::map<std::string, bool> &crossings,
                 const std::set<std::string> &inputs)
      : builder(builder), module(module), shape(shape), stage(stage), isRow(crossings),
        inputs(inputs) {}

  std::string name;
  int64_t numRanks = 1;
  /// By name of what crosses, the buffers in which it comes and goes.
  std::map<std::string, FlatSymbolRefAttr> taken, given;

  void build(int64_t firstRank) {
    dist::MeshAttr mesh = dist::findMesh(module);
    numRanks = mesh.getMesh().numRanks();
    SmallVector<int64_t> ranks;
    for (int64_t r = 0; r < numRanks; ++r)
      ranks.push_back(firstRank + r);
    name = "stage" + std::to_string(stage);
    Location loc = module.getLoc();
    auto program = task_ir::ProgramOp::create(builder, loc, name, ranks);
    program->setAttr(dist::meshAttr, mesh);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&program.getBody().emplaceBlock());
    countUses();
    SmallVector<func::FuncOp> before, behind;
    for (auto function : module.getOps<func::FuncOp>()) {
      auto made = segment(function);
      if (!function->hasAttr(task_ir::onceAttr))
        continue;
      (trips.empty() ? before : behind).push_back(made);
    }
    auto schedule = task_ir::ScheduleOp::create(builder, loc, DenseI64ArrayAttr());
    builder.setInsertionPointToEnd(&schedule.getBody().emplaceBlock());
    for (func::FuncOp function : before)
      run(function.getSymName(), 0);
    for (StepTurn turn : turnsOf(shape, stage)) {
      StringRef part = turn.part == StepPart::Forward    ? "forward"
                       : turn.part == StepPart::Backward ? "backward"
                                                         : "weight";
      if (trips.contains(part.str())) // there may be no gradient to put off
        run(part, turn.microBatch);
    }
    for (func::FuncOp function : behind)
      run(function.getSymName(), 0);
  }

private:
  void run(StringRef segment, int64_t microBatch) {
    task_ir::RunOp::create(
        builder, module.getLoc(),
        FlatSymbolRefAttr::get(builder.getContext(), ("run_" + segment).str()),
        builder.getI64IntegerAttr(microBatch), ArrayAttr(), ArrayAttr());
  }

  /// Which buffers a segment of every micro-batch writes, without summing there.
  void countUses() {
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function->hasAttr(task_ir::onceAttr))
        for (unsigned i = 0; i < function.getNumResults(); ++i)
          once.insert(bufferName(function, i, false));
    }
  }

  static std::string bufferName(func::FuncOp function, unsigned i, bool isArgument) {
    return cast<StringAttr>(isArgument ? function.getArgAttr(i, task_ir::bufferAttr)
                                       : function.getResultAttr(i, task_ir::bufferAttr))
        .str();
  }

  func::FuncOp segment(func::FuncOp function) {
    SmallVector<Attribute> reads, writes;
    const bool isOnce = function->hasAttr(task_ir::onceAttr);
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      reads.push_back(buffer(function, i, true, isOnce));
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      writes.push_back(buffer(function, i, false, isOnce));
    auto copy = cast<func::FuncOp>(builder.clone(*function));
    for (StringRef attr : {task_ir::onceAttr, dist::tripsAttr})
      copy->removeAttr(attr);
    for (unsigned i = 0; i < copy.getNumArguments(); ++i)
      copy.removeArgAttr(i, task_ir::bufferAttr);
    for (unsigned i = 0; i < copy.getNumResults(); ++i)
      copy.removeResultAttr(i, builder.getStringAttr(task_ir::bufferAttr));
    if (!isOnce)
      trips.insert(function.getSymName().str());
    task_ir::SegmentOp::create(builder, function.getLoc(),
                               builder.getStringAttr("run_" + function.getSymName()),
                               isOnce ? builder.getUnitAttr() : UnitAttr(),
                               FlatSymbolRefAttr::get(copy.getSymNameAttr()),
                               builder.getArrayAttr(reads), builder.getArrayAttr(writes));
    return function;
  }

  FlatSymbolRefAttr buffer(func::FuncOp function, unsigned i, bool isArgument,
                           bool isOnce) {
    std::string key = bufferName(function, i, isArgument);
    DictionaryAttr attrs =
        isArgument ? function.getArgAttrDict(i) : function.getResultAttrDict(i);
    Type type =
        isArgument ? function.getArgumentTypes()[i] : function.getResultTypes()[i];
    auto state = attrs.getAs<dist::StateAttr>(dist::stateAttr);
    auto named = attrs.getAs<StringAttr>("graph.name");
    std::string given = named && !state ? named.str() : "";
    auto crossing = isRow.find(given);
    const bool crosses = !given.empty() && crossing != isRow.end();
    auto found = symbols.find(key);
    if (found == symbols.end()) {
      auto symbol = builder.getStringAttr((isArgument || state ? "in_" : "made_") +
                                          std::to_string(symbols.size()));
      const bool isInput = isArgument && !given.empty() && !crosses;
      const bool isOutput = !isArgument && !given.empty() && !crosses;
      // Everything may have a slot for each micro-batch, until the order is known.
      const bool isSlotted =
          !isOnce && !state && !once.contains(key) &&
          (isInput ? inputs.contains(given) : !crosses || crossing->second);
      task_ir::BufferOp::create(
          builder, function.getLoc(), symbol,
          builder.getI64IntegerAttr(isSlotted ? shape.microBatches : 1),
          isInput ? named : StringAttr(), isOutput ? named : StringAttr(),
          state ? state.getName() : StringAttr(),
          state ? initOf(state.getName()) : StringAttr(), task_ir::RegionAttr(),
          cast<dist::LayoutAttr>(attrs.get(dist::layoutAttr)), TypeAttr::get(type));
      found = symbols.emplace(key, FlatSymbolRefAttr::get(symbol)).first;
    }
    if (crosses)
      (isArgument ? taken : this->given).emplace(given, found->second);
    return found->second;
  }

  /// What a state begins with, which the argument says.
  StringAttr initOf(StringAttr state) {
    for (auto function : module.getOps<func::FuncOp>())
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        if (auto it = dist::argumentState(function, i); it && it.getName() == state)
          return it.getInit();
    return {};
  }

  OpBuilder &builder;
  ModuleOp module;
  const PipelineStep &shape;
  int64_t stage;
  const std::map<std::string, bool> &isRow; ///< of what crosses
  const std::set<std::string> &inputs;
  std::map<std::string, FlatSymbolRefAttr> symbols; ///< by buffer
  std::set<std::string> once;  ///< buffers that something outside the loop fills
  std::set<std::string> trips; ///< segments of micro-batches
};
} // namespace

/// The fewest slots with which no entry of a program writes what a later one still reads;
/// one more where a transfer fills it, so that it can come while the one before is read.
static int64_t slotsFor(const schedule::Program &program, int64_t buffer, bool isFilled,
                        bool isSent, int64_t microBatches) {
  std::vector<int64_t> first(static_cast<size_t>(microBatches), -1), last = first;
  const auto &entries = program.schedules[0].entries;
  for (size_t e = 0; e < entries.size(); ++e) {
    const schedule::Entry &entry = entries[e];
    if (entry.segment < 0)
      continue;
    const schedule::Segment &segment =
        program.segments[static_cast<size_t>(entry.segment)];
    const bool uses = llvm::is_contained(segment.reads, buffer) ||
                      llvm::is_contained(segment.writes, buffer);
    if (segment.once || !uses)
      continue;
    auto m = static_cast<size_t>(entry.microBatch);
    if (first[m] < 0)
      first[m] = static_cast<int64_t>(e);
    last[m] = static_cast<int64_t>(e);
  }
  int64_t slots = 1;
  auto fits = [&] {
    for (int64_t m = 0; m + slots < microBatches; ++m)
      if (first[static_cast<size_t>(m + slots)] <= last[static_cast<size_t>(m)])
        return false;
    return true;
  };
  while (slots < microBatches && !fits())
    ++slots;
  return std::min(microBatches, slots + (isFilled || isSent ? 1 : 0));
}

/// Gives every buffer its slots, and completes the schedules.
static Expected<void> shrinkSlots(ModuleOp module, int64_t microBatches) {
  schedule::Pipeline pipeline = task_ir::pipelineOf(module);
  if (auto ok = schedule::checkRanges(pipeline); !ok)
    return ok;
  schedule::Pipeline whole = pipeline;
  for (size_t p = 0; p < pipeline.programs.size(); ++p) {
    schedule::Program &program = pipeline.programs[p];
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      schedule::Buffer &buffer = program.buffers[b];
      if (buffer.slots == 1 || buffer.input || buffer.output)
        continue;
      auto isEnd = [&](auto program, auto buffer) {
        return llvm::any_of(pipeline.transfers, [&](const schedule::Transfer &it) {
          return it.*program == static_cast<int64_t>(p) &&
                 it.*buffer == static_cast<int64_t>(b);
        });
      };
      buffer.slots =
          slotsFor(program, static_cast<int64_t>(b),
                   isEnd(&schedule::Transfer::to, &schedule::Transfer::toBuffer),
                   isEnd(&schedule::Transfer::from, &schedule::Transfer::fromBuffer),
                   microBatches);
    }
  }
  auto completed = pipeline;
  schedule::complete(completed);
  auto fits = schedule::check(completed);
  if (!fits) { // as many as there are micro-batches always do, if any number does
    pipeline = std::move(whole);
    completed = pipeline;
    schedule::complete(completed);
    if (auto ok = schedule::check(completed); !ok)
      return ok;
  }
  size_t p = 0;
  for (auto program : module.getOps<task_ir::ProgramOp>()) {
    size_t b = 0;
    for (auto buffer : program.getBody().front().getOps<task_ir::BufferOp>())
      buffer.setSlots(static_cast<uint64_t>(pipeline.programs[p].buffers[b++].slots));
    ++p;
  }
  return {};
}

Expected<OwningOpRef<ModuleOp>>
partita::assembleStep(const SplitProgram &program, const PipelineStep &shape,
                      const std::set<std::string> &inputs,
                      const std::vector<std::string> &outputs) {
  ModuleOp first = *const_cast<OwningOpRef<ModuleOp> &>(program.stages.front());
  OpBuilder builder(first->getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(first.getLoc());
  for (NamedAttribute attr : first->getDiscardableAttrs())
    if (attr.getName() != dist::meshAttr)
      (*module)->setDiscardableAttr(attr.getName(), attr.getValue());
  auto texts = [&](const auto &list) {
    SmallVector<StringRef> names(list.begin(), list.end());
    return builder.getStrArrayAttr(names);
  };
  (*module)->setAttr(task_ir::microBatchesAttr,
                     builder.getI64IntegerAttr(shape.microBatches));
  if (shape.microBatches > 1)
    (*module)->setAttr(task_ir::slicedAttr, texts(inputs));
  (*module)->setAttr(task_ir::outputsAttr, texts(outputs));
  std::map<std::string, bool> isRow;
  for (const StageCrossing &it : program.crossings)
    isRow[it.name] = !it.once;
  builder.setInsertionPointToEnd(module->getBody());
  std::vector<ProgramBuilder> programs;
  int64_t rank = 0;
  for (size_t s = 0; s < program.stages.size(); ++s) {
    auto stage = const_cast<OwningOpRef<ModuleOp> &>(program.stages[s]).get();
    programs.emplace_back(builder, stage, shape, static_cast<int64_t>(s), isRow, inputs);
    programs.back().build(rank);
    rank += programs.back().numRanks;
  }
  for (const StageCrossing &it : program.crossings)
    for (int32_t to : it.to) {
      const ProgramBuilder &sender = programs[static_cast<size_t>(it.from)];
      const ProgramBuilder &receiver = programs[static_cast<size_t>(to)];
      if (!receiver.taken.contains(it.name) || !sender.given.contains(it.name))
        continue; // simplified away where it was read
      auto end = [&](const ProgramBuilder &of, FlatSymbolRefAttr buffer) {
        return SymbolRefAttr::get(builder.getContext(), of.name, {buffer});
      };
      task_ir::TransferOp::create(
          builder, first.getLoc(),
          builder.getStringAttr(it.name + " to stage " + std::to_string(to)),
          it.once ? builder.getUnitAttr() : UnitAttr(),
          end(sender, sender.given.at(it.name)),
          end(receiver, receiver.taken.at(it.name)));
    }
  if (auto ok = shrinkSlots(*module, shape.microBatches); !ok)
    return tl::unexpected(ok.error());
  return module;
}
