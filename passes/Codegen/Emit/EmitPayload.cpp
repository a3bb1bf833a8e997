//===- EmitPayload.cpp - Scalar payloads as arith and math ops ------------===//
#include "passes/Codegen/Emit/KernelEmitter.h"
#include "passes/Codegen/Emit/RealFunctions.h"

#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Fusion.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Conversion
//===----------------------------------------------------------------------===//

/// Truncates toward zero; out of range saturates, NaN becomes 0.
static Value floatToInteger(KernelEmitter &e, Value value, DType to) {
  OpBuilder &b = e.builder;
  Location at = e.location;
  Type type = e.computeType(to), real = value.getType();
  unsigned width = type.getIntOrFloatBitWidth();
  bool unsign = isUnsigned(to);
  // The largest power of two that the type does not hold, and the least value.
  double high = std::ldexp(1.0, static_cast<int>(unsign ? width : width - 1));
  double low = unsign ? 0 : -high;
  Value zero = e.constant(real, 0);
  Value isNaN = arith::CmpFOp::create(b, at, arith::CmpFPredicate::UNO, value, value);
  Value above = arith::CmpFOp::create(b, at, arith::CmpFPredicate::OGE, value,
                                      e.constant(real, high));
  Value below = arith::CmpFOp::create(b, at, arith::CmpFPredicate::OLE, value,
                                      e.constant(real, low));
  Value outside =
      arith::OrIOp::create(b, at, arith::OrIOp::create(b, at, above, below), isNaN);
  Value safe = arith::SelectOp::create(b, at, outside, zero, value);
  Value inside = unsign ? arith::FPToUIOp::create(b, at, type, safe).getResult()
                        : arith::FPToSIOp::create(b, at, type, safe).getResult();
  auto limit = [&](const APInt &bits) -> Value {
    return arith::ConstantOp::create(b, at, IntegerAttr::get(type, bits));
  };
  Value most =
      limit(unsign ? APInt::getMaxValue(width) : APInt::getSignedMaxValue(width));
  Value least =
      limit(unsign ? APInt::getMinValue(width) : APInt::getSignedMinValue(width));
  Value result = arith::SelectOp::create(b, at, above, most, inside);
  return arith::SelectOp::create(b, at, below, least, result);
}

Value KernelEmitter::convert(Value value, DType from, DType to) {
  Type source = value.getType(), target = computeType(to);
  if (source == target)
    return value;
  bool toFloat = isa<FloatType>(target), fromFloat = isa<FloatType>(source);
  bool unsign = isUnsigned(from) || source.isInteger(1);
  if (to == DType::Bool) {
    Value zero = constant(source, 0);
    if (fromFloat)
      return arith::CmpFOp::create(builder, location, arith::CmpFPredicate::UNE, value,
                                   zero);
    return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::ne, value,
                                 zero);
  }
  if (fromFloat && toFloat) {
    if (target.isF64())
      return arith::ExtFOp::create(builder, location, target, value);
    return arith::TruncFOp::create(builder, location, target, value);
  }
  if (fromFloat)
    return floatToInteger(*this, value, to);
  if (toFloat) {
    if (unsign)
      return arith::UIToFPOp::create(builder, location, target, value);
    return arith::SIToFPOp::create(builder, location, target, value);
  }
  if (target.getIntOrFloatBitWidth() < source.getIntOrFloatBitWidth())
    return arith::TruncIOp::create(builder, location, target, value);
  if (unsign)
    return arith::ExtUIOp::create(builder, location, target, value);
  return arith::ExtSIOp::create(builder, location, target, value);
}

//===----------------------------------------------------------------------===//
// Payloads
//===----------------------------------------------------------------------===//

namespace {
/// Emits one payload. Arithmetic is in one compute type; conditions are i1.
class PayloadEmitter {
public:
  PayloadEmitter(KernelEmitter &emitter, const KernelNode &node)
      : e(emitter), b(emitter.builder), at(emitter.location), node(node),
        payload(node.own ? *node.own : cast<PayloadOpInterface>(node.op).getPayload()),
        compute(chooseType()), type(emitter.computeType(compute)),
        real(isa<FloatType>(type)) {}

