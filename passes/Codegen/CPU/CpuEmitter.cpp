//===- CpuEmitter.cpp - A kernel as loops over ranges of units ------------===//
#include "passes/Codegen/CPU/CpuEmitter.h"

#include "passes/Codegen/Common/Interfaces.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

KernelEmitter::Values CpuEmitter::rowLoop(ValueRange initial, int64_t points,
                                          RowBody body, bool backwards) {
  Value zero = integer(0), one = integer(1);
  // Nested loops, each carrying the values through.
  std::function<Values(size_t, ValueRange)> nest = [&](size_t dim,
                                                       ValueRange carried) -> Values {
    if (dim == spec.domain.size())
      return body(carried);
    Value size = integer(spec.rowDims == 1 ? points : spec.domain[dim]);
    auto loop = scf::ForOp::create(builder, location, zero, size, one, carried);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    scopes.emplace_back();
    point[dim] = loop.getInductionVar();
    if (backwards) {
      Value last = integer(spec.domain[dim] - 1);
      point[dim] = arith::SubIOp::create(builder, location, last, point[dim]);
    }
    Values next = nest(dim + 1, loop.getRegionIterArgs());
    if (loop.getBody()->empty() ||
        !loop.getBody()->back().hasTrait<OpTrait::IsTerminator>())
      scf::YieldOp::create(builder, location, next);
    point[dim] = nullptr;
    scopes.pop_back();
    return Values(loop.getResults());
  };
  return nest(numOuter(), initial);
}

int CpuEmitter::nodeAtOnce() const {
  for (auto [number, n] : llvm::enumerate(spec.nodes))
    if (spec.rowDims <= 1 && n.kind == KernelNode::Indexed &&
        cast<IndexedOpInterface>(n.op).getElementsAtOnce() > 1)
      return static_cast<int>(number);
  return -1;
}

KernelEmitter::Values CpuEmitter::loopAtOnce(int number, size_t dim, const Range &range,
                                             ValueRange initial, RowBody body) {
  auto op = cast<IndexedOpInterface>(node(number).op);
  OpBuilder::InsertionGuard guard(builder);
  auto loop = scf::ForOp::create(builder, location, range.from, range.to,
                                 integer(range.step), initial);
  builder.setInsertionPointToStart(loop.getBody());
  scopes.emplace_back();
  Values points;
  SmallVector<Values> indices;
  for (int64_t i = 0; i < range.step; ++i) {
    points.push_back(
        arith::AddIOp::create(builder, location, loop.getInductionVar(), integer(i)));
    point[dim] = points.back();
    indices.push_back(indexOf(number));
  }
  Values elements = op.emitElements(*this, number, indices);
  Values carried(loop.getRegionIterArgs());
  for (auto [place, element] : llvm::zip_equal(points, elements)) {
    scopes.emplace_back();
    point[dim] = place;
    scopes.back()[number] = element;
    carried = body(carried);
    scopes.pop_back();
  }
  point[dim] = nullptr;
  scopes.pop_back();
  if (!initial.empty())
    scf::YieldOp::create(builder, location, carried);
  return Values(loop.getResults());
}

/// Points of a loop that are done at once: even parts of its `size`.
static int64_t atOnce(const KernelNode &node, int64_t size) {
  const int64_t most = cast<IndexedOpInterface>(node.op).getElementsAtOnce();
  const int64_t parts = std::max<int64_t>(1, (size + most - 1) / most);
  return std::max<int64_t>(1, (size + parts - 1) / parts);
}

KernelEmitter::Values CpuEmitter::rowAtOnce(int number, ValueRange initial,
                                            RowBody body) {
  const int64_t size = rowElements(), step = atOnce(node(number), size);
  const int64_t whole = size - size % step;
  Values carried =
      loopAtOnce(number, numOuter(), {integer(0), integer(whole), step}, initial, body);
  if (whole == size)
    return carried;
  return loopAtOnce(number, numOuter(), {integer(whole), integer(size), size - whole},
                    carried, body);
}

void CpuEmitter::mapAtOnce(int number, Value from, Value to) {
  const size_t dim = numOuter() - 1;
  const int64_t step = atOnce(node(number), spec.domain[dim]);
  auto body = [&](ValueRange) {
    rowBody();
    return Values();
  };
  // A range may be empty from behind its end.
  Value count = arith::SubIOp::create(builder, location, to, from);
  Value rest = arith::RemSIOp::create(builder, location, count, integer(step));
  Value whole = arith::SubIOp::create(builder, location, to, rest);
  loopAtOnce(number, dim, {from, whole, step}, {}, body);
  loopAtOnce(number, dim, {whole, to, 1}, {}, body);
}

