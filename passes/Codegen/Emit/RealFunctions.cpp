//===- RealFunctions.cpp - exp, log, erf, tanh and others -----------------===//
#include "passes/Codegen/Emit/RealFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// Expansions in f64.
class Expansion {
public:
  Expansion(OpBuilder &builder, Location location)
      : b(builder), at(location), f64(builder.getF64Type()), i64(builder.getI64Type()) {}

  Value exp(Value x);
  Value log(Value x);
  Value log1p(Value x);
  Value tanh(Value x);
  Value erf(Value x);
  Value atan(Value x);
  Value sinOrCos(Value x, bool cosine);

private:
  Value real(double value) {
    return arith::ConstantOp::create(b, at, FloatAttr::get(f64, value));
  }
  Value integer(int64_t value) { return arith::ConstantIntOp::create(b, at, value, 64); }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, at, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, at, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, at, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, at, x, y); }
  Value select(Value c, Value x, Value y) {
    return arith::SelectOp::create(b, at, c, x, y);
  }
  Value compare(arith::CmpFPredicate p, Value x, Value y) {
    return arith::CmpFOp::create(b, at, p, x, y);
  }
  Value size(Value x) { return math::AbsFOp::create(b, at, x); }
  Value isNaN(Value x) { return compare(arith::CmpFPredicate::UNO, x, x); }
  /// Σ coefficients[i]·x^i.
  Value polynomial(Value x, ArrayRef<double> coefficients);
  /// 2^n for an i64 n in the range of normal numbers.
  Value powerOfTwo(Value n);

  OpBuilder &b;
  Location at;
  Type f64, i64;
};
} // namespace

Value Expansion::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = real(coefficients.back());
  for (double c : llvm::reverse(coefficients.drop_back()))
    sum = add(mul(sum, x), real(c));
  return sum;
}

Value Expansion::powerOfTwo(Value n) {
  Value biased = arith::AddIOp::create(b, at, n, integer(1023));
  Value bits = arith::ShLIOp::create(b, at, biased, integer(52));
  return arith::BitcastOp::create(b, at, f64, bits);
}

static SmallVector<double> inverseFactorials(int first, int last, int step,
                                             bool alternate) {
  SmallVector<double> result;
  double factorial = 1, sign = 1;
  for (int i = 1; i <= last; ++i) {
    if (i - 1 >= first && (i - 1 - first) % step == 0) {
      result.push_back(sign / factorial);
      sign = alternate ? -sign : sign;
    }
    factorial *= i;
  }
  return result;
}

/// x = n·ln 2 + r; e^x = 2^n · e^r, the power in two halves so that both ends of the
/// range come out right.
Value Expansion::exp(Value x) {
  Value low = real(-746), high = real(710);
  Value inside = select(compare(arith::CmpFPredicate::OGT, x, low), x, low);
  inside = select(compare(arith::CmpFPredicate::OLT, inside, high), inside, high);
  Value n = math::RoundEvenOp::create(b, at, mul(inside, real(1.4426950408889634)));
  Value r = sub(sub(inside, mul(n, real(0x1.62e42fee00000p-1))),
                mul(n, real(0x1.a39ef35793c76p-33)));
  Value power = polynomial(r, inverseFactorials(0, 15, 1, false));
  Value whole = arith::FPToSIOp::create(b, at, i64, n);
  Value half = arith::ShRSIOp::create(b, at, whole, integer(1));
  Value rest = arith::SubIOp::create(b, at, whole, half);
  Value result = mul(mul(power, powerOfTwo(half)), powerOfTwo(rest));
  return select(isNaN(x), x, result);
}

