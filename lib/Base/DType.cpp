//===- DType.cpp - Element types and host tensors -------------------------===//
#include "partita/Base/DType.h"

#include <array>
#include <bit>
#include <cmath>

using namespace partita;

namespace {
struct Info {
  DType type;
  size_t width;
  std::string_view name;
};
} // namespace

/// Indexed by the value of DType.
static constexpr Info infos[] = {
    {DType::F32, 4, "f32"},
    {DType::F64, 8, "f64"},
    {DType::F16, 2, "f16"},
    {DType::BF16, 2, "bf16"},
    {DType::I8, 1, "i8"},
    {DType::I16, 2, "i16"},
    {DType::I32, 4, "i32"},
    {DType::I64, 8, "i64"},
    {DType::U8, 1, "u8"},
    {DType::U16, 2, "u16"},
    {DType::U32, 4, "u32"},
    {DType::U64, 8, "u64"},
    {DType::Bool, 1, "bool"},
    {DType::F8E4M3FN, 1, "f8e4m3fn"},
    {DType::F8E4M3FNUZ, 1, "f8e4m3fnuz"},
    {DType::F8E5M2, 1, "f8e5m2"},
    {DType::F8E5M2FNUZ, 1, "f8e5m2fnuz"},
    {DType::F8E8M0, 1, "f8e8m0"},
    {DType::F4E2M1, 1, "f4e2m1"},
    {DType::I4, 1, "i4"},
    {DType::U4, 1, "u4"},
    {DType::I2, 1, "i2"},
    {DType::U2, 1, "u2"},
};

size_t partita::byteWidth(DType type) { return infos[static_cast<int>(type)].width; }

int partita::bitWidth(DType type) {
  if (type == DType::F4E2M1 || type == DType::I4 || type == DType::U4)
    return 4;
  if (type == DType::I2 || type == DType::U2)
    return 2;
  return static_cast<int>(byteWidth(type)) * 8;
}

std::string_view partita::name(DType type) { return infos[static_cast<int>(type)].name; }

std::optional<DType> partita::dtypeFromName(std::string_view name) {
  for (const Info &info : infos)
    if (info.name == name)
      return info.type;
  return std::nullopt;
}

bool partita::isFloat(DType type) {
  return type <= DType::BF16 || (type >= DType::F8E4M3FN && type <= DType::F4E2M1);
}

bool partita::isUnsigned(DType type) {
  return (type >= DType::U8 && type <= DType::U64) || type == DType::U4 ||
         type == DType::U2;
}

int64_t partita::elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

HostTensor HostTensor::zeros(DType type, std::vector<int64_t> shape) {
  HostTensor tensor{type, std::move(shape), {}};
  tensor.bytes.resize(static_cast<size_t>(tensor.size()) * byteWidth(type));
  return tensor;
}

float partita::halfToFloat(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    // Subnormal: mantissa * 2^-24, exact in f32.
    float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t partita::floatToHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return sign | 0x7e00u; // NaN
  if (magnitude >= 0x477ff000u)
    return sign | 0x7c00u; // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal result: let the f32 adder round at 2^-24.
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
  }
  uint32_t odd = (magnitude >> 13) & 1u;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

float partita::bfloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t partita::floatToBfloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u); // keep NaN a NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

//===-- Floats of one byte ------------------------------------------------===//

const SmallFloat *partita::smallFloat(DType type) {
  // Exponent, mantissa, bias, sign, infinity, NaN, -0 is NaN, largest.
  static constexpr SmallFloat formats[] = {
      {4, 3, 7, true, false, 0x7f, false, 0x7e},    // E4M3FN
      {4, 3, 8, true, false, 0x80, true, 0x7f},     // E4M3FNUZ
      {5, 2, 15, true, true, 0x7e, false, 0x7b},    // E5M2
      {5, 2, 16, true, false, 0x80, true, 0x7f},    // E5M2FNUZ
      {8, 0, 127, false, false, 0xff, false, 0xfe}, // E8M0
      {2, 1, 1, true, false, 0, false, 0x07},       // E2M1
  };
  if (type < DType::F8E4M3FN || type > DType::F4E2M1)
    return nullptr;
  return &formats[static_cast<int>(type) - static_cast<int>(DType::F8E4M3FN)];
}

/// The number that bits without sign stand for, NaN included.
static float magnitudeOf(const SmallFloat &format, uint8_t bits) {
  int exponent = bits >> format.mantissaBits;
  int mantissa = bits & ((1 << format.mantissaBits) - 1);
  if (bits > format.largest)
    return format.hasInfinity && mantissa == 0 ? INFINITY : NAN;
  if (exponent == 0 && format.mantissaBits != 0)
    return std::ldexp(static_cast<float>(mantissa),
                      1 - format.bias - format.mantissaBits);
  return std::ldexp(static_cast<float>((1 << format.mantissaBits) + mantissa),
                    exponent - format.bias - format.mantissaBits);
}

/// Where the sign is, if there is one.
static uint8_t signBit(const SmallFloat &format) {
  return format.hasSign
             ? static_cast<uint8_t>(1 << (format.exponentBits + format.mantissaBits))
             : uint8_t(0);
}

float partita::smallToFloat(DType type, uint8_t bits) {
  const SmallFloat &format = *smallFloat(type);
  uint8_t sign = signBit(format);
  if (format.isNegativeZeroNaN && bits == sign)
    return NAN;
  // Garbage above the bits of a narrow type is no part of it.
  auto mask = static_cast<uint8_t>(sign ? sign - 1 : 0xff);
  float magnitude = magnitudeOf(format, bits & mask);
  return bits & sign ? -magnitude : magnitude;
}

/// By looking for the neighbours among all numbers of the type.
uint8_t partita::floatToSmall(DType type, float value) {
  const SmallFloat &format = *smallFloat(type);
  uint8_t sign = std::signbit(value) ? signBit(format) : uint8_t(0);
  if (std::isnan(value) || (!format.hasSign && !(value > 0)))
    return format.nan;
  float magnitude = std::fabs(value);
  uint8_t low = 0;
  for (int step = 128; step != 0; step /= 2)
    if (low + step <= format.largest &&
        magnitudeOf(format, static_cast<uint8_t>(low + step)) <= magnitude)
      low = static_cast<uint8_t>(low + step);
  // Above the largest number one more step of it would be a number of a wider type.
  float below = magnitudeOf(format, low), above;
  if (low < format.largest)
    above = magnitudeOf(format, static_cast<uint8_t>(low + 1));
  else if (format.mantissaBits == 0)
    above = 2 * below;
  else
    above = 2 * below - magnitudeOf(format, static_cast<uint8_t>(low - 1));
  double middle = (static_cast<double>(below) + above) / 2;
  // A power of two and a half of it more is nearer to the next in the mantissa's sense.
  bool isTieUp = low % 2 != 0 || format.mantissaBits == 0;
  bool up = magnitude > middle || (magnitude == middle && isTieUp);
  if (low == format.largest && up) {
    if (format.hasInfinity)
      return static_cast<uint8_t>(sign | (format.largest + 1));
    if (format.nan == 0)
      return sign | format.largest;
    return format.isNegativeZeroNaN ? format.nan : sign | format.nan;
  }
  auto bits = static_cast<uint8_t>(low + up);
  return format.isNegativeZeroNaN && bits == 0 ? uint8_t(0) : sign | bits;
}
