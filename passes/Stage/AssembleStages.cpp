//===- AssembleStages.cpp - Stages become programs of a pipeline ----------===//
#include "passes/Stage/Stages.h"

#include "dialects/Task/Task.h"

#include "mlir/IR/Builders.h"

#include <map>

using namespace mlir;
using namespace partita;

namespace {
/// One program around the functions of the stages on a group of ranks.
class ProgramBuilder {
public:
  ProgramBuilder(OpBuilder &builder, const PipelineShape &shape,
                 const std::set<std::string> &crossing, int64_t group)
      : builder(builder), shape(shape), crossing(crossing), group(group) {
    isAlone = llvm::count(shape.order.groupOf, group) == 1;
  }

  std::string name;
  /// By name the buffer of what crosses.
  std::map<std::string, FlatSymbolRefAttr> crossings;

  /// `stages` by number, of the whole pipeline.
  void build(ArrayRef<func::FuncOp> stages, int64_t firstRank) {
    auto first = static_cast<size_t>(llvm::find(shape.order.groupOf, group) -
                                     shape.order.groupOf.begin());
    func::FuncOp function = stages[first];
    dist::MeshAttr mesh = dist::findMesh(function);
    SmallVector<int64_t> ranks;
    for (int64_t r = 0; r < mesh.getMesh().numRanks(); ++r)
      ranks.push_back(firstRank + r);
    name = isAlone ? "stage" + std::to_string(first) : "group" + std::to_string(group);
    Location loc = function.getLoc();
    auto program = task_ir::ProgramOp::create(builder, loc, name, ranks);
    program->setAttr(dist::meshAttr, mesh);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&program.getBody().emplaceBlock());
    std::map<int64_t, FlatSymbolRefAttr> segments;
    for (size_t s = 0; s < stages.size(); ++s)
      if (shape.order.groupOf[s] == group)
        segments[static_cast<int64_t>(s)] = segment(stages[s], mesh, s);
    auto schedule = task_ir::ScheduleOp::create(builder, loc, DenseI64ArrayAttr());
    builder.setInsertionPointToEnd(&schedule.getBody().emplaceBlock());
    for (StageTurn turn : turnsOf(shape.order, group))
      task_ir::RunOp::create(builder, loc, segments.at(turn.stage),
                             builder.getI64IntegerAttr(turn.microBatch), ArrayAttr(),
                             ArrayAttr());
  }

private:
  /// The function of a stage, its buffers and its segment.
  FlatSymbolRefAttr segment(func::FuncOp function, dist::MeshAttr mesh, size_t stage) {
    std::string own = "stage" + std::to_string(stage);
    task_ir::FunctionBuffers buffers(function, mesh, isAlone ? "" : own + "_");
    SmallVector<Attribute> reads, writes;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      reads.push_back(buffer(function, buffers, i, true));
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      writes.push_back(buffer(function, buffers, i, false));
    Operation *copy = builder.clone(*function);
    if (!isAlone)
      SymbolTable::setSymbolName(copy, "main" + std::to_string(stage));
    auto made = task_ir::SegmentOp::create(
        builder, function.getLoc(), builder.getStringAttr(isAlone ? "forward" : own),
        /*once=*/UnitAttr(), FlatSymbolRefAttr::get(SymbolTable::getSymbolName(copy)),
        builder.getArrayAttr(reads), builder.getArrayAttr(writes));
    return FlatSymbolRefAttr::get(made.getSymNameAttr());
  }

  Attribute buffer(func::FuncOp function, task_ir::FunctionBuffers &buffers, unsigned i,
                   bool isInput) {
    std::string given =
        cast<StringAttr>(isInput ? function.getArgAttr(i, "graph.name")
                                 : function.getResultAttr(i, "graph.name"))
            .str();
    bool isState =
        bool(isInput ? dist::argumentState(function, i) : dist::resultState(function, i));
    // What another stage computes is no input; what another reads may be an output too.
    bool crosses = !isState && crossing.count(given) != 0;
    bool isBound =
        isInput ? !crosses : !crosses || llvm::is_contained(shape.outputs, given);
    if (auto known = shared.find(given); known != shared.end() && isInput && !isState)
      return known->second;
    if (isState)
      given =
          (isInput ? dist::argumentState(function, i) : dist::resultState(function, i))
              .getName()
              .str();
    int64_t slots = !isBound                    ? shape.order.slots()
                    : shape.sliced.count(given) ? shape.order.microBatches
                                                : 1;
    FlatSymbolRefAttr reference = isInput ? buffers.argument(builder, i, slots, isBound)
                                          : buffers.result(builder, i, slots, isBound);
    if (isInput || crosses)
      shared.emplace(given, reference);
    if (crosses)
      crossings.emplace(given, reference);
    return reference;
  }

