//===- AttentionEmitter.cpp - Attention for CPUs --------------------------===//
#include "passes/Codegen/CPU/AttentionEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

using Hides = AttentionSpec::Hides;
static constexpr int64_t tileRows = AttentionScratch::tile;

AttentionEmitter::AttentionEmitter(OpBuilder &builder, Location location,
                                   const KernelSpec &spec, std::string symbol,
                                   VectorUnit unit)
    : CpuEmitter(builder, location, spec, std::move(symbol)), a(*spec.attention), s(spec),
      unit(unit), panelVectors(unit.registers >= 32 ? 4 : 2),
      panel(panelVectors * unit.lanes), depthDim(spec.numOuter()), widthDim(depthDim + 1),
      queryDim(depthDim + 2), keyDim(depthDim + 3),
      vector(VectorType::get({unit.lanes}, builder.getF32Type())) {}

//===----------------------------------------------------------------------===//
// Shorthands
//===----------------------------------------------------------------------===//

AttentionEmitter::Values AttentionEmitter::loop(Value from, Value to, int64_t step,
                                                ValueRange initial, Carrying body) {
  auto made = scf::ForOp::create(builder, location, from, to, integer(step), initial);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(made.getBody());
  scopes.emplace_back();
  Values next = body(made.getInductionVar(), made.getRegionIterArgs());
  if (!initial.empty())
    scf::YieldOp::create(builder, location, next);
  scopes.pop_back();
  return Values(made.getResults());
}

void AttentionEmitter::loop(Value from, Value to, int64_t step, Body body) {
  loop(from, to, step, {}, [&](Value index, ValueRange) {
    body(index);
    return Values();
  });
}

Value AttentionEmitter::plus(Value x, Value y) {
  return arith::AddIOp::create(builder, location, x, y);
}
Value AttentionEmitter::minus(Value x, Value y) {
  return arith::SubIOp::create(builder, location, x, y);
}
Value AttentionEmitter::times(Value x, int64_t y) {
  return arith::MulIOp::create(builder, location, x, integer(y));
}
Value AttentionEmitter::least(Value x, Value y) {
  return arith::MinSIOp::create(builder, location, x, y);
}
Value AttentionEmitter::isBelow(Value x, Value y) {
  return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, x, y);
}
Value AttentionEmitter::boolean(bool value) {
  return arith::ConstantIntOp::create(builder, location, value ? 1 : 0, 1);
}
Value AttentionEmitter::real(double value) {
  return constant(builder.getF32Type(), value);
}

Value AttentionEmitter::address(Value index) {
  return LLVM::GEPOp::create(builder, location, pointers.back().getType(),
                             builder.getF32Type(), pointers.back(), ValueRange{index});
}
Value AttentionEmitter::at(Value index) {
  return LLVM::LoadOp::create(builder, location, builder.getF32Type(), address(index));
}
void AttentionEmitter::put(Value index, Value value) {
  LLVM::StoreOp::create(builder, location, value, address(index), sizeof(float));
}
Value AttentionEmitter::vectorAt(Value index) {
  return LLVM::LoadOp::create(builder, location, vector, address(index), sizeof(float));
}

Value AttentionEmitter::splat(Value scalar) {
  Value none = LLVM::PoisonOp::create(builder, location, vector);
  Value one = LLVM::InsertElementOp::create(builder, location, none, scalar, integer(0));
  SmallVector<int32_t> first(static_cast<size_t>(unit.lanes), 0);
  return LLVM::ShuffleVectorOp::create(builder, location, one, none, first);
}

Value AttentionEmitter::multiplied(Value x, Value y, Value sum) {
  return LLVM::FMulAddOp::create(builder, location, x, y, sum);
}

Value AttentionEmitter::element(int operand, size_t rowDim, Value row, size_t columnDim,
                                Value column) {
  const KernelOperand &from = spec.operands[static_cast<size_t>(operand)];
  point[rowDim] = row, point[columnDim] = column;
  Value value = load(pointers[static_cast<size_t>(operand)],
                     linear(from.offset, from.strides), from.type);
  point[rowDim] = point[columnDim] = nullptr;
  return value;
}

Value AttentionEmitter::elements(int operand, size_t rowDim, Value row, size_t columnDim,
                                 Value column) {
  const KernelOperand &from = spec.operands[static_cast<size_t>(operand)];
  Value pointer = pointers[static_cast<size_t>(operand)];
  point[rowDim] = row, point[columnDim] = column;
  Value place =
      LLVM::GEPOp::create(builder, location, pointer.getType(), builder.getF32Type(),
                          pointer, ValueRange{linear(from.offset, from.strides)});
  point[rowDim] = point[columnDim] = nullptr;
  return LLVM::LoadOp::create(builder, location, vector, place, sizeof(float));
}