void CpuEmitter::mapFirst(int64_t points, llvm::function_ref<void()> body) {
  rowLoop({}, points, [&](ValueRange) {
    firstLane ? laneLoop(body) : body();
    return Values();
  });
}

Value CpuEmitter::reduceRow(Value neutral, Element element, Combine combine) {
  return rowLoop(neutral, rowElements(), [&](ValueRange carried) {
    return Values{combine(carried[0], element())};
  })[0];
}

void CpuEmitter::reduceRows(ArrayRef<Reduction> reductions) {
  if (firstLane)
    return reduceLanes(reductions);
  Values neutral;
  for (const Reduction &reduction : reductions)
    neutral.push_back(reduction.neutral);
  auto combined = [&](ValueRange carried) {
    Values next;
    for (auto [reduction, before] : llvm::zip_equal(reductions, carried))
      next.push_back(reduction.combine(before, reduction.element()));
    return next;
  };
  const int node = nodeAtOnce();
  Values results = node >= 0 && spec.rowDims == 1
                       ? rowAtOnce(node, neutral, combined)
                       : rowLoop(neutral, rowElements(), combined);
  for (auto [reduction, result] : llvm::zip_equal(reductions, results))
    define(reduction.number, [result = result] { return result; });
}

void CpuEmitter::eachRow(llvm::function_ref<void()> body) {
  firstLane ? laneLoop(body) : body();
}

void CpuEmitter::oncePerRow(llvm::function_ref<void()> body) { eachRow(body); }

void CpuEmitter::scanRow(Value neutral, Element element, Combine combine, Step step,
                         bool backwards) {
  rowLoop(
      neutral, rowElements(),
      [&](ValueRange carried) {
        Value after = combine(carried[0], element());
        step(carried[0], after);
        return Values{after};
      },
      backwards);
}

