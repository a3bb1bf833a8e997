//===- Kernels.cpp - Elementwise, contraction, reduction, rows ------------===//
#include "partita/Reference/Kernels.h"

#include <cassert>
#include <cmath>
#include <limits>

using namespace partita;
using namespace partita::reference;

/// For each operand the element number at a result index, by numpy broadcasting.
static int64_t broadcastOffset(const Shape &index, const Shape &operand,
                               const std::vector<int64_t> &strides) {
  size_t skip = index.size() - operand.size();
  int64_t offset = 0;
  for (size_t d = 0; d < operand.size(); ++d)
    offset += operand[d] == 1 ? 0 : index[skip + d] * strides[d];
  return offset;
}

template <typename T>
static HostTensor elementwiseIn(const Payload &payload, const std::vector<double> &attrs,
                                const std::vector<const HostTensor *> &operands,
                                DType resultType) {
  std::vector<Shape> shapes;
  std::vector<std::vector<T>> inputs;
  std::vector<std::vector<int64_t>> steps;
  for (const HostTensor *operand : operands) {
    shapes.push_back(operand->shape);
    inputs.push_back(values<T>(*operand));
    steps.push_back(strides(operand->shape));
  }
  Shape shape = *broadcastShapes(shapes);
  std::vector<T> result, scratch, attributes(attrs.begin(), attrs.end());
  result.reserve(static_cast<size_t>(elementCount(shape)));
  std::vector<T> arguments(operands.size());
  forEachIndex(shape, [&](const Shape &index) {
    for (size_t o = 0; o < operands.size(); ++o)
      arguments[o] = inputs[o][broadcastOffset(index, shapes[o], steps[o])];
    result.push_back(payload.evaluate<T>(arguments.data(), attributes, scratch));
  });
  return tensor<T>(resultType, shape, result);
}

HostTensor reference::elementwise(const Payload &payload,
                                  const std::vector<double> &attributes,
                                  const std::vector<const HostTensor *> &operands,
                                  DType resultType) {
  // Mixed operand types (a bool condition with float branches) compute in double.
  bool anyFloat = false;
  for (const HostTensor *operand : operands)
    anyFloat |= isFloat(operand->type);
  return anyFloat ? elementwiseIn<double>(payload, attributes, operands, resultType)
                  : elementwiseIn<int64_t>(payload, attributes, operands, resultType);
}

/// Stride of every factor inside a tensor (0 where the tensor does not have it).
static std::vector<int64_t> factorStrides(const ShardingRule &rule,
                                          const TensorFactors &tensor) {
  std::vector<int64_t> result(rule.factors.size(), 0);
  int64_t stride = 1;
  for (size_t d = tensor.size(); d-- > 0;)
    for (size_t k = tensor[d].size(); k-- > 0;) {
      result[tensor[d][k]] = stride;
      stride *= rule.factors[tensor[d][k]].size;
    }
  return result;
}

template <typename T>
static HostTensor contractIn(const ShardingRule &rule, const HostTensor &lhs,
                             const HostTensor &rhs, DType sums) {
  auto left = factorStrides(rule, rule.operands[0]);
  auto right = factorStrides(rule, rule.operands[1]);
  std::vector<T> a = values<T>(lhs), b = values<T>(rhs), result;
  Shape outerShape, innerShape;
  std::vector<int64_t> outerLeft, outerRight, innerLeft, innerRight;
  for (const auto &dim : rule.results[0])
    for (int32_t f : dim) {
      outerShape.push_back(rule.factors[f].size);
      outerLeft.push_back(left[f]);
      outerRight.push_back(right[f]);
    }
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (rule.factors[f].reduction()) {
      innerShape.push_back(rule.factors[f].size);
      innerLeft.push_back(left[f]);
      innerRight.push_back(right[f]);
    }
  // The inner offsets are the same for every result element.
  std::vector<std::pair<int64_t, int64_t>> inner;
  forEachIndex(innerShape, [&](const Shape &index) {
    int64_t l = 0, r = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      l += index[d] * innerLeft[d];
      r += index[d] * innerRight[d];
    }
    inner.emplace_back(l, r);
  });
  forEachIndex(outerShape, [&](const Shape &index) {
    int64_t l = 0, r = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      l += index[d] * outerLeft[d];
      r += index[d] * outerRight[d];
    }
    T sum = 0;
    for (auto [dl, dr] : inner)
      sum += a[l + dl] * b[r + dr];
    result.push_back(sum);
  });
  return tensor<T>(sums, rule.shape(rule.results[0]), result);
}

