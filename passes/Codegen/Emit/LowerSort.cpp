//===- LowerSort.cpp - The first elements of rows, in their order ---------===//
#include "passes/Codegen/Emit/Models.h"
#include "passes/Codegen/Emit/RowSort.h"

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <array>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
using Area = MergeSort::Area;

/// The first entries of many, by one thread: an entry that does not come before the last
/// of the best so far is passed over. The others wait behind those, until there are as
/// many again, or some; they are sorted and merged with the best. Blocks of entries that
/// are all passed over take one comparison an entry, by vectors: most are, as the best
/// 1000 of 1,000,000 in any order replace each other some 10,000 times.
///
/// Entries are in row 1. What was found is in row 2, with as much room behind it: it lies
/// together, so that sorting it stays in the cache.
class Selection {
public:
  Selection(Passes &p, int64_t count, EntryOrder isBefore, bool isStrict)
      : p(p), count(count), isBefore(isBefore), isStrict(isStrict) {}

  /// Entries that may have been found at once.
  static int64_t mostFound(int64_t count) { return count + std::max(count, fewWaiting); }

  /// Leaves the first `count` of the row at the begin of row 2, in their order. The row
  /// has 2·mostFound entries or more.
  void run() {
    Value none = p.e.loadRowAt(p.number, 1, p.e.integer(0), p.b.getI64Type());
    auto found = blocks({p.e.integer(0), none, flag(true)});
    keepBest(found[0], found[2]);
  }

private:
  /// How many were found, the last of the best, and whether there are none yet.
  using Carried = std::array<Value, 3>;

  static constexpr int64_t blockEntries = 64, fewWaiting = 32;

  SmallVector<Value> blocks(Carried begin) {
    KernelEmitter &e = p.e;
    Value extent = e.integer(e.rowElements());
    auto one = [&](Value place, Carried now) {
      Value entry = load(1, place);
      return whereIf(isBest(entry, now), now, [&] { return taken(entry, now); });
    };
    auto block = [&](Value from, Carried now) {
      Value next = arith::AddIOp::create(p.b, p.at, from, e.integer(blockEntries));
      Value to = arith::MinSIOp::create(p.b, p.at, next, extent);
      return whereIf(mayTake(from, to, now), now,
                     [&] { return loop(from, to, 1, now, one); });
    };
    return loop(e.integer(0), extent, blockEntries, begin, block);
  }

