//===- LowerPools.cpp - Maxima of windows, and their gradient -------------===//
#include "passes/Codegen/Emit/KernelEmitter.h"
#include "passes/Codegen/Emit/Models.h"

#include "dialects/Graph/Graph.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// Windows, or taps of one, that are emitted one behind the other: a loop between keeps
/// LLVM from computing several channels at once.
constexpr int64_t mostUnrolled = 32;

/// Calls `body` with the numbers 0 … count − 1, each as digits of these sizes, and what
/// is carried from one to the next; what the last gives.
KernelEmitter::Values
forDigits(KernelEmitter &e, ArrayRef<int64_t> sizes, KernelEmitter::Values carried,
          llvm::function_ref<KernelEmitter::Values(ArrayRef<Value> digits, Value number,
                                                   ValueRange carried)>
              body) {
  OpBuilder &b = e.builder;
  const int64_t count = elementCount(Shape(sizes.begin(), sizes.end()));
  SmallVector<Value> digits(sizes.size());
  if (count <= mostUnrolled) {
    for (int64_t number = 0; number < count; ++number) {
      int64_t rest = number;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d])
        digits[d] = e.integer(rest % sizes[d]);
      carried = body(digits, e.integer(number), carried);
    }
    return carried;
  }
  auto loop = scf::ForOp::create(b, e.location, e.integer(0), e.integer(count),
                                 e.integer(1), carried);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value rest = loop.getInductionVar();
  for (size_t d = sizes.size(); d-- > 0;) {
    Value size = e.integer(sizes[d]);
    digits[d] = arith::RemUIOp::create(b, e.location, rest, size);
    rest = arith::DivUIOp::create(b, e.location, rest, size);
  }
  scf::YieldOp::create(b, e.location,
                       body(digits, loop.getInductionVar(), loop.getRegionIterArgs()));
  return KernelEmitter::Values(loop.getResults());
}

Type storedTap(KernelEmitter &e, Value taps) {
  return e.computeType(*dtypeOf(getElementTypeOrSelf(taps.getType())));
}

/// The largest element so far and its tap, tap by tap.
struct MaxPoolModel : IndexedOpInterface::ExternalModel<MaxPoolModel, graph::MaxPoolOp> {
  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    auto pool = cast<graph::MaxPoolOp>(op);
    OpBuilder &b = e.builder;
    Type type = e.computeType(e.node(number).type);
    // Counted in 32 bits, as most elements have, so that both choices are by one mask.
    Type tapType = b.getI32Type();
    Value least = lowest(e, type, e.node(number).type);
    KernelEmitter::Values found = forDigits(
        e, pool.getWindow(), {least, arith::ConstantIntOp::create(b, e.location, 0, 32)},
        [&](ArrayRef<Value> tap, Value tapNumber, ValueRange best) {
          Value element = elementAt(pool, e, number, index, tap, least);
          Value isBetter = isAbove(e, element, best[0], e.node(number).type);
          Value here = arith::TruncIOp::create(b, e.location, tapType, tapNumber);
          Values both{arith::SelectOp::create(b, e.location, isBetter, element, best[0]),
                      arith::SelectOp::create(b, e.location, isBetter, here, best[1])};
          return both;
        });
    Type stored = storedTap(e, pool.getTaps());
    Value tap = found[1];
    if (stored != tapType)
      tap = arith::TruncIOp::create(b, e.location, stored, tap);
    e.setElement(number, 1, tap);
    return found[0];
  }