  Value run() {
    if (payload.nodes().back().op == ScalarOp::Bits)
      return e.reinterpret(e.value(node.args[0]), e.node(node.args[0]).type, node.type);
    std::vector<double> attributes;
    if (!node.own)
      attributes = cast<PayloadOpInterface>(node.op).getPayloadAttributes();
    for (const ScalarNode &n : payload.nodes()) {
      switch (n.op) {
      case ScalarOp::Operand:
        values.push_back(operand(static_cast<size_t>(n.operand)));
        break;
      case ScalarOp::Attribute:
        values.push_back(e.constant(type, attributes[static_cast<size_t>(n.operand)]));
        break;
      case ScalarOp::Constant:
        values.push_back(e.constant(type, n.value));
        break;
      default:
        values.push_back(apply(n));
      }
    }
    DType from = values.back().getType().isInteger(1) ? DType::Bool : compute;
    return e.convert(values.back(), from, node.type);
  }

private:
  /// The widest float of the operands, else their integer type.
  DType chooseType() const {
    DType chosen = DType::Bool;
    for (int arg : node.args) {
      DType t = e.node(arg).type;
      if (t == DType::F64 || (isFloat(t) && chosen != DType::F64))
        chosen = t == DType::F64 ? DType::F64 : DType::F32;
      else if (chosen == DType::Bool)
        chosen = t;
    }
    return chosen == DType::Bool ? DType::I64 : chosen;
  }

  Value operand(size_t i) {
    int arg = node.args[i];
    DType from = e.node(arg).type;
    Value value = e.value(arg);
    return from == DType::Bool ? value : e.convert(value, from, compute);
  }

  Value number(size_t node) {
    Value value = values[node];
    return value.getType().isInteger(1) ? e.convert(value, DType::Bool, compute) : value;
  }
  Value condition(size_t node) {
    Value value = values[node];
    return value.getType().isInteger(1) ? value : e.convert(value, compute, DType::Bool);
  }

  template <typename Op, typename... Args> Value make(Args... args) {
    return Op::create(b, at, args...);
  }
  /// Float arithmetic may contract to fused multiply-adds.
  template <typename Op> Value contracted(Value x, Value y) {
    return Op::create(b, at, x, y, arith::FastMathFlags::contract);
  }

  Value apply(const ScalarNode &n);
  Value compare(const ScalarNode &n);
  Value divide(Value x, Value y, bool remainder);
  Value realRemainder(Value x, Value y);
  Value power(const ScalarNode &n);
  Value integerPower(Value x, Value y);
  Value bitwise(ScalarOp op, Value x, Value y);
  std::optional<double> uniform(const ScalarNode &n);
  Value function(ScalarOp op, Value x);

  KernelEmitter &e;
  OpBuilder &b;
  Location at;
  const KernelNode &node;
  const Payload &payload;
  DType compute;
  Type type;
  bool real;
  SmallVector<Value> values;
};
} // namespace

