//===- Rolling.cpp - States whose rows stay where they are ----------------===//
#include "passes/Codegen/Common/Rolling.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;
using namespace partita::task_ir;

//===----------------------------------------------------------------------===//
// One function
//===----------------------------------------------------------------------===//

int64_t RolledValues::rowsOf(Value value) const { return shapeOf(value)[dim]; }

int64_t RolledValues::advance() const {
  int64_t rows = 0;
  for (Value value : appended)
    rows += rowsOf(value);
  return rows;
}

namespace {
class RollFinder {
public:
  RollFinder(func::FuncOp function, Value past) : function(function), past(past) {}

  std::optional<RolledValues> find(Value result) {
    SmallVector<Operation *> chain;
    bool grows = false;
    for (Value value = result; value != past;) {
      Operation *op = value.getDefiningOp();
      if (!isa_and_present<graph::ConcatOp, graph::SliceOp>(op))
        return std::nullopt;
      if (auto concat = dyn_cast<graph::ConcatOp>(op)) {
        size_t dim = *normalizeAxis(concat.getAxis(), shapeOf(value).size());
        if (std::exchange(grows, true) && dim != found.dim)
          return std::nullopt;
        found.dim = dim;
      }
      chain.push_back(op);
      value = op->getOperand(0);
    }
    if (!grows)
      return std::nullopt;
    found.window = found.rowsOf(past);
    found.rows[past] = {0, found.window};
    for (Operation *op : llvm::reverse(chain))
      if (!add(op, /*extends=*/true))
        return std::nullopt;
    int64_t moved = found.advance();
    if (moved == 0 || found.rows[result] != std::pair(moved, moved + found.window))
      return std::nullopt;
    // What else is made of the same rows.
    for (Operation &op : function.front().without_terminator())
      add(&op, /*extends=*/false);
    return std::move(found);
  }

private:
  bool add(Operation *op, bool extends) {
    if (!isa<graph::ConcatOp, graph::SliceOp>(op))
      return false;
    auto from = found.rows.find(op->getOperand(0));
    if (from == found.rows.end())
      return false;
    auto [begin, end] = from->second;
    if (auto slice = dyn_cast<graph::SliceOp>(op))
      return addSlice(slice, begin);
    return addConcat(cast<graph::ConcatOp>(op), begin, end, extends);
  }

  bool addSlice(graph::SliceOp slice, int64_t begin) {
    Value result = slice.getResult();
    ::partita::Shape from = shapeOf(slice.getInput()), to = shapeOf(result);
    for (size_t d = 0; d < to.size(); ++d) {
      bool isWhole = to[d] == from[d] && slice.getStarts()[d] == 0;
      if ((d != found.dim && !isWhole) || (slice.getSteps()[d] != 1 && to[d] != 1))
        return false;
    }
    begin += slice.getStarts()[found.dim];
    found.rows[result] = {begin, begin + to[found.dim]};
    return true;
  }

  /// What is appended begins where the old rows, or those appended before, end.
  bool addConcat(graph::ConcatOp concat, int64_t begin, int64_t end, bool extends) {
    Value result = concat.getResult();
    if (static_cast<size_t>(*normalizeAxis(concat.getAxis(), shapeOf(result).size())) !=
        found.dim)
      return false;
    size_t next = 0;
    int64_t at = found.window;
    while (at < end && next < found.appended.size())
      at += found.rowsOf(found.appended[next++]);
    if (at != end)
      return false;
    for (Value value : concat->getOperands().drop_front()) {
      if (next < found.appended.size() ? found.appended[next] != value
                                       : !extends || found.rows.contains(value) ||
                                             llvm::is_contained(found.appended, value))
        return false;
      if (next++ == found.appended.size())
        found.appended.push_back(value);
      end += found.rowsOf(value);
    }
    found.rows[result] = {begin, end};
    return true;
  }

  func::FuncOp function;
  Value past;
  RolledValues found;
};
} // namespace

std::optional<RolledValues> codegen::rolledValues(func::FuncOp function,
                                                  unsigned argument, unsigned result) {
  Value past = function.getArgument(argument);
  if (elementCount(shapeOf(past)) == 0)
    return std::nullopt;
  return RollFinder(function, past)
      .find(function.front().getTerminator()->getOperand(result));
}

//===----------------------------------------------------------------------===//
// One bundle
//===----------------------------------------------------------------------===//

