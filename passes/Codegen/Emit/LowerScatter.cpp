//===- LowerScatter.cpp - Rows written at places: scatter, sort, suppress -===//
#include "passes/Codegen/Emit/Models.h"
#include "passes/Codegen/Emit/RowPasses.h"

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <array>

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

/// A merge sort from the bottom up, of entries in scratch rows 1 and 2 by turns, in which
/// runs keep their first `count` only: the runs of a pass begin every 2·width, of which
/// `count` at most are of interest.
class MergeSort {
public:
  /// Tells whether entry `a` comes before `c` for other reasons than their places.
  using Order = llvm::function_ref<Value(Value a, Value c)>;

  /// `extent` entries in row 1, at most `most`; the first `base` of them, if given, are
  /// not of these.
  MergeSort(Passes &p, Value count, Value extent, int64_t most, Order isBefore,
            Value base = {})
      : p(p), count(count), extent(extent), most(most), isBefore(isBefore), base(base) {}

  /// The row in which they lie then.
  int64_t run() {
    KernelEmitter &e = p.e;
    for (width = 1; width < most; width *= 2, slot = 3 - slot)
      e.forEach(base ? base : e.integer(0), extent, e.integer(2 * width),
                [&](Value begin) { merge(begin); });
    return slot;
  }

  /// Two sorted runs, the first of `ofFirst` entries, into row 2.
  void mergeRuns(int64_t ofFirst) {
    width = ofFirst;
    merge(p.e.integer(0));
  }

  /// The same by one thread, and back into row 1. What fills a row up, as many equal
  /// entries behind which none comes, is left there.
  void runInPlace() {
    KernelEmitter &e = p.e;
    Value fill = entryAt(extent); // the last entry
    Value begin = behindLast([&](Value entry) { return isBefore(entry, fill); });
    Value later = behindLast([&](Value entry) { return isBefore(fill, entry); });
    Value isFill = compare(e, arith::CmpIPredicate::eq, later, e.integer(0));
    Value many = arith::SelectOp::create(p.b, p.at, isFill, begin, extent);
    if (MergeSort(p, count, many, most, isBefore).run() == 1)
      return;
    forRange(e, e.integer(0), least(count, many), e.integer(1), [&](Value i) {
      e.storeRowAt(p.number, 1, i, e.loadRowAt(p.number, 2, i, i.getType()));
    });
  }

private:
  Value add(Value a, Value c) { return arith::AddIOp::create(p.b, p.at, a, c); }
  Value least(Value a, Value c) { return arith::MinSIOp::create(p.b, p.at, a, c); }

  /// The place behind the last entry of which `isOne` holds; 0: none.
  Value behindLast(llvm::function_ref<Value(Value entry)> isOne) {
    KernelEmitter &e = p.e;
    auto loop = scf::ForOp::create(p.b, p.at, e.integer(0), extent, e.integer(1),
                                   ValueRange{e.integer(0)});
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(loop.getBody());
    Value i = loop.getInductionVar();
    scf::YieldOp::create(p.b, p.at,
                         ValueRange{arith::SelectOp::create(
                             p.b, p.at, isOne(entryAt(i)), add(i, e.integer(1)),
                             loop.getRegionIterArgs()[0])});
    return loop.getResult(0);
  }

  /// Two runs of a pass, from row `slot` into the other.
  void merge(Value begin) {
    KernelEmitter &e = p.e;
    Value second = least(add(begin, e.integer(width)), extent);
    Value end = least(add(begin, e.integer(2 * width)), extent);
    // Each run counts with its first `count` entries.
    Value leftEnd = least(second, add(begin, count));
    Value rightEnd = least(end, add(second, count));
    Value last = least(end, add(begin, count));
    auto loop = scf::ForOp::create(p.b, p.at, begin, last, e.integer(1),
                                   ValueRange{begin, second});
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(loop.getBody());
    Value i = loop.getRegionIterArgs()[0], j = loop.getRegionIterArgs()[1];
    Value left = entryAt(i), right = entryAt(j);
    Value rightFirst = isBefore(right, left);
    Value leftDone = compare(e, arith::CmpIPredicate::sge, i, leftEnd);
    Value rightThere = compare(e, arith::CmpIPredicate::slt, j, rightEnd);
    Value takeRight = arith::AndIOp::create(
        p.b, p.at, rightThere, arith::OrIOp::create(p.b, p.at, leftDone, rightFirst));
    Value taken = arith::SelectOp::create(p.b, p.at, takeRight, right, left);
    e.storeRowAt(p.number, 3 - slot, loop.getInductionVar(), taken);
    Value nextI = arith::SelectOp::create(p.b, p.at, takeRight, i, add(i, e.integer(1)));
    Value nextJ = arith::SelectOp::create(p.b, p.at, takeRight, add(j, e.integer(1)), j);
    scf::YieldOp::create(p.b, p.at, ValueRange{nextI, nextJ});
  }

