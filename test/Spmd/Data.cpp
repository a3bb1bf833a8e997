//===- Data.cpp - Random tensors, and tensors split into partial ones -----===//
#include "Cases.h"

#include "partita/Base/Reshard.h"
#include "partita/Reference/Kernels.h"

#include <algorithm>

using namespace partita;
using namespace partita::spmd;

static double uniform(Random &random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}
static int64_t integer(Random &random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

HostTensor spmd::draw(DType type, const std::vector<int64_t> &shape, const Data &data,
                      Random &random) {
  auto count = static_cast<size_t>(elementCount(shape));
  if (isFloat(type)) {
    std::vector<double> values(count);
    for (double &v : values) {
      double size = uniform(random, 0.3, 3);
      v = data.kind == Data::Positive                       ? size
          : data.kind == Data::NonZero && random() % 2 == 0 ? -size
          : data.kind == Data::NonZero                      ? size
                                                            : uniform(random, -3, 3);
    }
    return reference::tensor<double>(type, shape, values);
  }
  std::vector<int64_t> values(count);
  for (int64_t &v : values) {
    if (type == DType::Bool)
      v = integer(random, 0, 1);
    else if (data.kind == Data::Index)
      v = integer(random, -data.limit, data.limit - 1);
    else if (data.kind == Data::Any)
      v = integer(random, -9, 9);
    else
      v = integer(random, 1, 4) * (data.kind == Data::NonZero && random() % 2 ? -1 : 1);
  }
  return reference::tensor<int64_t>(type, shape, values);
}

/// Splits one value; T is double or int64_t, `neutral` that of the kind in the type.
template <typename T>
static std::vector<T> split(T whole, ReduceKind kind, T neutral, int64_t parts,
                            bool isBool, Random &random) {
  auto holder = static_cast<size_t>(integer(random, 0, parts - 1));
  std::vector<T> result(static_cast<size_t>(parts));
  T rest = kind == ReduceKind::Prod ? T(1) : T(0);
  for (size_t i = 0; i < result.size(); ++i) {
    bool empty = random() % 4 == 0;
    T step =
        std::is_floating_point_v<T> ? T(uniform(random, 0, 2)) : T(integer(random, 0, 5));
    if (isBool) // any and all: others agree with the neutral value, or with the whole
      result[i] = empty ? neutral : whole;
    else if (empty)
      result[i] = neutral;
    else if (kind == ReduceKind::Sum)
      result[i] = random() % 2 ? step : -step;
    else if (kind == ReduceKind::Max)
      result[i] = std::max(whole, T(neutral + step)) - step; // no wrapping
    else if (kind == ReduceKind::Min)
      result[i] = std::min(whole, T(neutral - step)) + step;
    else
      result[i] = (random() % 2 ? T(1) : T(-1)) *
                  (std::is_floating_point_v<T> ? T(0.5) + step : T(1));
    if (i != holder)
      rest = kind == ReduceKind::Prod ? rest * result[i] : rest + result[i];
  }
  if (isBool || kind == ReduceKind::Max || kind == ReduceKind::Min)
    result[holder] = whole;
  else if constexpr (std::is_floating_point_v<T>)
    result[holder] = kind == ReduceKind::Sum ? whole - rest : whole / rest;
  else // integers wrap; the other factors are 1 or -1
    result[holder] =
        static_cast<T>(kind == ReduceKind::Sum
                           ? static_cast<uint64_t>(whole) - static_cast<uint64_t>(rest)
                           : static_cast<uint64_t>(whole) * static_cast<uint64_t>(rest));
  return result;
}

template <typename T>
static std::vector<HostTensor> decomposeIn(const HostTensor &whole, ReduceKind kind,
                                           int64_t parts, Random &random) {
  HostTensor one = HostTensor::zeros(whole.type, {1});
  fillNeutral(one, kind);
  T neutral = reference::values<T>(one)[0];
  std::vector<std::vector<T>> all(static_cast<size_t>(parts));
  for (T value : reference::values<T>(whole)) {
    std::vector<T> pieces =
        split<T>(value, kind, neutral, parts, whole.type == DType::Bool, random);
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
