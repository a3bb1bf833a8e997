//===- AttentionTiles.cpp - A tile of queries and a block of keys ---------===//
#include "passes/Codegen/CPU/AttentionEmitter.h"

#include "passes/Codegen/Emit/RealFunctions.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

static constexpr int64_t tileRows = AttentionScratch::tile;

void AttentionEmitter::tileOf() {
  overPanels(firstColumn, endColumn,
             [&](Value column, int64_t vectors) { products(column, vectors); });
  loop(firstRow, endRow, 1, [&](Value row) { pointwise(row); });
  softmax();
  overColumns(s.width,
              [&](Value column, int64_t vectors) { accumulate(column, vectors); });
}

void AttentionEmitter::overColumns(int64_t columns,
                                   llvm::function_ref<void(Value, int64_t)> body) {
  int64_t vectors = (columns + unit.lanes - 1) / unit.lanes;
  int64_t inPanels = vectors / panelVectors * panelVectors;
  loop(integer(0), integer(inPanels * unit.lanes), panel,
       [&](Value column) { body(column, panelVectors); });
  if (inPanels != vectors)
    body(integer(inPanels * unit.lanes), vectors - inPanels);
}

void AttentionEmitter::overPanels(Value from, Value to,
                                  llvm::function_ref<void(Value, int64_t)> body) {
  Value rest = arith::RemUIOp::create(builder, location, to, integer(panel));
  Value whole = minus(to, rest);
  loop(from, whole, panel, [&](Value column) { body(column, panelVectors); });
  loop(whole, to, unit.lanes, [&](Value column) { body(column, 1); });
}

AttentionEmitter::Values
AttentionEmitter::tileSums(Value from, Value to, Values sums, int64_t vectors,
                           llvm::function_ref<Value(Value, int64_t)> left,
                           llvm::function_ref<Value(Value, int64_t)> right) {
  return loop(from, to, 1, sums, [&](Value t, ValueRange carried) {
    Values next, row;
    for (int64_t v = 0; v < vectors; ++v)
      row.push_back(right(t, v));
    for (int64_t r = 0; r < tileRows; ++r) {
      Value x = splat(at(left(t, r)));
      for (int64_t v = 0; v < vectors; ++v)
        next.push_back(multiplied(x, row[static_cast<size_t>(v)],
                                  carried[static_cast<size_t>(r * vectors + v)]));
    }
    return next;
  });
}

/// weights[:, column…] = queries · keys: all rows of the tile, whether there are as many
/// queries or not.
void AttentionEmitter::products(Value column, int64_t vectors) {
  Value keys = acrossAt(keysAcross(), integer(0), column);
  Value queries = plus(times(firstRow, s.depthStride), integer(s.q));
  Values sums = tileSums(
      integer(0), integer(s.depth),
      Values(static_cast<size_t>(tileRows * vectors), splat(real(0))), vectors,
      [&](Value d, int64_t r) {
        return plus(plus(queries, d), integer(r * s.depthStride));
      },
      [&](Value d, int64_t v) {
        return vectorAt(plus(plus(keys, times(d, panel)), integer(v * unit.lanes)));
      });
  for (int64_t r = 0; r < tileRows; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      put(plus(column, integer(s.weights + r * s.blockKeys + v * unit.lanes)),
          sums[static_cast<size_t>(r * vectors + v)]);
}

/// From scores to logits, in place. Behind the last one stands -infinity, to a whole
/// vector: the weight there is 0.
void AttentionEmitter::pointwise(Value row) {
  Value weights = plus(times(minus(row, firstRow), s.blockKeys), integer(s.weights));
  point[queryDim] = plus(firstQuery, row);
  if (a.logits != a.score)
    loop(firstColumn, endColumn, 1, [&](Value column) {
      point[keyDim] = plus(firstKey, column);
      currentScore = at(plus(weights, column));
      put(plus(weights, column), value(a.logits));
      point[keyDim] = nullptr;
    });
  point[queryDim] = nullptr;
  Value more = plus(endColumn, integer(unit.lanes - 1));
  Value whole =
      minus(more, arith::RemUIOp::create(builder, location, more, integer(unit.lanes)));
  loop(endColumn, whole, 1, [&](Value column) {
    put(plus(weights, column), real(-std::numeric_limits<double>::infinity()));
  });
}

/// The second where either is NaN: one instruction.
Value AttentionEmitter::larger(Value x, Value y) {
  Value isLarger =
      arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OGT, x, y);
  return arith::SelectOp::create(builder, location, isLarger, x, y);
}

