//===- AssembleStep.cpp - Segments become programs of a pipeline ----------===//
#include "passes/Stage/Stages.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Layout/Reshard.h"

#include "mlir/IR/Builders.h"

#include <map>

using namespace mlir;
using namespace partita;

namespace {
/// Values that cross, by name.
struct Crossing {
  bool once = false; ///< in a request
  int64_t home = 0;  ///< the group that gives it
};
using Crossings = std::map<std::string, Crossing>;

/// Builds one program around the functions of the stages on a group of ranks.
class ProgramBuilder {
public:
  ProgramBuilder(OpBuilder &builder, const PipelineStep &shape, int64_t group,
                 const Crossings &crossings, const std::set<std::string> &inputs)
      : builder(builder), shape(shape), group(group), crossings(crossings),
        inputs(inputs) {}

  std::string name;
  int64_t numRanks = 1;
  /// The buffers of what crosses, by its name: of what comes from another group one for
  /// each layout in which a stage reads it.
  std::map<std::string, SmallVector<FlatSymbolRefAttr, 1>> ends;

  /// `stages` are those of the group, by number.
  Expected<void> build(const std::map<int64_t, ModuleOp> &stages, int64_t firstRank) {
    ModuleOp first = stages.begin()->second;
    dist::MeshAttr mesh = dist::findMesh(first);
    numRanks = mesh.getMesh().numRanks();
    SmallVector<int64_t> ranks;
    for (int64_t r = 0; r < numRanks; ++r)
      ranks.push_back(firstRank + r);
    name = (shape.groups() == shape.stages() ? "stage" : "group") + std::to_string(group);
    Location loc = first.getLoc();
    auto program = task_ir::ProgramOp::create(builder, loc, name, ranks);
    program->setAttr(dist::meshAttr, mesh);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&program.getBody().emplaceBlock());
    collect(stages);
    // A value of the group lies as the stage that makes it has it.
    for (const Part &part : parts)
      for (unsigned i = 0; i < part.function.getNumResults(); ++i)
        if (StringAttr given = givenName(attrsOf(part, i, false));
            given && crossings.contains(given.str()))
          if (auto made = buffer(part, i, false); !made)
            return tl::unexpected(made.error());
    for (const Part &part : parts)
      if (auto ok = segment(part); !ok)
        return ok;
    auto schedule = task_ir::ScheduleOp::create(builder, loc, DenseI64ArrayAttr());
    builder.setInsertionPointToEnd(&schedule.getBody().emplaceBlock());
    run(/*behind=*/false);
    for (const StepTurn &turn : shape.turns[static_cast<size_t>(group)]) {
      const char *part = turn.part == StepPart::Forward    ? "forward"
                         : turn.part == StepPart::Backward ? "backward"
                                                           : "weight";
      std::string segment = nameOf(turn.stage, part);
      if (trips.contains(segment)) // there may be no gradient to put off
        run(segment, turn.microBatch);
    }
    run(/*behind=*/true);
    return {};
  }

private:
  /// A function of a stage.
  struct Part {
    int64_t stage = 0;
    mutable func::FuncOp function; // a handle, whose methods are not const

    std::optional<int64_t> level() const {
      Operation *op = function;
      auto level = op->getAttrOfType<IntegerAttr>(task_ir::onceAttr);
      return level ? std::optional(level.getInt()) : std::nullopt;
    }
  };

  std::string nameOf(int64_t stage, StringRef function) const {
    return (shape.groups() == shape.stages() ? ""
                                             : "stage" + std::to_string(stage) + "_") +
           function.str();
  }

  /// The functions in the order in which they define what states hold: levels before the
  /// loop, what runs for micro-batches, levels behind it.
  void collect(const std::map<int64_t, ModuleOp> &stages) {
    for (auto [stage, module] : stages)
      for (auto function : module.getOps<func::FuncOp>()) {
        parts.push_back({stage, function});
        if (parts.back().level())
          for (unsigned i = 0; i < function.getNumResults(); ++i)
            once.insert(keyOf(parts.back(), i, false));
        else
          trips.insert(nameOf(stage, function.getSymName()));
      }
    auto place = [](const Part &part) {
      return part.level().value_or(levelBehindLoop - 1);
    };
    llvm::stable_sort(parts,
                      [&](const Part &a, const Part &b) { return place(a) < place(b); });
  }