HostTensor reference::contract(const ShardingRule &rule, const HostTensor &lhs,
                               const HostTensor &rhs, DType sums) {
  return isFloat(lhs.type) ? contractIn<double>(rule, lhs, rhs, sums)
                           : contractIn<int64_t>(rule, lhs, rhs, sums);
}

template <typename T> static T combine(ReduceKind kind, T a, T b) {
  switch (kind) {
  case ReduceKind::Sum:
    return a + b;
  case ReduceKind::Prod:
    return a * b;
  case ReduceKind::Max:
    return a != a || a > b ? a : b; // a NaN stays
  case ReduceKind::Min:
    return a != a || a < b ? a : b;
  }
  return a;
}

/// What nothing is reduced to: of integers, by the range of the operand's type. That of a
/// u64 is i64's: see reduceIn.
template <typename T> static T neutralOf(DType type, ReduceKind kind) {
  if (kind == ReduceKind::Sum || kind == ReduceKind::Prod)
    return kind == ReduceKind::Sum ? T(0) : T(1);
  bool isMax = kind == ReduceKind::Max;
  if constexpr (std::is_floating_point_v<T>)
    return isMax ? -std::numeric_limits<T>::infinity()
                 : std::numeric_limits<T>::infinity();
  if (type == DType::I64 || type == DType::U64)
    return isMax ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
  int64_t count = int64_t(1) << (type == DType::Bool ? 1 : bitWidth(type));
  bool hasSign = type != DType::Bool && !isUnsigned(type);
  int64_t low = hasSign ? -count / 2 : 0;
  return static_cast<T>(isMax ? low : low + count - 1);
}

template <typename T>
static HostTensor reduceIn(const HostTensor &operand, const std::vector<bool> &reduced,
                           ReduceKind kind, const Shape &result) {
  T initial = neutralOf<T>(operand.type, kind);
  // In i64 a u64 has the order of its bits with the first one turned.
  bool isTurned =
      operand.type == DType::U64 && (kind == ReduceKind::Max || kind == ReduceKind::Min);
  auto turned = [&](T value) -> T {
    if constexpr (std::is_integral_v<T>)
      return isTurned ? value ^ std::numeric_limits<T>::min() : value;
    return value;
  };
  Shape kept = operand.shape;
  for (size_t d = 0; d < kept.size(); ++d)
    if (reduced[d])
      kept[d] = 1;
  auto to = strides(kept);
  std::vector<T> in = values<T>(operand);
  std::vector<T> out(static_cast<size_t>(elementCount(kept)), initial);
  size_t next = 0;
  forEachIndex(operand.shape, [&](const Shape &index) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d)
      offset += reduced[d] ? 0 : index[d] * to[d];
    out[offset] = combine(kind, out[offset], turned(in[next++]));
  });
  for (T &value : out)
    value = turned(value);
  return tensor<T>(operand.type, result, out);
}

HostTensor reference::reduce(const HostTensor &operand, const std::vector<bool> &reduced,
                             ReduceKind kind, const Shape &result) {
  return isFloat(operand.type) ? reduceIn<double>(operand, reduced, kind, result)
                               : reduceIn<int64_t>(operand, reduced, kind, result);
}

HostTensor reference::mapRows(const HostTensor &operand, int64_t axis, bool toEnd,
                              const std::function<void(std::vector<double> &)> &row) {
  int64_t outer = 1, length = 1, inner = 1;
  for (int64_t d = 0; d < static_cast<int64_t>(operand.shape.size()); ++d)
    (d < axis ? outer : d == axis || toEnd ? length : inner) *= operand.shape[d];
  std::vector<double> all = values<double>(operand), line(static_cast<size_t>(length));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      double *base = all.data() + o * length * inner + i;
      for (int64_t k = 0; k < length; ++k)
        line[k] = base[k * inner];
      row(line);
      for (int64_t k = 0; k < length; ++k)
        base[k * inner] = line[k];
    }
  return tensor<double>(operand.type, operand.shape, all);
}