  /// The entry at `i` of the row; behind the end some other.
  Value entryAt(Value i) {
    return p.e.loadRowAt(p.number, slot, least(i, add(extent, p.e.integer(-1))),
                         p.b.getI64Type());
  }

  Passes &p;
  Value count, extent;
  int64_t most;
  Order isBefore;
  Value base;
  int64_t slot = 1, width = 1;
};

/// The first entries of many, by one thread: an entry that does not come before the last
/// of the best so far is passed over. The others wait behind those, until there are as
/// many again, which leaves the best of both in their order. Blocks of entries that are
/// all passed over take one comparison an entry, by vectors: most are, as the best 1000
/// of 1,000,000 in any order replace each other some 10,000 times.
///
/// What was found, 2·count at most, lies together, so that sorting it stays in the cache:
///   row 0   keys of what was found, then keys of the entries that come
///   row 1   numbers of what was found, as sorted; behind 2·count of these, places
///   row 2   what is on its way
/// An entry is found behind as many others at least: its key is not overwritten before.
class Selection {
public:
  Selection(Passes &p, int64_t count, Type keyType, MergeSort::Order isBefore)
      : p(p), count(count), keyType(keyType), isBefore(isBefore) {}

  /// Leaves the first `count` of the row in their order: places in row 1, keys in row 0.
  void run() {
    KernelEmitter &e = p.e;
    auto found = blocks({e.integer(0), e.integer(-1)});
    keepBest(found[0], found[1]);
    each(e.integer(count),
         [&](Value i) { store(1, i, load(1, placeAt(i), i.getType())); });
  }

private:
  using Carried = std::array<Value, 2>; ///< how many were found, the last of the best

  static constexpr int64_t blockPlaces = 64;

  SmallVector<Value> blocks(Carried begin) {
    KernelEmitter &e = p.e;
    Value extent = e.integer(e.rowElements());
    auto place = [&](Value place, Carried now) {
      return whereIf(isBest(place, now[1]), now,
                     [&] { return taken(place, now[0], now[1]); });
    };
    auto block = [&](Value from, Carried now) {
      Value next = arith::AddIOp::create(p.b, p.at, from, e.integer(blockPlaces));
      Value to = arith::MinSIOp::create(p.b, p.at, next, extent);
      return whereIf(mayTake(from, to, now[1]), now,
                     [&] { return loop(from, to, 1, now, place); });
    };
    return loop(e.integer(0), extent, blockPlaces, begin, block);
  }

  SmallVector<Value> loop(Value from, Value to, int64_t step, Carried begin,
                          llvm::function_ref<SmallVector<Value>(Value, Carried)> body) {
    auto loop = scf::ForOp::create(p.b, p.at, from, to, p.e.integer(step), begin);
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(loop.getBody());
    auto carried = loop.getRegionIterArgs();
    scf::YieldOp::create(p.b, p.at,
                         body(loop.getInductionVar(), {carried[0], carried[1]}));
    return SmallVector<Value>(loop.getResults());
  }

  /// There is no last one before as many as are wanted were found.
  Value isFirst(Value last) {
    return compare(p.e, arith::CmpIPredicate::slt, last, p.e.integer(0));
  }

  Value isBest(Value place, Value last) {
    Value first = isFirst(last);
    // A place to compare with is there without a last one, too.
    Value other = arith::SelectOp::create(p.b, p.at, first, place, last);
    return arith::OrIOp::create(p.b, p.at, first, isBefore(place, other));
  }

