//===- Task.cpp - Who runs what when --------------------------------------===//
#include "dialects/Task/Task.h"

#include "dialects/Comm/Comm.h"
#include "partita/Base/Layout/Transfer.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace partita;
using namespace partita::task_ir;

/// `[@act 0, @grad 1]`
static ParseResult parseFlights(OpAsmParser &parser, ArrayAttr &flights) {
  SmallVector<Attribute> list;
  auto one = [&]() -> ParseResult {
    StringAttr name;
    int64_t microBatch = 0;
    if (parser.parseSymbolName(name) || parser.parseInteger(microBatch))
      return failure();
    list.push_back(
        FlightAttr::get(parser.getContext(), FlatSymbolRefAttr::get(name), microBatch));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, one))
    return failure();
  flights = parser.getBuilder().getArrayAttr(list);
  return success();
}

static void printFlights(OpAsmPrinter &printer, Operation *, ArrayAttr flights) {
  printer << "[";
  llvm::interleaveComma(flights.getAsRange<FlightAttr>(), printer, [&](FlightAttr f) {
    printer << f.getTransfer() << " " << f.getMicroBatch();
  });
  printer << "]";
}

#include "dialects/Task/TaskDialect.cpp.inc"

#include "dialects/Task/TaskEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Task/TaskAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Task/TaskTypes.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/Task/TaskOps.cpp.inc"

void TaskDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Task/TaskAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Task/TaskTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Task/TaskOps.cpp.inc"
      >();
}

LogicalResult TaskDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  if (llvm::is_contained({slicedAttr, outputsAttr, trainedAttr}, attr.getName())) {
    auto names = dyn_cast<ArrayAttr>(attr.getValue());
    if (!isa<ModuleOp>(op) || !names ||
        !llvm::all_of(names, [](Attribute name) { return isa<StringAttr>(name); }))
      return op->emitOpError(attr.getName().getValue())
             << " is a list of names, on the module";
    return success();
  }
  if (attr.getName() == onceAttr)
    return success();
  if (attr.getName() != microBatchesAttr)
    return op->emitOpError("has an unknown attribute ") << attr.getName();
  auto number = dyn_cast<IntegerAttr>(attr.getValue());
  if (!number || number.getInt() < 1)
    return op->emitOpError("expected a positive number as ") << microBatchesAttr;
  return success();
}