/// x = 2^e·m with m around 1; log m = 2·atanh(s), s = (m-1)/(m+1).
Value Expansion::log(Value x) {
  Value tiny = compare(arith::CmpFPredicate::OLT, x, real(0x1p-1022));
  Value scaled = select(tiny, mul(x, real(0x1p54)), x);
  Value bits = arith::BitcastOp::create(b, at, i64, scaled);
  // Taking off the bits of √½ first makes the mantissa's range [√½, √2).
  Value shifted = arith::SubIOp::create(b, at, bits, integer(0x3fe6a09e667f3bcd));
  Value exponent = arith::ShRSIOp::create(b, at, shifted, integer(52));
  Value mantissaBits = arith::SubIOp::create(
      b, at, bits, arith::ShLIOp::create(b, at, exponent, integer(52)));
  Value m = arith::BitcastOp::create(b, at, f64, mantissaBits);
  Value e = arith::SIToFPOp::create(b, at, f64, exponent);
  e = select(tiny, sub(e, real(54)), e);
  Value f = sub(m, real(1));
  Value s = div(f, add(m, real(1)));
  SmallVector<double> series;
  for (int i = 1; i <= 25; i += 2)
    series.push_back(2.0 / i);
  Value small = mul(s, polynomial(mul(s, s), series));
  Value result = add(mul(e, real(0x1.62e42fee00000p-1)),
                     add(small, mul(e, real(0x1.a39ef35793c76p-33))));
  Value zero = real(0), infinity = real(INFINITY);
  result = select(compare(arith::CmpFPredicate::OEQ, x, zero), real(-INFINITY), result);
  result = select(compare(arith::CmpFPredicate::OEQ, x, infinity), infinity, result);
  return select(compare(arith::CmpFPredicate::ULT, x, zero), real(NAN), result);
}

/// u = 1 + x loses digits of x; log u / (u − 1) hardly changes with u, so that log u · x
/// / (u − 1) has them again.
Value Expansion::log1p(Value x) {
  Value u = add(real(1), x), difference = sub(u, real(1));
  Value isSmall = compare(arith::CmpFPredicate::OEQ, difference, real(0));
  Value isInfinite = compare(arith::CmpFPredicate::OEQ, u, real(INFINITY));
  Value direct = log(u);
  Value corrected = mul(direct, div(x, select(isSmall, real(1), difference)));
  return select(isSmall, x, select(isInfinite, direct, corrected));
}

/// The series near 0, where the quotient loses digits.
Value Expansion::tanh(Value x) {
  // t' = 1 - t²
  SmallVector<double> odd;
  double c[28] = {0, 1};
  for (int n = 1; n < 27; ++n) {
    double sum = 0;
    for (int i = 0; i <= n; ++i)
      sum += c[i] * c[n - i];
    c[n + 1] = -sum / (n + 1);
  }
  for (int i = 1; i < 28; i += 2)
    odd.push_back(c[i]);
  Value near = mul(x, polynomial(mul(x, x), odd));
  Value power = exp(mul(size(x), real(2)));
  Value far = sub(real(1), div(real(2), add(power, real(1))));
  far = math::CopySignOp::create(b, at, far, x);
  Value isNear = compare(arith::CmpFPredicate::OLT, size(x), real(0.3));
  return select(isNaN(x), x, select(isNear, near, far));
}

/// The series up to 2.5; beyond, a continued fraction of the complement.
Value Expansion::erf(Value x) {
  Value square = mul(x, x), magnitude = size(x);
  SmallVector<double> series;
  double factorial = 1;
  for (int n = 0; n < 48; ++n) {
    series.push_back(2 / std::sqrt(M_PI) * (n % 2 ? -1 : 1) / (factorial * (2 * n + 1)));
    factorial *= n + 1;
  }
  Value near = mul(x, polynomial(square, series));
  Value fraction = magnitude;
  for (int n = 40; n >= 1; --n)
    fraction = add(magnitude, div(real(n / 2.0), fraction));
  Value decay = exp(sub(real(0), square));
  Value complement = div(mul(decay, real(1 / std::sqrt(M_PI))), fraction);
  Value far = math::CopySignOp::create(b, at, sub(real(1), complement), x);
  Value isNear = compare(arith::CmpFPredicate::OLT, magnitude, real(2.5));
  return select(isNaN(x), x, select(isNear, near, far));
}

/// atan x = π/2 − atan 1/x brings the argument to 1 and below, atan x = 2·atan(x / (1 +
/// √(1
/// + x²))), twice, below 0.2, where the series is short.
Value Expansion::atan(Value x) {
  Value magnitude = size(x), one = real(1);
  Value isLarge = compare(arith::CmpFPredicate::OGT, magnitude, one);
  Value t = select(isLarge, div(one, magnitude), magnitude);
  for (int i = 0; i < 2; ++i)
    t = div(t, add(one, math::SqrtOp::create(b, at, add(one, mul(t, t)))));
  SmallVector<double> series;
  for (int n = 0; n < 13; ++n)
    series.push_back((n % 2 ? -4.0 : 4.0) / (2 * n + 1));
  Value angle = mul(t, polynomial(mul(t, t), series));
  angle = select(isLarge, sub(real(M_PI_2), angle), angle);
  return select(isNaN(x), x, math::CopySignOp::create(b, at, angle, x));
}

