//===- AttentionGradientEmitter.cpp - Attention backward for CPUs ---------===//
#include "passes/Codegen/CPU/AttentionGradientEmitter.h"

#include "passes/Codegen/Emit/RealFunctions.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

using Hides = AttentionSpec::Hides;
static constexpr int64_t tileRows = AttentionScratch::tile;

//===----------------------------------------------------------------------===//
// Units
//===----------------------------------------------------------------------===//

void AttentionGradientEmitter::openUnit(Value number) {
  const bool isWhole = a.ofQueries && a.ofKeys;
  int64_t size = a.ofKeys ? a.keyBlock : a.queryBlock;
  int64_t rows = a.ofKeys ? s.keys : s.queries;
  int64_t count = isWhole ? 1 : (rows + size - 1) / size;
  Value block = arith::RemUIOp::create(builder, location, number, integer(count));
  Value rest = arith::DivUIOp::create(builder, location, number, integer(count));
  for (size_t d = spec.numOuter(); d-- > 0;) {
    if (spec.isGroup(d))
      continue;
    Value extent = integer(spec.domain[d]);
    point[d] = arith::RemUIOp::create(builder, location, rest, extent);
    rest = arith::DivUIOp::create(builder, location, rest, extent);
  }
  queriesFrom = keysFrom = integer(0);
  queriesTo = integer(s.queries), keysTo = integer(s.keys);
  if (isWhole)
    return;
  Value from = times(block, size);
  (a.ofKeys ? keysFrom : queriesFrom) = from;
  (a.ofKeys ? keysTo : queriesTo) = least(plus(from, integer(size)), integer(rows));
}

void AttentionGradientEmitter::overMembers(llvm::function_ref<void(Value)> body) {
  memberLoops(0, integer(0), body);
}

void AttentionGradientEmitter::memberLoops(size_t dim, Value member,
                                           llvm::function_ref<void(Value)> body) {
  if (dim == spec.numOuter())
    return body(member);
  if (!spec.isGroup(dim))
    return memberLoops(dim + 1, member, body);
  loop(integer(0), integer(spec.domain[dim]), 1, [&](Value index) {
    point[dim] = index;
    memberLoops(dim + 1, plus(times(member, spec.domain[dim]), index), body);
    point[dim] = nullptr;
  });
}

void AttentionGradientEmitter::clear(int64_t place, int64_t elements) {
  loop(integer(0), integer(elements), 1,
       [&](Value i) { put(plus(i, integer(place)), real(0)); });
}

void AttentionGradientEmitter::unitLoop() {
  loop(begin, end, 1, [&](Value number) {
    openUnit(number);
    if (a.ofQueries)
      clear(s.byQueries, s.members * s.memberRows * s.depthStride);
    loop(keysFrom, keysTo, a.keyBlock, [&](Value key) {
      firstKey = key;
      numKeys = least(integer(a.keyBlock), minus(keysTo, key));
      loadAcross(keysAcross());
      loadAcross(valuesAcross());
      if (a.ofQueries)
        loadRows(keyRows());
      if (a.ofKeys) {
        clear(s.byKeys, s.blockKeys * s.depthStride);
        clear(s.byValues, s.blockKeys * s.widthStride);
      }
      overMembers([&](Value member) {
        loop(queriesFrom, queriesTo, a.queryBlock, [&](Value query) {
          firstQuery = query;
          numQueries = least(integer(a.queryBlock), minus(queriesTo, query));
          queryBlock(member);
        });
      });
      if (a.ofKeys) {
        size_t output = a.ofQueries ? 1 : 0;
        storeRows(output, keyDim, firstKey, numKeys, depthDim, integer(s.byKeys),
                  s.depthStride, 1);
        storeRows(output + 1, keyDim, firstKey, numKeys, widthDim, integer(s.byValues),
                  s.widthStride, 1);
      }
    });
    if (a.ofQueries)
      overMembers([&](Value member) {
        Value place =
            plus(times(member, s.memberRows * s.depthStride), integer(s.byQueries));
        storeRows(0, queryDim, queriesFrom, minus(queriesTo, queriesFrom), depthDim,
                  place, s.depthStride, a.scale);
      });
  });
}

void AttentionGradientEmitter::storeRows(size_t output, size_t rowDim, Value firstRow,
                                         Value count, size_t columnDim, Value place,
                                         int64_t stride, double scale) {
  const KernelOperand &to = spec.outputs[output];
  loop(integer(0), count, 1, [&](Value row) {
    point[rowDim] = plus(firstRow, row);
    Value from = plus(place, times(row, stride));
    loop(integer(0), integer(spec.domain[columnDim]), 1, [&](Value column) {
      Value x = at(plus(from, column));
      if (scale != 1)
        x = arith::MulFOp::create(builder, location, x, real(scale));
      point[columnDim] = column;
      store(pointers[spec.operands.size() + output], linear(to.offset, to.strides),
            to.type, x);
      point[columnDim] = nullptr;
    });
    point[rowDim] = nullptr;
  });
}