  SmallVector<Value> loop(Value from, Value to, int64_t step, Carried begin,
                          llvm::function_ref<SmallVector<Value>(Value, Carried)> body) {
    auto loop = scf::ForOp::create(p.b, p.at, from, to, p.e.integer(step), begin);
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(loop.getBody());
    auto carried = loop.getRegionIterArgs();
    scf::YieldOp::create(
        p.b, p.at, body(loop.getInductionVar(), {carried[0], carried[1], carried[2]}));
    return SmallVector<Value>(loop.getResults());
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

  Value load(int64_t slot, Value at) {
    return p.e.loadRowAt(p.number, slot, at, p.b.getI64Type());
  }
  void store(Value at, Value entry) { p.e.storeRowAt(p.number, 2, at, entry); }

  Value flag(bool value) {
    return arith::ConstantOp::create(p.b, p.at, p.b.getBoolAttr(value));
  }
  Value isBest(Value entry, Carried now) {
    return arith::OrIOp::create(p.b, p.at, now[2], isBefore(entry, now[1]));
  }

  /// Tells whether an entry of the block is among the best so far.
  Value mayTake(Value from, Value to, Carried now) {
    auto loop =
        scf::ForOp::create(p.b, p.at, from, to, p.e.integer(1), ValueRange{now[2]});
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(loop.getBody());
    Value any = arith::OrIOp::create(p.b, p.at, loop.getRegionIterArgs()[0],
                                     isBefore(load(1, loop.getInductionVar()), now[1]));
    scf::YieldOp::create(p.b, p.at, any);
    return loop.getResult(0);
  }

  /// Puts the entry behind what was found; where that is full, keeps the best.
  SmallVector<Value> taken(Value entry, Carried now) {
    KernelEmitter &e = p.e;
    store(now[0], entry);
    Value more = arith::AddIOp::create(p.b, p.at, now[0], e.integer(1));
    Value isFull =
        compare(e, arith::CmpIPredicate::eq, more, e.integer(mostFound(count)));
    return whereIf(isFull, {more, now[1], now[2]}, [&]() -> SmallVector<Value> {
      keepBest(more, now[2]);
      return {e.integer(count), load(2, e.integer(count - 1)), flag(false)};
    });
  }

  /// Keeps the first `count` of what was found, in their order: what waits behind the
  /// best is sorted, and merged with them; all that was found, if `isFirst`.
  void keepBest(Value found, Value isFirst) {
    KernelEmitter &e = p.e;
    Value zero = e.integer(0), room = e.integer(mostFound(count));
    auto ifFirst = [&](Value then, Value otherwise) -> Value {
      return arith::SelectOp::create(p.b, p.at, isFirst, then, otherwise);
    };
    Value best = ifFirst(zero, e.integer(count));
    Value waiting = arith::SubIOp::create(p.b, p.at, found, best);
    MergeSort sort(p, e.integer(count), mostFound(count), isBefore, isStrict);
    const Area first{2, best}, second{2, room};
    if (sort.run(first, second, waiting).begin == room)
      copy(room, best, arith::MinSIOp::create(p.b, p.at, waiting, e.integer(count)));
    // A run is sorted as far as its first `count`.
    sort.merge({2, zero}, second, count, ifFirst(e.integer(count), found));
    copy(room, zero, e.integer(count));
  }

  void copy(Value from, Value to, Value entries) {
    forRange(p.e, p.e.integer(0), entries, p.e.integer(1), [&](Value i) {
      store(arith::AddIOp::create(p.b, p.at, to, i),
            load(2, arith::AddIOp::create(p.b, p.at, from, i)));
    });
  }

  Passes &p;
  int64_t count;
  EntryOrder isBefore;
  bool isStrict;
};

/// Scratch: the elements, then two rows of entries for the sort.
struct SortModel : RowOpInterface::ExternalModel<SortModel, graph::SortOp> {
  /// The least entries for each that is wanted with which a selection pays.
  static constexpr int64_t fewShare = 4;

  int64_t numScratchRows(Operation *) const { return 3; }

  void emitRow(Operation *op, KernelEmitter &e, int number) const {
    Passes p(e, number);
    Row row(p, cast<graph::SortOp>(op));
    const int64_t slot = row.emit();
    const int64_t count = row.count;
    auto orZero = [=, &e](Value element) -> Value {
      Value isFirst =
          compare(e, arith::CmpIPredicate::ult, e.rowPosition(), e.integer(count));
      return arith::SelectOp::create(e.builder, e.location, isFirst, element,
                                     e.constant(element.getType(), 0));
    };
    // There need not be places behind the first ones.
    auto place = [=, &e] {
      return orZero(e.loadRow(number, slot, e.builder.getI64Type()));
    };
    const Type keyType = row.keyType;
    const bool isBool = row.type == DType::Bool;
    e.define(number, [=, &e]() -> Value {
      Value element = orZero(e.loadRowAt(number, 0, place(), keyType));
      return isBool ? e.convert(element, DType::I8, DType::Bool) : element;
    });
    e.define(number, place, 1);
  }

  /// The programs of one row.
  struct Row {
    Row(Passes &p, graph::SortOp op)
        : p(p), e(p.e), count(op.getCount()), type(e.node(p.node.args[0]).type),
          descending(op.getDescending()), isDivided(e.isMine(e.integer(0))) {}

    /// The row of scratch that has the places of the first elements then.
    int64_t emit() {
      e.mapRow([&] { begin(); });
      auto isBefore = [&](Value a, Value c) { return comesFirst(a, c); };
      int64_t slot = 1;
      if (!isDivided && count > 0 && count <= e.rowElements() / fewShare &&
          2 * Selection::mostFound(count) <= e.rowElements()) {
        Selection(p, count, isBefore, isPacked).run();
        slot = 2;
      } else {
        slot = sortAll(isBefore);
      }
      if (isPacked)
        e.forEach(e.integer(0), e.integer(count), e.integer(1), [&](Value i) {
          e.storeRowAt(p.number, slot, i, packed::place(p, load(slot, i)));
        });
      return slot;
    }