  OpBuilder &builder;
  const PipelineShape &shape;
  const std::set<std::string> &crossing;
  int64_t group;
  bool isAlone = true;
  /// Buffers that a later stage of the group reads, too.
  std::map<std::string, FlatSymbolRefAttr> shared;
};

class Assembler {
public:
  Assembler(const SplitProgram &program, const PipelineShape &shape)
      : program(program), shape(shape), builder((*program.stages[0])->getContext()) {}

  OwningOpRef<ModuleOp> run() {
    ModuleOp first = *program.stages.front();
    OwningOpRef<ModuleOp> module = ModuleOp::create(first.getLoc());
    setAttributes(first, *module);
    builder.setInsertionPointToEnd(module->getBody());
    SmallVector<func::FuncOp> functions;
    for (const OwningOpRef<ModuleOp> &stage : program.stages)
      functions.push_back(
          const_cast<OwningOpRef<ModuleOp> &>(stage)->lookupSymbol<func::FuncOp>("main"));
    std::set<std::string> crossing;
    for (const StageCrossing &it : program.crossings)
      crossing.insert(it.name);
    int64_t rank = 0;
    for (int64_t g = 0; g < shape.order.numGroups(); ++g) {
      groups.emplace_back(builder, shape, crossing, g);
      groups.back().build(functions, rank);
      auto one = llvm::find(shape.order.groupOf, g) - shape.order.groupOf.begin();
      rank += dist::findMesh(functions[static_cast<size_t>(one)]).getMesh().numRanks();
    }
    for (const StageCrossing &it : program.crossings)
      addTransfers(it, first.getLoc());
    return module;
  }

private:
  void setAttributes(ModuleOp first, ModuleOp module) {
    for (NamedAttribute attr : first->getDiscardableAttrs())
      if (attr.getName() != dist::meshAttr)
        module->setDiscardableAttr(attr.getName(), attr.getValue());
    module->setAttr(task_ir::microBatchesAttr,
                    builder.getI64IntegerAttr(shape.order.microBatches));
    auto names = [&](const auto &list) {
      SmallVector<StringRef> texts(list.begin(), list.end());
      return builder.getStrArrayAttr(texts);
    };
    if (shape.order.microBatches > 1)
      module->setAttr(task_ir::slicedAttr, names(shape.sliced));
    module->setAttr(task_ir::outputsAttr, names(shape.outputs));
  }

  SymbolRefAttr end(int64_t group, const std::string &name) const {
    const ProgramBuilder &of = groups[static_cast<size_t>(group)];
    return SymbolRefAttr::get(builder.getContext(), of.name, {of.crossings.at(name)});
  }

  /// One to each other group, for the first of its stages that reads the value.
  void addTransfers(const StageCrossing &it, Location loc) {
    auto groupOf = [&](int32_t stage) {
      return shape.order.groupOf[static_cast<size_t>(stage)];
    };
    std::set<int64_t> reached{groupOf(it.from)};
    for (int32_t to : it.to)
      if (reached.insert(groupOf(to)).second)
        task_ir::TransferOp::create(
            builder, loc,
            builder.getStringAttr(it.name + " to stage " + std::to_string(to)),
            /*once=*/UnitAttr(), end(groupOf(it.from), it.name),
            end(groupOf(to), it.name));
  }

  const SplitProgram &program;
  const PipelineShape &shape;
  OpBuilder builder;
  std::vector<ProgramBuilder> groups;
};
} // namespace

OwningOpRef<ModuleOp> partita::assembleStages(const SplitProgram &program,
                                              const PipelineShape &shape) {
  return Assembler(program, shape).run();
}