  void run(bool behind) {
    for (const Part &part : parts)
      if (auto level = part.level(); level && (*level >= levelBehindLoop) == behind)
        run(nameOf(part.stage, part.function.getSymName()), 0);
  }

  void run(const std::string &segment, int64_t microBatch) {
    for (Conversion &it : before[segment])
      if (!it.once || !std::exchange(it.done, true))
        run(it.name, it.once ? 0 : microBatch);
    task_ir::RunOp::create(builder, builder.getUnknownLoc(),
                           FlatSymbolRefAttr::get(builder.getContext(), "run_" + segment),
                           builder.getI64IntegerAttr(microBatch), ArrayAttr(),
                           ArrayAttr());
  }

  static DictionaryAttr attrsOf(const Part &part, unsigned i, bool isArgument) {
    func::FuncOp function = part.function;
    return isArgument ? function.getArgAttrDict(i) : function.getResultAttrDict(i);
  }

  /// The name of an input, an output or a crossing value outside of its stage; else null.
  static StringAttr givenName(DictionaryAttr attrs) {
    return attrs.contains(dist::stateAttr) ? StringAttr()
                                           : attrs.getAs<StringAttr>("graph.name");
  }

  /// The identity of a buffer: stages share inputs and what crosses.
  std::string keyOf(const Part &part, unsigned i, bool isArgument) const {
    DictionaryAttr attrs = attrsOf(part, i, isArgument);
    if (StringAttr given = givenName(attrs)) {
      auto crossing = crossings.find(given.str());
      if (crossing != crossings.end() && crossing->second.home != group) {
        std::string layout;
        llvm::raw_string_ostream(layout)
            << cast<dist::LayoutAttr>(attrs.get(dist::layoutAttr)).canonical();
        return "named " + given.str() + " " + layout;
      }
      if (isArgument || crossing != crossings.end())
        return "named " + given.str();
    }
    return std::to_string(part.stage) + " " +
           attrs.getAs<StringAttr>(task_ir::bufferAttr).str();
  }

  Expected<void> segment(const Part &part) {
    func::FuncOp function = part.function;
    SmallVector<Attribute> reads, writes;
    for (bool isArgument : {true, false}) {
      unsigned count = isArgument ? function.getNumArguments() : function.getNumResults();
      for (unsigned i = 0; i < count; ++i) {
        auto made = buffer(part, i, isArgument);
        if (!made)
          return tl::unexpected(made.error());
        (isArgument ? reads : writes).push_back(*made);
      }
    }
    auto copy = cast<func::FuncOp>(builder.clone(*function));
    std::string own = nameOf(part.stage, function.getSymName());
    SymbolTable::setSymbolName(copy, own);
    for (StringRef attr : {task_ir::onceAttr, dist::tripsAttr})
      copy->removeAttr(attr);
    for (unsigned i = 0; i < copy.getNumArguments(); ++i)
      copy.removeArgAttr(i, task_ir::bufferAttr);
    for (unsigned i = 0; i < copy.getNumResults(); ++i)
      copy.removeResultAttr(i, builder.getStringAttr(task_ir::bufferAttr));
    task_ir::SegmentOp::create(builder, function.getLoc(),
                               builder.getStringAttr("run_" + own),
                               part.level() ? builder.getUnitAttr() : UnitAttr(),
                               FlatSymbolRefAttr::get(copy.getSymNameAttr()),
                               builder.getArrayAttr(reads), builder.getArrayAttr(writes));
    return {};
  }

