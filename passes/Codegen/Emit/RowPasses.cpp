//===- RowPasses.cpp - Shorthands of row ops ------------------------------===//
#include "passes/Codegen/Emit/RowPasses.h"

#include "partita/Rule/Sharding/Families.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

Value Passes::neutral(ReduceKind kind) {
  bool isSum = kind == ReduceKind::Sum, isProd = kind == ReduceKind::Prod;
  if (isa<FloatType>(type)) {
    double infinity = std::numeric_limits<double>::infinity();
    return constant(isSum                     ? 0
                    : isProd                  ? 1
                    : kind == ReduceKind::Max ? -infinity
                                              : infinity);
  }
  unsigned width = type.getIntOrFloatBitWidth();
  bool unsign = node.type == DType::Bool || isUnsigned(node.type);
  APInt bits = APInt(width, isProd ? 1 : 0);
  if (kind == ReduceKind::Max)
    bits = unsign ? APInt::getMinValue(width) : APInt::getSignedMinValue(width);
  if (kind == ReduceKind::Min)
    bits = unsign ? APInt::getMaxValue(width) : APInt::getSignedMaxValue(width);
  return arith::ConstantOp::create(b, at, IntegerAttr::get(type, bits));
}

Value Passes::combine(ReduceKind kind, Value a, Value c) {
  if (isa<FloatType>(type))
    switch (kind) {
    case ReduceKind::Sum:
      return add(a, c);
    case ReduceKind::Prod:
      return arith::MulFOp::create(b, at, a, c, arith::FastMathFlags::reassoc);
    case ReduceKind::Max:
      return arith::MaximumFOp::create(b, at, a, c);
    case ReduceKind::Min:
      return arith::MinimumFOp::create(b, at, a, c);
    }
  bool isBool = node.type == DType::Bool, unsign = isBool || isUnsigned(node.type);
  switch (kind) {
  case ReduceKind::Sum:
    if (isBool)
      return arith::OrIOp::create(b, at, a, c);
    return arith::AddIOp::create(b, at, a, c);
  case ReduceKind::Prod:
    return arith::MulIOp::create(b, at, a, c);
  case ReduceKind::Max:
    if (unsign)
      return arith::MaxUIOp::create(b, at, a, c);
    return arith::MaxSIOp::create(b, at, a, c);
  case ReduceKind::Min:
    if (unsign)
      return arith::MinUIOp::create(b, at, a, c);
    return arith::MinSIOp::create(b, at, a, c);
  }
  return nullptr;
}

Value Passes::inOrder(ReduceKind kind, Value a, Value c) {
  if (isa<FloatType>(type) && kind == ReduceKind::Sum)
    return arith::AddFOp::create(b, at, a, c);
  if (isa<FloatType>(type) && kind == ReduceKind::Prod)
    return arith::MulFOp::create(b, at, a, c);
  return combine(kind, a, c);
}