Value PayloadEmitter::apply(const ScalarNode &n) {
  auto arg = [&](size_t i) { return static_cast<size_t>(n.args[i]); };
  auto x = [&] { return number(arg(0)); };
  auto y = [&] { return number(arg(1)); };
  switch (n.op) {
  case ScalarOp::Add:
    return real ? contracted<arith::AddFOp>(x(), y()) : make<arith::AddIOp>(x(), y());
  case ScalarOp::Sub:
    return real ? contracted<arith::SubFOp>(x(), y()) : make<arith::SubIOp>(x(), y());
  case ScalarOp::Mul:
    return real ? contracted<arith::MulFOp>(x(), y()) : make<arith::MulIOp>(x(), y());
  case ScalarOp::Div:
    return divide(x(), y(), false);
  case ScalarOp::Mod:
    return divide(x(), y(), true);
  case ScalarOp::Neg:
    return real ? make<arith::NegFOp>(x())
                : make<arith::SubIOp>(e.constant(type, 0), x());
  case ScalarOp::And:
    return make<arith::AndIOp>(condition(arg(0)), condition(arg(1)));
  case ScalarOp::Or:
    return make<arith::OrIOp>(condition(arg(0)), condition(arg(1)));
  case ScalarOp::Not: {
    Value one = arith::ConstantIntOp::create(b, at, 1, 1);
    return make<arith::XOrIOp>(condition(arg(0)), one);
  }
  case ScalarOp::Max:
    if (real)
      return make<arith::MaximumFOp>(x(), y());
    return isUnsigned(compute) ? make<arith::MaxUIOp>(x(), y())
                               : make<arith::MaxSIOp>(x(), y());
  case ScalarOp::Min:
    if (real)
      return make<arith::MinimumFOp>(x(), y());
    return isUnsigned(compute) ? make<arith::MinUIOp>(x(), y())
                               : make<arith::MinSIOp>(x(), y());
  case ScalarOp::Select: {
    Value yes = values[arg(1)], no = values[arg(2)];
    if (yes.getType() != no.getType())
      yes = number(arg(1)), no = number(arg(2));
    return make<arith::SelectOp>(condition(arg(0)), yes, no);
  }
  case ScalarOp::Pow:
    return power(n);
  case ScalarOp::BitAnd:
  case ScalarOp::BitOr:
  case ScalarOp::BitXor:
  case ScalarOp::ShiftLeft:
  case ScalarOp::ShiftRight:
    return bitwise(n.op, x(), y());
  case ScalarOp::Less:
  case ScalarOp::LessEqual:
  case ScalarOp::Greater:
  case ScalarOp::GreaterEqual:
  case ScalarOp::Equal:
  case ScalarOp::NotEqual:
    return compare(n);
  default:
    return function(n.op, x());
  }
}

Value PayloadEmitter::compare(const ScalarNode &n) {
  struct Predicates {
    ScalarOp op;
    arith::CmpFPredicate real;
    arith::CmpIPredicate plain, unsign;
  };
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  static const Predicates table[] = {
      {ScalarOp::Less, F::OLT, I::slt, I::ult},
      {ScalarOp::LessEqual, F::OLE, I::sle, I::ule},
      {ScalarOp::Greater, F::OGT, I::sgt, I::ugt},
      {ScalarOp::GreaterEqual, F::OGE, I::sge, I::uge},
      {ScalarOp::Equal, F::OEQ, I::eq, I::eq},
      {ScalarOp::NotEqual, F::UNE, I::ne, I::ne},
  };
  auto x = static_cast<size_t>(n.args[0]), y = static_cast<size_t>(n.args[1]);
  const Predicates *found =
      llvm::find_if(table, [&](const Predicates &p) { return p.op == n.op; });
  if (values[x].getType().isInteger(1) && values[y].getType().isInteger(1))
    return arith::CmpIOp::create(b, at, found->unsign, values[x], values[y]);
  if (real)
    return arith::CmpFOp::create(b, at, found->real, number(x), number(y));
  return arith::CmpIOp::create(b, at, isUnsigned(compute) ? found->unsign : found->plain,
                               number(x), number(y));
}