  Expected<FlatSymbolRefAttr> buffer(const Part &part, unsigned i, bool isArgument) {
    func::FuncOp function = part.function;
    std::string key = keyOf(part, i, isArgument);
    DictionaryAttr attrs = attrsOf(part, i, isArgument);
    Type type =
        isArgument ? function.getArgumentTypes()[i] : function.getResultTypes()[i];
    auto layout = cast<dist::LayoutAttr>(attrs.get(dist::layoutAttr));
    StringAttr given = givenName(attrs);
    auto crossing = given ? crossings.find(given.str()) : crossings.end();
    if (auto known = buffers.find(key); known != buffers.end())
      return known->second.getLayout().canonical() == layout.canonical()
                 ? FlatSymbolRefAttr::get(known->second.getSymNameAttr())
                 : converted(part, key, known->second, layout, type);
    auto state = attrs.getAs<dist::StateAttr>(dist::stateAttr);
    const bool crosses = crossing != crossings.end();
    const bool isInput = isArgument && given && !crosses;
    // Everything may have a slot for each micro-batch, until the order is known.
    const bool isSlotted =
        !part.level() && !state && !once.contains(key) &&
        (isInput ? inputs.contains(given.str()) : !crosses || !crossing->second.once);
    auto made = task_ir::BufferOp::create(
        builder, function.getLoc(),
        builder.getStringAttr("buffer_" + Twine(buffers.size())),
        builder.getI64IntegerAttr(isSlotted ? shape.microBatches : 1),
        isInput ? given : StringAttr(),
        !isArgument && given && !crosses ? given : StringAttr(),
        state ? state.getName() : StringAttr(), state ? initOf(state) : StringAttr(),
        task_ir::RegionAttr(), layout, TypeAttr::get(type));
    buffers.emplace(key, made);
    auto symbol = FlatSymbolRefAttr::get(made.getSymNameAttr());
    if (crosses)
      ends[given.str()].push_back(symbol);
    return symbol;
  }

  /// The buffer in another layout, in which a stage of the same group reads it. A segment
  /// converts it before the first reading.
  Expected<FlatSymbolRefAttr> converted(const Part &part, const std::string &key,
                                        task_ir::BufferOp from, dist::LayoutAttr layout,
                                        Type type) {
    std::string own = key + " ";
    llvm::raw_string_ostream(own) << layout.canonical();
    if (auto known = buffers.find(own); known != buffers.end())
      return FlatSymbolRefAttr::get(known->second.getSymNameAttr());
    const Mesh &mesh = layout.getMesh().getMesh();
    auto plan = planReshard(mesh, from.getLayout().getLayout().canonicalized(),
                            layout.getLayout().canonicalized());
    if (!plan)
      return makeError("'" + key + "' cannot be converted between the stages of group " +
                       std::to_string(group) + ": " + plan.error().message);
    Location loc = from.getLoc();
    auto to = task_ir::BufferOp::create(
        builder, loc, builder.getStringAttr("buffer_" + Twine(buffers.size())),
        from.getSlotsAttr(), StringAttr(), StringAttr(), StringAttr(), StringAttr(),
        task_ir::RegionAttr(), layout, TypeAttr::get(type));
    const bool isOnce = from.getSlots() == 1 && (once.contains(key) || isUnsliced(from));
    std::string name = "convert" + std::to_string(buffers.size());
    buffers.emplace(own, to);
    auto function = func::FuncOp::create(
        builder, loc, name, builder.getFunctionType({from.getTensorType()}, {type}));
    function.setArgAttr(0, dist::layoutAttr, from.getLayout());
    function.setResultAttr(0, dist::layoutAttr, layout);
    OpBuilder::InsertionGuard guard(builder);
    Block *block = function.addEntryBlock();
    OpBuilder body(block, block->end());
    Value value = block->getArgument(0);
    for (const Step &step : plan->steps)
      if (step.kind != StepKind::View)
        value = comm::emitStep(body, loc, layout.getMesh(), step, value);
    func::ReturnOp::create(body, loc, value);
    auto end = [&](task_ir::BufferOp buffer) {
      return builder.getArrayAttr({FlatSymbolRefAttr::get(buffer.getSymNameAttr())});
    };
    task_ir::SegmentOp::create(builder, loc, builder.getStringAttr("run_" + name),
                               isOnce ? builder.getUnitAttr() : UnitAttr(),
                               FlatSymbolRefAttr::get(function.getSymNameAttr()),
                               end(from), end(to));
    before[nameOf(part.stage, part.function.getSymName())].push_back({name, isOnce});
    return FlatSymbolRefAttr::get(to.getSymNameAttr());
  }