  /// Whether an entry of the block is among the best so far.
  Value mayTake(Value from, Value to, Value last) {
    Value first = isFirst(last);
    Value other = arith::SelectOp::create(p.b, p.at, first, from, last);
    auto loop =
        scf::ForOp::create(p.b, p.at, from, to, p.e.integer(1), ValueRange{first});
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(loop.getBody());
    Value any = arith::OrIOp::create(p.b, p.at, loop.getRegionIterArgs()[0],
                                     isBefore(loop.getInductionVar(), other));
    scf::YieldOp::create(p.b, p.at, any);
    return loop.getResult(0);
  }

  /// Values of `body` where `condition` holds; else those that are carried.
  SmallVector<Value> whereIf(Value condition, Carried carried,
                             llvm::function_ref<SmallVector<Value>()> body) {
    auto branch = scf::IfOp::create(
        p.b, p.at, condition,
        [&](OpBuilder &, Location) { scf::YieldOp::create(p.b, p.at, body()); },
        [&](OpBuilder &, Location) { scf::YieldOp::create(p.b, p.at, carried); });
    return SmallVector<Value>(branch.getResults());
  }

  void store(int64_t slot, Value at, Value element) {
    p.e.storeRowAt(p.number, slot, at, element);
  }
  Value load(int64_t slot, Value at, Type type) {
    return p.e.loadRowAt(p.number, slot, at, type);
  }
  void each(Value end, llvm::function_ref<void(Value)> body) {
    forRange(p.e, p.e.integer(0), end, p.e.integer(1), body);
  }
  /// In row 1.
  Value placeAt(Value number) {
    return arith::AddIOp::create(p.b, p.at, number, p.e.integer(2 * count));
  }

  /// Puts the place behind what was found; where that is full, keeps the best: it is full
  /// at first with as many as are wanted.
  SmallVector<Value> taken(Value place, Value found, Value last) {
    KernelEmitter &e = p.e;
    store(0, found, load(0, place, keyType));
    store(1, placeAt(found), place);
    Value more = arith::AddIOp::create(p.b, p.at, found, e.integer(1));
    Value full = arith::SelectOp::create(p.b, p.at, isFirst(last), e.integer(count),
                                         e.integer(2 * count));
    Value isFull = compare(e, arith::CmpIPredicate::eq, more, full);
    return whereIf(isFull, {more, last}, [&]() -> SmallVector<Value> {
      keepBest(more, last);
      return {e.integer(count), e.integer(count - 1)};
    });
  }

  /// Of what was found the first `count`, in their order: those that wait are sorted, and
  /// merged with the best of before.
  void keepBest(Value found, Value last) {
    KernelEmitter &e = p.e;
    Type number = found.getType();
    each(found, [&](Value i) { store(1, i, i); });
    Value base =
        arith::SelectOp::create(p.b, p.at, isFirst(last), e.integer(0), e.integer(count));
    if (MergeSort(p, e.integer(count), found, count, isBefore, base).run() != 1)
      forRange(e, base, found, e.integer(1),
               [&](Value i) { store(1, i, load(2, i, number)); });
    MergeSort(p, e.integer(count), found, 2 * count, isBefore).mergeRuns(count);
    each(e.integer(count), [&](Value i) { store(1, i, load(2, i, number)); });
    auto reorder = [&](int64_t slot, Type type, auto at) {
      each(e.integer(count),
           [&](Value i) { store(2, i, load(slot, at(load(1, i, number)), type)); });
      each(e.integer(count), [&](Value i) { store(slot, at(i), load(2, i, type)); });
    };
    reorder(0, keyType, [](Value i) { return i; });
    reorder(1, number, [&](Value i) { return placeAt(i); });
  }

  Passes &p;
  int64_t count;
  Type keyType;
  MergeSort::Order isBefore;
};

/// Scratch: the keys, then two rows of their places for the sort.
struct SortModel : RowOpInterface::ExternalModel<SortModel, graph::SortOp> {
  /// The least entries for each that is wanted with which a selection pays.
  static constexpr int64_t fewShare = 4;

  int64_t numScratchRows(Operation *) const { return 3; }

