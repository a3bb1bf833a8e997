//===- TileRows.cpp - What is done with rows of tiles ---------------------===//
#include "passes/Codegen/Nvptx/TileEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <limits>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

static constexpr double infinity = std::numeric_limits<double>::infinity();

/// Computed by ex2.approx, whose relative error is 2⁻²², on x·log₂e.
Value TileEmitter::exponential(Value x) {
  Value scaled = arith::MulFOp::create(builder, location, x, real(1.4426950408889634));
  return intrinsic("llvm.nvvm.ex2.approx", builder.getF32Type(), {scaled});
}

/// The kernel's logits at each of the thread's pairs of a query and a key; −∞ behind the
/// last key.
void TileEmitter::nodes(int number) {
  const Tile &scores = tile(number);
  const Layout layout = layoutOf(scores);
  const AttentionSpec &a = *spec.attention;
  auto within = [&](Value index, size_t dim) -> Value {
    return hasEdge(dim) ? arith::MinSIOp::create(builder, location, index,
                                                 integer(spec.domain[dim] - 1))
                              .getResult()
                        : index;
  };
  for (size_t r = 0; r < layout.rows(); ++r) {
    point[scores.rows] = within(rowAt(scores, layout, r), scores.rows);
    for (size_t c = 0; c < layout.columns(); ++c) {
      Value column = columnAt(scores, layout, c);
      point[scores.columns] = within(column, scores.columns);
      Value &element = of(number)[r * layout.columns() + c];
      currentScore = element;
      if (a.scale != 1)
        currentScore = arith::MulFOp::create(builder, location, element, real(a.scale));
      scopes.emplace_back();
      element = value(a.logits);
      scopes.pop_back();
      if (hasEdge(scores.columns))
        element =
            arith::SelectOp::create(builder, location, isInside(column, scores.columns),
                                    element, real(-infinity));
    }
  }
  point[scores.rows] = point[scores.columns] = nullptr;
}

/// A thread's own columns first, then those of the three others that have the row.
void TileEmitter::overRows(const TileStep &step) {
  const Layout layout = layoutOf(tile(step.b));
  const bool isMax = step.kind == TileStep::MaxRows;
  auto combine = [&](Value x, Value y) -> Value {
    return isMax ? arith::MaxNumFOp::create(builder, location, x, y).getResult()
                 : arith::AddFOp::create(builder, location, x, y).getResult();
  };
  Values result;
  for (size_t r = 0; r < layout.rows(); ++r) {
    Value own = of(step.b)[r * layout.columns()];
    for (size_t c = 1; c < layout.columns(); ++c)
      own = combine(own, of(step.b)[r * layout.columns() + c]);
    for (int64_t distance : {1, 2})
      own = combine(own, shuffle("bfly", own, word(distance), 31));
    result.push_back(combine(of(isMax ? step.a : step.to)[r], own));
  }
  of(step.to) = std::move(result);
}

/// Steps that combine a row's element with the row.
void TileEmitter::ofRows(const TileStep &step) {
  auto isNone = [&](Value x) {
    return arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OEQ, x,
                                 real(-infinity));
  };
  auto difference = [&](Value x, Value y) -> Value {
    Value less = arith::SubFOp::create(builder, location, x, y);
    return arith::SelectOp::create(builder, location, isNone(x), real(0),
                                   exponential(less));
  };
  if (step.kind == TileStep::Decay) {
    Values shrink;
    for (auto [before, now] : llvm::zip_equal(of(step.a), of(step.b)))
      shrink.push_back(difference(before, now));
    of(step.to) = std::move(shrink);
    return;
  }
  const size_t perRow = of(step.to).size() / of(step.a).size();
  for (auto [i, element] : llvm::enumerate(of(step.to))) {
    Value row = of(step.a)[i / perRow];
    if (step.kind == TileStep::Exp) {
      element = difference(element, row);
    } else if (step.kind == TileStep::Scale) {
      element = arith::MulFOp::create(builder, location, element, row);
    } else {
      Value quotient = arith::DivFOp::create(builder, location, element, row);
      Value isNumber = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OGT,
                                             row, real(0));
      element =
          spec.attention->zeroForNaN
              ? arith::SelectOp::create(builder, location, isNumber, quotient, real(0))
                    .getResult()
              : quotient;
    }
  }
}