  /// Tells whether a buffer of one slot is for all micro-batches.
  bool isUnsliced(task_ir::BufferOp buffer) const {
    return shape.microBatches > 1 || !buffer.getInput() ||
           !inputs.contains(buffer.getInput()->str());
  }

  /// The weight that a state begins with, which an argument says.
  StringAttr initOf(dist::StateAttr state) {
    for (const Part &other : parts)
      for (unsigned i = 0; i < other.function.getNumArguments(); ++i)
        if (auto it = dist::argumentState(other.function, i);
            it && it.getName() == state.getName())
          return it.getInit();
    return {};
  }

  OpBuilder &builder;
  const PipelineStep &shape;
  int64_t group;
  const Crossings &crossings;
  const std::set<std::string> &inputs;
  /// A segment that converts a buffer.
  struct Conversion {
    std::string name;
    bool once = false; ///< in a request
    bool done = false; ///< where it is, once
  };

  std::vector<Part> parts;
  std::map<std::string, task_ir::BufferOp> buffers; ///< by key
  /// Conversions by the segment that is the first to read what they make.
  std::map<std::string, std::vector<Conversion>> before;
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
  auto groupOf = [&](int32_t stage) { return shape.groupOf[static_cast<size_t>(stage)]; };
  Crossings crossings;
  for (const StageCrossing &it : program.crossings)
    crossings[it.name] = {it.once, groupOf(it.from)};
  builder.setInsertionPointToEnd(module->getBody());
  std::vector<ProgramBuilder> programs;
  int64_t rank = 0;
  for (int64_t g = 0; g < shape.groups(); ++g) {
    std::map<int64_t, ModuleOp> stages;
    for (auto [s, stage] : llvm::enumerate(program.stages))
      if (shape.groupOf[s] == g)
        stages[static_cast<int64_t>(s)] =
            const_cast<OwningOpRef<ModuleOp> &>(stage).get();
    programs.emplace_back(builder, shape, g, crossings, inputs);
    if (auto ok = programs.back().build(stages, rank); !ok)
      return tl::unexpected(ok.error());
    rank += programs.back().numRanks;
  }
  for (const StageCrossing &it : program.crossings) {
    const int64_t home = groupOf(it.from);
    std::set<int64_t> reached{home}; // one for all stages of a group
    for (int32_t to : it.to) {
      if (!reached.insert(groupOf(to)).second)
        continue;
      const ProgramBuilder &sender = programs[static_cast<size_t>(home)];
      const ProgramBuilder &receiver = programs[static_cast<size_t>(groupOf(to))];
      if (!receiver.ends.contains(it.name) || !sender.ends.contains(it.name))
        continue; // simplified away where it was read
      for (auto [k, taken] : llvm::enumerate(receiver.ends.at(it.name))) {
        auto end = [&](const ProgramBuilder &of, FlatSymbolRefAttr buffer) {
          return SymbolRefAttr::get(builder.getContext(), of.name, {buffer});
        };
        task_ir::TransferOp::create(
            builder, first.getLoc(),
            builder.getStringAttr(it.name + " to stage " + std::to_string(to) +
                                  (k == 0 ? "" : ", layout " + std::to_string(k + 1))),
            it.once ? builder.getUnitAttr() : UnitAttr(),
            end(sender, sender.ends.at(it.name).front()), end(receiver, taken));
      }
    }
  }
  if (auto ok = shrinkSlots(*module, shape.microBatches); !ok)
    return tl::unexpected(ok.error());
  return module;
}