/// x = k·π/2 + r with π/2 in three parts, the first two short enough that their products
/// with k are exact.
Value Expansion::sinOrCos(Value x, bool cosine) {
  Value magnitude = size(x);
  Value isFar = compare(arith::CmpFPredicate::OGT, magnitude, real(0x1p50));
  Value inside = select(isFar, real(0), x);
  inside = select(isNaN(inside), real(0), inside);
  Value k = math::RoundEvenOp::create(b, at, mul(inside, real(0.63661977236758134)));
  Value r = sub(inside, mul(k, real(0x1.921fb54400000p+0)));
  r = sub(r, mul(k, real(0x1.0b4611a600000p-34)));
  r = sub(r, mul(k, real(0x1.3198a2e037073p-69)));
  Value square = mul(r, r);
  Value sine = mul(r, polynomial(square, inverseFactorials(1, 18, 2, true)));
  Value cosineValue = polynomial(square, inverseFactorials(0, 19, 2, true));
  Value quadrant = arith::FPToSIOp::create(b, at, i64, k);
  if (cosine)
    quadrant = arith::AddIOp::create(b, at, quadrant, integer(1));
  auto bit = [&](int64_t mask) -> Value {
    Value masked = arith::AndIOp::create(b, at, quadrant, integer(mask));
    return arith::CmpIOp::create(b, at, arith::CmpIPredicate::ne, masked, integer(0));
  };
  Value result = select(bit(1), cosineValue, sine);
  result = select(bit(2), sub(real(0), result), result);
  // Infinities and NaN have none.
  Value undefined = sub(x, x);
  Value isFinite = compare(arith::CmpFPredicate::OEQ, undefined, real(0));
  return select(isFinite, result, real(NAN));
}

static Value inF64(OpBuilder &builder, Location location, ScalarOp function, Value x) {
  Expansion expansion(builder, location);
  switch (function) {
  case ScalarOp::Exp:
    return expansion.exp(x);
  case ScalarOp::Log:
    return expansion.log(x);
  case ScalarOp::Log1p:
    return expansion.log1p(x);
  case ScalarOp::Tanh:
    return expansion.tanh(x);
  case ScalarOp::Erf:
    return expansion.erf(x);
  case ScalarOp::Atan:
    return expansion.atan(x);
  default:
    return expansion.sinOrCos(x, function == ScalarOp::Cos);
  }
}

/// MLIR's logarithm takes numbers below the smallest normal one for that; they are scaled
/// into its range.
static Value logInF32(OpBuilder &b, Location at, Value x) {
  auto number = [&](float value) -> Value {
    return arith::ConstantOp::create(b, at, b.getF32FloatAttr(value));
  };
  Value tiny =
      arith::CmpFOp::create(b, at, arith::CmpFPredicate::OLT, x, number(0x1p-126f));
  Value scaled = arith::SelectOp::create(
      b, at, tiny, arith::MulFOp::create(b, at, x, number(0x1p24f)), x);
  Value log = math::LogOp::create(b, at, scaled);
  Value back = arith::SubFOp::create(b, at, log, number(24 * 0.693147181f));
  return arith::SelectOp::create(b, at, tiny, back, log);
}

Value codegen::emitRealFunction(OpBuilder &builder, Location location, ScalarOp function,
                                Value x) {
  if (x.getType().isF64())
    return inF64(builder, location, function, x);
  switch (function) {
  case ScalarOp::Exp:
    return math::ExpOp::create(builder, location, x);
  case ScalarOp::Log:
    return logInF32(builder, location, x);
  case ScalarOp::Tanh:
    return math::TanhOp::create(builder, location, x);
  case ScalarOp::Erf:
    return math::ErfOp::create(builder, location, x);
  default: {
    Value wide = arith::ExtFOp::create(builder, location, builder.getF64Type(), x);
    Value result = inF64(builder, location, function, wide);
    return arith::TruncFOp::create(builder, location, x.getType(), result);
  }
  }
}