/// Integer division truncates, the remainder has the divisor's sign (as Python's); by
/// zero both are 0, and nothing traps. The float remainder has the dividend's sign.
/// x - trunc(x / y)·y without rounding, for quotients of up to 2^250: a quotient of up to
/// 2^50 is a whole f64, and one fused product takes that many times the divisor off. The
/// divisors go from y·2^200 down to y; what is left has never more digits than x or y.
Value PayloadEmitter::realRemainder(Value x, Value y) {
  Type f64 = b.getF64Type();
  bool isNarrow = type != f64;
  Value left = isNarrow ? make<arith::ExtFOp>(f64, x) : x;
  Value last = isNarrow ? make<arith::ExtFOp>(f64, y) : y;
  Value zero = e.constant(f64, 0), dividend = left;
  auto isNegative = [&](Value v) {
    return arith::CmpFOp::create(b, at, arith::CmpFPredicate::OLT, v, zero);
  };
  for (int exponent = 200; exponent >= 0; exponent -= 50) {
    Value divisor = make<arith::MulFOp>(last, e.constant(f64, std::ldexp(1.0, exponent)));
    Value times = make<math::TruncOp>(make<arith::DivFOp>(left, divisor));
    Value next = make<math::FmaOp>(make<arith::NegFOp>(times), divisor, left);
    // A quotient just below a whole number may have been rounded to it.
    Value size = make<math::AbsFOp>(divisor);
    Value step =
        make<arith::SelectOp>(isNegative(dividend), make<arith::NegFOp>(size), size);
    Value isBeyond = arith::CmpFOp::create(b, at, arith::CmpFPredicate::OLT,
                                           make<arith::MulFOp>(next, step), zero);
    next = make<arith::SelectOp>(isBeyond, make<arith::AddFOp>(next, step), next);
    // None of an infinite divisor: its product with 0 would be NaN.
    Value isNone = arith::CmpFOp::create(b, at, arith::CmpFPredicate::OEQ, times, zero);
    left = make<arith::SelectOp>(isNone, left, next);
  }
  return isNarrow ? make<arith::TruncFOp>(type, left) : left;
}

Value PayloadEmitter::divide(Value x, Value y, bool remainder) {
  if (real)
    return remainder ? realRemainder(x, y) : make<arith::DivFOp>(x, y);
  auto equals = [&](Value v, int64_t c) {
    return arith::CmpIOp::create(b, at, arith::CmpIPredicate::eq, v,
                                 e.constant(type, static_cast<double>(c)));
  };
  Value zero = e.constant(type, 0), one = e.constant(type, 1);
  Value isZero = equals(y, 0);
  if (isUnsigned(compute)) {
    Value safe = make<arith::SelectOp>(isZero, one, y);
    Value result =
        remainder ? make<arith::RemUIOp>(x, safe) : make<arith::DivUIOp>(x, safe);
    return make<arith::SelectOp>(isZero, zero, result);
  }
  Value isMinusOne = equals(y, -1);
  Value special = make<arith::OrIOp>(isZero, isMinusOne);
  Value safe = make<arith::SelectOp>(special, one, y);
  if (remainder) {
    // With the divisor's sign. The sum is of numbers of different signs: no overflow.
    Value once = make<arith::RemSIOp>(x, safe);
    auto isNegative = [&](Value v) {
      return arith::CmpIOp::create(b, at, arith::CmpIPredicate::slt, v, zero);
    };
    Value differ = make<arith::XOrIOp>(isNegative(once), isNegative(safe));
    Value other = make<arith::AddIOp>(once, safe);
    Value result = make<arith::SelectOp>(differ, other, once);
    result = make<arith::SelectOp>(equals(once, 0), zero, result);
    return make<arith::SelectOp>(special, zero, result);
  }
  Value quotient = make<arith::DivSIOp>(x, safe);
  Value negated = make<arith::SubIOp>(zero, x);
  quotient = make<arith::SelectOp>(isMinusOne, negated, quotient);
  return make<arith::SelectOp>(isZero, zero, quotient);
}

/// The exponent of a power where it is a uniform constant.
std::optional<double> PayloadEmitter::uniform(const ScalarNode &n) {
  const ScalarNode &exponent = payload.nodes()[static_cast<size_t>(n.args[1])];
  if (exponent.op == ScalarOp::Constant)
    return exponent.value;
  if (exponent.op != ScalarOp::Operand)
    return std::nullopt;
  const KernelNode &arg = e.node(node.args[static_cast<size_t>(exponent.operand)]);
  if (arg.kind != KernelNode::Constant)
    return std::nullopt;
  return uniformOf(arg.op->getResult(0));
}

