//===- TaskWork.cpp - What a task computes and moves ----------------------===//
#include "partita/Base/Bundle/TaskWork.h"

#include <algorithm>

using namespace partita;
using namespace partita::task;

namespace {
double widthOf(uint8_t dtype) { return byteWidth(static_cast<DType>(dtype)); }

double real(int64_t value) { return static_cast<double>(value); }

/// Of binary post-ops, the operand that they take.
double postElements(const std::vector<PostOp> &post, const std::vector<int64_t> &dims) {
  double all = 0;
  for (const PostOp &op : post) {
    double elements = isBinary(op.kind) ? 1 : 0;
    for (size_t i = 0; i < dims.size(); ++i)
      elements *= op.mask >> i & 1 ? real(dims[i]) : 1;
    all += elements;
  }
  return all;
}

/// The elements of a convolution's image on either side, and of its kernel.
struct Images {
  double in = 1, out = 1, window = 1;
  explicit Images(const std::vector<SpatialDim> &spatial) {
    for (const SpatialDim &d : spatial)
      in *= real(d.in), out *= real(d.out), window *= real(d.kernel);
  }
};

/// Bytes of so many elements of both operands.
template <typename P> double bytesOf(const P &p, double left, double right) {
  if constexpr (requires { p.a_dtype; })
    return left * widthOf(static_cast<uint8_t>(lhsType(p))) +
           right * widthOf(static_cast<uint8_t>(rhsType(p)));
  else
    return (left + right) * widthOf(p.dtype);
}

/// Every kernel element meets every pixel of the side that `transposed` tells: of dst in
/// a convolution and in its gradient, of src in a transposed one.
template <typename P> Work convolution(const P &p, bool transposed) {
  Images of(p.spatial);
  double weights =
      real(p.in_channels) * real(p.out_channels) / real(p.groups) * of.window;
  double src = real(p.batch) * real(p.in_channels) * of.in;
  double dst = real(p.batch) * real(p.out_channels) * of.out;
  double width = widthOf(p.dtype);
  if constexpr (requires { p.post; })
    width = static_cast<double>(byteWidth(resultType(p)));
  return {2 * weights * real(p.batch) * (transposed ? of.in : of.out),
          bytesOf(p, src, weights) + dst * width};
}

template <typename P> std::vector<int64_t> resultDims(const P &p) {
  std::vector<int64_t> dims{p.batch, p.out_channels};
  for (const SpatialDim &d : p.spatial)
    dims.push_back(d.out);
  return dims;
}

Work withPost(Work work, const Conv &p) {
  std::vector<int64_t> dims = resultDims(p);
  double elements = postElements(p.post, dims);
  if (p.adds_to_result)
    elements += real(elementCount(dims));
  work.bytes += elements * widthOf(p.dtype);
  return work;
}

Work of(const Kernel &p) { return {p.flops, p.bytes}; }
Work of(const MatMul &p) {
  double m = real(p.m), n = real(p.n), k = real(p.k);
  double a = m * k, b = k * n, c = m * n;
  std::vector<int64_t> dims;
  for (const BatchDim &d : p.batch) {
    a *= d.a == 0 ? 1 : real(d.size), b *= d.b == 0 ? 1 : real(d.size);
    c *= real(d.size);
    dims.push_back(d.size);
  }
  dims.insert(dims.end(), {p.m, p.n});
  return {2 * c * k,
          bytesOf(p, a, b) + (c + postElements(p.post, dims)) * widthOf(p.dtype)};
}
Work of(const BlockMatMul &p) {
  double m = real(p.m), n = real(p.n), scales = real(p.blocks) * n;
  double k = real(p.blocks) * real(p.block);
  double zero = p.zero_dtype ? widthOf(*p.zero_dtype) : 0;
  return {2 * m * n * k, (m * k + m * n) * widthOf(p.dtype) + n * k / 2 +
                             scales * (widthOf(p.dtype) + zero)};
}
Work of(const ConvTranspose &p) { return withPost(convolution(p, true), p); }
Work of(const Conv &p) { return withPost(convolution(p, false), p); }
Work of(const ConvBackwardFilter &p) { return convolution(p, false); }
Work of(const Pool &p) {
  Images of(p.spatial);
  double images = real(p.batch) * real(p.channels);
  return {images * of.out * of.window, images * (of.in + of.out) * widthOf(p.dtype)};
}
/// What is copied is in the smaller operand.
template <typename P> Work copied(const P &p, const Mesh &mesh) {
  auto needs = operandNeeds(p, mesh);
  if (!needs || needs->size() < 2)
    return {};
  return {0, 2.0 * static_cast<double>(std::min((*needs)[0].bytes, (*needs)[1].bytes))};
}
} // namespace

Work task::workOf(const Params &params, const Mesh &mesh) {
  return std::visit(
      [&]<typename P>(const P &p) -> Work {
        if constexpr (requires { of(p); })
          return of(p);
        else if constexpr (std::is_same_v<P, Slice> || std::is_same_v<P, Copy> ||
                           std::is_same_v<P, Repad> || std::is_same_v<P, ToPartial>)
          return copied(p, mesh);
        else if constexpr (std::is_same_v<P, Fill>)
          return {0, real(p.count) * widthOf(p.dtype)};
        else
          return {};
      },
      params);
}
