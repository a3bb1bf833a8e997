//===- Scalar.h - Element types as C++ types --------------------*- C++ -*-===//
//
// Loops over elements of a type known only at run time are written once as a template
// and chosen by visitType. f16 and bf16 are stored as bits and computed in f32.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_SCALAR_H
#define PARTITA_BASE_SCALAR_H

#include "partita/Base/DType.h"

#include <type_traits>

namespace partita {

struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};
/// One byte, 0 or 1; anything else counts as 1.
struct Boolean {
  uint8_t bits;
};

/// The type that elements stored as T are computed in.
template <typename T> struct ComputeOf {
  using type = T;
};
template <> struct ComputeOf<Half> {
  using type = float;
};
template <> struct ComputeOf<Bfloat16> {
  using type = float;
};
template <> struct ComputeOf<Boolean> {
  using type = int;
};
template <typename T> using Compute = typename ComputeOf<T>::type;

template <typename T> Compute<T> load(T x) {
  if constexpr (std::is_same_v<T, Half>)
    return halfToFloat(x.bits);
  else if constexpr (std::is_same_v<T, Bfloat16>)
    return bfloat16ToFloat(x.bits);
  else if constexpr (std::is_same_v<T, Boolean>)
    return x.bits != 0;
  else
    return x;
}

template <typename T> T store(Compute<T> x) {
  if constexpr (std::is_same_v<T, Half>)
    return {floatToHalf(x)};
  else if constexpr (std::is_same_v<T, Bfloat16>)
    return {floatToBfloat16(x)};
  else if constexpr (std::is_same_v<T, Boolean>)
    return {static_cast<uint8_t>(x != 0)};
  else
    return x;
}

/// Calls `visitor.template operator()<T>()` with the storage type of `type`.
template <typename Visitor> decltype(auto) visitType(DType type, Visitor &&visitor) {
  switch (type) {
  case DType::F32:
    return visitor.template operator()<float>();
  case DType::F64:
    return visitor.template operator()<double>();
  case DType::F16:
    return visitor.template operator()<Half>();
  case DType::BF16:
    return visitor.template operator()<Bfloat16>();
  case DType::I8:
    return visitor.template operator()<int8_t>();
  case DType::I16:
    return visitor.template operator()<int16_t>();
  case DType::I32:
    return visitor.template operator()<int32_t>();
  case DType::I64:
    return visitor.template operator()<int64_t>();
  case DType::U8:
    return visitor.template operator()<uint8_t>();
  case DType::U16:
    return visitor.template operator()<uint16_t>();
  case DType::U32:
    return visitor.template operator()<uint32_t>();
  case DType::U64:
    return visitor.template operator()<uint64_t>();
  case DType::Bool:
    return visitor.template operator()<Boolean>();
  case DType::I4:
  case DType::I2:
    return visitor.template operator()<int8_t>();
  default: // storage only: nobody reduces them
    return visitor.template operator()<uint8_t>();
  }
}

} // namespace partita

#endif // PARTITA_BASE_SCALAR_H
