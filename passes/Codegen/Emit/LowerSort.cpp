//===- LowerSort.cpp - The first elements of rows, in their order ---------===//
#include "passes/Codegen/Emit/Models.h"
#include "passes/Codegen/Emit/RowSort.h"

#include "dialects/Graph/Graph.h"
#include "partita/Kernels/Selection.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <array>
#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
using Area = MergeSort::Area;

/// The first entries of many, by one thread: what is not within a bound is passed over.
/// The others wait behind the best so far, until there is no room for a block of them;
/// they are sorted and merged with the best, of which the last is the next bound. A block
/// takes one comparison of vectors if all of it is passed over: most are, as the best
/// 1000 of 1,000,000 in any order replace each other some 10,000 times. The first bound
/// of many that are wanted is an estimate by a sample; if it was too strict, there is a
/// second attempt without one.
///
/// Entries that were found lie together in row 2 of scratch, and sorting them stays in
/// the cache. Row 1 has the keys of a block, and behind them room for a sort.
class RowSelection {
public:
  /// `keyAt` makes the key of a place of the row, `entryOf` its entry; `keyOf` gives the
  /// key of an entry.
  struct Entries {
    IntegerType keyType;
    llvm::function_ref<Value(Value place)> keyAt;
    llvm::function_ref<Value(Value key, Value place)> entryOf;
    llvm::function_ref<Value(Value entry)> keyOf;
    EntryOrder isBefore;
    bool isStrict;
  };

  RowSelection(Passes &p, int64_t count, const Entries &entries)
      : p(p), form{p.e.rowElements(), count}, count(count), extent(form.extent),
        entries(entries) {}

  /// Leaves the first `count` of the row at the begin of row 2, in their order.
  void run() {
    KernelEmitter &e = p.e;
    Value all = keyConstant(APInt::getSignedMaxValue(width()));
    const kernels::Selection::Sample sample = form.sample();
    Value bound = sample.size == 0 ? all : sampledBound(sample);
    scf::WhileOp::create(
        p.b, p.at, TypeRange{bound.getType()}, ValueRange{bound},
        [&](OpBuilder &, Location, ValueRange carried) {
          Carried now = attempt(carried[0]);
          Value isShort = compare(e, arith::CmpIPredicate::slt, now[0], e.integer(count));
          auto end = scf::IfOp::create(p.b, p.at, isShort, /*withElseRegion=*/true);
          {
            OpBuilder::InsertionGuard guard(p.b);
            p.b.setInsertionPointToStart(&end.getElseRegion().front());
            keepBest(now[0], now[2]);
          }
          scf::ConditionOp::create(p.b, p.at, isShort, ValueRange{all});
        },
        [&](OpBuilder &, Location, ValueRange carried) {
          scf::YieldOp::create(p.b, p.at, carried);
        });
  }

private:
  /// How many were found, the greatest key that may be taken, and whether nothing of what
  /// was found is sorted yet.
  using Carried = std::array<Value, 3>;
  using Area = MergeSort::Area;

  static constexpr int64_t blockEntries = kernels::Selection::block;
  static constexpr int64_t roomBegin = blockEntries; ///< of the sort, in row 1

  unsigned width() const { return entries.keyType.getWidth(); }
  Value keyConstant(const APInt &bits) {
    return arith::ConstantOp::create(p.b, p.at, IntegerAttr::get(entries.keyType, bits));
  }

  Value sampledBound(kernels::Selection::Sample sample) {
    KernelEmitter &e = p.e;
    Value distance = e.integer(extent / sample.size);
    forRange(e, e.integer(0), e.integer(sample.size), e.integer(1), [&](Value i) {
      Value place = arith::MulIOp::create(p.b, p.at, i, distance);
      store(i, entries.entryOf(entries.keyAt(place), place));
    });
    MergeSort sort(p, e.integer(sample.rank), sample.size, entries.isBefore,
                   entries.isStrict);
    const Area sorted =
        sort.run({2, e.integer(0)}, {1, e.integer(roomBegin)}, e.integer(sample.size));
    Value last =
        arith::AddIOp::create(p.b, p.at, sorted.begin, e.integer(sample.rank - 1));
    return entries.keyOf(load(sorted.slot, last));
  }