int64_t task_ir::microBatchesOf(ModuleOp module) {
  auto number = module->getAttrOfType<IntegerAttr>(microBatchesAttr);
  return number ? number.getInt() : 1;
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

LogicalResult ProgramOp::verify() {
  auto mesh = (*this)->getAttrOfType<dist::MeshAttr>(dist::meshAttr);
  if (!mesh)
    return emitOpError("has no ") << dist::meshAttr;
  llvm::SmallDenseSet<int64_t> seen;
  for (int64_t rank : getRanks())
    if (rank < 0 || !seen.insert(rank).second)
      return emitOpError("names rank ") << rank << " twice, or a negative one";
  if (static_cast<int64_t>(getRanks().size()) != mesh.getMesh().numRanks())
    return emitOpError("has ") << getRanks().size() << " ranks, its mesh \""
                               << mesh.getMesh().str() << "\" has "
                               << mesh.getMesh().numRanks();
  for (Operation &op : getBody().front())
    if (!isa<BufferOp, SegmentOp, ScheduleOp, func::FuncOp>(op))
      return op.emitOpError("has no place in a program");
  return success();
}

LogicalResult BufferOp::verify() {
  auto mesh = (*this)->getParentOfType<ProgramOp>()->getAttrOfType<dist::MeshAttr>(
      dist::meshAttr);
  if (mesh && getLayout().getMesh() != mesh)
    return dist::noteMesh(emitOpError("is for mesh \"") << getLayout().devices().str()
                                                        << "\", the program is for \""
                                                        << mesh.getMesh().str() << "\"",
                          *this);
  std::vector<int64_t> local = getLayout().getLayout().localShape();
  if (ArrayRef(local) != getTensorType().getShape())
    return emitOpError("expected the local shape [")
           << ArrayRef(local) << "] of its layout, got " << getType();
  if (getSlots() < 1)
    return emitOpError("has ") << getSlots() << " slots";
  if (getInput().has_value() + getOutput().has_value() + getState().has_value() > 1)
    return emitOpError("is more than one of input, output and state");
  if (getInit() && (!getState() || getSlots() != 1))
    return emitOpError("has an init and is not a state of one slot");
  if (getState() && getSpace())
    return emitOpError("is a state and has a space");
  if ((getInput() || getOutput()) && getSpace() == Region::Host)
    return emitOpError("is a tensor of the request in host memory");
  if ((getState() || getOutput()) && !getLayout().getLayout().partial.empty())
    return emitOpError("is an output or state in a layout with partial axes, ")
           << getLayout().str();
  return success();
}

func::FuncOp SegmentOp::callee() {
  return SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(*this, getFunctionAttr());
}

/// The layout on an argument or result; replicated if there is none.
static Layout layoutOr(dist::LayoutAttr layout, Type type) {
  return layout ? layout.getLayout()
                : Layout::replicated(cast<RankedTensorType>(type).getShape().vec());
}

/// Where the program stands in which something was looked for.
static InFlightDiagnostic noteProgram(InFlightDiagnostic error, Operation *op) {
  auto program = dyn_cast<ProgramOp>(op);
  if (!program)
    program = op->getParentOfType<ProgramOp>();
  error.attachNote(program.getLoc()) << "of this program";
  return error;
}

static LogicalResult verifyEnds(SegmentOp segment, SymbolTableCollection &tables,
                                ArrayAttr names, TypeRange types,
                                llvm::function_ref<dist::LayoutAttr(unsigned)> layout,
                                StringRef what) {
  if (names.size() != types.size())
    return segment.emitOpError("names ")
           << names.size() << " buffers for " << types.size() << " " << what << "s of @"
           << segment.getFunction();
  for (auto [i, name] : llvm::enumerate(names.getAsRange<FlatSymbolRefAttr>())) {
    auto buffer = tables.lookupSymbolIn<BufferOp>(segment->getParentOp(), name);
    if (!buffer)
      return noteProgram(segment.emitOpError("has no buffer ") << name, segment);
    bool fits = buffer.getType() == types[i] &&
                buffer.getLayout().getLayout().canonicalized() ==
                    layoutOr(layout(static_cast<unsigned>(i)), types[i]).canonicalized();
    if (fits)
      continue;
    InFlightDiagnostic error = segment.emitOpError("passes buffer ")
                               << name << " as " << what << " " << i << " of @"
                               << segment.getFunction() << " of another type or layout";
    error.attachNote(buffer.getLoc())
        << "the buffer is " << buffer.getType() << " in " << buffer.getLayout().str();
    return error;
  }
  return success();
}

/// One element, the same on all ranks.
static bool isReplicatedBool(BufferOp buffer) {
  RankedTensorType type = buffer.getTensorType();
  return type.getElementType().isInteger(1) && type.getNumElements() == 1 &&
         buffer.getLayout().getLayout().canonicalized() ==
             Layout::replicated(type.getShape().vec());
}

LogicalResult SegmentOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto function =
      tables.lookupSymbolIn<func::FuncOp>((*this)->getParentOp(), getFunctionAttr());
  if (!function || function.isExternal())
    return noteProgram(emitOpError("has no function @") << getFunction(), *this);
  llvm::SmallDenseSet<Attribute> seen;
  for (Attribute name : getWrites())
    if (!seen.insert(name).second)
      return emitOpError("writes buffer ") << name << " twice";
  if (auto name = getConditionAttr()) {
    auto condition = tables.lookupSymbolIn<BufferOp>((*this)->getParentOp(), name);
    if (!condition)
      return noteProgram(emitOpError("has no buffer ") << name, *this);
    if (!isReplicatedBool(condition))
      return emitOpError("runs if ")
             << name << ", which is not a bool that is equal on all ranks";
    if (seen.contains(name))
      return emitOpError("runs if ") << name << " and writes it";
  }
  if (failed(verifyEnds(
          *this, tables, getReads(), function.getArgumentTypes(),
          [&](unsigned i) { return dist::argumentLayout(function, i); }, "argument")))
    return failure();
  return verifyEnds(
      *this, tables, getWrites(), function.getResultTypes(),
      [&](unsigned i) { return dist::resultLayout(function, i); }, "result");
}

LogicalResult TransferOp::verifySymbolUses(SymbolTableCollection &tables) {
  SymbolRefAttr names[] = {getSource(), getTarget()};
  BufferOp ends[2];
  for (int i : {0, 1}) {
    ends[i] = tables.lookupSymbolIn<BufferOp>((*this)->getParentOp(), names[i]);
    if (!ends[i])
      return emitOpError("has no buffer ") << names[i];
  }
  auto noteEnds = [&](InFlightDiagnostic error) {
    error.attachNote(ends[0].getLoc()) << "the source is here";
    error.attachNote(ends[1].getLoc()) << "the target is here";
    return error;
  };
  if (ends[0]->getParentOp() == ends[1]->getParentOp())
    return noteEnds(emitOpError("does not lead from one program to another"));
  if (ends[0].getTensorType().getElementType() !=
      ends[1].getTensorType().getElementType())
    return noteEnds(emitOpError("changes the element type"));
  TransferEnd from{ends[0].getLayout().devices(), ends[0].getLayout().getLayout()};
  TransferEnd to{ends[1].getLayout().devices(), ends[1].getLayout().getLayout()};
  if (auto ok = verifyTransfer(from, to); !ok)
    return noteEnds(emitOpError("is not possible: ") << ok.error().message);
  return success();
}

