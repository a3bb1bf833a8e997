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
  // One byte per element in memory and in bundles, also those that ONNX files pack: they
  // are storage for what is computed in wider types.
  F8E4M3FN = 13,
  F8E4M3FNUZ = 14,
  F8E5M2 = 15,
  F8E5M2FNUZ = 16,
  F8E8M0 = 17, ///< a power of two: no sign, no zero
  F4E2M1 = 18,
  I4 = 19, ///< sign-extended
  U4 = 20,
  I2 = 21, ///< sign-extended
  U2 = 22,
};

/// Bytes of one element in memory.
size_t byteWidth(DType type);
/// Bits of one element in an ONNX file: less than a byte for the types of 4 and 2 bits.
int bitWidth(DType type);
/// "f32", "i64", "bool"…: the names used in messages, bundles and safetensors (there in
/// upper case).
std::string_view name(DType type);
std::optional<DType> dtypeFromName(std::string_view name);
bool isFloat(DType type);
/// Of the integers; Bool is none.
bool isUnsigned(DType type);

/// How a float of one byte is made up: sign (if any), exponent, mantissa.
struct SmallFloat {
  int exponentBits, mantissaBits, bias;
  bool hasSign;
  /// E5M2: the largest exponent is that of infinities and NaN, as IEEE 754 has it.
  bool hasInfinity;
  /// The NaN that conversions make, without sign; 0: there is none.
  uint8_t nan;
  /// The types called UZ have one zero, and -0 is their NaN.
  bool isNegativeZeroNaN;
  /// The largest finite number, as bits.
  uint8_t largest;
};
/// Null for every other type.
const SmallFloat *smallFloat(DType type);
/// Conversions of the floats of one byte: to nearest, ties to even. What is too large
/// becomes an infinity, in types without one NaN, in F4E2M1 the largest number.
float smallToFloat(DType type, uint8_t bits);
uint8_t floatToSmall(DType type, float value);

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

/// Round-to-nearest-even conversions for the two types of two bytes.
float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);
float bfloat16ToFloat(uint16_t bits);
uint16_t floatToBfloat16(float value);

} // namespace partita

#endif // PARTITA_BASE_DTYPE_H
