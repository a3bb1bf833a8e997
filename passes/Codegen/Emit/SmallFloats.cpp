//===- SmallFloats.cpp - Conversions of floats of one byte ----------------===//
#include "passes/Codegen/Emit/SmallFloats.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// Arithmetic on the bits of f32 numbers.
class Bits {
public:
  Bits(OpBuilder &builder, Location location, DType type)
      : type(type), f(*smallFloat(type)), b(builder), at(location) {}

  Value decode(Value byte);
  Value encode(Value x);

private:
  Value integer(int64_t v) { return arith::ConstantIntOp::create(b, at, v, 32); }
  Value real(float v) { return arith::ConstantOp::create(b, at, b.getF32FloatAttr(v)); }
  template <typename Op> Value make(Value x, Value y) { return Op::create(b, at, x, y); }
  Value bitsOf(Value x) { return arith::BitcastOp::create(b, at, b.getI32Type(), x); }
  Value ofBits(Value x) { return arith::BitcastOp::create(b, at, b.getF32Type(), x); }
  Value is(arith::CmpIPredicate p, Value x, Value y) {
    return arith::CmpIOp::create(b, at, p, x, y);
  }
  Value is(arith::CmpFPredicate p, Value x, Value y) {
    return arith::CmpFOp::create(b, at, p, x, y);
  }
  Value select(Value c, Value x, Value y) {
    return arith::SelectOp::create(b, at, c, x, y);
  }
  int64_t signBit() const { return int64_t(1) << (f.exponentBits + f.mantissaBits); }
  /// 2 to the exponent of the smallest normal number.
  float leastNormal() const { return std::ldexp(1.0F, 1 - f.bias); }

  DType type;
  const SmallFloat &f;
  OpBuilder &b;
  Location at;
};
} // namespace

/// Exponent and mantissa move to their places in f32; subnormal numbers are products.
Value Bits::decode(Value byte) {
  Value bits = arith::ExtUIOp::create(b, at, b.getI32Type(), byte);
  Value magnitude = bits, sign;
  if (f.hasSign) {
    magnitude = make<arith::AndIOp>(bits, integer(signBit() - 1));
    sign = make<arith::ShLIOp>(make<arith::AndIOp>(bits, integer(signBit())),
                               integer(31 - f.exponentBits - f.mantissaBits));
  }
  Value moved = make<arith::ShLIOp>(magnitude, integer(23 - f.mantissaBits));
  Value normal = ofBits(make<arith::AddIOp>(moved, integer((127 - f.bias) << 23)));
  Value count = arith::UIToFPOp::create(b, at, b.getF32Type(), magnitude);
  float step = std::ldexp(1.0F, 1 - f.bias - f.mantissaBits);
  Value number = normal;
  if (f.mantissaBits != 0) {
    Value isSmall =
        is(arith::CmpIPredicate::ult, magnitude, integer(int64_t(1) << f.mantissaBits));
    number = select(isSmall, make<arith::MulFOp>(count, real(step)), normal);
  } else { // E8M0: the least is 2^-127, subnormal in f32
    number = select(is(arith::CmpIPredicate::eq, magnitude, integer(0)), real(0x1p-127F),
                    normal);
  }
  if (sign)
    number = ofBits(make<arith::OrIOp>(bitsOf(number), sign));
  Value isSpecial = is(arith::CmpIPredicate::ugt, magnitude, integer(f.largest));
  Value special = real(NAN);
  if (f.hasInfinity) {
    Value infinite = ofBits(make<arith::OrIOp>(integer(0x7f800000), sign));
    special = select(is(arith::CmpIPredicate::eq, magnitude, integer(f.largest + 1)),
                     infinite, special);
  }
  if (f.nan != 0)
    number = select(isSpecial, special, number);
  if (f.isNegativeZeroNaN)
    number =
        select(is(arith::CmpIPredicate::eq, bits, integer(signBit())), real(NAN), number);
  return number;
}

/// Rounded to a multiple of the step between numbers of its size, of which it then is
/// one: exponent and mantissa only move.
Value Bits::encode(Value x) {
  Value bits = bitsOf(x), magnitude = make<arith::AndIOp>(bits, integer(0x7fffffff));
  Value size = ofBits(magnitude);
  Value exponent = make<arith::AndIOp>(magnitude, integer(0x7f800000));
  Value least = bitsOf(real(leastNormal()));
  exponent = make<arith::MaxUIOp>(exponent, least);
  Value step =
      make<arith::MulFOp>(ofBits(exponent), real(std::ldexp(1.0F, -f.mantissaBits)));
  Value count = math::RoundEvenOp::create(b, at, make<arith::DivFOp>(size, step));
  Value rounded = make<arith::MulFOp>(count, step);
  Value moved = make<arith::ShRUIOp>(bitsOf(rounded), integer(23 - f.mantissaBits));
  Value normal =
      make<arith::SubIOp>(moved, integer(int64_t(127 - f.bias) << f.mantissaBits));
  Value code = normal;
  if (f.mantissaBits != 0) {
    Value isSmall = is(arith::CmpFPredicate::OLT, rounded, real(leastNormal()));
    Value safe = select(isSmall, count, real(0));
    code = select(isSmall, arith::FPToUIOp::create(b, at, b.getI32Type(), safe), normal);
  } else { // E8M0: its least, 2^-127, is subnormal in f32
    Value isLeast = is(arith::CmpFPredicate::OLT, size, real(0.75F * leastNormal()));
    code = select(isLeast, integer(0), normal);
  }
  float largest = smallToFloat(type, f.largest);
  Value isLarge = is(arith::CmpFPredicate::UGT, rounded, real(largest));
  int64_t beyond = f.hasInfinity ? f.largest + 1 : f.nan != 0 ? f.nan : f.largest;
  code = select(isLarge, integer(beyond), code);
  Value isNaN = is(arith::CmpFPredicate::UNO, x, x);
  code = select(isNaN, integer(f.nan), code);
  if (!f.hasSign) {
    Value isPositive = is(arith::CmpFPredicate::OGT, x, real(0));
    code = select(isPositive, code, integer(f.nan));
  } else {
    Value sign = make<arith::AndIOp>(
        make<arith::ShRUIOp>(bits, integer(31 - f.exponentBits - f.mantissaBits)),
        integer(signBit()));
    Value isSigned =
        f.isNegativeZeroNaN
            ? make<arith::AndIOp>(is(arith::CmpIPredicate::ne, code, integer(0)),
                                  is(arith::CmpIPredicate::ne, code, integer(f.nan)))
            : Value();
    Value withSign = make<arith::OrIOp>(code, sign);
    code = isSigned ? select(isSigned, withSign, code) : withSign;
    code = select(isNaN, integer(f.nan), code);
  }
  return arith::TruncIOp::create(b, at, b.getIntegerType(8), code);
}

Value codegen::emitFromSmallFloat(OpBuilder &builder, Location location, DType type,
                                  Value bits) {
  return Bits(builder, location, type).decode(bits);
}

Value codegen::emitToSmallFloat(OpBuilder &builder, Location location, DType type,
                                Value value) {
  return Bits(builder, location, type).encode(value);
}