Value PayloadEmitter::power(const ScalarNode &n) {
  Value x = number(static_cast<size_t>(n.args[0]));
  auto times = [&](Value a, Value c) -> Value {
    return real ? contracted<arith::MulFOp>(a, c) : make<arith::MulIOp>(a, c);
  };
  switch (powerForm(uniform(n))) {
  case PowerForm::Base:
    return x;
  case PowerForm::Square:
    return times(x, x);
  case PowerForm::Cube:
    return times(times(x, x), x);
  case PowerForm::Root:
    if (real)
      return make<math::SqrtOp>(x);
    break;
  case PowerForm::Inverse:
    if (real)
      return make<arith::DivFOp>(e.constant(type, 1), x);
    break;
  case PowerForm::Function:
    break;
  }
  Value y = number(static_cast<size_t>(n.args[1]));
  if (!real)
    return integerPower(x, y);
  // exp(y·log|x|), with the sign of an odd power, NaN for a fraction of a negative.
  Value size =
      function(ScalarOp::Exp,
               make<arith::MulFOp>(y, function(ScalarOp::Log, make<math::AbsFOp>(x))));
  Value zero = e.constant(type, 0);
  auto equal = [&](Value a, Value c) {
    return arith::CmpFOp::create(b, at, arith::CmpFPredicate::OEQ, a, c);
  };
  Value half = make<arith::MulFOp>(y, e.constant(type, 0.5));
  Value isWhole = equal(make<math::FloorOp>(y), y);
  Value isEven = equal(make<math::FloorOp>(half), half);
  Value isNegative = arith::CmpFOp::create(b, at, arith::CmpFPredicate::OLT, x, zero);
  Value signedSize = make<arith::SelectOp>(isEven, size, make<arith::NegFOp>(size));
  Value nan = e.constant(type, std::numeric_limits<double>::quiet_NaN());
  Value ofNegative = make<arith::SelectOp>(isWhole, signedSize, nan);
  Value result = make<arith::SelectOp>(isNegative, ofNegative, size);
  Value one = e.constant(type, 1);
  result = make<arith::SelectOp>(equal(x, one), one, result);
  return make<arith::SelectOp>(equal(y, zero), one, result);
}

/// Of integers; a shift by the width or more, which LLVM leaves undefined, gives 0.
Value PayloadEmitter::bitwise(ScalarOp op, Value x, Value y) {
  if (op == ScalarOp::BitAnd)
    return make<arith::AndIOp>(x, y);
  if (op == ScalarOp::BitOr)
    return make<arith::OrIOp>(x, y);
  if (op == ScalarOp::BitXor)
    return make<arith::XOrIOp>(x, y);
  Value zero = e.constant(type, 0);
  Value width = e.constant(type, type.getIntOrFloatBitWidth());
  Value isInside = arith::CmpIOp::create(b, at, arith::CmpIPredicate::ult, y, width);
  Value by = make<arith::SelectOp>(isInside, y, zero);
  Value shifted = op == ScalarOp::ShiftLeft ? make<arith::ShLIOp>(x, by)
                                            : make<arith::ShRUIOp>(x, by);
  return make<arith::SelectOp>(isInside, shifted, zero);
}