//===----------------------------------------------------------------------===//
// Blocks of queries
//===----------------------------------------------------------------------===//

void AttentionGradientEmitter::loadQueryBlock() {
  Value zero = integer(0);
  auto number = [&](int operand) {
    const KernelOperand &from = spec.operands[static_cast<size_t>(operand)];
    return load(pointers[static_cast<size_t>(operand)], linear(from.offset, from.strides),
                from.type);
  };
  loop(zero, numQueries, 1, [&](Value row) {
    Value query = plus(firstQuery, row);
    Value to = plus(times(row, s.depthStride), integer(s.q));
    loop(zero, integer(s.depth), 1, [&](Value d) {
      Value x = element(0, queryDim, query, depthDim, d);
      if (a.scale != 1)
        x = arith::MulFOp::create(builder, location, x, real(a.scale));
      put(plus(to, d), x);
    });
    Value cotangent = plus(times(row, s.widthStride), integer(s.cotangent));
    loop(zero, integer(s.width), 1, [&](Value column) {
      put(plus(cotangent, column), element(5, queryDim, query, widthDim, column));
    });
    point[queryDim] = query;
    put(plus(row, integer(s.top)), number(3));
    put(plus(row, integer(s.sum)), number(4));
    put(plus(row, integer(s.delta)), number(6));
    point[queryDim] = nullptr;
  });
}

/// The keys that a tile sees, and the first query of the block that sees any, are found
/// as the tiles go by: the sums by keys leave out the rest.
void AttentionGradientEmitter::queryBlock(Value member) {
  loadQueryBlock();
  Values found = loop(
      integer(0), numQueries, tileRows, Values{integer(0), numQueries},
      [&](Value row, ValueRange carried) {
        firstRow = row;
        endRow = least(plus(row, integer(tileRows)), numQueries);
        firstColumn = integer(0), endColumn = numKeys;
        if (a.hides != Hides::None)
          endColumn = arith::SelectOp::create(
              builder, location, anyUnsettled(firstRow, endRow), numKeys, seenKeys());
        Value sees = isBelow(integer(0), endColumn);
        onlyIf(sees, [&] { tile(member); });
        for (int64_t r = 0; r < tileRows; ++r)
          loop(endColumn, integer(s.blockKeys), 1, [&](Value column) {
            Value place = plus(times(plus(row, integer(r)), s.blockKeys), column);
            put(plus(place, integer(s.weights)), real(0));
            put(plus(place, integer(s.slopes)), real(0));
          });
        return Values{arith::MaxSIOp::create(builder, location, carried[0], endColumn),
                      arith::SelectOp::create(builder, location, sees,
                                              least(carried[1], row), carried[1])};
      });
  if (a.ofKeys)
    sumsByKeys(found[1], found[0]);
}

void AttentionGradientEmitter::tile(Value member) {
  scoreTile(keysAcross(), s.q, s.depthStride, s.depth, s.weights);
  scoreTile(valuesAcross(), s.cotangent, s.widthStride, s.width, s.slopes);
  if (a.logits != a.score || a.slope >= 0)
    loop(firstRow, endRow, 1, [&](Value row) { logits(row); });
  for (int64_t r = 0; r < tileRows; ++r)
    weightsOf(r);
  if (!a.ofQueries)
    return;
  Value rows = plus(times(member, s.memberRows), minus(firstQuery, queriesFrom));
  Value into = plus(times(plus(rows, firstRow), s.depthStride), integer(s.byQueries));
  Value slopes = plus(times(firstRow, s.blockKeys), integer(s.slopes));
  add({firstColumn, endColumn,
       [&](Value key, int64_t r) {
         return plus(plus(slopes, key), integer(r * s.blockKeys));
       },
       [&](Value key, Value column) { return rowVector(keyRows(), key, column); }, into,
       s.depth, s.depthStride});
}

/// Products of the tile's rows, of `depth` elements, with the keys that it sees.
void AttentionGradientEmitter::scoreTile(const KeyRows &keys, int64_t rows,
                                         int64_t rowStride, int64_t depth, int64_t into) {
  Value left = plus(times(firstRow, rowStride), integer(rows));
  Value to = plus(times(firstRow, s.blockKeys), integer(into));
  overPanels(firstColumn, endColumn, [&](Value column, int64_t vectors) {
    Value right = acrossAt(keys, integer(0), column);
    Values sums = tileSums(
        integer(0), integer(depth),
        Values(static_cast<size_t>(tileRows * vectors), splat(real(0))), vectors,
        [&](Value d, int64_t r) { return plus(plus(left, d), integer(r * rowStride)); },
        [&](Value d, int64_t v) {
          return vectorAt(plus(plus(right, times(d, panel)), integer(v * unit.lanes)));
        });
    for (int64_t r = 0; r < tileRows; ++r)
      for (int64_t v = 0; v < vectors; ++v)
        put(plus(plus(to, column), integer(r * s.blockKeys + v * unit.lanes)),
            sums[static_cast<size_t>(r * vectors + v)]);
  });
}