  void emitRow(Operation *op, KernelEmitter &e, int number) const {
    Passes p(e, number);
    Type i64 = p.b.getI64Type(), keyType;
    DType key = e.node(p.node.args[0]).type;
    auto sort = cast<graph::SortOp>(op);
    int64_t count = sort.getCount();
    const bool isDivided = bool(e.isMine(e.integer(0)));
    const bool selects = !isDivided && count > 0 && count <= e.rowElements() / fewShare;
    e.mapRow([&] {
      Value x = p.x(), place = e.rowPosition();
      if (x.getType().isInteger(1))
        x = e.convert(x, DType::Bool, DType::I8);
      keyType = x.getType();
      e.storeRow(number, 0, x);
      if (!selects)
        e.storeRow(number, 1, place);
    });
    auto isBefore = [&](Value a, Value c) {
      Value x = e.loadRowAt(number, 0, a, keyType);
      Value y = e.loadRowAt(number, 0, c, keyType);
      return sort.getDescending() ? isBelow(p, y, x, key) : isBelow(p, x, y, key);
    };
    int64_t slot = 1;
    MergeSort whole(p, e.integer(count), e.integer(e.rowElements()), e.rowElements(),
                    isBefore);
    if (isDivided)
      slot = whole.run();
    else if (selects)
      Selection(p, count, keyType, isBefore).run();
    else
      whole.runInPlace();
    auto orZero = [=, &e](Value element) -> Value {
      Value isFirst =
          compare(e, arith::CmpIPredicate::ult, e.rowPosition(), e.integer(count));
      return arith::SelectOp::create(e.builder, e.location, isFirst, element,
                                     e.constant(element.getType(), 0));
    };
    e.define(number, [=, &e]() -> Value {
      Value element =
          orZero(selects ? e.loadRow(number, 0, keyType)
                         : e.loadRowAt(number, 0, e.loadRow(number, slot, i64), keyType));
      return key == DType::Bool ? e.convert(element, DType::I8, DType::Bool) : element;
    });
    e.define(
        number, [=, &e]() -> Value { return orZero(e.loadRow(number, slot, i64)); }, 1);
  }

  /// x < y, or only y is NaN.
  static Value isBelow(Passes &p, Value x, Value y, DType key) {
    if (!isa<FloatType>(x.getType()))
      return compare(
          p.e, isUnsigned(key) ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt, x,
          y);
    auto check = [&](arith::CmpFPredicate predicate, Value v, Value w) -> Value {
      return arith::CmpFOp::create(p.b, p.at, predicate, v, w);
    };
    Value less = check(arith::CmpFPredicate::OLT, x, y);
    Value onlyY = arith::AndIOp::create(p.b, p.at, check(arith::CmpFPredicate::ORD, x, x),
                                        check(arith::CmpFPredicate::UNO, y, y));
    return arith::OrIOp::create(p.b, p.at, less, onlyY);
  }
};

static DType elementOf(Value tensor) {
  return *dtypeOf(getElementTypeOrSelf(tensor.getType()));
}

/// Low corner, high corner and area of a box, or of as many boxes as a vector has lanes.
struct Boxes {
  Value low[2], high[2], area;
};

/// Boxes by shorthands; values may be vectors.
class BoxArithmetic {
public:
  explicit BoxArithmetic(Passes &p) : p(p) {}

  Value sub(Value a, Value c) { return arith::SubFOp::create(p.b, p.at, a, c); }
  Value mul(Value a, Value c) { return arith::MulFOp::create(p.b, p.at, a, c); }
  Value both(Value a, Value c) { return arith::AndIOp::create(p.b, p.at, a, c); }
  Value more(Value a, Value c) {
    return arith::CmpFOp::create(p.b, p.at, arith::CmpFPredicate::OGT, a, c);
  }
  /// The result for a NaN does not matter: a box that has a NaN has no area either.
  Value least(Value a, Value c) {
    return arith::SelectOp::create(p.b, p.at, more(c, a), a, c);
  }
  Value most(Value a, Value c) {
    return arith::SelectOp::create(p.b, p.at, more(a, c), a, c);
  }