    Passes &p;
    KernelEmitter &e;
    int64_t count;
    DType type;
    Type keyType;

  private:
    Value load(int64_t slot, Value at) {
      return e.loadRowAt(p.number, slot, at, p.b.getI64Type());
    }

    /// The element and its entry, which is its place alone where both do not fit.
    void begin() {
      Value x = p.x(), place = e.rowPosition();
      if (x.getType().isInteger(1))
        x = e.convert(x, DType::Bool, DType::I8);
      keyType = x.getType();
      isPacked = packed::fits(keyType, e.rowElements());
      e.storeRow(p.number, 0, x);
      e.storeRow(p.number, 1,
                 isPacked ? packed::entry(p, x, isUnsigned(type), descending, place)
                          : place);
    }

    Value comesFirst(Value a, Value c) {
      if (isPacked)
        return compare(e, arith::CmpIPredicate::slt, a, c);
      Value x = e.loadRowAt(p.number, 0, a, keyType);
      Value y = e.loadRowAt(p.number, 0, c, keyType);
      return descending ? isBelow(y, x) : isBelow(x, y);
    }

    /// x < y, or only y is NaN.
    Value isBelow(Value x, Value y) {
      if (!isa<FloatType>(keyType))
        return compare(
            e, isUnsigned(type) ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt,
            x, y);
      auto check = [&](arith::CmpFPredicate predicate, Value v, Value w) -> Value {
        return arith::CmpFOp::create(p.b, p.at, predicate, v, w);
      };
      Value less = check(arith::CmpFPredicate::OLT, x, y);
      Value onlyY =
          arith::AndIOp::create(p.b, p.at, check(arith::CmpFPredicate::ORD, x, x),
                                check(arith::CmpFPredicate::UNO, y, y));
      return arith::OrIOp::create(p.b, p.at, less, onlyY);
    }

    /// Filling of a row, as many equal elements behind which none comes, is left where
    /// it is, by one thread.
    int64_t sortAll(EntryOrder isBefore) {
      Value zero = e.integer(0), all = e.integer(e.rowElements());
      const Area one{1, zero}, other{2, zero};
      MergeSort sort(p, e.integer(count), e.rowElements(), isBefore,
                     isPacked && !isDivided);
      if (isDivided)
        return sort.run(one, other, all).slot;
      Value fill = load(1, e.integer(e.rowElements() - 1));
      Value begin = behindLast([&](Value entry) { return isLess(entry, fill); });
      Value later = behindLast([&](Value entry) { return isLess(fill, entry); });
      Value isFill = compare(e, arith::CmpIPredicate::eq, later, zero);
      Value many = arith::SelectOp::create(p.b, p.at, isFill, begin, all);
      if (sort.run(one, other, many).slot == 2)
        forRange(e, zero, arith::MinSIOp::create(p.b, p.at, e.integer(count), many),
                 e.integer(1),
                 [&](Value i) { e.storeRowAt(p.number, 1, i, load(2, i)); });
      return 1;
    }

    /// Compares keys alone.
    Value isLess(Value a, Value c) {
      return isPacked ? compare(e, arith::CmpIPredicate::slt, packed::key(p, a),
                                packed::key(p, c))
                      : comesFirst(a, c);
    }

    /// The place behind the last entry of which `isOne` holds; 0: none.
    Value behindLast(llvm::function_ref<Value(Value entry)> isOne) {
      auto loop = scf::ForOp::create(p.b, p.at, e.integer(0), e.integer(e.rowElements()),
                                     e.integer(1), ValueRange{e.integer(0)});
      OpBuilder::InsertionGuard guard(p.b);
      p.b.setInsertionPointToStart(loop.getBody());
      Value i = loop.getInductionVar();
      Value next = arith::AddIOp::create(p.b, p.at, i, e.integer(1));
      scf::YieldOp::create(
          p.b, p.at,
          ValueRange{arith::SelectOp::create(p.b, p.at, isOne(load(1, i)), next,
                                             loop.getRegionIterArgs()[0])});
      return loop.getResult(0);
    }

    bool descending, isDivided, isPacked = false;
  };
};
} // namespace

void codegen::attachSortModel(MLIRContext &context) {
  graph::SortOp::attachInterface<SortModel>(context);
}
