//===- Post.cpp - Post-ops by plain loops ---------------------------===//
#include "partita/Runtime/Plain.h"
#include "partita/Runtime/Team.h"

#include "partita/Base/Scalar.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::plain;

double plain::applyUnary(const task::PostOp &op, double x) {
  switch (op.kind) {
  case PARTITA_POST_RELU:
    // Without a slope -infinity becomes 0, and 0 times it is no number.
    return x > 0 || x != x ? x : op.alpha == 0 ? 0 : op.alpha * x;
  case PARTITA_POST_HARDSWISH:
    return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
  case PARTITA_POST_HARDSIGMOID:
    return std::clamp<double>(double(op.alpha) * x + op.beta, 0.0, 1.0);
  case PARTITA_POST_CLIP:
    return std::min<double>(std::max<double>(x, op.alpha), op.beta);
  case PARTITA_POST_ROUND:
    return std::nearbyint(x);
  case PARTITA_POST_TO_F32:
  case PARTITA_POST_TO_U8:
  case PARTITA_POST_TO_I8:
    return x;
  default: // LINEAR
    return double(op.alpha) * x + op.beta;
  }
}

double plain::applyBinary(int64_t kind, double x, double y) {
  switch (kind) {
  case PARTITA_POST_BINARY_ADD:
    return x + y;
  case PARTITA_POST_BINARY_SUB:
    return x - y;
  default: // BINARY_MUL
    return x * y;
  }
}

namespace {
/// Walks the result row by row; a row is the last dim.
template <typename T> struct Loops {
  const Post &chain;
  std::span<void *const> operands;

  void row(T *target, const int64_t *index) const {
    size_t last = chain.dims.size() - 1;
    size_t next = chain.firstOperand;
    for (const task::PostOp &op : chain.post) {
      const T *other = nullptr;
      if (task::isBinary(op.kind))
        other = static_cast<const T *>(operands[next++]);
      int64_t step = 0;
      if (other) {
        // Dense strides over the dims in the mask.
        int64_t stride = 1, place = 0;
        for (size_t k = last + 1; k-- > 0;) {
          size_t d = chain.order.empty() ? k : chain.order[k];
          if (!(op.mask >> d & 1))
            continue;
          if (d == last)
            step = stride;
          else
            place += index[d] * stride;
          stride *= chain.dims[d];
        }
        other += place;
      }
      for (int64_t n = 0; n < chain.dims[last]; ++n) {
        T &x = target[n * chain.strides[last]];
        double value = static_cast<double>(load(x));
        value = other ? applyBinary(op.kind, value,
                                    static_cast<double>(load(other[n * step])))
                      : applyUnary(op, value);
        x = store<T>(static_cast<Compute<T>>(value));
      }
    }
  }

  /// Rows counted through, from `begin` to before `end`.
  void rows(T *target, int64_t begin, int64_t end) const {
    for (int64_t number = begin; number < end; ++number) {
      int64_t index[16] = {}, rest = number, place = 0;
      for (size_t d = chain.dims.size() - 1; d-- > 0; rest /= chain.dims[d]) {
        index[d] = rest % chain.dims[d];
        place += index[d] * chain.strides[d];
      }
      row(target + place, index);
    }
  }
};
} // namespace

void Post::run(std::span<void *const> operands) const {
  if (post.empty())
    return;
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < dims.size(); ++d)
    rows *= dims[d];
  visitType(type, [&]<typename T>() {
    Loops<T> loops{*this, operands};
    auto work = dims.back() * static_cast<int64_t>(post.size());
    runtime::runRanges(rows, work, [&](int64_t begin, int64_t end) {
      loops.rows(static_cast<T *>(operands[target]), begin, end);
    });
  });
}

/// The nearest number of the type; sums wrap.
static double rounded(double x, DType type) {
  return type == DType::F32   ? double(static_cast<float>(x))
         : type == DType::I32 ? double(static_cast<int32_t>(
                                    static_cast<uint32_t>(static_cast<int64_t>(x))))
                              : x;
}

double Requantization::of(int32_t sum, std::span<const int64_t> index,
                          std::span<void *const> operands) const {
  auto type = DType::I32;
  double value = sum;
  size_t next = task::ConvPost;
  for (const task::PostOp &op : post) {
    type = task::typeAfter(op.kind, type);
    if (!task::isBinary(op.kind)) {
      value = rounded(applyUnary(op, value), type);
      continue;
    }
    int64_t place = 0;
    for (size_t d : order)
      if (op.mask >> d & 1)
        place = place * dims[d] + index[d];
    const void *other = operands[next++];
    const double y = type == DType::F32
                         ? double(static_cast<const float *>(other)[place])
                         : double(static_cast<const int32_t *>(other)[place]);
    value = rounded(applyBinary(op.kind, value, y), type);
  }
  return value;
}
