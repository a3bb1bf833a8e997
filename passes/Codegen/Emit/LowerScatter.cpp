//===- LowerScatter.cpp - Rows written at places: scatter, sort -----------===//
#include "passes/Codegen/Emit/Models.h"
#include "passes/Codegen/Emit/RowPasses.h"

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Calls `body` at each i with from ≤ i < to by `step`.
static void forRange(KernelEmitter &e, Value from, Value to, Value step,
                     llvm::function_ref<void(Value)> body) {
  auto loop = scf::ForOp::create(e.builder, e.location, from, to, step);
  OpBuilder::InsertionGuard guard(e.builder);
  e.builder.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

static Value compare(KernelEmitter &e, arith::CmpIPredicate predicate, Value a, Value b) {
  return arith::CmpIOp::create(e.builder, e.location, predicate, a, b);
}

namespace {
/// The row of the data goes into scratch, the updates of the row after it. A place of a
/// row is written by one thread, so that its updates come in their order.
struct ScatterModel
    : RowOpInterface::ExternalModel<ScatterModel, graph::ScatterElementsOp> {
  int64_t numScratchRows(Operation *) const { return 1; }
  bool isChecked(Operation *op) const {
    return !cast<graph::ScatterElementsOp>(op).getMasked();
  }
  void emitChecks(Operation *op, KernelEmitter &e, int number) const {
    int64_t size =
        shapeOf(op->getOperand(0))[static_cast<size_t>(kernelFactsOf(op).rowDims[0])];
    e.checkIndices(number, 0, [&](ValueRange) { return e.integer(size); });
  }

  void emitRow(Operation *op, KernelEmitter &e, int number) const {
    Passes p(e, number);
    bool inPlace = e.changesInPlace(number);
    if (!inPlace)
      e.mapRow([&] { e.storeRow(number, 0, p.x()); });
    auto axis = static_cast<size_t>(kernelFactsOf(op).rowDims[0]);
    Shape data = shapeOf(op->getOperand(0)), updates = shapeOf(op->getOperand(2));
    KernelEmitter::Values index = e.indexOf(number);
    // Rows behind the last that the updates reach stay as they are.
    Value isReached;
    for (size_t d = 0; d < data.size(); ++d) {
      if (d == axis || updates[d] == data[d])
        continue;
      Value inside =
          compare(e, arith::CmpIPredicate::ult, index[d], e.integer(updates[d]));
      isReached = isReached
                      ? arith::AndIOp::create(e.builder, e.location, isReached, inside)
                            .getResult()
                      : inside;
    }
    Value count = e.integer(updates[axis]);
    if (isReached)
      count =
          arith::SelectOp::create(e.builder, e.location, isReached, count, e.integer(0));
    forRange(e, e.integer(0), count, e.integer(1), [&](Value i) {
      index[axis] = i;
      update(cast<graph::ScatterElementsOp>(op), p, index, data[axis], inPlace);
    });
    if (inPlace)
      return;
    e.meet();
    Type type = p.type;
    e.define(number, [=, &e]() -> Value { return e.loadRow(number, 0, type); });
  }

  /// In scratch, or where the row lies.
  static void update(graph::ScatterElementsOp op, Passes &p, ArrayRef<Value> index,
                     int64_t size, bool inPlace) {
    KernelEmitter &e = p.e;
    Value place = e.loadAt(p.node.reads[0], index);
    if (place.getType().getIntOrFloatBitWidth() < 64)
      place = arith::ExtSIOp::create(p.b, p.at, p.b.getI64Type(), place);
    if (!op.getMasked()) {
      Value fromEnd = arith::AddIOp::create(p.b, p.at, place, e.integer(size));
      Value isNegative = compare(e, arith::CmpIPredicate::slt, place, e.integer(0));
      place = arith::SelectOp::create(p.b, p.at, isNegative, fromEnd, place);
    }
    // Outside are places of other ranks, and what the checks have reported.
    Value isHere = compare(e, arith::CmpIPredicate::ult, place, e.integer(size));
    if (Value isMine = e.isMine(place))
      isHere = arith::AndIOp::create(p.b, p.at, isHere, isMine);
    auto branch = scf::IfOp::create(p.b, p.at, isHere, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(&branch.getThenRegion().front());
    Value element = e.loadAt(p.node.reads[1], index);
    if (std::optional<ReduceKind> kind = op.getKind()) {
      Value before =
          inPlace ? e.loadOutputAt(place) : e.loadRowAt(p.number, 0, place, p.type);
      element = p.inOrder(*kind, before, element);
    }
    inPlace ? e.storeOutputAt(place, element) : e.storeRowAt(p.number, 0, place, element);
  }
};

/// A merge sort from the bottom up, in which runs keep their first `count` only: the runs
/// of a pass begin every 2·width, of which `count` at most are of interest. Scratch: the
/// keys, the places in order, the places in the order to be.
struct SortModel : RowOpInterface::ExternalModel<SortModel, graph::SortOp> {
  int64_t numScratchRows(Operation *) const { return 3; }

  void emitRow(Operation *op, KernelEmitter &e, int number) const {
    Passes p(e, number);
    Type i64 = p.b.getI64Type(), keyType;
    DType key = e.node(p.node.args[0]).type;
    e.mapRow([&] {
      Value x = p.x(), place = e.rowPosition();
      if (x.getType().isInteger(1))
        x = e.convert(x, DType::Bool, DType::I8);
      keyType = x.getType();
      e.storeRow(number, 0, x);
      e.storeRow(number, 1, place);
    });
    auto sort = cast<graph::SortOp>(op);
    int64_t extent = e.rowElements(), count = sort.getCount(), slot = 1;
    for (int64_t width = 1; width < extent; width *= 2, slot = 3 - slot) {
      Merge merge{p, sort.getDescending(), key, keyType, slot, width, count, extent};
      e.forEach(e.integer(0), e.integer(extent), e.integer(2 * width),
                [&](Value begin) { merge.run(begin); });
    }
    auto orZero = [=, &e](Value element) -> Value {
      Value isFirst =
          compare(e, arith::CmpIPredicate::ult, e.rowPosition(), e.integer(count));
      return arith::SelectOp::create(e.builder, e.location, isFirst, element,
                                     e.constant(element.getType(), 0));
    };
    e.define(number, [=, &e]() -> Value {
      Value place = e.loadRow(number, slot, i64);
      Value element = orZero(e.loadRowAt(number, 0, place, keyType));
      return key == DType::Bool ? e.convert(element, DType::I8, DType::Bool) : element;
    });
    e.define(
        number, [=, &e]() -> Value { return orZero(e.loadRow(number, slot, i64)); }, 1);
  }

  /// Two runs of a pass, from scratch row `slot` into the other of rows 1 and 2.
  struct Merge {
    Passes &p;
    bool descending;
    DType key;
    Type keyType;
    int64_t slot, width, count, extent;

    void run(Value begin) {
      KernelEmitter &e = p.e;
      auto add = [&](Value a, Value c) -> Value {
        return arith::AddIOp::create(p.b, p.at, a, c);
      };
      auto atMost = [&](Value a, int64_t most) -> Value {
        return arith::MinSIOp::create(p.b, p.at, a, e.integer(most));
      };
      Value second = atMost(add(begin, e.integer(width)), extent);
      Value end = atMost(add(begin, e.integer(2 * width)), extent);
      // Of each run its first `count`.
      Value leftEnd =
          arith::MinSIOp::create(p.b, p.at, second, add(begin, e.integer(count)));
      Value rightEnd =
          arith::MinSIOp::create(p.b, p.at, end, add(second, e.integer(count)));
      Value last = arith::MinSIOp::create(p.b, p.at, end, add(begin, e.integer(count)));
      auto loop = scf::ForOp::create(p.b, p.at, begin, last, e.integer(1),
                                     ValueRange{begin, second});
      OpBuilder::InsertionGuard guard(p.b);
      p.b.setInsertionPointToStart(loop.getBody());
      Value i = loop.getRegionIterArgs()[0], j = loop.getRegionIterArgs()[1];
      Value left = placeAt(i), right = placeAt(j);
      Value rightFirst = isBefore(right, left);
      Value leftDone = compare(e, arith::CmpIPredicate::sge, i, leftEnd);
      Value rightThere = compare(e, arith::CmpIPredicate::slt, j, rightEnd);
      Value takeRight = arith::AndIOp::create(
          p.b, p.at, rightThere, arith::OrIOp::create(p.b, p.at, leftDone, rightFirst));
      Value taken = arith::SelectOp::create(p.b, p.at, takeRight, right, left);
      e.storeRowAt(p.number, 3 - slot, loop.getInductionVar(), taken);
      Value nextI =
          arith::SelectOp::create(p.b, p.at, takeRight, i, add(i, e.integer(1)));
      Value nextJ =
          arith::SelectOp::create(p.b, p.at, takeRight, add(j, e.integer(1)), j);
      scf::YieldOp::create(p.b, p.at, ValueRange{nextI, nextJ});
    }

    /// The place at `i` of the row; behind the end some other.
    Value placeAt(Value i) {
      Value inside = arith::MinSIOp::create(p.b, p.at, i, p.e.integer(extent - 1));
      return p.e.loadRowAt(p.number, slot, inside, p.b.getI64Type());
    }

    /// Whether the element at place `a` comes before that at `c`, for other reasons than
    /// their places.
    Value isBefore(Value a, Value c) {
      Value x = p.e.loadRowAt(p.number, 0, a, keyType);
      Value y = p.e.loadRowAt(p.number, 0, c, keyType);
      if (descending)
        std::swap(x, y);
      if (!isa<FloatType>(keyType))
        return compare(
            p.e, isUnsigned(key) ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt,
            x, y);
      // x < y, or only y is NaN.
      auto check = [&](arith::CmpFPredicate predicate, Value v, Value w) -> Value {
        return arith::CmpFOp::create(p.b, p.at, predicate, v, w);
      };
      Value less = check(arith::CmpFPredicate::OLT, x, y);
      Value onlyY =
          arith::AndIOp::create(p.b, p.at, check(arith::CmpFPredicate::ORD, x, x),
                                check(arith::CmpFPredicate::UNO, y, y));
      return arith::OrIOp::create(p.b, p.at, less, onlyY);
    }
  };
};
} // namespace

void codegen::attachIndexedRowModels(MLIRContext &context) {
  graph::ScatterElementsOp::attachInterface<ScatterModel>(context);
  graph::SortOp::attachInterface<SortModel>(context);
}
