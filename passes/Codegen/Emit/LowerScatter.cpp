//===- LowerScatter.cpp - Rows written at places: scatter, suppress -------===//
#include "passes/Codegen/Emit/Models.h"
#include "passes/Codegen/Emit/RowSort.h"

#include "dialects/Graph/Graph.h"
#include "partita/Kernels/Selection.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <array>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// The row of the data goes into scratch, the updates of the row after it. A place of a
/// row is written by one thread, so that its updates come in their order.
struct ScatterModel
    : RowOpInterface::ExternalModel<ScatterModel, graph::ScatterElementsOp> {
  int64_t numScratchRows(Operation *) const { return 1; }
  bool isChecked(Operation *op) const {
    return !cast<graph::ScatterElementsOp>(op).getMasked();
  }
  bool takesLanes(Operation *) const { return true; }
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
    forRange(e, e.integer(0), e.integer(updates[axis]), e.integer(1), [&](Value i) {
      e.eachRow([&] {
        KernelEmitter::Values index = e.indexOf(number);
        index[axis] = i;
        update(cast<graph::ScatterElementsOp>(op), p, index, data, axis, inPlace);
      });
    });
    if (inPlace)
      return;
    e.meet();
    Type type = p.type;
    e.define(number, [=, &e]() -> Value { return e.loadRow(number, 0, type); });
  }

  /// Says whether the updates reach the row: those behind the last that they reach stay
  /// as they are. Null: they reach all.
  static Value isReached(KernelEmitter &e, ArrayRef<Value> index, const Shape &data,
                         const Shape &updates, size_t axis) {
    Value all;
    for (size_t d = 0; d < data.size(); ++d) {
      if (d == axis || updates[d] == data[d])
        continue;
      Value inside =
          compare(e, arith::CmpIPredicate::ult, index[d], e.integer(updates[d]));
      all = all ? arith::AndIOp::create(e.builder, e.location, all, inside).getResult()
                : inside;
    }
    return all;
  }

  /// The place that an index names, and whether there is one: outside are places of other
  /// ranks, and what the checks have reported.
  static std::pair<Value, Value> placeAt(graph::ScatterElementsOp op, Passes &p,
                                         ArrayRef<Value> index, int64_t size) {
    KernelEmitter &e = p.e;
    Value place = e.loadAt(p.node.reads[0], index);
    if (place.getType().getIntOrFloatBitWidth() < 64)
      place = arith::ExtSIOp::create(p.b, p.at, p.b.getI64Type(), place);
    if (!op.getMasked()) {
      Value fromEnd = arith::AddIOp::create(p.b, p.at, place, e.integer(size));
      Value isNegative = compare(e, arith::CmpIPredicate::slt, place, e.integer(0));
      place = arith::SelectOp::create(p.b, p.at, isNegative, fromEnd, place);
    }
    return {place, compare(e, arith::CmpIPredicate::ult, place, e.integer(size))};
  }

  /// Puts one update into a row, in scratch or where the row lies.
  static void update(graph::ScatterElementsOp op, Passes &p, ArrayRef<Value> index,
                     const Shape &data, size_t axis, bool inPlace) {
    KernelEmitter &e = p.e;
    auto put = [&] {
      auto [place, isHere] = placeAt(op, p, index, data[axis]);
      if (Value isMine = e.isMine(place))
        isHere = arith::AndIOp::create(p.b, p.at, isHere, isMine);
      e.onlyIf(isHere, [&, place = place] { write(op, p, index, place, inPlace); });
    };
    Value reached = isReached(e, index, data, shapeOf(op.getUpdates()), axis);
    reached ? e.onlyIf(reached, put) : put();
  }

  static void write(graph::ScatterElementsOp op, Passes &p, ArrayRef<Value> index,
                    Value place, bool inPlace) {
    KernelEmitter &e = p.e;
    Value element = e.loadAt(p.node.reads[1], index);
    if (std::optional<ReduceKind> kind = op.getKind()) {
      Value before =
          inPlace ? e.loadOutputAt(place) : e.loadRowAt(p.number, 0, place, p.type);
      element = p.inOrder(*kind, before, element);
    }
    inPlace ? e.storeOutputAt(place, element) : e.storeRowAt(p.number, 0, place, element);
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

/// The candidates of the row, sorted or in a heap; then from the best on, by one thread,
/// each is compared with those that are kept, a vector of them at once. Scratch: the
/// scores where they and a place do not fit into an entry of the sort, and later how many
/// are kept; two rows of entries, of which one has the places that are kept later; the
/// kept boxes.
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
          isPacked(packed::fits(scoreType(), e.rowElements())) {}

    Value emit() {
      Value candidates = collect();
      using Way = kernels::Suppression;
      if (!isPacked || isMine || !Way::takesHeap(e.rowElements(), mostKept()))
        return keepSorted(candidates);
      Value few = e.integer(Way::heapShare * mostKept());
      Value isFew = compare(e, arith::CmpIPredicate::slt, candidates, few);
      auto branch = scf::IfOp::create(p.b, p.at, i64, isFew, /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(p.b);
      p.b.setInsertionPointToStart(&branch.getThenRegion().front());
      scf::YieldOp::create(p.b, p.at, keepSorted(candidates));
      p.b.setInsertionPointToStart(&branch.getElseRegion().front());
      scf::YieldOp::create(p.b, p.at, keepHeaped(candidates));
      return branch.getResult(0);
    }

    int64_t keptSlot = 0;

  private:
    Type scoreType() { return e.computeType(e.node(p.node.args[0]).type); }
    Value add(Value a, Value c) { return arith::AddIOp::create(p.b, p.at, a, c); }
    Value load(int64_t slot, Value at) { return e.loadRowAt(p.number, slot, at, i64); }
    int64_t mostKept() { return static_cast<int64_t>(op.getMost()); }

    /// Sorts the candidates and keeps the best; how many.
    Value keepSorted(Value candidates) {
      auto isBefore = [&](Value a, Value c) { return comesFirst(a, c); };
      Value zero = e.integer(0);
      int64_t slot = MergeSort(p, candidates, e.rowElements(), isBefore,
                               /*isStrict=*/isPacked && !isMine)
                         .run({1, zero}, {2, zero}, candidates)
                         .slot;
      keptSlot = 3 - slot;
      auto keepAll = [&] {
        return keep(candidates, keptSlot, [&](Value i) { return load(slot, i); });
      };
      if (!isMine)
        return keepAll();
      auto branch = scf::IfOp::create(p.b, p.at, isMine, /*withElseRegion=*/false);
      {
        OpBuilder::InsertionGuard guard(p.b);
        p.b.setInsertionPointToStart(&branch.getThenRegion().front());
        e.storeRowAt(p.number, 0, e.integer(0), keepAll());
      }
      e.meet();
      return e.loadRowAt(p.number, 0, e.integer(0), i64);
    }

    /// Keeps the best by a heap, of which those that are looked at are taken: the best
    /// few of many need no order of the others. Takes as long as a sort where all are.
    Value keepHeaped(Value candidates) {
      Value half = arith::ShRUIOp::create(p.b, p.at, candidates, e.integer(1));
      Value lastParent = add(half, e.integer(-1));
      forRange(e, e.integer(0), half, e.integer(1), [&](Value i) {
        Value at = arith::SubIOp::create(p.b, p.at, lastParent, i);
        sift(at, load(1, at), candidates);
      });
      Value kept = keep(candidates, 2, [&](Value i) {
        Value best = load(1, e.integer(0));
        Value left = arith::SubIOp::create(p.b, p.at, candidates, add(i, e.integer(1)));
        sift(e.integer(0), load(1, left), left);
        return best;
      });
      if (keptSlot != 2)
        forRange(e, e.integer(0), kept, e.integer(1),
                 [&](Value i) { e.storeRowAt(p.number, keptSlot, i, load(2, i)); });
      return kept;
    }

    /// Puts an entry into the heap of `many` in row 1, at a place of which all below are
    /// in order: what is below and comes first moves up.
    void sift(Value from, Value entry, Value many) {
      auto less = [&](Value a, Value c) {
        return compare(e, arith::CmpIPredicate::slt, a, c);
      };
      auto loop = scf::WhileOp::create(
          p.b, p.at, TypeRange{i64, i64, i64}, ValueRange{from},
          [&](OpBuilder &, Location, ValueRange carried) {
            Value twice = add(carried[0], carried[0]);
            Value left = add(twice, e.integer(1)), right = add(twice, e.integer(2));
            // A place behind the last is that of the other child, or the first.
            Value isThere = less(left, many);
            left = arith::SelectOp::create(p.b, p.at, isThere, left, e.integer(0));
            right = arith::SelectOp::create(p.b, p.at, less(right, many), right, left);
            Value one = load(1, left), other = load(1, right);
            Value isRight = less(other, one);
            Value child = arith::SelectOp::create(p.b, p.at, isRight, right, left);
            Value first = arith::MinSIOp::create(p.b, p.at, one, other);
            scf::ConditionOp::create(p.b, p.at, boxes.both(isThere, less(first, entry)),
                                     ValueRange{carried[0], child, first});
          },
          [&](OpBuilder &, Location, ValueRange at) {
            e.storeRowAt(p.number, 1, at[0], at[2]);
            scf::YieldOp::create(p.b, p.at, at[1]);
          });
      e.storeRowAt(p.number, 1, loop.getResult(0), entry);
    }

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
      Value key = packed::orderedKey(p, score, /*isUnsigned=*/false, /*descending=*/true);
      return packed::entry(p, key, place);
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

    /// Looks at the entries from the best on, and puts the places of those that it keeps
    /// into row `into`; how many. `next` gives the entry of this number, one by one.
    Value keep(Value candidates, int64_t into, llvm::function_ref<Value(Value)> next) {
      Value most = e.integer(mostKept());
      return loopWhile(
          {e.integer(0), e.integer(0)},
          [&](ValueRange at) {
            return boxes.both(compare(e, arith::CmpIPredicate::slt, at[0], candidates),
                              compare(e, arith::CmpIPredicate::slt, at[1], most));
          },
          [&](ValueRange at) {
            Value place = next(at[0]);
            if (isPacked)
              place = packed::place(p, place);
            Boxes box = boxAt(place);
            Value isGone = overlapsKept(box, at[1]);
            auto branch = scf::IfOp::create(p.b, p.at, i64, isGone, true);
            {
              OpBuilder::InsertionGuard guard(p.b);
              p.b.setInsertionPointToStart(&branch.getThenRegion().front());
              scf::YieldOp::create(p.b, p.at, at[1]);
              p.b.setInsertionPointToStart(&branch.getElseRegion().front());
              store(box, place, at[1], into);
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
    void store(const Boxes &box, Value place, Value kept, int64_t into) {
      Value lane = arith::RemUIOp::create(p.b, p.at, kept, e.integer(lanes));
      auto branch = scf::IfOp::create(
          p.b, p.at, compare(e, arith::CmpIPredicate::eq, lane, e.integer(0)), false);
      {
        OpBuilder::InsertionGuard guard(p.b);
        p.b.setInsertionPointToStart(&branch.getThenRegion().front());
        e.storeRowVector(p.number, areaSlot, kept, spread(e.constant(type, 0)));
      }
      e.storeRowAt(p.number, into, kept, place);
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
  graph::SuppressOp::attachInterface<SuppressModel>(context);
}