  Boxes fromCoordinates(ArrayRef<Value> at, bool centers) {
    Boxes box;
    Value two = p.e.constant(at[0].getType(), 2);
    for (size_t d = 0; d < 2; ++d) {
      Value one = at[d], other = at[d + 2];
      Value half = arith::DivFOp::create(p.b, p.at, other, two);
      box.low[d] = centers ? sub(one, half) : least(one, other);
      box.high[d] = centers ? arith::AddFOp::create(p.b, p.at, one, half).getResult()
                            : most(one, other);
    }
    box.area = mul(sub(box.high[0], box.low[0]), sub(box.high[1], box.low[1]));
    return box;
  }

  /// Tells whether boxes of some area each have an intersection of more than `threshold`
  /// of their union.
  Value overlaps(const Boxes &a, const Boxes &c, Value threshold, Value zero) {
    Value size[2];
    for (size_t d = 0; d < 2; ++d)
      size[d] = sub(least(a.high[d], c.high[d]), most(a.low[d], c.low[d]));
    Value shared = mul(size[0], size[1]);
    Value areas = arith::AddFOp::create(p.b, p.at, a.area, c.area);
    Value either = sub(areas, shared);
    Value isMore = more(arith::DivFOp::create(p.b, p.at, shared, either), threshold);
    for (Value value : {size[0], size[1], shared, a.area, c.area, either})
      isMore = both(isMore, more(value, zero));
    return isMore;
  }

private:
  Passes &p;
};

/// The candidates of the row, sorted; then from the best on, by one thread, each is
/// compared with those that are kept, a vector of them at once. Scratch: the scores where
/// they and a place do not fit into an entry of the sort, and later how many are kept;
/// two rows of entries, of which one has the places that are kept later; the kept boxes.
struct SuppressModel : RowOpInterface::ExternalModel<SuppressModel, graph::SuppressOp> {
  int64_t numScratchRows(Operation *) const { return 8; }

  void emitRow(Operation *op, KernelEmitter &e, int number) const {
    Passes p(e, number);
    Row row(p, cast<graph::SuppressOp>(op));
    Value kept = row.emit();
    Type i64 = p.b.getI64Type();
    int64_t slot = row.keptSlot;
    e.define(number, [=, &e]() -> Value {
      Value isKept = compare(e, arith::CmpIPredicate::ult, e.rowPosition(), kept);
      Value place = e.loadRow(number, slot, i64);
      return arith::SelectOp::create(e.builder, e.location, isKept, place, e.integer(-1));
    });
  }

  /// The programs of one row.
  struct Row {
    Row(Passes &p, graph::SuppressOp op)
        : p(p), e(p.e), boxes(p), op(op), i64(p.b.getI64Type()),
          type(cast<FloatType>(e.computeType(elementOf(op.getBoxes())))),
          isMine(e.isMine(e.integer(0))), lanes((isMine ? 128 : 512) / type.getWidth()),
          isPacked(scoreType().isF32()) {}

    Value emit() {
      Value candidates = collect();
      auto isBefore = [&](Value a, Value c) { return comesFirst(a, c); };
      int64_t slot =
          MergeSort(p, candidates, candidates, e.rowElements(), isBefore).run();
      keptSlot = 3 - slot;
      auto one = [&] { e.storeRowAt(p.number, 0, e.integer(0), keep(candidates, slot)); };
      if (isMine) {
        auto branch = scf::IfOp::create(p.b, p.at, isMine, /*withElseRegion=*/false);
        OpBuilder::InsertionGuard guard(p.b);
        p.b.setInsertionPointToStart(&branch.getThenRegion().front());
        one();
      } else {
        one();
      }
      e.meet();
      return e.loadRowAt(p.number, 0, e.integer(0), i64);
    }

    int64_t keptSlot = 0;

  private:
    Type scoreType() { return e.computeType(e.node(p.node.args[0]).type); }
    Value add(Value a, Value c) { return arith::AddIOp::create(p.b, p.at, a, c); }

    Value isCandidate() {
      Value score = p.x(), flag = e.value(p.node.args[1]);
      Value isNumber =
          arith::CmpFOp::create(p.b, p.at, arith::CmpFPredicate::ORD, score, score);
      return arith::AndIOp::create(p.b, p.at, flag, isNumber);
    }