bool AttentionEmitter::hasRows(int operand, size_t columnDim) const {
  const KernelOperand &from = spec.operands[static_cast<size_t>(operand)];
  return from.type == DType::F32 && from.strides[columnDim] == 1 &&
         spec.domain[columnDim] % AttentionScratch::widestVector == 0;
}

//===----------------------------------------------------------------------===//
// Units
//===----------------------------------------------------------------------===//

/// Blocks of a head come from both ends in turn: under a causal mask the last ones have
/// most to do, and so each half of a head has about as much.
Value AttentionEmitter::openUnit(Value number) {
  int64_t count = (s.queries + a.queryBlock - 1) / a.queryBlock;
  Value digit = arith::RemUIOp::create(builder, location, number, integer(count));
  Value rest = arith::DivUIOp::create(builder, location, number, integer(count));
  Value half = arith::ShRUIOp::create(builder, location, digit, integer(1));
  Value isOdd = arith::CmpIOp::create(
      builder, location, arith::CmpIPredicate::ne,
      arith::AndIOp::create(builder, location, digit, integer(1)), integer(0));
  Value block = arith::SelectOp::create(builder, location, isOdd,
                                        minus(integer(count - 1), half), half);
  for (size_t d = spec.numOuter(); d-- > 0;) {
    Value size = integer(spec.domain[d]);
    point[d] =
        d == 0 ? rest : arith::RemUIOp::create(builder, location, rest, size).getResult();
    rest = arith::DivUIOp::create(builder, location, rest, size);
  }
  return times(block, a.queryBlock);
}

void AttentionEmitter::unitLoop() {
  loop(begin, end, 1, [&](Value number) {
    firstQuery = openUnit(number);
    numQueries = least(integer(a.queryBlock), minus(integer(s.queries), firstQuery));
    loadQueries();
    if (a.hides == Hides::None) {
      keyBlocks(nullptr);
    } else {
      // The second pass is for queries that have seen hidden keys only.
      loop(integer(0), integer(2), 1, [&](Value pass) {
        Value isFirst = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq,
                                              pass, integer(0));
        Value needed = arith::OrIOp::create(builder, location, isFirst,
                                            anyUnsettled(integer(0), numQueries));
        onlyIf(needed, [&] { keyBlocks(isFirst); });
      });
    }
    storeResult();
  });
}

void AttentionEmitter::loadQueries() {
  Value zero = integer(0);
  loop(zero, numQueries, 1, [&](Value row) {
    Value query = plus(firstQuery, row),
          to = plus(times(row, s.depthStride), integer(s.q));
    loop(zero, integer(s.depth), 1, [&](Value d) {
      Value x = element(0, queryDim, query, depthDim, d);
      if (a.scale != 1)
        x = arith::MulFOp::create(builder, location, x, real(a.scale));
      put(plus(to, d), x);
    });
  });
  loop(zero, integer(s.rows), 1, [&](Value row) {
    put(plus(row, integer(s.top)), real(-std::numeric_limits<double>::infinity()));
    put(plus(row, integer(s.sum)), real(0));
  });
  loop(zero, integer(s.rows * s.widthStride), 1,
       [&](Value i) { put(plus(i, integer(s.result)), real(0)); });
  loop(zero, integer(tileRows), 1,
       [&](Value i) { put(plus(i, integer(s.shrink)), real(0)); });
}

void AttentionEmitter::storeStatistics(Value row) {
  const int64_t places[] = {s.top, s.sum};
  for (size_t o = 1; o < spec.outputs.size(); ++o) {
    const KernelOperand &output = spec.outputs[o];
    store(pointers[spec.operands.size() + o], linear(output.offset, output.strides),
          output.type, at(plus(row, integer(places[o - 1]))));
  }
}

void AttentionEmitter::storeResult() {
  const KernelOperand &output = spec.outputs[0];
  loop(integer(0), numQueries, 1, [&](Value row) {
    Value sum = at(plus(row, integer(s.sum)));
    Value inverse = arith::DivFOp::create(builder, location, real(1), sum);
    Value isNumber =
        arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OGT, sum, real(0));
    point[queryDim] = plus(firstQuery, row);
    storeStatistics(row);
    Value from = plus(times(row, s.widthStride), integer(s.result));
    loop(integer(0), integer(s.width), 1, [&](Value column) {
      Value x = arith::MulFOp::create(builder, location, at(plus(from, column)), inverse);
      if (a.zeroForNaN)
        x = arith::SelectOp::create(builder, location, isNumber, x, real(0));
      point[widthDim] = column;
      store(pointers[spec.operands.size()], linear(output.offset, output.strides),
            output.type, x);
      point[widthDim] = nullptr;
    });
    point[queryDim] = nullptr;
  });
}