  Carried attempt(Value bound) {
    KernelEmitter &e = p.e;
    Carried now{e.integer(0), bound, flag(true)};
    Value begin = e.integer(0);
    // Few that are wanted: those of the first block give a bound that is worth a sort.
    if (count <= blockEntries) {
      now = block(begin, blockEntries, now);
      now = sorted(now);
      begin = e.integer(blockEntries);
    }
    const int64_t whole = extent / blockEntries * blockEntries;
    now = loop(begin, e.integer(whole), blockEntries, now,
               [&](Value from, Carried so) { return block(from, blockEntries, so); });
    return whole == extent ? now : block(e.integer(whole), extent - whole, now);
  }

  Carried block(Value from, int64_t many, Carried now) {
    KernelEmitter &e = p.e;
    forRange(e, e.integer(0), e.integer(many), e.integer(1), [&](Value i) {
      Value place = arith::AddIOp::create(p.b, p.at, from, i);
      e.storeRowAt(p.number, 1, i, entries.keyAt(place));
    });
    Value which = within(many, now[1]);
    Value any = compare(e, arith::CmpIPredicate::ne, which, e.integer(0));
    return whereIf(any, now, [&] {
      Value behind = arith::AddIOp::create(p.b, p.at, now[0], e.integer(many));
      Value isFull =
          compare(e, arith::CmpIPredicate::sgt, behind, e.integer(form.room()));
      return taken(from, which, whereIf(isFull, now, [&] { return sorted(now); }));
    });
  }

  /// Bits of the keys of the block that are within the bound.
  Value within(int64_t many, Value bound) {
    KernelEmitter &e = p.e;
    auto type = VectorType::get({blockEntries}, entries.keyType);
    Value all = vector::BroadcastOp::create(p.b, p.at, type, bound);
    Value keys = e.loadRowVector(p.number, 1, e.integer(0), type);
    Value isIn = compare(e, arith::CmpIPredicate::sle, keys, all);
    auto bitsType = VectorType::get({1}, p.b.getIntegerType(blockEntries));
    Value bits = vector::BitCastOp::create(p.b, p.at, bitsType, isIn);
    bits = vector::ExtractOp::create(p.b, p.at, bits, 0);
    bits = arith::ExtUIOp::create(p.b, p.at, p.b.getI64Type(), bits);
    const int64_t valid = (int64_t(1) << many) - 1;
    return arith::AndIOp::create(p.b, p.at, bits, e.integer(valid));
  }

  /// Puts the entries of the block that have a bit behind what was found.
  Carried taken(Value from, Value bits, Carried now) {
    KernelEmitter &e = p.e;
    auto loop = scf::WhileOp::create(
        p.b, p.at, TypeRange{bits.getType(), now[0].getType()}, ValueRange{bits, now[0]},
        [&](OpBuilder &, Location, ValueRange at) {
          Value more = compare(e, arith::CmpIPredicate::ne, at[0], e.integer(0));
          scf::ConditionOp::create(p.b, p.at, more, at);
        },
        [&](OpBuilder &, Location, ValueRange at) {
          Value i = math::CountTrailingZerosOp::create(p.b, p.at, at[0]);
          Value key = e.loadRowAt(p.number, 1, i, entries.keyType);
          store(at[1], entries.entryOf(key, arith::AddIOp::create(p.b, p.at, from, i)));
          Value less = arith::SubIOp::create(p.b, p.at, at[0], e.integer(1));
          Value rest = arith::AndIOp::create(p.b, p.at, at[0], less);
          Value next = arith::AddIOp::create(p.b, p.at, at[1], e.integer(1));
          scf::YieldOp::create(p.b, p.at, ValueRange{rest, next});
        });
    return {loop.getResult(1), now[1], now[2]};
  }