    /// The entry of a score for the sort. An f32 gives all its bits, so that the highest
    /// score is the least number, with the place behind them. A wide score gives its
    /// place, and goes into scratch itself.
    Value entry() {
      Value place = e.rowPosition(), score = p.x();
      if (!isPacked) {
        e.storeRowAt(p.number, 0, place, score);
        return place;
      }
      // Minus zero is zero.
      score = arith::AddFOp::create(p.b, p.at, score, e.constant(score.getType(), 0));
      Value bits = arith::BitcastOp::create(p.b, p.at, p.b.getI32Type(), score);
      bits = arith::ExtSIOp::create(p.b, p.at, i64, bits);
      // Bits of negative numbers ascend as the numbers fall.
      Value isNegative = compare(e, arith::CmpIPredicate::slt, bits, e.integer(0));
      Value turned = arith::XOrIOp::create(p.b, p.at, bits, e.integer(0x7fffffff));
      bits = arith::SelectOp::create(p.b, p.at, isNegative, turned, bits);
      bits = arith::XOrIOp::create(p.b, p.at, bits, e.integer(-1));
      bits = arith::ShLIOp::create(p.b, p.at, bits, e.integer(32));
      return arith::OrIOp::create(p.b, p.at, bits, place);
    }

    Value comesFirst(Value a, Value c) {
      if (isPacked)
        return compare(e, arith::CmpIPredicate::slt, a, c);
      return arith::CmpFOp::create(p.b, p.at, arith::CmpFPredicate::OGT,
                                   e.loadRowAt(p.number, 0, a, scoreType()),
                                   e.loadRowAt(p.number, 0, c, scoreType()));
    }

    /// Puts the candidates' entries into row 1; how many there are.
    Value collect() {
      auto isOne = [&] {
        return arith::ExtUIOp::create(p.b, p.at, i64, isCandidate()).getResult();
      };
      auto sum = [&](Value a, Value c) { return add(a, c); };
      Value count = e.reduceRow(e.integer(0), isOne, sum);
      e.scanRow(
          e.integer(0), isOne, sum,
          [&](Value before, Value) {
            Value isIn = isCandidate(), here = entry();
            auto branch = scf::IfOp::create(p.b, p.at, isIn, /*withElseRegion=*/false);
            OpBuilder::InsertionGuard guard(p.b);
            p.b.setInsertionPointToStart(&branch.getThenRegion().front());
            e.storeRowAt(p.number, 1, before, here);
          },
          /*backwards=*/false);
      return count;
    }

    /// A loop while `goesOn`; `body` gives on what is carried.
    KernelEmitter::Values
    loopWhile(ValueRange initial, llvm::function_ref<Value(ValueRange)> goesOn,
              llvm::function_ref<KernelEmitter::Values(ValueRange)> body) {
      auto loop = scf::WhileOp::create(
          p.b, p.at, initial.getTypes(), initial,
          [&](OpBuilder &, Location, ValueRange carried) {
            scf::ConditionOp::create(p.b, p.at, goesOn(carried), carried);
          },
          [&](OpBuilder &, Location, ValueRange carried) {
            scf::YieldOp::create(p.b, p.at, body(carried));
          });
      return KernelEmitter::Values(loop.getResults());
    }

    /// From the best entry in row `slot` on; how many are kept.
    Value keep(Value candidates, int64_t slot) {
      Value most = e.integer(static_cast<int64_t>(op.getMost()));
      return loopWhile(
          {e.integer(0), e.integer(0)},
          [&](ValueRange at) {
            return boxes.both(compare(e, arith::CmpIPredicate::slt, at[0], candidates),
                              compare(e, arith::CmpIPredicate::slt, at[1], most));
          },
          [&](ValueRange at) {
            Value place = e.loadRowAt(p.number, slot, at[0], i64);
            if (isPacked)
              place = arith::AndIOp::create(p.b, p.at, place, e.integer(0xffffffff));
            Boxes box = boxAt(place);
            Value isGone = overlapsKept(box, at[1]);
            auto branch = scf::IfOp::create(p.b, p.at, i64, isGone, true);
            {
              OpBuilder::InsertionGuard guard(p.b);
              p.b.setInsertionPointToStart(&branch.getThenRegion().front());
              scf::YieldOp::create(p.b, p.at, at[1]);
              p.b.setInsertionPointToStart(&branch.getElseRegion().front());
              store(box, place, at[1]);
              scf::YieldOp::create(p.b, p.at, add(at[1], e.integer(1)));
            }
            return KernelEmitter::Values{add(at[0], e.integer(1)), branch.getResult(0)};
          })[1];
    }