private:
  using Values = KernelEmitter::Values;

  static Value lowest(KernelEmitter &e, Type type, DType dtype) {
    if (isa<FloatType>(type))
      return e.constant(type, -INFINITY);
    unsigned width = type.getIntOrFloatBitWidth();
    APInt bits =
        isUnsigned(dtype) ? APInt::getZero(width) : APInt::getSignedMinValue(width);
    return arith::ConstantOp::create(e.builder, e.location, IntegerAttr::get(type, bits));
  }

  /// Tells whether `a` is above `c`, or is a NaN.
  static Value isAbove(KernelEmitter &e, Value a, Value c, DType dtype) {
    if (isa<FloatType>(a.getType())) {
      Value above =
          arith::CmpFOp::create(e.builder, e.location, arith::CmpFPredicate::OGT, a, c);
      Value isNaN =
          arith::CmpFOp::create(e.builder, e.location, arith::CmpFPredicate::UNO, a, a);
      return arith::OrIOp::create(e.builder, e.location, above, isNaN);
    }
    return arith::CmpIOp::create(
        e.builder, e.location,
        isUnsigned(dtype) ? arith::CmpIPredicate::ugt : arith::CmpIPredicate::sgt, a, c);
  }

  static Value elementAt(graph::MaxPoolOp pool, KernelEmitter &e, int number,
                         ArrayRef<Value> index, ArrayRef<Value> tap, Value least) {
    OpBuilder &b = e.builder;
    Location at = e.location;
    Shape in = shapeOf(pool.getInput());
    SmallVector<Value> place(index);
    Value isInside;
    for (size_t d = 0; d < tap.size(); ++d) {
      Value begin =
          arith::MulIOp::create(b, at, index[2 + d], e.integer(pool.getStrides()[d]));
      begin = arith::SubIOp::create(b, at, begin, e.integer(pool.getPads()[d]));
      Value step =
          arith::MulIOp::create(b, at, tap[d], e.integer(pool.getDilations()[d]));
      Value where = arith::AddIOp::create(b, at, begin, step);
      Value inside = arith::CmpIOp::create(b, at, arith::CmpIPredicate::ult, where,
                                           e.integer(in[2 + d]));
      isInside =
          isInside ? arith::AndIOp::create(b, at, isInside, inside).getResult() : inside;
      // An element outside is not used, but must be somewhere.
      where = arith::MaxSIOp::create(b, at, where, e.integer(0));
      place[2 + d] = arith::MinSIOp::create(b, at, where, e.integer(in[2 + d] - 1));
    }
    Value element = e.loadAt(e.node(number).reads[0], place);
    return arith::SelectOp::create(b, at, isInside, element, least);
  }
};

/// The windows that cover the element, in their order: each adds its cotangent where its
/// tap is the element's.
struct MaxPoolBackwardModel
    : IndexedOpInterface::ExternalModel<MaxPoolBackwardModel, graph::MaxPoolBackwardOp> {
  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    auto pool = cast<graph::MaxPoolBackwardOp>(op);
    size_t spatial = pool.getWindow().size();
    SmallVector<int64_t> counts;
    SmallVector<Last> last;
    for (size_t d = 0; d < spatial; ++d) {
      counts.push_back(graph::detail::windowsPerElement(
          pool.getWindow()[d], pool.getStrides()[d], pool.getDilations()[d]));
      last.push_back(
          lastWindow(e, index[2 + d], pool.getPads()[d], pool.getStrides()[d]));
    }
    Type type = e.computeType(e.node(number).type);
    return forDigits(e, counts, {e.constant(type, 0)},
                     [&](ArrayRef<Value> digits, Value, ValueRange sum) {
                       KernelEmitter::Values place(index);
                       Value tap;
                       for (size_t d = 0; d < spatial; ++d)
                         tap = enterWindow(pool, e, d, counts[d], last[d], digits[d], tap,
                                           place);
                       Value term = termAt(pool, e, number, place, tap, type);
                       return KernelEmitter::Values{make<arith::AddFOp>(e, sum[0], term)};
                     })[0];
  }