StateUses::StateUses(ProgramOp program)
    : microBatches(microBatchesOf(program->getParentOfType<ModuleOp>())) {
  for (auto segment : program.getBody().front().getOps<SegmentOp>()) {
    // Found by its name among all names of the program: once, not for every state.
    func::FuncOp function = segment.callee();
    auto touch = [&](FlatSymbolRefAttr name) -> Uses & {
      Uses &it = uses[name.getAttr()];
      if (it.segment != segment) {
        it.segment = segment, it.function = function;
        ++it.segments;
      }
      return it;
    };
    for (auto [i, name] :
         llvm::enumerate(segment.getReads().getAsRange<FlatSymbolRefAttr>())) {
      Uses &it = touch(name);
      ++it.reads;
      it.read = static_cast<unsigned>(i);
    }
    for (auto [i, name] :
         llvm::enumerate(segment.getWrites().getAsRange<FlatSymbolRefAttr>())) {
      Uses &it = touch(name);
      ++it.writes;
      it.write = static_cast<unsigned>(i);
    }
  }
  for (auto transfer : program->getParentOfType<ModuleOp>().getOps<TransferOp>())
    for (SymbolRefAttr end : {transfer.getSource(), transfer.getTarget()})
      if (end.getRootReference() == program.getSymNameAttr())
        uses[end.getLeafReference()].isSent = true;
}

bool StateUses::mayRoll(BufferOp buffer) const {
  return !buffer.getInit() && !uses.lookup(buffer.getSymNameAttr()).isSent;
}

std::optional<RollingSegment> StateUses::rollingSegment(BufferOp buffer) const {
  if (!buffer.getState() || !mayRoll(buffer))
    return std::nullopt;
  const Uses it = uses.lookup(buffer.getSymNameAttr());
  SegmentOp only = it.segment;
  if (it.segments != 1 || only.getConditionAttr())
    return std::nullopt;
  // Each slot moves on once in a request.
  auto times = only.getOnce() ? 1 : microBatches;
  if (static_cast<int64_t>(buffer.getSlots()) != times || it.reads != 1 || it.writes != 1)
    return std::nullopt;
  auto values = rolledValues(it.function, it.read, it.write);
  if (!values)
    return std::nullopt;
  return RollingSegment{only, std::move(*values)};
}

/// Elements from one row of a state to the next, where rows are aligned, as kernels and
/// engines take their operands; nothing if they would take more than half as much again.
static std::optional<int64_t> alignedRow(BufferOp buffer, size_t dim) {
  RankedTensorType type = buffer.getTensorType();
  auto width = static_cast<int64_t>(byteWidth(*partita::dtypeOf(type.getElementType())));
  int64_t own = elementCount(type.getShape().drop_front(dim + 1).vec());
  int64_t step = PARTITA_BUFFER_ALIGNMENT / width, row = (own + step - 1) / step * step;
  return 2 * row <= 3 * own ? std::optional(row) : std::nullopt;
}

/// How many rows beyond the window a place has. Without one a request would move the
/// whole window; with r of them, every (r / n)-th request of n rows does. The window is
/// read whole in every request, so that a quarter of it makes the moves cost less than
/// 8/M of what is read. A short window takes little memory: twice as much of it, up to
/// 256 rows.
static int64_t reserveOf(int64_t window, int64_t most) {
  return std::max({most, window / 4, std::min<int64_t>(window, 256)});
}

void RollingStates::add(ModuleOp module) {
  for (auto program : module.getOps<ProgramOp>()) {
    const StateUses &uses = usesOf.try_emplace(program, program).first->second;
    for (auto buffer : program.getBody().front().getOps<BufferOp>()) {
      if (!buffer.getState())
        continue;
      std::pair key(program.getSymName().str(), buffer.getState()->str());
      if (!uses.mayRoll(buffer))
        states[key].differs = true;
      auto rolling = uses.rollingSegment(buffer);
      if (!rolling)
        continue;
      const RolledValues &values = rolling->values;
      if (!alignedRow(buffer, values.dim))
        continue;
      Known &it = states.try_emplace(key, Known{values.dim, values.window}).first->second;
      it.differs |= it.dim != values.dim || it.window != values.window;
      it.most = std::max(it.most, values.advance());
    }
  }
}

std::optional<RollingSegment> RollingStates::segmentOf(ProgramOp program,
                                                       BufferOp buffer) const {
  auto known = usesOf.find(program);
  return known == usesOf.end() ? std::nullopt : known->second.rollingSegment(buffer);
}

std::optional<Roll> RollingStates::rollOf(ProgramOp program, BufferOp buffer) const {
  if (!buffer.getState())
    return std::nullopt;
  auto known = states.find({program.getSymName().str(), buffer.getState()->str()});
  if (known == states.end() || known->second.differs)
    return std::nullopt;
  const Known &it = known->second;
  auto row = it.dim < static_cast<size_t>(buffer.getTensorType().getRank())
                 ? alignedRow(buffer, it.dim)
                 : std::nullopt;
  if (!row) // of another shape than in the entry that moves it on
    return std::nullopt;
  Roll roll;
  roll.dim = it.dim;
  roll.outer = elementCount(buffer.getTensorType().getShape().take_front(it.dim).vec());
  roll.window = it.window;
  roll.row = *row;
  roll.capacity = it.window + reserveOf(it.window, it.most);
  if (auto rolling = segmentOf(program, buffer))
    roll.advance = rolling->values.advance();
  return roll;
}