/// From scores to logits, and from cotangents of weights, less what the whole row has of
/// them, to what the score has of them.
void AttentionGradientEmitter::logits(Value row) {
  Value place = times(row, s.blockKeys);
  point[queryDim] = plus(firstQuery, row);
  Value delta = at(plus(row, integer(s.delta)));
  loop(firstColumn, endColumn, 1, [&](Value column) {
    point[keyDim] = plus(firstKey, column);
    Value weight = plus(plus(place, column), integer(s.weights));
    currentScore = at(weight);
    if (a.slope >= 0) {
      Value slope = plus(plus(place, column), integer(s.slopes));
      Value along = arith::SubFOp::create(builder, location, at(slope), delta);
      put(slope, arith::MulFOp::create(builder, location, along, value(a.slope)));
    }
    put(weight, value(a.logits));
    point[keyDim] = nullptr;
  });
  point[queryDim] = nullptr;
}

/// Weights of a row of the tile, and cotangents of its logits. A logit above the row's
/// largest is one of padding.
void AttentionGradientEmitter::weightsOf(int64_t r) {
  auto plain = arith::FastMathFlags::contract;
  Value row = plus(firstRow, integer(r)), zero = real(0);
  Value top = at(plus(row, integer(s.top))), sum = at(plus(row, integer(s.sum)));
  Value isLowest =
      arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OEQ, top,
                            real(-std::numeric_limits<double>::infinity()));
  Value base = splat(arith::SelectOp::create(builder, location, isLowest, zero, top));
  Value inverse = splat(arith::DivFOp::create(builder, location, real(1), sum));
  Value isNumber =
      arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OGT, sum, zero);
  Value delta = splat(at(plus(row, integer(s.delta)))), zeros = splat(zero);
  loop(firstColumn, endColumn, unit.lanes, [&](Value column) {
    Value place = plus(times(row, s.blockKeys), column);
    Value weightPlace = plus(place, integer(s.weights));
    Value slopePlace = plus(place, integer(s.slopes));
    Value below =
        arith::SubFOp::create(builder, location, vectorAt(weightPlace), base, plain);
    Value isAbove =
        arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OGT, below, zeros);
    below = arith::SelectOp::create(builder, location, isAbove, zeros, below);
    Value weight = arith::MulFOp::create(
        builder, location, emitRealFunction(builder, location, ScalarOp::Exp, below),
        inverse);
    if (a.zeroForNaN)
      weight = arith::SelectOp::create(builder, location, isNumber, weight, zeros);
    put(weightPlace, weight);
    Value slope = vectorAt(slopePlace);
    if (a.slope < 0)
      slope = arith::SubFOp::create(builder, location, slope, delta);
    put(slopePlace, arith::MulFOp::create(builder, location, weight, slope));
  });
}

void AttentionGradientEmitter::add(const TileSums &tile) {
  overColumns(tile.columns, [&](Value column, int64_t vectors) {
    auto at = [&](int64_t r, int64_t v) {
      return plus(plus(tile.into, column), integer(r * tile.stride + v * unit.lanes));
    };
    Values sums;
    for (int64_t r = 0; r < tileRows; ++r)
      for (int64_t v = 0; v < vectors; ++v)
        sums.push_back(vectorAt(at(r, v)));
    sums =
        tileSums(tile.from, tile.to, sums, vectors, tile.left, [&](Value t, int64_t v) {
          return tile.right(t, plus(column, integer(v * unit.lanes)));
        });
    for (int64_t r = 0; r < tileRows; ++r)
      for (int64_t v = 0; v < vectors; ++v)
        put(at(r, v), sums[static_cast<size_t>(r * vectors + v)]);
  });
}

/// Tiles of keys: weights and cotangents of the block's queries from `firstActive` on,
/// down their columns, times cotangents and queries.
void AttentionGradientEmitter::sumsByKeys(Value firstActive, Value count) {
  loop(integer(0), count, tileRows, [&](Value key) {
    auto sum = [&](int64_t numbers, int64_t rows, int64_t into, int64_t columns,
                   int64_t stride) {
      Value left = plus(key, integer(numbers));
      add({firstActive, numQueries,
           [&](Value row, int64_t r) {
             return plus(plus(left, times(row, s.blockKeys)), integer(r));
           },
           [&](Value row, Value column) {
             return vectorAt(plus(plus(times(row, stride), column), integer(rows)));
           },
           plus(times(key, stride), integer(into)), columns, stride});
    };
    sum(s.weights, s.cotangent, s.byValues, s.width, s.widthStride);
    sum(s.slopes, s.q, s.byKeys, s.depth, s.depthStride);
  });
}