/// By squaring; wraps. A negative exponent gives 0 but for bases 1 and -1.
Value PayloadEmitter::integerPower(Value x, Value y) {
  Value zero = e.constant(type, 0), one = e.constant(type, 1);
  auto loop = scf::WhileOp::create(
      b, at, TypeRange{type, type, type}, ValueRange{one, x, y},
      [&](OpBuilder &, Location, ValueRange carried) {
        Value more = arith::CmpIOp::create(
            b, at,
            isUnsigned(compute) ? arith::CmpIPredicate::ugt : arith::CmpIPredicate::sgt,
            carried[2], zero);
        scf::ConditionOp::create(b, at, more, carried);
      },
      [&](OpBuilder &, Location, ValueRange carried) {
        Value bit = make<arith::AndIOp>(carried[2], one);
        Value isOdd = arith::CmpIOp::create(b, at, arith::CmpIPredicate::ne, bit, zero);
        Value factor = make<arith::SelectOp>(isOdd, carried[1], one);
        Value result = make<arith::MulIOp>(carried[0], factor);
        Value square = make<arith::MulIOp>(carried[1], carried[1]);
        Value rest = make<arith::ShRUIOp>(carried[2], one);
        scf::YieldOp::create(b, at, ValueRange{result, square, rest});
      });
  Value positive = loop.getResult(0);
  if (isUnsigned(compute))
    return positive;
  auto equal = [&](Value a, Value c) -> Value {
    return arith::CmpIOp::create(b, at, arith::CmpIPredicate::eq, a, c);
  };
  Value minusOne = e.constant(type, -1);
  Value isOdd = equal(make<arith::AndIOp>(y, one), one);
  Value alternating = make<arith::SelectOp>(isOdd, minusOne, one);
  Value inverse = make<arith::SelectOp>(equal(x, minusOne), alternating, zero);
  inverse = make<arith::SelectOp>(equal(x, one), one, inverse);
  Value isNegative = arith::CmpIOp::create(b, at, arith::CmpIPredicate::slt, y, zero);
  return make<arith::SelectOp>(isNegative, inverse, positive);
}

Value PayloadEmitter::function(ScalarOp op, Value x) {
  if (!real)
    switch (op) {
    case ScalarOp::Abs:
      return isUnsigned(compute) ? x : make<math::AbsIOp>(x);
    case ScalarOp::Sign: {
      Value zero = e.constant(type, 0), one = e.constant(type, 1);
      Value above = arith::CmpIOp::create(b, at, arith::CmpIPredicate::ne, x, zero);
      Value positive = make<arith::SelectOp>(above, one, zero);
      if (isUnsigned(compute))
        return positive;
      Value below = arith::CmpIOp::create(b, at, arith::CmpIPredicate::slt, x, zero);
      return make<arith::SelectOp>(below, e.constant(type, -1), positive);
    }
    case ScalarOp::IsNaN:
      return arith::ConstantIntOp::create(b, at, 0, 1);
    case ScalarOp::Floor:
    case ScalarOp::Ceil:
    case ScalarOp::Round:
      return x;
    default: {
      // As the evaluator: through f64, truncated.
      Value wide = e.convert(x, compute, DType::F64);
      Type f64 = wide.getType();
      std::swap(type, f64);
      real = true;
      Value result = function(op, wide);
      std::swap(type, f64);
      real = false;
      return e.convert(result, DType::F64, compute);
    }
    }
  switch (op) {
  case ScalarOp::Exp:
  case ScalarOp::Log:
  case ScalarOp::Log1p:
  case ScalarOp::Erf:
  case ScalarOp::Tanh:
  case ScalarOp::Atan:
  case ScalarOp::Sin:
  case ScalarOp::Cos:
    return emitRealFunction(b, at, op, x);
  case ScalarOp::Sqrt:
    return make<math::SqrtOp>(x);
  case ScalarOp::Abs:
    return make<math::AbsFOp>(x);
  case ScalarOp::Floor:
    return make<math::FloorOp>(x);
  case ScalarOp::Ceil:
    return make<math::CeilOp>(x);
  case ScalarOp::Round:
    return make<math::RoundEvenOp>(x);
  case ScalarOp::IsNaN:
    return arith::CmpFOp::create(b, at, arith::CmpFPredicate::UNO, x, x);
  default: { // Sign
    Value zero = e.constant(type, 0);
    Value above = arith::CmpFOp::create(b, at, arith::CmpFPredicate::OGT, x, zero);
    Value below = arith::CmpFOp::create(b, at, arith::CmpFPredicate::OLT, x, zero);
    Value result = make<arith::SelectOp>(below, e.constant(type, -1), x);
    return make<arith::SelectOp>(above, e.constant(type, 1), result);
  }
  }
}

Value codegen::emitPayload(KernelEmitter &emitter, const KernelNode &node) {
  return PayloadEmitter(emitter, node).run();
}
