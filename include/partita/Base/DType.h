//===- DType.h - Element types and host tensors -----------------*- C++ -*-===//
#ifndef PARTITA_BASE_DTYPE_H
#define PARTITA_BASE_DTYPE_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace partita {

/// Element types that every part of the compiler and the runtime knows. The values are
/// written into bundles: append only.
enum class DType : uint8_t {
  F32 = 0,
  F64 = 1,
  F16 = 2,
  BF16 = 3,
  I8 = 4,
  I16 = 5,
  I32 = 6,
  I64 = 7,
  U8 = 8,
  U16 = 9,
  U32 = 10,
  U64 = 11,
  Bool = 12, ///< one byte, 0 or 1
};

/// Bytes of one element.
size_t byteWidth(DType type);
/// "f32", "i64", "bool"…: the names used in messages, bundles and safetensors (there in
/// upper case).
std::string_view name(DType type);
std::optional<DType> dtypeFromName(std::string_view name);
bool isFloat(DType type);

/// Product of the dims; 1 for a scalar.
int64_t elementCount(const std::vector<int64_t> &shape);

/// A dense row-major tensor in host memory. `bytes` has exactly
/// elementCount(shape) * byteWidth(type) bytes.
struct HostTensor {
  DType type = DType::F32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  /// Zero-filled.
  static HostTensor zeros(DType type, std::vector<int64_t> shape);
  template <typename T> T *data() { return reinterpret_cast<T *>(bytes.data()); }
  template <typename T> const T *data() const {
    return reinterpret_cast<const T *>(bytes.data());
  }
  int64_t size() const { return elementCount(shape); }
};

/// Round-to-nearest-even conversions for the two types C++ lacks.
float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);
float bfloat16ToFloat(uint16_t bits);
uint16_t floatToBfloat16(float value);

} // namespace partita

#endif // PARTITA_BASE_DTYPE_H
