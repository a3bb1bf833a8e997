//===- Compute.cpp - The type that a model computes in --------------------===//
#include "partita/Base/Compute.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace partita;

std::optional<Compute> partita::computeFromName(std::string_view name) {
  auto found = std::ranges::find(computeNames, name);
  if (found == computeNames.end())
    return std::nullopt;
  return static_cast<Compute>(found - computeNames.begin());
}

DType partita::storedType(Compute compute) {
  if (compute == Compute::BF16)
    return DType::BF16;
  return compute == Compute::F16 ? DType::F16 : DType::F32;
}

std::vector<std::byte> partita::narrowed(std::span<const std::byte> elements,
                                         DType type) {
  constexpr uint16_t infinity[] = {0x7C00, 0x7F80}; // of f16, of bf16
  const bool isHalf = type == DType::F16;
  const uint16_t mostBits = infinity[isHalf ? 0 : 1];
  const size_t count = elements.size() / sizeof(float);
  std::vector<std::byte> result(count * sizeof(uint16_t));
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, elements.data() + i * sizeof value, sizeof value);
    uint16_t bits = isHalf ? floatToHalf(value) : floatToBfloat16(value);
    if ((bits & 0x7FFF) == mostBits && std::isfinite(value))
      --bits; // the largest number lies before the infinity
    std::memcpy(result.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return result;
}
