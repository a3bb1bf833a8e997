//===- Compute.h - The type that a model computes in ------------*- C++ -*-===//
#ifndef PARTITA_BASE_COMPUTE_H
#define PARTITA_BASE_COMPUTE_H

#include "partita/Base/DType.h"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace partita {

/// In which type the products of an f32 model are computed, and its values stored. TF32
/// is f32 in memory.
enum class Compute : uint8_t { F32, BF16, F16, TF32 };

inline constexpr std::array<std::string_view, 4> computeNames{"f32", "bf16", "f16",
                                                              "tf32"};
inline std::string_view name(Compute compute) {
  return computeNames[static_cast<size_t>(compute)];
}
/// The inverse; nothing if no type is called so.
std::optional<Compute> computeFromName(std::string_view name);
/// The type that values are stored in.
DType storedType(Compute compute);

/// Elements of f32 as `type`, f16 or bf16, each to the nearest. What is finite stays
/// finite: a mask of the least f32 becomes the least number of the type, and 0 times the
/// mask stays 0. `elements` need not be aligned.
std::vector<std::byte> narrowed(std::span<const std::byte> elements, DType type);

} // namespace partita

#endif // PARTITA_BASE_COMPUTE_H