private:
  template <typename Op> static Value make(KernelEmitter &e, Value a, Value c) {
    return Op::create(e.builder, e.location, a, c);
  }

  /// The last window that begins no later than an element, in padded dims, and how far
  /// the element lies behind its begin.
  struct Last {
    Value window, distance;
  };
  static Last lastWindow(KernelEmitter &e, Value at, int64_t pad, int64_t stride) {
    // A division of no negative number.
    int64_t more = pad < 0 ? (-pad + stride - 1) / stride : 0;
    Value place = make<arith::AddIOp>(e, at, e.integer(pad + more * stride));
    Value window = make<arith::DivUIOp>(e, place, e.integer(stride));
    Value begin = make<arith::MulIOp>(e, window, e.integer(stride));
    return {make<arith::SubIOp>(e, window, e.integer(more)),
            make<arith::SubIOp>(e, place, begin)};
  }

  /// Puts the window along spatial dim `d` into `place`; the element's tap over the dims
  /// so far, −1 if the window does not cover it or is none.
  static Value enterWindow(graph::MaxPoolBackwardOp pool, KernelEmitter &e, size_t d,
                           int64_t count, const Last &last, Value digit, Value tap,
                           KernelEmitter::Values &place) {
    OpBuilder &b = e.builder;
    Value before = make<arith::SubIOp>(e, e.integer(count - 1), digit);
    Value window = make<arith::SubIOp>(e, last.window, before);
    Value distance = make<arith::AddIOp>(
        e, last.distance,
        make<arith::MulIOp>(e, before, e.integer(pool.getStrides()[d])));
    Value dilation = e.integer(pool.getDilations()[d]);
    Value own = make<arith::DivUIOp>(e, distance, dilation);
    auto below = [&](Value a, int64_t limit) -> Value {
      return arith::CmpIOp::create(b, e.location, arith::CmpIPredicate::ult, a,
                                   e.integer(limit));
    };
    int64_t extent = shapeOf(pool.getTaps())[2 + d];
    Value covers =
        make<arith::AndIOp>(e, below(window, extent), below(own, pool.getWindow()[d]));
    if (pool.getDilations()[d] != 1) {
      Value rest = make<arith::RemUIOp>(e, distance, dilation);
      covers = make<arith::AndIOp>(e, covers, below(rest, 1));
    }
    if (tap) {
      Value isTap = arith::CmpIOp::create(b, e.location, arith::CmpIPredicate::sge, tap,
                                          e.integer(0));
      covers = make<arith::AndIOp>(e, covers, isTap);
      own = make<arith::AddIOp>(
          e, make<arith::MulIOp>(e, tap, e.integer(pool.getWindow()[d])), own);
    }
    // An element outside is not used, but must be somewhere.
    window = make<arith::MaxSIOp>(e, window, e.integer(0));
    place[2 + d] = make<arith::MinSIOp>(e, window, e.integer(extent - 1));
    return arith::SelectOp::create(b, e.location, covers, own, e.integer(-1));
  }

  static Value termAt(graph::MaxPoolBackwardOp pool, KernelEmitter &e, int number,
                      ArrayRef<Value> place, Value tap, Type type) {
    // A number that no tap is, for a window that is not there.
    Value none = e.integer(elementCount(graph::vec(pool.getWindow())));
    Value isWindow = arith::CmpIOp::create(e.builder, e.location,
                                           arith::CmpIPredicate::sge, tap, e.integer(0));
    tap = arith::SelectOp::create(e.builder, e.location, isWindow, tap, none);
    Type stored = storedTap(e, pool.getTaps());
    Value own = arith::TruncIOp::create(e.builder, e.location, stored, tap);
    const std::vector<int> &reads = e.node(number).reads;
    Value given = e.loadAt(reads[1], place);
    Value isOwn = arith::CmpIOp::create(e.builder, e.location, arith::CmpIPredicate::eq,
                                        given, own);
    return arith::SelectOp::create(e.builder, e.location, isOwn,
                                   e.loadAt(reads[0], place), e.constant(type, 0));
  }
};
} // namespace

void codegen::attachPoolModels(MLIRContext &context) {
  graph::MaxPoolOp::attachInterface<MaxPoolModel>(context);
  graph::MaxPoolBackwardOp::attachInterface<MaxPoolBackwardModel>(context);
}
