//===- AssembleStages.cpp - Stages become programs of a pipeline ----------===//
#include "passes/Stage/Stages.h"

#include "dialects/Task/Task.h"

#include "mlir/IR/Builders.h"

#include <map>

using namespace mlir;
using namespace partita;

namespace {
/// One program around the function of a stage.
class ProgramBuilder {
public:
  ProgramBuilder(OpBuilder &builder, func::FuncOp function, int32_t stage,
                 int64_t microBatches, const std::set<std::string> &sliced,
                 const std::vector<std::string> &outputs,
                 const std::set<std::string> &crossing)
      : builder(builder), function(function), buffers(function, dist::findMesh(function)),
        stage(stage), microBatches(microBatches), sliced(sliced), crossing(crossing),
        outputs(outputs) {}

  /// Buffers by name of what crosses: those that are read, and those that are written.
  std::map<std::string, FlatSymbolRefAttr> incoming, outgoing;

  void build(int64_t firstRank) {
    Location loc = function.getLoc();
    dist::MeshAttr mesh = dist::findMesh(function);
    SmallVector<int64_t> ranks;
    for (int64_t r = 0; r < mesh.getMesh().numRanks(); ++r)
      ranks.push_back(firstRank + r);
    auto program =
        task_ir::ProgramOp::create(builder, loc, "stage" + std::to_string(stage), ranks);
    program->setAttr(dist::meshAttr, mesh);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&program.getBody().emplaceBlock());
    SmallVector<Attribute> reads, writes;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      reads.push_back(buffer(i, true));
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      writes.push_back(buffer(i, false));
    builder.clone(*function);
    auto segment = task_ir::SegmentOp::create(
        builder, loc, builder.getStringAttr("forward"), /*once=*/UnitAttr(),
        FlatSymbolRefAttr::get(function.getSymNameAttr()), builder.getArrayAttr(reads),
        builder.getArrayAttr(writes));
    auto schedule = task_ir::ScheduleOp::create(builder, loc, DenseI64ArrayAttr());
    builder.setInsertionPointToEnd(&schedule.getBody().emplaceBlock());
    for (int64_t m = 0; m < microBatches; ++m)
      task_ir::RunOp::create(builder, loc,
                             FlatSymbolRefAttr::get(segment.getSymNameAttr()),
                             builder.getI64IntegerAttr(m), ArrayAttr(), ArrayAttr());
  }

private:
  Attribute buffer(unsigned i, bool isInput) {
    auto name = cast<StringAttr>(isInput ? function.getArgAttr(i, "graph.name")
                                         : function.getResultAttr(i, "graph.name"));
    // What another stage computes is no input; what another reads may be an output too.
    bool crosses = crossing.count(name.str()) != 0;
    bool isBound =
        isInput ? !crosses : llvm::is_contained(outputs, name.str()) || !crosses;
    int64_t slots = isBound ? (sliced.count(name.str()) ? microBatches : 1)
                            : std::min<int64_t>(2, microBatches);
    FlatSymbolRefAttr reference = isInput ? buffers.argument(builder, i, slots, isBound)
                                          : buffers.result(builder, i, slots, isBound);
    if (crosses)
      (isInput ? incoming : outgoing)[name.str()] = reference;
    return reference;
  }

  OpBuilder &builder;
  func::FuncOp function;
  task_ir::FunctionBuffers buffers;
  int32_t stage;
  int64_t microBatches;
  const std::set<std::string> &sliced, &crossing;
  const std::vector<std::string> &outputs; ///< of the model
};
} // namespace

OwningOpRef<ModuleOp> partita::assembleStages(const SplitProgram &program,
                                              int64_t microBatches,
                                              const std::set<std::string> &sliced,
                                              const std::vector<std::string> &outputs) {
  ModuleOp first = *program.stages.front();
  OpBuilder builder(first.getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(first.getLoc());
  for (NamedAttribute attr : first->getDiscardableAttrs())
    if (attr.getName() != dist::meshAttr && attr.getName() != dist::certificateAttr)
      (*module)->setDiscardableAttr(attr.getName(), attr.getValue());
  (*module)->setAttr(task_ir::microBatchesAttr, builder.getI64IntegerAttr(microBatches));
  auto names = [&](const auto &list) {
    SmallVector<StringRef> texts(list.begin(), list.end());
    return builder.getStrArrayAttr(texts);
  };
  if (microBatches > 1)
    (*module)->setAttr(task_ir::slicedAttr, names(sliced));
  (*module)->setAttr(task_ir::outputsAttr, names(outputs));
  builder.setInsertionPointToEnd(module->getBody());
  std::set<std::string> crossing;
  for (const StageCrossing &it : program.crossings)
    crossing.insert(it.name);
  std::vector<ProgramBuilder> programs;
  int64_t rank = 0;
  for (size_t s = 0; s < program.stages.size(); ++s) {
    ModuleOp stage = *program.stages[s];
    programs.emplace_back(builder, stage.lookupSymbol<func::FuncOp>("main"),
                          static_cast<int32_t>(s), microBatches, sliced, outputs,
                          crossing);
    programs.back().build(rank);
    rank += dist::findMesh(stage).getMesh().numRanks();
  }
  auto end = [&](int32_t stage, FlatSymbolRefAttr buffer) {
    return SymbolRefAttr::get(builder.getContext(), "stage" + std::to_string(stage),
                              {buffer});
  };
  for (const StageCrossing &it : program.crossings)
    for (int32_t to : it.to)
      task_ir::TransferOp::create(
          builder, first.getLoc(),
          builder.getStringAttr(it.name + " to stage " + std::to_string(to)),
          /*once=*/UnitAttr(),
          end(it.from, programs[static_cast<size_t>(it.from)].outgoing.at(it.name)),
          end(to, programs[static_cast<size_t>(to)].incoming.at(it.name)));
  return module;
}