    Boxes boxAt(Value place) {
      Value batch = e.indexOf(p.number)[0], at[4];
      for (int64_t k = 0; k < 4; ++k)
        at[k] = e.loadAt(p.node.reads[0], {batch, place, e.integer(k)});
      return boxes.fromCoordinates(at, op.getCenters());
    }

    VectorType vectorType() { return VectorType::get({lanes}, type); }
    Value spread(Value one) {
      return vector::BroadcastOp::create(p.b, p.at, vectorType(), one);
    }

    /// A box as the last that is kept. Lanes behind the last have no area.
    void store(const Boxes &box, Value place, Value kept) {
      Value lane = arith::RemUIOp::create(p.b, p.at, kept, e.integer(lanes));
      auto branch = scf::IfOp::create(
          p.b, p.at, compare(e, arith::CmpIPredicate::eq, lane, e.integer(0)), false);
      {
        OpBuilder::InsertionGuard guard(p.b);
        p.b.setInsertionPointToStart(&branch.getThenRegion().front());
        e.storeRowVector(p.number, areaSlot, kept, spread(e.constant(type, 0)));
      }
      e.storeRowAt(p.number, keptSlot, kept, place);
      for (int64_t d = 0; d < 2; ++d) {
        e.storeRowAt(p.number, lowSlot + d, kept, box.low[d]);
        e.storeRowAt(p.number, highSlot + d, kept, box.high[d]);
      }
      e.storeRowAt(p.number, areaSlot, kept, box.area);
    }

    Value overlapsKept(const Boxes &box, Value kept) {
      DType given = elementOf(op.getThreshold());
      Value threshold =
          e.convert(e.loadAt(p.node.reads[1], {}), given, elementOf(op.getBoxes()));
      Boxes wide{{spread(box.low[0]), spread(box.low[1])},
                 {spread(box.high[0]), spread(box.high[1])},
                 spread(box.area)};
      Value wideThreshold = spread(threshold), zero = spread(e.constant(type, 0));
      Value no = arith::ConstantIntOp::create(p.b, p.at, 0, 1);
      Value yes = arith::ConstantIntOp::create(p.b, p.at, 1, 1);
      return loopWhile(
          {e.integer(0), no},
          [&](ValueRange at) {
            Value isFree = arith::XOrIOp::create(p.b, p.at, at[1], yes);
            return boxes.both(compare(e, arith::CmpIPredicate::slt, at[0], kept), isFree);
          },
          [&](ValueRange at) {
            Boxes some;
            auto row = [&](int64_t slot) {
              return e.loadRowVector(p.number, slot, at[0], vectorType());
            };
            for (int64_t d = 0; d < 2; ++d)
              some.low[d] = row(lowSlot + d), some.high[d] = row(highSlot + d);
            some.area = row(areaSlot);
            Value each = boxes.overlaps(some, wide, wideThreshold, zero);
            Value any =
                vector::ReductionOp::create(p.b, p.at, vector::CombiningKind::OR, each);
            return KernelEmitter::Values{add(at[0], e.integer(lanes)), any};
          })[1];
    }

    static constexpr int64_t lowSlot = 3, highSlot = 5, areaSlot = 7;
    Passes &p;
    KernelEmitter &e;
    BoxArithmetic boxes;
    graph::SuppressOp op;
    Type i64;
    FloatType type;
    Value isMine;  ///< whether the thread is the one that compares; null: there is one
    int64_t lanes; ///< compared at once: a vector, of one thread among many few
    bool isPacked;
  };
};
} // namespace

void codegen::attachIndexedRowModels(MLIRContext &context) {
  graph::ScatterElementsOp::attachInterface<ScatterModel>(context);
  graph::SortOp::attachInterface<SortModel>(context);
  graph::SuppressOp::attachInterface<SuppressModel>(context);
}
