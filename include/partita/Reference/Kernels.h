//===- Kernels.h - Obviously correct tensor operations ----------*- C++ -*-===//
//
// The arithmetic behind the reference evaluator and the constant folder. Floating-point
// kernels read any float type, accumulate in double and round once at the end; integer
// kernels compute in int64 and wrap to the type. Shapes are the caller's duty (the ops'
// verifiers have checked them); these functions only assert.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_REFERENCE_KERNELS_H
#define PARTITA_REFERENCE_KERNELS_H

#include "partita/Base/DType.h"
#include "partita/Rule/Scalar/Payload.h"
#include "partita/Rule/Sharding/Families.h"
#include "partita/Rule/Sharding/ShardingRule.h"

#include <functional>

namespace partita::reference {

/// All elements as double or int64_t (a float type read as int64_t truncates toward zero
/// and saturates).
template <typename T> std::vector<T> values(const HostTensor &tensor);
/// The reverse; rounds to the type (floats to nearest even, integers wrap, bool is != 0).
template <typename T>
HostTensor tensor(DType type, const Shape &shape, const std::vector<T> &values);

/// Row-major strides in elements.
std::vector<int64_t> strides(const Shape &shape);

/// Calls `body` with every index of `shape`, last dim fastest.
void forEachIndex(const Shape &shape, const std::function<void(const Shape &)> &body);

/// A tensor of the operand's type whose element at each index is operand element
/// `source(index)` (row-major number), or `fill` (one element's bytes) where that is -1.
HostTensor move(const HostTensor &operand, const Shape &result,
                const std::function<int64_t(const Shape &)> &source,
                const std::byte *fill = nullptr);

/// The elements' bits in another type of as many bits. A boolean of other bits than 0 and
/// 1 is true.
HostTensor bitcast(const HostTensor &operand, DType type);

HostTensor elementwise(const Payload &payload, const std::vector<double> &attributes,
                       const std::vector<const HostTensor *> &operands, DType resultType);

/// Result = reduction over the rule's reduction factors of lhs * rhs, as `sums`.
HostTensor contract(const ShardingRule &rule, const HostTensor &lhs,
                    const HostTensor &rhs, DType sums);

/// Reduces the dims with reduced[d]; the result has them as size 1 or not at all, as
/// `result` says.
HostTensor reduce(const HostTensor &operand, const std::vector<bool> &reduced,
                  ReduceKind kind, const Shape &result);

/// Applies `row` to every vector along dims [axis, rank) taken together when `toEnd`,
/// else along dim `axis` alone.
HostTensor mapRows(const HostTensor &operand, int64_t axis, bool toEnd,
                   const std::function<void(std::vector<double> &)> &row);

struct Window {
  std::vector<int64_t> strides, dilations, pads; ///< pads: all low, then all high
  int64_t group = 1;
};
/// As `sums`.
HostTensor conv(const HostTensor &input, const HostTensor &filter, const HostTensor *bias,
                const Window &window, const Shape &result, DType sums);
HostTensor convTranspose(const HostTensor &input, const HostTensor &filter,
                         const HostTensor *bias, const Window &window,
                         const Shape &result);
/// The sums over batch and positions of what each element of the filter of a convolution
/// was multiplied with, times the cotangent of the convolution's result.
HostTensor convBackwardFilter(const HostTensor &input, const HostTensor &cotangent,
                              const Window &window, const Shape &filter);
HostTensor pool(const HostTensor &input, const std::vector<int64_t> &kernel,
                const Window &window, bool isMax, bool countPadding, const Shape &result);

} // namespace partita::reference

#endif // PARTITA_REFERENCE_KERNELS_H
