//===- Pipeline.cpp - Programs and schedules as plain structs -------------===//
#include "dialects/Task/Task.h"

#include "dialects/Comm/Comm.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace partita;
using namespace partita::task_ir;

namespace {
using Numbers = llvm::DenseMap<StringRef, int64_t>;

/// The symbols of one kind in a block, by number.
template <typename Op> Numbers numbersOf(Block &block) {
  Numbers numbers;
  for (auto op : block.getOps<Op>())
    numbers.try_emplace(op.getSymName(), static_cast<int64_t>(numbers.size()));
  return numbers;
}

std::vector<int64_t> namesToNumbers(ArrayAttr names, const Numbers &numbers) {
  std::vector<int64_t> out;
  for (auto name : names.getAsRange<FlatSymbolRefAttr>())
    out.push_back(numbers.lookup(name.getValue()));
  return out;
}

/// It, or what it runs.
bool communicates(func::FuncOp function) {
  return function
      .walk([](Operation *op) {
        auto comm = dyn_cast<comm::CommOpInterface>(op);
        return (comm && comm.getReceivedElements()) ||
                       llvm::any_of(calleesOf(op), communicates)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Programs one by one; the transfers are known by name.
class Reader {
public:
  explicit Reader(ModuleOp module)
      : module(module), transfers(numbersOf<TransferOp>(*module.getBody())) {}

  schedule::Pipeline run() {
    schedule::Pipeline result;
    result.microBatches = microBatchesOf(module);
    Numbers programs = numbersOf<ProgramOp>(*module.getBody());
    llvm::DenseMap<StringRef, Numbers> buffers;
    for (auto program : module.getOps<ProgramOp>()) {
      buffers[program.getSymName()] = numbersOf<BufferOp>(program.getBody().front());
      result.programs.push_back(read(program, buffers[program.getSymName()]));
    }
    for (auto op : module.getOps<TransferOp>()) {
      auto end = [&](SymbolRefAttr name) {
        StringRef program = name.getRootReference().getValue();
        return std::pair(programs.lookup(program),
                         buffers[program].lookup(name.getLeafReference().getValue()));
      };
      auto [from, fromBuffer] = end(op.getSource());
      auto [to, toBuffer] = end(op.getTarget());
      result.transfers.push_back(
          {op.getSymName().str(), from, fromBuffer, to, toBuffer, op.getOnce()});
    }
    return result;
  }

private:
  schedule::Program read(ProgramOp program, const Numbers &buffers) {
    schedule::Program out;
    Block &block = program.getBody().front();
    out.name = program.getSymName().str();
    out.numRanks = static_cast<int64_t>(program.getRanks().size());
    for (auto buffer : block.getOps<BufferOp>())
      out.buffers.push_back(
          {buffer.getSymName().str(), static_cast<int64_t>(buffer.getSlots()),
           bool(buffer.getInput()), bool(buffer.getOutput()), bool(buffer.getState())});
    for (auto segment : block.getOps<SegmentOp>()) {
      out.segments.push_back({segment.getSymName().str(), segment.getOnce(),
                              communicates(segment.callee()),
                              namesToNumbers(segment.getReads(), buffers),
                              namesToNumbers(segment.getWrites(), buffers),
                              bool(segment.getConditionAttr())});
      if (auto condition = segment.getCondition())
        out.segments.back().reads.push_back(buffers.lookup(*condition));
    }
    Numbers segments = numbersOf<SegmentOp>(block);
    for (auto op : block.getOps<ScheduleOp>()) {
      schedule::Schedule &s = out.schedules.emplace_back();
      if (auto ranks = op.getRanks())
        s.ranks.assign(ranks->begin(), ranks->end());
      for (auto run : op.getBody().front().getOps<RunOp>()) {
        FlatSymbolRefAttr name = run.getSegmentAttr();
        s.entries.push_back({name ? segments.lookup(name.getValue()) : -1,
                             static_cast<int64_t>(run.getMicroBatch()),
                             flights(run.getWaitsAttr()), flights(run.getStartsAttr())});
      }
    }
    return out;
  }

  std::vector<schedule::Flight> flights(ArrayAttr list) const {
    std::vector<schedule::Flight> out;
    if (list)
      for (auto flight : list.getAsRange<FlightAttr>())
        out.push_back(
            {transfers.lookup(flight.getTransfer().getValue()), flight.getMicroBatch()});
    return out;
  }

  ModuleOp module;
  Numbers transfers;
};

template <typename Op> std::vector<FlatSymbolRefAttr> symbolsOf(Block &block) {
  std::vector<FlatSymbolRefAttr> names;
  for (auto op : block.getOps<Op>())
    names.push_back(FlatSymbolRefAttr::get(op.getSymNameAttr()));
  return names;
}

void writeEntries(ScheduleOp op, const schedule::Schedule &schedule,
                  ArrayRef<FlatSymbolRefAttr> segments,
                  ArrayRef<FlatSymbolRefAttr> transfers) {
  OpBuilder builder(op.getContext());
  auto flights = [&](const std::vector<schedule::Flight> &list) {
    SmallVector<Attribute> out;
    for (schedule::Flight f : list)
      out.push_back(FlightAttr::get(builder.getContext(),
                                    transfers[static_cast<size_t>(f.transfer)],
                                    f.microBatch));
    return list.empty() ? ArrayAttr() : builder.getArrayAttr(out);
  };
  Block &block = op.getBody().front();
  block.clear();
  builder.setInsertionPointToEnd(&block);
  for (const schedule::Entry &entry : schedule.entries)
    RunOp::create(builder, op.getLoc(),
                  entry.segment < 0 ? FlatSymbolRefAttr()
                                    : segments[static_cast<size_t>(entry.segment)],
                  builder.getI64IntegerAttr(entry.microBatch), flights(entry.waits),
                  flights(entry.starts));
}
} // namespace

schedule::Pipeline task_ir::pipelineOf(ModuleOp module) { return Reader(module).run(); }

void task_ir::setSchedules(ModuleOp module, const schedule::Pipeline &pipeline) {
  auto transfers = symbolsOf<TransferOp>(*module.getBody());
  size_t number = 0;
  for (auto program : module.getOps<ProgramOp>()) {
    Block &block = program.getBody().front();
    auto segments = symbolsOf<SegmentOp>(block);
    const schedule::Program &from = pipeline.programs[number++];
    size_t k = 0;
    for (auto op : block.getOps<ScheduleOp>())
      writeEntries(op, from.schedules[k++], segments, transfers);
  }
}

//===----------------------------------------------------------------------===//
// Buffers of arguments and results
//===----------------------------------------------------------------------===//

FunctionBuffers::FunctionBuffers(func::FuncOp function, dist::MeshAttr mesh,
                                 std::string prefix)
    : function(function), mesh(mesh), prefix(std::move(prefix)) {
  for (auto [number, ends] : llvm::enumerate(dist::statesOf(function)))
    states[ends.state.getName()] = {static_cast<int64_t>(number), ends.state, {}};
}

dist::LayoutAttr FunctionBuffers::layoutOr(dist::LayoutAttr layout, Type type) const {
  if (layout)
    return layout;
  auto shape = cast<RankedTensorType>(type).getShape().vec();
  return dist::LayoutAttr::get(mesh.getContext(), mesh, Layout::replicated(shape));
}

FlatSymbolRefAttr FunctionBuffers::state(OpBuilder &builder, dist::StateAttr end,
                                         dist::LayoutAttr layout, Type type,
                                         int64_t slots) {
  State &known = states[end.getName()];
  if (known.symbol)
    return known.symbol;
  auto symbol = builder.getStringAttr(prefix + "state_" + Twine(known.number));
  BufferOp::create(builder, function.getLoc(), symbol, builder.getI64IntegerAttr(slots),
                   /*input=*/StringAttr(), /*output=*/StringAttr(), end.getName(),
                   known.attribute.getInit(), RegionAttr(), layoutOr(layout, type),
                   TypeAttr::get(type));
  return known.symbol = FlatSymbolRefAttr::get(symbol);
}

FlatSymbolRefAttr FunctionBuffers::argument(OpBuilder &builder, unsigned i, int64_t slots,
                                            bool isBound) {
  dist::LayoutAttr layout = dist::argumentLayout(function, i);
  Type type = function.getArgumentTypes()[i];
  if (dist::StateAttr end = dist::argumentState(function, i))
    return state(builder, end, layout, type, slots);
  auto symbol = builder.getStringAttr(prefix + "input_" + Twine(i));
  auto given = function.getArgAttrOfType<StringAttr>(i, "graph.name");
  BufferOp::create(builder, function.getLoc(), symbol, builder.getI64IntegerAttr(slots),
                   !isBound ? StringAttr()
                   : given  ? given
                            : symbol,
                   StringAttr(), layoutOr(layout, type), TypeAttr::get(type));
  return FlatSymbolRefAttr::get(symbol);
}

FlatSymbolRefAttr FunctionBuffers::result(OpBuilder &builder, unsigned i, int64_t slots,
                                          bool isBound) {
  dist::LayoutAttr layout = dist::resultLayout(function, i);
  Type type = function.getResultTypes()[i];
  if (dist::StateAttr end = dist::resultState(function, i))
    return state(builder, end, layout, type, slots);
  auto symbol = builder.getStringAttr(prefix + "output_" + Twine(i));
  auto given = function.getResultAttrOfType<StringAttr>(i, "graph.name");
  BufferOp::create(builder, function.getLoc(), symbol, builder.getI64IntegerAttr(slots),
                   StringAttr(),
                   !isBound ? StringAttr()
                   : given  ? given
                            : symbol,
                   layoutOr(layout, type), TypeAttr::get(type));
  return FlatSymbolRefAttr::get(symbol);
}

//===----------------------------------------------------------------------===//
// Straight programs
//===----------------------------------------------------------------------===//

namespace {
/// Buffers, a segment and a schedule around one function.
class StraightBuilder {
public:
  /// One that runs others is copied in any case, as these are.
  StraightBuilder(func::FuncOp function, bool mayTake)
      : function(function), mayTake(mayTake && !runsOthers(function)),
        builder(function.getContext()),
        mesh(dist::findMesh(function)
                 ? dist::findMesh(function)
                 : dist::MeshAttr::get(function.getContext(), *Mesh::parse(""))),
        buffers(function, mesh) {}

  OwningOpRef<ModuleOp> build() {
    Location loc = function.getLoc();
    OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
    for (NamedAttribute attr : function->getParentOp()->getDiscardableAttrs())
      (*module)->setDiscardableAttr(attr.getName(), attr.getValue());
    builder.setInsertionPointToEnd(module->getBody());
    SmallVector<int64_t> ranks;
    for (int64_t r = 0; r < mesh.getMesh().numRanks(); ++r)
      ranks.push_back(r);
    auto program = ProgramOp::create(builder, loc, "program", ranks);
    program->setAttr(dist::meshAttr, mesh);
    builder.setInsertionPointToEnd(&program.getBody().emplaceBlock());
    SmallVector<Attribute> reads, writes;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      reads.push_back(buffers.argument(builder, i));
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      writes.push_back(buffers.result(builder, i));
    cloneWithCallees(function);
    auto segment = SegmentOp::create(
        builder, loc, builder.getStringAttr("request"),
        /*once=*/UnitAttr(), FlatSymbolRefAttr::get(function.getSymNameAttr()),
        builder.getArrayAttr(reads), builder.getArrayAttr(writes));
    auto schedule = ScheduleOp::create(builder, loc, DenseI64ArrayAttr());
    builder.setInsertionPointToEnd(&schedule.getBody().emplaceBlock());
    RunOp::create(builder, loc, FlatSymbolRefAttr::get(segment.getSymNameAttr()),
                  builder.getI64IntegerAttr(0), ArrayAttr(), ArrayAttr());
    return module;
  }

private:
  /// A function behind those that it runs. Ops that run them become ones of tasks.
  void cloneWithCallees(FunctionOpInterface original) {
    original->walk([&](CallingOpInterface op) {
      for (Operation *callee : op.getCallees())
        cloneWithCallees(cast<FunctionOpInterface>(callee));
    });
    Operation *copy = original.getOperation();
    if (mayTake) {
      copy->remove();
      builder.insert(copy);
    } else {
      copy = builder.clone(*copy);
    }
    SmallVector<CallingOpInterface> calls;
    copy->walk([&](CallingOpInterface op) { calls.push_back(op); });
    for (CallingOpInterface op : calls)
      replaceCall(op);
  }

  static void replaceCall(CallingOpInterface op) {
    OpBuilder at(op);
    auto named = [&](StringRef name) {
      return cast<FlatSymbolRefAttr>(*op->getInherentAttr(name));
    };
    Operation *now;
    if (op->getNumOperands() != 0 && op.getArgumentOf(0) < 0) {
      now =
          IfOp::create(at, op.getLoc(), op->getResultTypes(), op->getOperand(0),
                       named("then"), named("otherwise"), op->getOperands().drop_front());
    } else {
      unsigned carried = op.getNumCarried(), scanned = 0;
      while (carried + scanned < op->getNumOperands() &&
             op.operandHasRows(carried + scanned))
        ++scanned;
      OperandRange all = op->getOperands();
      now = RepeatOp::create(at, op.getLoc(), op->getResultTypes(), named("body"),
                             at.getI64IntegerAttr(op.getCallTrips()), /*count=*/Value(),
                             all.take_front(carried), all.slice(carried, scanned),
                             all.drop_front(carried + scanned));
    }
    op->replaceAllUsesWith(now);
    op->erase();
  }

  static bool runsOthers(func::FuncOp function) {
    return function.walk([](CallingOpInterface) { return WalkResult::interrupt(); })
        .wasInterrupted();
  }

  func::FuncOp function;
  bool mayTake;
  OpBuilder builder;
  dist::MeshAttr mesh;
  FunctionBuffers buffers;
};
} // namespace

OwningOpRef<ModuleOp> task_ir::straightProgram(func::FuncOp function) {
  return StraightBuilder(function, /*mayTake=*/false).build();
}

OwningOpRef<ModuleOp> task_ir::takeStraightProgram(func::FuncOp function) {
  return StraightBuilder(function, /*mayTake=*/true).build();
}