//===----------------------------------------------------------------------===//
// Blocks of keys
//===----------------------------------------------------------------------===//

void AttentionEmitter::keyBlocks(Value isFirstPass) {
  loop(integer(0), integer(s.keys), a.keyBlock, [&](Value key) {
    firstKey = key;
    numKeys = least(integer(a.keyBlock), minus(integer(s.keys), key));
    tiles(isFirstPass);
  });
}

/// The block is brought in when the first tile needs it.
void AttentionEmitter::tiles(Value isFirstPass) {
  if (!isFirstPass)
    loadBlock();
  Value no = boolean(false);
  loop(integer(0), numQueries, tileRows, no, [&](Value row, ValueRange carried) {
    firstRow = row;
    endRow = least(plus(row, integer(tileRows)), numQueries);
    firstColumn = integer(0), endColumn = numKeys;
    if (!isFirstPass) {
      tileOf();
      return Values{carried[0]};
    }
    Value seen = seenKeys();
    Value late = arith::AndIOp::create(builder, location, isBelow(seen, numKeys),
                                       anyUnsettled(firstRow, endRow));
    Value wanted = arith::SelectOp::create(builder, location, isFirstPass,
                                           isBelow(integer(0), seen), late);
    firstColumn =
        arith::SelectOp::create(builder, location, isFirstPass, integer(0), seen);
    endColumn = arith::SelectOp::create(builder, location, isFirstPass, seen, numKeys);
    Value missing = arith::SelectOp::create(builder, location, carried[0], no, wanted);
    onlyIf(missing, [&] { loadBlock(); });
    onlyIf(wanted, [&] { tileOf(); });
    return Values{arith::OrIOp::create(builder, location, carried[0], wanted)};
  });
}

/// So many of the block's keys that some query of the tile may see the last panel of
/// them: found from the end, where it mostly is one.
Value AttentionEmitter::seenKeys() {
  Type i64 = builder.getI64Type();
  auto search = scf::WhileOp::create(builder, location, TypeRange{i64, i64},
                                     ValueRange{numKeys, numKeys});
  OpBuilder::InsertionGuard guard(builder);
  Block *before =
      builder.createBlock(&search.getBefore(), {}, {i64, i64}, {location, location});
  Value count = before->getArgument(0);
  Value last = arith::SubIOp::create(builder, location, count, integer(1));
  Value from =
      minus(last, arith::RemUIOp::create(builder, location, last, integer(panel)));
  from =
      arith::SelectOp::create(builder, location, isBelow(integer(0), count), from, count);
  Value found = isSeen(from, count);
  Value goesOn = arith::AndIOp::create(
      builder, location, isBelow(integer(0), count),
      arith::XOrIOp::create(builder, location, found, boolean(true)));
  scf::ConditionOp::create(builder, location, goesOn, ValueRange{count, from});
  Block *after =
      builder.createBlock(&search.getAfter(), {}, {i64, i64}, {location, location});
  scf::YieldOp::create(builder, location,
                       ValueRange{after->getArgument(1), after->getArgument(1)});
  return search.getResult(0);
}

/// Whether some query of the tile sees one of these keys.
Value AttentionEmitter::isSeen(Value from, Value to) {
  return loop(firstRow, endRow, 1, boolean(false), [&](Value row, ValueRange rows) {
    point[queryDim] = plus(firstQuery, row);
    Values inRow = loop(from, to, 1, rows, [&](Value column, ValueRange carried) {
      point[keyDim] = plus(firstKey, column);
      Value x = value(a.hiders[0]);
      for (int more : ArrayRef(a.hiders).drop_front())
        x = arith::AddFOp::create(builder, location, x, value(more));
      point[keyDim] = nullptr;
      if (a.hides == Hides::WhereNot)
        x = arith::XOrIOp::create(builder, location, x, boolean(true));
      if (a.hides == Hides::Sum) // a NaN is seen
        x = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::UGT, x,
                                  real(hiddenBelow));
      return Values{arith::OrIOp::create(builder, location, carried[0], x)};
    });
    point[queryDim] = nullptr;
    return inRow;
  })[0];
}

/// Whether some of these queries have seen no key with a logit far above those of hidden
/// ones: 110 above, and exp of the difference is 0.
Value AttentionEmitter::anyUnsettled(Value from, Value to) {
  double bar = a.hides == Hides::Sum ? hiddenLogit : a.hidden + 110;
  return loop(from, to, 1, boolean(false), [&](Value row, ValueRange carried) {
    Value isLow = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::ULE,
                                        at(plus(row, integer(s.top))), real(bar));
    return Values{arith::OrIOp::create(builder, location, carried[0], isLow)};
  })[0];
}

