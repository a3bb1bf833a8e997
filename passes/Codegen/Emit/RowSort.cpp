//===- RowSort.cpp - Sorting entries in scratch ---------------------------===//
#include "passes/Codegen/Emit/RowSort.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

void codegen::forRange(KernelEmitter &e, Value from, Value to, Value step,
                       llvm::function_ref<void(Value)> body) {
  auto loop = scf::ForOp::create(e.builder, e.location, from, to, step);
  OpBuilder::InsertionGuard guard(e.builder);
  e.builder.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

Value codegen::compare(KernelEmitter &e, arith::CmpIPredicate predicate, Value a,
                       Value c) {
  return arith::CmpIOp::create(e.builder, e.location, predicate, a, c);
}

//===----------------------------------------------------------------------===//
// Packed entries
//===----------------------------------------------------------------------===//

bool packed::fits(Type key, int64_t places) {
  return key.getIntOrFloatBitWidth() <= 32 && places < int64_t(1) << 31;
}

/// Bits of negative numbers ascend as the numbers fall.
static Value bitsInOrder(Passes &p, Value key) {
  // Minus zero is zero; of what is no number there is one.
  auto type = cast<FloatType>(key.getType());
  IntegerType bitsType = p.b.getIntegerType(type.getWidth());
  auto bitsOf = [&](const APInt &bits) -> Value {
    return arith::ConstantOp::create(p.b, p.at, IntegerAttr::get(bitsType, bits));
  };
  Value isNumber = arith::CmpFOp::create(p.b, p.at, arith::CmpFPredicate::ORD, key, key);
  key = arith::AddFOp::create(p.b, p.at, key, p.e.constant(type, 0));
  Value bits = arith::BitcastOp::create(p.b, p.at, bitsType, key);
  Value isNegative = compare(p.e, arith::CmpIPredicate::slt, bits,
                             bitsOf(APInt::getZero(type.getWidth())));
  Value most = bitsOf(APInt::getSignedMaxValue(type.getWidth()));
  Value turned = arith::XOrIOp::create(p.b, p.at, bits, most);
  bits = arith::SelectOp::create(p.b, p.at, isNegative, turned, bits);
  return arith::SelectOp::create(p.b, p.at, isNumber, bits, most);
}

Value packed::orderedKey(Passes &p, Value key, bool isUnsigned, bool descending) {
  const bool isWide = key.getType().getIntOrFloatBitWidth() > 32;
  IntegerType type = p.b.getIntegerType(isWide ? 64 : 32);
  auto bitsOf = [&](const APInt &bits) -> Value {
    return arith::ConstantOp::create(p.b, p.at, IntegerAttr::get(type, bits));
  };
  Value bits = key;
  if (isa<FloatType>(key.getType()))
    bits = bitsInOrder(p, key);
  else if (key.getType() != type && isUnsigned)
    bits = arith::ExtUIOp::create(p.b, p.at, type, key);
  else if (key.getType() != type)
    bits = arith::ExtSIOp::create(p.b, p.at, type, key);
  if (isUnsigned)
    bits = arith::XOrIOp::create(p.b, p.at, bits,
                                 bitsOf(APInt::getSignedMinValue(type.getWidth())));
  if (descending)
    bits = arith::XOrIOp::create(p.b, p.at, bits,
                                 bitsOf(APInt::getAllOnes(type.getWidth())));
  return bits;
}

Value packed::entry(Passes &p, Value key, Value place) {
  Value bits = arith::ExtSIOp::create(p.b, p.at, p.b.getI64Type(), key);
  bits = arith::ShLIOp::create(p.b, p.at, bits, p.e.integer(32));
  return arith::OrIOp::create(p.b, p.at, bits, place);
}

Value packed::place(Passes &p, Value entry) {
  return arith::AndIOp::create(p.b, p.at, entry, p.e.integer(0xffffffff));
}

Value packed::key(Passes &p, Value entry) {
  return arith::ShRSIOp::create(p.b, p.at, entry, p.e.integer(32));
}

//===----------------------------------------------------------------------===//
// Merge sort
//===----------------------------------------------------------------------===//

MergeSort::Area MergeSort::run(Area entries, Area other, Value extent) {
  int64_t width = 1;
  if (isStrict && most > 1) {
    p.e.forEach(p.e.integer(0), extent, p.e.integer(rankedEntries),
                [&](Value begin) { rankAt(begin, entries, other, extent); });
    width = rankedEntries;
    std::swap(entries, other);
  }
  for (; width < most; width *= 2, std::swap(entries, other))
    p.e.forEach(p.e.integer(0), extent, p.e.integer(2 * width),
                [&](Value begin) { mergeAt(begin, entries, other, width, extent); });
  return entries;
}

void MergeSort::rankAt(Value begin, Area from, Area into, Value extent) {
  KernelEmitter &e = p.e;
  Type i64 = p.b.getI64Type();
  auto entryAt = [&](Value i) {
    return e.loadRowAt(p.number, from.slot, add(from.begin, i), i64);
  };
  Value end = least(add(begin, e.integer(rankedEntries)), extent);
  forRange(e, begin, end, e.integer(1), [&](Value i) {
    Value entry = entryAt(i);
    auto loop =
        scf::ForOp::create(p.b, p.at, begin, end, e.integer(1), ValueRange{e.integer(0)});
    {
      OpBuilder::InsertionGuard guard(p.b);
      p.b.setInsertionPointToStart(loop.getBody());
      Value other = entryAt(loop.getInductionVar());
      Value isLess = arith::ExtUIOp::create(p.b, p.at, i64, isBefore(other, entry));
      scf::YieldOp::create(p.b, p.at, add(loop.getRegionIterArgs()[0], isLess));
    }
    Value place = add(into.begin, add(begin, loop.getResult(0)));
    e.storeRowAt(p.number, into.slot, place, entry);
  });
}

void MergeSort::merge(Area entries, Area into, int64_t ofFirst, Value extent) {
  mergeAt(p.e.integer(0), entries, into, ofFirst, extent);
}

/// Two runs of `width`, of each of which the first `count` entries are of interest. Each
/// entry waits for the comparison before it; so runs of which all is wanted are merged
/// from both ends at once, until the two meet.
void MergeSort::mergeAt(Value begin, Area from, Area into, int64_t width, Value extent) {
  KernelEmitter &e = p.e;
  Value second = least(add(begin, e.integer(width)), extent);
  Value end = least(add(begin, e.integer(2 * width)), extent);
  Runs runs{from,
            into,
            begin,
            least(second, add(begin, count)),
            second,
            least(end, add(second, count)),
            least(end, add(begin, count))};
  Value isWhole = compare(e, arith::CmpIPredicate::eq, runs.last, end);
  Value half = arith::ShRUIOp::create(p.b, p.at, sub(end, begin), e.integer(1));
  Value fromBoth = arith::SelectOp::create(p.b, p.at, isWhole, half, e.integer(0));
  Value one = e.integer(1);
  auto both =
      scf::ForOp::create(p.b, p.at, e.integer(0), fromBoth, one,
                         ValueRange{begin, second, sub(second, one), sub(end, one)});
  {
    OpBuilder::InsertionGuard guard(p.b);
    p.b.setInsertionPointToStart(both.getBody());
    auto at = both.getRegionIterArgs();
    Value number = both.getInductionVar();
    auto [i, j] = takeFirst(runs, add(begin, number), at[0], at[1]);
    auto [k, l] = takeLast(runs, sub(sub(end, one), number), at[2], at[3]);
    scf::YieldOp::create(p.b, p.at, ValueRange{i, j, k, l});
  }
  auto rest =
      scf::ForOp::create(p.b, p.at, add(begin, fromBoth), sub(runs.last, fromBoth), one,
                         ValueRange{both.getResult(0), both.getResult(1)});
  OpBuilder::InsertionGuard guard(p.b);
  p.b.setInsertionPointToStart(rest.getBody());
  auto [i, j] = takeFirst(runs, rest.getInductionVar(), rest.getRegionIterArgs()[0],
                          rest.getRegionIterArgs()[1]);
  scf::YieldOp::create(p.b, p.at, ValueRange{i, j});
}

/// The lesser of the entries at `i` and `j` goes to place `to`; what is next of each run.
std::pair<Value, Value> MergeSort::takeFirst(const Runs &runs, Value to, Value i,
                                             Value j) {
  KernelEmitter &e = p.e;
  // An entry behind the end is some other.
  Value end = sub(runs.rightEnd, e.integer(1));
  Value left = entryAt(runs.from, least(i, end)),
        right = entryAt(runs.from, least(j, end));
  Value rightFirst = isBefore(right, left);
  Value leftDone = compare(e, arith::CmpIPredicate::sge, i, runs.leftEnd);
  Value rightThere = compare(e, arith::CmpIPredicate::slt, j, runs.rightEnd);
  Value takeRight = arith::AndIOp::create(
      p.b, p.at, rightThere, arith::OrIOp::create(p.b, p.at, leftDone, rightFirst));
  put(runs.into, to, takeRight, right, left);
  return {add(i, select(takeRight, e.integer(0), e.integer(1))),
          add(j, select(takeRight, e.integer(1), e.integer(0)))};
}

/// Takes from the ends: the greater one goes, of equal ones that of the second run.
std::pair<Value, Value> MergeSort::takeLast(const Runs &runs, Value to, Value i,
                                            Value j) {
  KernelEmitter &e = p.e;
  // An entry before the begin is read, too; of the second run that is one of the first.
  Value first = arith::MaxSIOp::create(p.b, p.at, i, runs.begin);
  Value left = entryAt(runs.from, first), right = entryAt(runs.from, j);
  Value rightFirst = isBefore(right, left);
  Value leftThere = compare(e, arith::CmpIPredicate::sge, i, runs.begin);
  Value rightDone = compare(e, arith::CmpIPredicate::slt, j, runs.second);
  Value takeLeft = arith::AndIOp::create(
      p.b, p.at, leftThere, arith::OrIOp::create(p.b, p.at, rightDone, rightFirst));
  put(runs.into, to, takeLeft, left, right);
  return {sub(i, select(takeLeft, e.integer(1), e.integer(0))),
          sub(j, select(takeLeft, e.integer(0), e.integer(1)))};
}

Value MergeSort::entryAt(Area area, Value place) {
  return p.e.loadRowAt(p.number, area.slot, add(area.begin, place), p.b.getI64Type());
}

void MergeSort::put(Area into, Value place, Value isOne, Value one, Value other) {
  p.e.storeRowAt(p.number, into.slot, add(into.begin, place), select(isOne, one, other));
}
