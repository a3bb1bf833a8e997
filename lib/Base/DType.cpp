//===- DType.cpp - Element types and host tensors -------------------------===//
#include "partita/Base/DType.h"

#include <bit>

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
    {DType::F32, 4, "f32"},   {DType::F64, 8, "f64"}, {DType::F16, 2, "f16"},
    {DType::BF16, 2, "bf16"}, {DType::I8, 1, "i8"},   {DType::I16, 2, "i16"},
    {DType::I32, 4, "i32"},   {DType::I64, 8, "i64"}, {DType::U8, 1, "u8"},
    {DType::U16, 2, "u16"},   {DType::U32, 4, "u32"}, {DType::U64, 8, "u64"},
    {DType::Bool, 1, "bool"},
};

size_t partita::byteWidth(DType type) { return infos[static_cast<int>(type)].width; }

std::string_view partita::name(DType type) { return infos[static_cast<int>(type)].name; }

std::optional<DType> partita::dtypeFromName(std::string_view name) {
  for (const Info &info : infos)
    if (info.name == name)
      return info.type;
  return std::nullopt;
}

bool partita::isFloat(DType type) { return type <= DType::BF16; }

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