void AttentionEmitter::loadBlock() {
  loadAcross(keysAcross());
  loadRows(valueRows());
}

/// Keys lie across: in panels of as many keys as a product has in registers, by depth.
Value AttentionEmitter::acrossAt(const KeyRows &rows, Value depth, Value column) {
  Value number = arith::DivUIOp::create(builder, location, column, integer(panel));
  Value rest = arith::RemUIOp::create(builder, location, column, integer(panel));
  Value begin = times(number, panel * rows.stride);
  Value row = plus(begin, times(depth, panel));
  return plus(plus(row, rest), integer(rows.place));
}

void AttentionEmitter::loadAcross(const KeyRows &rows) {
  constexpr int64_t count = AttentionScratch::widestVector;
  loop(integer(0), numKeys, count, [&](Value first) {
    Value there = least(integer(count), minus(numKeys, first));
    auto squares = [&](llvm::function_ref<Value(Value, int64_t)> rowAt) {
      loop(integer(0), integer(rows.stride), unit.lanes, [&](Value d) {
        for (int64_t part = 0; part < count; part += unit.lanes)
          transpose([&](int64_t r) { return rowAt(d, part + r); },
                    acrossAt(rows, d, plus(first, integer(part))));
      });
    };
    auto staged = [&] {
      stageKeys(rows, first, there);
      squares([&](Value d, int64_t r) {
        return vectorAt(plus(d, integer(s.stage + r * rows.stride)));
      });
    };
    if (!hasRows(rows.operand, rows.columnDim))
      return staged();
    Value key = plus(firstKey, first);
    Value isWhole = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq,
                                          there, integer(count));
    onlyIf(isWhole, [&] {
      squares([&](Value d, int64_t r) {
        return elements(rows.operand, keyDim, plus(key, integer(r)), rows.columnDim, d);
      });
    });
    onlyIf(arith::XOrIOp::create(builder, location, isWhole, boolean(true)), staged);
  });
}

/// The block's keys from `first` on, and zeros behind the last one.
void AttentionEmitter::stageKeys(const KeyRows &rows, Value first, Value count) {
  loop(integer(0), count, 1, [&](Value row) {
    Value key = plus(plus(firstKey, first), row);
    Value to = plus(times(row, rows.stride), integer(s.stage));
    loop(integer(0), integer(rows.columns), 1, [&](Value d) {
      put(plus(to, d), element(rows.operand, keyDim, key, rows.columnDim, d));
    });
  });
  loop(times(count, rows.stride), integer(AttentionScratch::widestVector * rows.stride),
       1, [&](Value i) { put(plus(i, integer(s.stage)), real(0)); });
}

/// A square of as many rows as a vector has lanes, to the keys: each round puts the
/// halves of all rows together like a deck of cards.
void AttentionEmitter::transpose(llvm::function_ref<Value(int64_t)> row, Value to) {
  int64_t n = unit.lanes;
  Values rows;
  for (int64_t r = 0; r < n; ++r)
    rows.push_back(row(r));
  SmallVector<int32_t> low, high;
  for (int64_t i = 0; i < n / 2; ++i) {
    auto k = static_cast<int32_t>(i), half = static_cast<int32_t>(n / 2);
    auto other = static_cast<int32_t>(n);
    low.append({k, k + other});
    high.append({k + half, k + half + other});
  }
  for (int64_t step = 1; step < n; step *= 2) {
    Values next;
    for (int64_t r = 0; r < n / 2; ++r)
      for (const auto &mask : {low, high})
        next.push_back(
            LLVM::ShuffleVectorOp::create(builder, location, rows[static_cast<size_t>(r)],
                                          rows[static_cast<size_t>(r + n / 2)], mask));
    rows = std::move(next);
  }
  for (int64_t r = 0; r < n; ++r)
    put(plus(to, integer(r * panel)), rows[static_cast<size_t>(r)]);
}

void AttentionEmitter::loadRows(const KeyRows &rows) {
  if (hasRows(rows.operand, rows.columnDim))
    return;
  Value zero = integer(0);
  loop(zero, numKeys, 1, [&](Value row) {
    Value key = plus(firstKey, row);
    Value to = plus(times(row, rows.stride), integer(rows.place));
    loop(zero, integer(rows.columns), 1, [&](Value column) {
      put(plus(to, column), element(rows.operand, keyDim, key, rows.columnDim, column));
    });
  });
}

Value AttentionEmitter::rowVector(const KeyRows &rows, Value key, Value column) {
  if (hasRows(rows.operand, rows.columnDim))
    return elements(rows.operand, keyDim, plus(firstKey, key), rows.columnDim, column);
  return vectorAt(plus(plus(times(key, rows.stride), integer(rows.place)), column));
}