void CpuEmitter::forEach(Value from, Value to, Value step,
                         llvm::function_ref<void(Value)> body) {
  auto loop = scf::ForOp::create(builder, location, from, to, step);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// Once, whoever computes what.
void CpuEmitter::emitChecks() {
  Value isFirst = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq,
                                        begin, integer(0));
  auto branch = scf::IfOp::create(builder, location, isFirst, /*withElse=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&branch.getThenRegion().front());
  emitAllChecks();
}

void CpuEmitter::checkLoop(ArrayRef<int64_t> shape,
                           llvm::function_ref<void(ValueRange)> body) {
  SmallVector<Value> place;
  OpBuilder::InsertionGuard guard(builder);
  for (int64_t size : shape)
    place.push_back(enterLoop(integer(0), integer(size)).getInductionVar());
  body(place);
}

Value CpuEmitter::claimStatus(Value word) {
  Value code = LLVM::LoadOp::create(builder, location, builder.getI64Type(), word);
  return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq, code,
                               integer(PARTITA_STATUS_OK));
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

/// Goes into a loop of steps of 1; whoever asks restores the insertion point.
scf::ForOp CpuEmitter::enterLoop(Value from, Value to) {
  auto loop = scf::ForOp::create(builder, location, from, to, integer(1));
  builder.setInsertionPointToStart(loop.getBody());
  return loop;
}

bool CpuEmitter::lastLoop(Value from, Value to) {
  if (hasLanes()) {
    laneGroups(from, to);
    return true;
  }
  const int node = nodeAtOnce();
  if (node < 0 || spec.rowDims != 0)
    return false;
  mapAtOnce(node, from, to);
  return true;
}

void CpuEmitter::outerLoops(size_t dim) {
  if (dim == numOuter())
    return rowBody();
  if (dim + 1 == numOuter() && lastLoop(integer(0), integer(spec.domain[dim])))
    return;
  OpBuilder::InsertionGuard guard(builder);
  scopes.emplace_back();
  point[dim] = enterLoop(integer(0), integer(spec.domain[dim])).getInductionVar();
  outerLoops(dim + 1);
  scopes.pop_back();
}

/// The points of the dim behind the leading ones that lie in chunks from `first` to
/// before `last`.
void CpuEmitter::chunkLoop(const KernelSplit &split, Value first, Value last) {
  OpBuilder::InsertionGuard guard(builder);
  Value chunk = integer(split.chunk), size = integer(spec.domain[split.dims]);
  Value from = arith::MulIOp::create(builder, location, first, chunk);
  Value to = arith::MulIOp::create(builder, location, last, chunk);
  to = arith::MinSIOp::create(builder, location, to, size);
  if (split.dims + 1 == numOuter() && lastLoop(from, to))
    return;
  scopes.emplace_back();
  point[split.dims] = enterLoop(from, to).getInductionVar();
  outerLoops(split.dims + 1);
  scopes.pop_back();
}

/// The units of this call: see KernelSplit. Neighbouring chunks of one dim are one loop.
void CpuEmitter::unitLoop() {
  const KernelSplit &split = spec.split;
  if (split.units == 1)
    return outerLoops(0);
  if (split.dims == 0)
    return chunkLoop(split, begin, end);
  OpBuilder::InsertionGuard guard(builder);
  Value first = begin, last = end, chunks;
  if (split.chunk != 0) {
    chunks = integer((spec.domain[split.dims] + split.chunk - 1) / split.chunk);
    first = arith::DivUIOp::create(builder, location, begin, chunks);
    last = arith::CeilDivUIOp::create(builder, location, end, chunks);
  }
  Value index = enterLoop(first, last).getInductionVar(), rest = index;
  scopes.emplace_back();
  for (size_t d = split.dims; d-- > 1;) {
    Value size = integer(spec.domain[d]);
    point[d] = arith::RemUIOp::create(builder, location, rest, size);
    rest = arith::DivUIOp::create(builder, location, rest, size);
  }
  point[0] = rest;
  if (chunks) {
    Value base = arith::MulIOp::create(builder, location, index, chunks);
    Value from = arith::SubIOp::create(builder, location, begin, base);
    Value to = arith::SubIOp::create(builder, location, end, base);
    from = arith::MaxSIOp::create(builder, location, from, integer(0));
    to = arith::MinSIOp::create(builder, location, to, chunks);
    chunkLoop(split, from, to);
  } else {
    outerLoops(split.dims);
  }
  scopes.pop_back();
}

void CpuEmitter::emit() {
  Type i64 = builder.getI64Type();
  func::FuncOp function = beginFunction(symbol + "_body", {i64, i64});
  function.setPrivate();
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.front());
  size_t arguments = function.getNumArguments();
  begin = function.getArgument(static_cast<unsigned>(arguments) - 2);
  end = function.getArgument(static_cast<unsigned>(arguments) - 1);
  scopes.emplace_back();
  if (status)
    emitChecks();
  unitLoop();
  // Stores past the caches have no order: nobody is told of them before they are done.
  if (isStreamed())
    LLVM::FenceOp::create(builder, location, LLVM::AtomicOrdering::seq_cst);
  func::ReturnOp::create(builder, location);
  emitEntry(function);
}

/// partita_kernel_fn
void CpuEmitter::emitEntry(func::FuncOp function) {
  builder.setInsertionPointAfter(function);
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type i64 = builder.getI64Type();
  auto entry = func::FuncOp::create(
      builder, location, symbol,
      builder.getFunctionType({pointer, pointer, pointer, i64, i64, i64}, {}));
  builder.setInsertionPointToStart(entry.addEntryBlock());
  SmallVector<Value> arguments;
  for (unsigned i = 0; i < pointers.size(); ++i) {
    Value place =
        LLVM::GEPOp::create(builder, location, pointer, pointer, entry.getArgument(0),
                            ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    arguments.push_back(LLVM::LoadOp::create(builder, location, pointer, place));
  }
  if (spec.scratchBytes != 0) {
    Value bytes = integer(static_cast<int64_t>(spec.scratchBytes));
    Value mine = arith::MulIOp::create(builder, location, entry.getArgument(5), bytes);
    arguments.back() =
        LLVM::GEPOp::create(builder, location, pointer, builder.getI8Type(),
                            arguments.back(), ValueRange{mine});
  }
  if (scalars)
    arguments.push_back(entry.getArgument(1));
  if (status)
    arguments.push_back(entry.getArgument(2));
  arguments.append({entry.getArgument(3), entry.getArgument(4)});
  func::CallOp::create(builder, location, function, arguments);
  func::ReturnOp::create(builder, location);
}