Value AttentionEmitter::horizontal(Value x,
                                   llvm::function_ref<Value(Value, Value)> join) {
  for (int64_t half = unit.lanes / 2; half >= 1; half /= 2) {
    SmallVector<int32_t> mask;
    for (int64_t i = 0; i < unit.lanes; ++i)
      mask.push_back(static_cast<int32_t>((i + half) % unit.lanes));
    x = join(x, LLVM::ShuffleVectorOp::create(builder, location, x, x, mask));
  }
  return LLVM::ExtractElementOp::create(builder, location, x, integer(0));
}

/// The largest logit so far, then exp, of all rows of the tile at once. Where it is
/// -infinity, all weights so far are 0, not NaN: other keys may follow.
void AttentionEmitter::softmax() {
  auto plain = arith::FastMathFlags::contract;
  auto weightAt = [&](int64_t r, Value column) {
    return plus(column, integer(s.weights + r * s.blockKeys));
  };
  Value infinite = real(-std::numeric_limits<double>::infinity());
  Values tops(tileRows, splat(infinite));
  tops = loop(firstColumn, endColumn, unit.lanes, tops,
              [&](Value column, ValueRange carried) {
                Values next;
                for (int64_t r = 0; r < tileRows; ++r)
                  next.push_back(larger(vectorAt(weightAt(r, column)),
                                        carried[static_cast<size_t>(r)]));
                return next;
              });
  Values bases, before;
  for (int64_t r = 0; r < tileRows; ++r) {
    Value &top = tops[static_cast<size_t>(r)];
    Value place = plus(firstRow, integer(s.top + r));
    before.push_back(at(place));
    top = horizontal(top, [&](Value x, Value y) { return larger(x, y); });
    top = larger(top, before.back());
    put(place, top);
    Value isLowest = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OEQ,
                                           top, infinite);
    bases.push_back(arith::SelectOp::create(builder, location, isLowest, real(0), top));
  }
  Values sums(tileRows, splat(real(0)));
  Values splats;
  for (Value base : bases)
    splats.push_back(splat(base));
  auto exponential = [&](Value x) {
    return emitRealFunction(builder, location, ScalarOp::Exp, x);
  };
  sums = loop(
      firstColumn, endColumn, unit.lanes, sums, [&](Value column, ValueRange carried) {
        Values next;
        for (int64_t r = 0; r < tileRows; ++r) {
          auto row = static_cast<size_t>(r);
          Value weight = exponential(arith::SubFOp::create(
              builder, location, vectorAt(weightAt(r, column)), splats[row], plain));
          put(weightAt(r, column), weight);
          next.push_back(
              arith::AddFOp::create(builder, location, carried[row], weight, plain));
        }
        return next;
      });
  for (int64_t r = 0; r < tileRows; ++r) {
    auto row = static_cast<size_t>(r);
    Value sum = horizontal(sums[row], [&](Value x, Value y) {
      return arith::AddFOp::create(builder, location, x, y, plain);
    });
    Value shrink = exponential(
        arith::SubFOp::create(builder, location, before[row], bases[row], plain));
    Value place = plus(firstRow, integer(s.sum + r));
    put(place, multiplied(at(place), shrink, sum));
    put(integer(s.shrink + r), shrink);
  }
}

/// result = result · shrink + weights · values, for columns from `column` on.
void AttentionEmitter::accumulate(Value column, int64_t vectors) {
  auto resultAt = [&](int64_t r, int64_t v) {
    Value row = plus(times(firstRow, s.widthStride), column);
    return plus(row, integer(s.result + r * s.widthStride + v * unit.lanes));
  };
  Values sums;
  for (int64_t r = 0; r < tileRows; ++r) {
    Value shrink = splat(at(integer(s.shrink + r)));
    for (int64_t v = 0; v < vectors; ++v)
      sums.push_back(
          arith::MulFOp::create(builder, location, vectorAt(resultAt(r, v)), shrink));
  }
  sums = tileSums(
      firstColumn, endColumn, sums, vectors,
      [&](Value key, int64_t r) {
        return plus(key, integer(s.weights + r * s.blockKeys));
      },
      [&](Value key, int64_t v) {
        return rowVector(valueRows(), key, plus(column, integer(v * unit.lanes)));
      });
  for (int64_t r = 0; r < tileRows; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      put(resultAt(r, v), sums[static_cast<size_t>(r * vectors + v)]);
}