  /// Keeps the best, and bounds keys by the last of them: what comes later and is equal
  /// is not before it. Nothing is below the least key, so equal ones are taken of that.
  Carried sorted(Carried now) {
    KernelEmitter &e = p.e;
    keepBest(now[0], now[2]);
    APInt least = APInt::getSignedMinValue(width());
    Value last = entries.keyOf(load(2, e.integer(count - 1)));
    Value bound = arith::MaxSIOp::create(p.b, p.at, last, keyConstant(least + 1));
    bound = arith::SubIOp::create(p.b, p.at, bound, keyConstant(APInt(width(), 1)));
    return {e.integer(count), bound, flag(false)};
  }

  Carried loop(Value from, Value to, int64_t step, Carried begin,
               llvm::function_ref<Carried(Value, Carried)> body) {
    auto loop = scf::ForOp::create(p.b, p.at, from, to, p.e.integer(step), begin);
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(loop.getBody());
    auto carried = loop.getRegionIterArgs();
    scf::YieldOp::create(
        p.b, p.at, body(loop.getInductionVar(), {carried[0], carried[1], carried[2]}));
    return {loop.getResult(0), loop.getResult(1), loop.getResult(2)};
  }

  /// Values of `body` where `condition` holds; else those that are carried.
  Carried whereIf(Value condition, Carried carried, llvm::function_ref<Carried()> body) {
    auto branch = scf::IfOp::create(
        p.b, p.at, condition,
        [&](OpBuilder &, Location) { scf::YieldOp::create(p.b, p.at, body()); },
        [&](OpBuilder &, Location) { scf::YieldOp::create(p.b, p.at, carried); });
    return {branch.getResult(0), branch.getResult(1), branch.getResult(2)};
  }

  Value load(int64_t slot, Value at) {
    return p.e.loadRowAt(p.number, slot, at, p.b.getI64Type());
  }
  void store(Value at, Value entry) { p.e.storeRowAt(p.number, 2, at, entry); }

  Value flag(bool value) {
    return arith::ConstantOp::create(p.b, p.at, p.b.getBoolAttr(value));
  }

  /// Keeps the first `count` of what was found, in their order: what waits behind the
  /// best is sorted, and merged with them; all that was found, if `isFirst`.
  void keepBest(Value found, Value isFirst) {
    KernelEmitter &e = p.e;
    Value zero = e.integer(0), room = e.integer(roomBegin);
    auto ifFirst = [&](Value then, Value otherwise) -> Value {
      return arith::SelectOp::create(p.b, p.at, isFirst, then, otherwise);
    };
    Value best = ifFirst(zero, e.integer(count));
    Value waiting = arith::SubIOp::create(p.b, p.at, found, best);
    MergeSort sort(p, e.integer(count), form.room(), entries.isBefore, entries.isStrict);
    const Area first{2, best}, second{1, room};
    if (sort.run(first, second, waiting).slot == second.slot)
      copy(second, first, arith::MinSIOp::create(p.b, p.at, waiting, e.integer(count)));
    // A run is sorted as far as its first `count`.
    sort.merge({2, zero}, second, count, ifFirst(e.integer(count), found));
    copy(second, {2, zero}, e.integer(count));
  }

  void copy(Area from, Area to, Value many) {
    forRange(p.e, p.e.integer(0), many, p.e.integer(1), [&](Value i) {
      p.e.storeRowAt(p.number, to.slot, arith::AddIOp::create(p.b, p.at, to.begin, i),
                     load(from.slot, arith::AddIOp::create(p.b, p.at, from.begin, i)));
    });
  }

  Passes &p;
  kernels::Selection form;
  int64_t count, extent;
  Entries entries;
};

