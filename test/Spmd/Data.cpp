//===- Data.cpp - Random tensors, and tensors split into partial ones -----===//
#include "Cases.h"

#include "partita/Base/Layout/Reshard.h"
#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>
#include <functional>

using namespace partita;
using namespace partita::spmd;

static double uniform(Random &random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}
static int64_t integer(Random &random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

static double drawFloat(const Data &data, Random &random) {
  double size = uniform(random, 0.3, 3);
  switch (data.kind) {
  case Data::Positive:
    return size;
  case Data::NonZero:
    return random() % 2 ? size : -size;
  case Data::Few:
    return static_cast<double>(integer(random, -1, 1));
  case Data::WithNaN:
    return random() % 4 ? size : NAN;
  case Data::WithInfinity:
    return random() % 4 ? size : random() % 2 ? INFINITY : -INFINITY;
  case Data::Unit:
    return uniform(random, -0.97, 0.97);
  case Data::AboveOne:
    return 1 + size;
  case Data::Any:
  case Data::Index:
    break;
  }
  return uniform(random, -3, 3);
}

static int64_t drawInteger(const Data &data, Random &random) {
  switch (data.kind) {
  case Data::Positive:
    return integer(random, 1, 4);
  case Data::NonZero:
    return integer(random, 1, 4) * (random() % 2 ? 1 : -1);
  case Data::Few:
    return integer(random, -1, 1);
  case Data::Index:
    return integer(random, -data.limit, data.limit - 1);
  default:
    break;
  }
  return integer(random, -9, 9);
}

HostTensor spmd::draw(DType type, const std::vector<int64_t> &shape, const Data &data,
                      Random &random) {
  auto count = static_cast<size_t>(elementCount(shape));
  if (isFloat(type)) {
    std::vector<double> values(count);
    for (double &v : values)
      v = drawFloat(data, random);
    return reference::tensor<double>(type, shape, values);
  }
  std::vector<int64_t> values(count);
  for (int64_t &v : values)
    v = type == DType::Bool ? integer(random, 0, 1) : drawInteger(data, random);
  return reference::tensor<int64_t>(type, shape, values);
}

/// Integers wrap without undefined behaviour.
template <typename T, typename F> static T wrapping(F f, T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return f(a, b);
  else
    return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}

/// x with odd · x = 1 modulo 2^64: each step doubles the bits that are right.
static int64_t inverse(int64_t odd) {
  auto value = static_cast<uint64_t>(odd), x = value;
  for (int i = 0; i < 6; ++i)
    x *= 2 - value * x;
  return static_cast<int64_t>(x);
}

/// A part of a sum or product that is not the one that makes it come out; `wide` over
/// the whole range of integers.
template <typename T> static T freePart(ReduceKind kind, bool wide, Random &random) {
  bool isSum = kind == ReduceKind::Sum;
  if constexpr (std::is_floating_point_v<T>)
    return (random() % 2 ? 1 : -1) * uniform(random, isSum ? 0 : 0.5, isSum ? 2 : 2.5);
  else if (isSum)
    return wide ? static_cast<T>(random()) : integer(random, -5, 5);
  else // odd numbers have inverses modulo powers of two
    return static_cast<T>((wide ? random() : random() % 8 - 4) | 1);
}

/// Splits one value by a kind with inverses: sum, prod.
template <typename T>
static std::vector<T> splitExactly(T whole, ReduceKind kind, T neutral, size_t parts,
                                   Random &random) {
  size_t holder = random() % parts;
  bool wide = random() % 8 == 0, isSum = kind == ReduceKind::Sum;
  std::vector<T> result(parts);
  T rest = neutral;
  for (size_t i = 0; i < parts; ++i) {
    if (i == holder)
      continue;
    result[i] = random() % 4 ? freePart<T>(kind, wide, random) : neutral;
    rest = isSum ? wrapping(std::plus<>(), rest, result[i])
                 : wrapping(std::multiplies<>(), rest, result[i]);
  }
  if (isSum)
    result[holder] = wrapping(std::minus<>(), whole, rest);
  else if constexpr (std::is_floating_point_v<T>)
    result[holder] = whole / rest;
  else
    result[holder] = wrapping(std::multiplies<>(), whole, inverse(rest));
  return result;
}

/// Splits one value by max or min: one part holds it, the others lie beyond. Now and then
/// in whole steps, so that floats meet as well.
template <typename T>
static std::vector<T> splitByOrder(T whole, bool isMax, T neutral, size_t parts,
                                   Random &random) {
  size_t holder = random() % parts;
  std::vector<T> result(parts, neutral);
  for (size_t i = 0; i < parts; ++i) {
    T step = T(integer(random, 0, 5));
    if (std::is_floating_point_v<T> && random() % 2)
      step = T(uniform(random, 0, 2));
    if (i == holder)
      result[i] = whole;
    else if (random() % 4 != 0) // without wrapping past the neutral element
      result[i] = isMax ? std::max<T>(whole, neutral + step) - step
                        : std::min<T>(whole, neutral - step) + step;
  }
  return result;
}

/// Splits one value; `neutral` is that of the kind in the type.
template <typename T>
static std::vector<T> split(T whole, ReduceKind kind, T neutral, size_t parts,
                            bool isBool, Random &random) {
  if (isBool) { // any and all: other parts agree with the neutral value or with the whole
    std::vector<T> result(parts);
    for (T &part : result)
      part = random() % 2 ? neutral : whole;
    result[random() % parts] = whole;
    return result;
  }
  if (kind == ReduceKind::Max || kind == ReduceKind::Min)
    return splitByOrder(whole, kind == ReduceKind::Max, neutral, parts, random);
  return splitExactly(whole, kind, neutral, parts, random);
}

template <typename T>
static std::vector<HostTensor> decomposeIn(const HostTensor &whole, ReduceKind kind,
                                           int64_t parts, Random &random) {
  HostTensor one = HostTensor::zeros(whole.type, {1});
  fillNeutral(one, kind);
  T neutral = reference::values<T>(one)[0];
  std::vector<std::vector<T>> all(static_cast<size_t>(parts));
  for (T value : reference::values<T>(whole)) {
    std::vector<T> pieces = split<T>(value, kind, neutral, static_cast<size_t>(parts),
                                     whole.type == DType::Bool, random);
    for (size_t i = 0; i < pieces.size(); ++i)
      all[i].push_back(pieces[i]);
  }
  std::vector<HostTensor> result;
  for (const std::vector<T> &values : all)
    result.push_back(reference::tensor<T>(whole.type, whole.shape, values));
  return result;
}

std::vector<HostTensor> spmd::decompose(const HostTensor &whole, ReduceKind kind,
                                        int64_t parts, Random &random) {
  return isFloat(whole.type) ? decomposeIn<double>(whole, kind, parts, random)
                             : decomposeIn<int64_t>(whole, kind, parts, random);
}
