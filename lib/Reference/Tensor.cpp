//===- Tensor.cpp - Element access of the reference kernels ---------------===//
#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

using namespace partita;
using namespace partita::reference;

/// Calls `f` with a null pointer of the C++ type that stores `type`; half types are
/// handled before.
template <typename F> static void withStorage(DType type, F f) {
  switch (type) {
  case DType::F32:
    return f(static_cast<float *>(nullptr));
  case DType::F64:
    return f(static_cast<double *>(nullptr));
  case DType::I8:
    return f(static_cast<int8_t *>(nullptr));
  case DType::I16:
    return f(static_cast<int16_t *>(nullptr));
  case DType::I32:
    return f(static_cast<int32_t *>(nullptr));
  case DType::I64:
    return f(static_cast<int64_t *>(nullptr));
  case DType::U8:
  case DType::Bool:
    return f(static_cast<uint8_t *>(nullptr));
  case DType::U16:
    return f(static_cast<uint16_t *>(nullptr));
  case DType::U32:
    return f(static_cast<uint32_t *>(nullptr));
  case DType::U64:
    return f(static_cast<uint64_t *>(nullptr));
  default:
    assert(false && "these types have no C++ storage type");
  }
}

/// Conversion that is defined for every value: floats saturate, NaN becomes 0.
template <typename To, typename From> static To convert(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(value))
      return 0;
    if (value >= static_cast<From>(std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
    if (value <= static_cast<From>(std::numeric_limits<To>::min()))
      return std::numeric_limits<To>::min();
  }
  return static_cast<To>(value);
}

static bool isHalf(DType type) { return type == DType::F16 || type == DType::BF16; }

/// The value of the low bits of a type of less than a byte.
static int64_t narrowed(DType type, int64_t bits) {
  int shift = 64 - bitWidth(type);
  auto high = static_cast<uint64_t>(bits) << shift;
  return isUnsigned(type) ? static_cast<int64_t>(high >> shift)
                          : static_cast<int64_t>(high) >> shift;
}

/// To a type of less than a byte: floats saturate, integers keep their low bits.
template <typename T> static int64_t toNarrow(DType type, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    int64_t count = int64_t(1) << bitWidth(type);
    int64_t low = isUnsigned(type) ? 0 : -count / 2;
    return std::clamp(convert<int64_t>(value), low, low + count - 1);
  } else {
    return narrowed(type, value);
  }
}

template <typename T> std::vector<T> reference::values(const HostTensor &tensor) {
  auto count = static_cast<size_t>(tensor.size());
  std::vector<T> result(count);
  if (isHalf(tensor.type)) {
    const auto *bits = tensor.data<uint16_t>();
    for (size_t i = 0; i < count; ++i)
      result[i] = convert<T>(tensor.type == DType::F16 ? halfToFloat(bits[i])
                                                       : bfloat16ToFloat(bits[i]));
    return result;
  }
  if (smallFloat(tensor.type)) {
    for (size_t i = 0; i < count; ++i)
      result[i] = convert<T>(smallToFloat(tensor.type, tensor.data<uint8_t>()[i]));
    return result;
  }
  if (bitWidth(tensor.type) < 8) {
    for (size_t i = 0; i < count; ++i)
      result[i] = static_cast<T>(narrowed(tensor.type, tensor.data<uint8_t>()[i]));
    return result;
  }
  withStorage(tensor.type, [&](auto *null) {
    using S = std::remove_pointer_t<decltype(null)>;
    const S *data = tensor.data<S>();
    for (size_t i = 0; i < count; ++i)
      result[i] = convert<T>(data[i]);
  });
  return result;
}

template <typename T>
HostTensor reference::tensor(DType type, const Shape &shape,
                             const std::vector<T> &values) {
  HostTensor result = HostTensor::zeros(type, shape);
  assert(values.size() == static_cast<size_t>(result.size()));
  if (isHalf(type)) {
    auto *bits = result.data<uint16_t>();
    for (size_t i = 0; i < values.size(); ++i)
      bits[i] = type == DType::F16 ? floatToHalf(static_cast<float>(values[i]))
                                   : floatToBfloat16(static_cast<float>(values[i]));
    return result;
  }
  if (type == DType::Bool) {
    for (size_t i = 0; i < values.size(); ++i)
      result.data<uint8_t>()[i] = values[i] != 0;
    return result;
  }
  if (smallFloat(type)) {
    for (size_t i = 0; i < values.size(); ++i)
      result.data<uint8_t>()[i] = floatToSmall(type, static_cast<float>(values[i]));
    return result;
  }
  if (bitWidth(type) < 8) {
    for (size_t i = 0; i < values.size(); ++i)
      result.data<uint8_t>()[i] = static_cast<uint8_t>(toNarrow(type, values[i]));
    return result;
  }
  withStorage(type, [&](auto *null) {
    using S = std::remove_pointer_t<decltype(null)>;
    S *data = result.data<S>();
    for (size_t i = 0; i < values.size(); ++i)
      data[i] = convert<S>(values[i]);
  });
  return result;
}

template std::vector<double> reference::values(const HostTensor &);
template std::vector<int64_t> reference::values(const HostTensor &);
template HostTensor reference::tensor(DType, const Shape &, const std::vector<double> &);
template HostTensor reference::tensor(DType, const Shape &, const std::vector<int64_t> &);

HostTensor reference::bitcast(const HostTensor &operand, DType type) {
  assert(bitWidth(operand.type) == bitWidth(type));
  HostTensor result = operand;
  result.type = type;
  for (std::byte &element : result.bytes)
    if (type == DType::Bool)
      element = element == std::byte{0} ? std::byte{0} : std::byte{1};
    else if (bitWidth(type) < 8 && isFloat(type)) // no sign above its bits
      element &= std::byte{0x0f};
    else if (bitWidth(type) < 8)
      element = static_cast<std::byte>(narrowed(type, static_cast<int64_t>(element)));
  return result;
}

std::vector<int64_t> reference::strides(const Shape &shape) {
  std::vector<int64_t> result(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    result[d - 1] = result[d] * shape[d];
  return result;
}

void reference::forEachIndex(const Shape &shape,
                             const std::function<void(const Shape &)> &body) {
  int64_t count = elementCount(shape);
  Shape index(shape.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    body(index);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d])
        break;
      index[d] = 0;
    }
  }
}

HostTensor reference::move(const HostTensor &operand, const Shape &shape,
                           const std::function<int64_t(const Shape &)> &source,
                           const std::byte *fill) {
  HostTensor result = HostTensor::zeros(operand.type, shape);
  size_t width = byteWidth(operand.type);
  std::byte *to = result.bytes.data();
  forEachIndex(shape, [&](const Shape &index) {
    int64_t from = source(index);
    assert(from < operand.size() && (from >= 0 || fill));
    std::memcpy(to, from < 0 ? fill : operand.bytes.data() + from * width, width);
    to += width;
  });
  return result;
}