/// Scratch: the elements, then two rows of entries for the sort.
struct SortModel : RowOpInterface::ExternalModel<SortModel, graph::SortOp> {
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
    const bool isBool = row.type == DType::Bool, isCompact = row.isCompact;
    e.define(number, [=, &e]() -> Value {
      Value at = isCompact ? e.rowPosition() : place();
      Value element = orZero(e.loadRowAt(number, 0, at, keyType));
      return isBool ? e.convert(element, DType::I8, DType::Bool) : element;
    });
    e.define(number, place, 1);
  }

  /// The programs of one row.
  struct Row {
    Row(Passes &p, graph::SortOp op)
        : p(p), e(p.e), count(op.getCount()), type(e.node(p.node.args[0]).type),
          keyType(type == DType::Bool ? p.b.getI8Type() : e.computeType(type)),
          descending(op.getDescending()), isDivided(e.isMine(e.integer(0))),
          isPacked(packed::fits(keyType, e.rowElements())) {}

    /// The row of scratch that has the places of the first elements then.
    int64_t emit() {
      auto isBefore = [&](Value a, Value c) { return comesFirst(a, c); };
      const bool selects =
          !isDivided && kernels::Selection{e.rowElements(), count}.pays();
      isCompact = selects && isPacked;
      if (!isCompact)
        e.mapRow([&] { begin(selects); });
      const int64_t slot = selects ? 2 : sortAll(isBefore);
      if (selects)
        select(isBefore);
      if (isPacked)
        e.forEach(e.integer(0), e.integer(count), e.integer(1), [&](Value i) {
          Value place = packed::place(p, load(slot, i));
          e.storeRowAt(p.number, slot, i, place);
          if (!isCompact)
            return;
          Value element;
          e.atPlace(place, [&] { element = x(); });
          e.storeRowAt(p.number, 0, i, element);
        });
      return slot;
    }

    Passes &p;
    KernelEmitter &e;
    int64_t count;
    DType type;
    Type keyType;
    bool isCompact = false; ///< whether row 0 has the first elements in their order

  private:
    Value load(int64_t slot, Value at) {
      return e.loadRowAt(p.number, slot, at, p.b.getI64Type());
    }

    Value x() {
      Value element = p.x();
      return type == DType::Bool ? e.convert(element, DType::Bool, DType::I8) : element;
    }

    /// The element and its entry, which is its place alone where both do not fit.
    void begin(bool selects) {
      Value element = x(), place = e.rowPosition();
      e.storeRow(p.number, 0, element);
      if (!selects)
        e.storeRow(p.number, 1, isPacked ? packed::entry(p, key(element), place) : place);
    }

    Value key(Value element) {
      return packed::orderedKey(p, element, isUnsigned(type), descending);
    }

    /// Elements that fit into entries are read where they are, others in row 0.
    void select(EntryOrder isBefore) {
      auto keyAt = [&](Value place) -> Value {
        if (!isPacked)
          return key(e.loadRowAt(p.number, 0, place, keyType));
        Value made;
        e.atPlace(place, [&] { made = key(x()); });
        return made;
      };
      auto entryOf = [&](Value key, Value place) {
        return isPacked ? packed::entry(p, key, place) : place;
      };
      auto keyOf = [&](Value entry) -> Value {
        if (!isPacked)
          return keyAt(entry);
        return arith::TruncIOp::create(p.b, p.at, p.b.getI32Type(),
                                       packed::key(p, entry));
      };
      const unsigned width = keyType.getIntOrFloatBitWidth() <= 32 ? 32 : 64;
      RowSelection(p, count,
                   {p.b.getIntegerType(width), keyAt, entryOf, keyOf, isBefore, isPacked})
          .run();
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

    bool descending, isDivided, isPacked;
  };
};
} // namespace

void codegen::attachSortModel(MLIRContext &context) {
  graph::SortOp::attachInterface<SortModel>(context);
}