LogicalResult ScheduleOp::verify() {
  for (Operation &op : getBody().front())
    if (!isa<RunOp>(op))
      return op.emitOpError("has no place in a schedule");
  return success();
}

LogicalResult RunOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto program = (*this)->getParentOfType<ProgramOp>();
  if (getSegmentAttr() && !tables.lookupSymbolIn<SegmentOp>(program, getSegmentAttr()))
    return noteProgram(emitOpError("has no segment ") << getSegmentAttr(), program);
  for (ArrayAttr list : {getWaitsAttr(), getStartsAttr()})
    for (FlightAttr flight :
         list ? list.getAsRange<FlightAttr>()
              : ArrayAttr::get(getContext(), {}).getAsRange<FlightAttr>())
      if (!tables.lookupSymbolIn<TransferOp>(program->getParentOp(),
                                             flight.getTransfer()))
        return emitOpError("has no transfer ") << flight.getTransfer();
  return success();
}

//===----------------------------------------------------------------------===//
// Communication in flight
//===----------------------------------------------------------------------===//

LogicalResult HandleType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 ArrayRef<Type> tensors) {
  if (!tensors.empty() && llvm::all_of(tensors, llvm::IsaPred<RankedTensorType>))
    return success();
  return emitError() << "expected tensors as what a handle gives";
}

/// Tells whether two collectives may be items of one call.
static bool mayShareCall(Operation &a, Operation &b) {
  auto x = dyn_cast<comm::StepOpInterface>(a), y = dyn_cast<comm::StepOpInterface>(b);
  return x && y && x.getStepKind() == y.getStepKind() && x.mayShareCall() &&
         x.getAxes() == y.getAxes() && x.getStep().reduce == y.getStep().reduce;
}

LogicalResult StartOp::verify() {
  Block &block = getBody().front();
  auto yield = dyn_cast<YieldOp>(block.back());
  auto members = communications();
  if (!yield || members.empty() ||
      !llvm::all_of(members, llvm::IsaPred<comm::CommOpInterface, MoveOp>))
    return emitOpError("expected ops that communicate, or one that moves, and a yield");
  for (Operation &op : llvm::drop_begin(members))
    if (!mayShareCall(*members.begin(), op)) {
      InFlightDiagnostic error = emitOpError(
          "expected all-reduces, reduce-scatters or all-gathers in one group and with "
          "one reduction as a bucket");
      error.attachNote(op.getLoc()) << "not one with the first";
      return error;
    }
  SmallVector<Value> given;
  for (Operation &op : members)
    given.push_back(op.getResult(0));
  if (yield.getValues() != ValueRange(given) ||
      yield.getValues().getTypes() != TypeRange(getHandle().getType().getTensors()))
    return emitOpError("expected to yield the results of its ops, of the handle's types");
  return success();
}

LogicalResult WaitOp::verify() {
  if (getResultTypes() != TypeRange(getHandle().getType().getTensors()))
    return emitOpError("gives ") << getResultTypes() << " for " << getHandle().getType();
  return success();
}

LogicalResult task_ir::verifyHandles(Operation *root) {
  WalkResult result = root->walk([](StartOp start) -> WalkResult {
    if (!start.getHandle().hasOneUse()) {
      InFlightDiagnostic error =
          start.emitOpError("expected one wait for its handle, got ")
          << llvm::range_size(start.getHandle().getUses());
      for (Operation *user : start.getHandle().getUsers())
        error.attachNote(user->getLoc()) << "the handle is used here";
      return error;
    }
    Operation *user = *start.getHandle().user_begin();
    if (!isa<WaitOp>(user) || user->getBlock() != start->getBlock()) {
      InFlightDiagnostic error = start.emitOpError("expected a wait in the same block");
      error.attachNote(user->getLoc()) << "the handle is used here";
      return error;
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

void task_ir::inlineStarts(Operation *root) {
  SmallVector<StartOp> starts;
  root->walk([&](StartOp start) { starts.push_back(start); });
  for (StartOp start : starts) {
    SmallVector<Operation *> ops;
    for (Operation &op : llvm::make_early_inc_range(start.communications())) {
      op.moveBefore(start);
      ops.push_back(&op);
    }
    for (Operation *user : llvm::make_early_inc_range(start.getHandle().getUsers())) {
      for (auto [result, op] : llvm::zip_equal(user->getResults(), ops))
        result.replaceAllUsesWith(op->getResult(0));
      user->erase();
    }
    start.erase();
  }
}
