//===- Loops.cpp - Engine calls by plain loops ---------------------------===//
//
// Integers accumulate modulo 2^64 and wrap to their width; f16 and bf16 accumulate in
// f32. A call is a number of units (rows of a product, channels of an image), which are
// divided among the team; what is computed does not depend on how.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Bundle/Images.h"
#include "partita/Base/Scalar.h"
#include "partita/Runtime/Plain.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace partita;
using namespace partita::plain;
using engine::Call;

namespace {

/// What sums of products of T are kept in.
template <typename T>
using Sum = std::conditional_t<std::is_floating_point_v<Compute<T>>, Compute<T>, int64_t>;

/// Calls `visitor.template operator()<T, A, B>()` with the types of the result and of the
/// operands of a product.
template <typename P, typename Visitor> void visitTypes(const P &p, Visitor visitor) {
  if (!task::isOfBytes(p))
    return visitType(static_cast<DType>(p.dtype),
                     [&]<typename T>() { visitor.template operator()<T, T, T>(); });
  auto with = [&]<typename A>() {
    if (task::rhsType(p) == DType::I8)
      visitor.template operator()<int32_t, A, int8_t>();
    else
      visitor.template operator()<int32_t, A, uint8_t>();
  };
  if (task::lhsType(p) == DType::I8)
    with.template operator()<int8_t>();
  else
    with.template operator()<uint8_t>();
}

//===----------------------------------------------------------------------===//
// MatMul
//===----------------------------------------------------------------------===//

template <typename T, typename A = T, typename B = T> struct MatMulLoops {
  const task::MatMul &p;
  const A *a;
  const B *b;
  T *c;
  const T *bias;

  /// Neighbouring sums at once, each in the order of k: their operands of a step are next
  /// to each other in most products, and are added in vectors.
  void row(int64_t m, const A *a, const B *b, T *c) const {
    constexpr int64_t block = 64;
    for (int64_t first = 0; first < p.n; first += block) {
      const int64_t count = std::min(block, p.n - first);
      Sum<T> sums[block] = {};
      for (int64_t k = 0; k < p.k; ++k) {
        const auto left = static_cast<Sum<T>>(load(a[m * p.a_row + k * p.a_col]));
        const B *right = b + k * p.b_row + first * p.b_col;
        for (int64_t n = 0; n < count; ++n)
          sums[n] += left * static_cast<Sum<T>>(load(right[n * p.b_col]));
      }
      for (int64_t n = 0; n < count; ++n)
        put(m, first + n, sums[n], c);
    }
  }
  void put(int64_t m, int64_t n, Sum<T> sum, T *c) const {
    if (bias)
      sum += static_cast<Sum<T>>(
          load(bias[(p.bias_mask & 2 ? m * (p.bias_mask & 1 ? p.n : 1) : 0) +
                    (p.bias_mask & 1 ? n : 0)]));
    c[m * p.c_row + n] = store<T>(static_cast<Compute<T>>(sum));
  }
  /// A row of a matrix of the batch, counted through.
  void unit(int64_t number) const {
    int64_t matrix = number / p.m, fromA = 0, fromB = 0, fromC = 0;
    for (size_t d = p.batch.size(); d-- > 0; matrix /= p.batch[d].size) {
      int64_t i = matrix % p.batch[d].size;
      fromA += i * p.batch[d].a;
      fromB += i * p.batch[d].b;
      fromC += i * p.batch[d].c;
    }
    row(number % p.m, a + fromA, b + fromB, c + fromC);
  }
};

using Operands = std::span<void *const>;

/// Loops, and the post-ops after them. Nothing is kept between runs.
class LoopCall : public Call {
public:
  Expected<std::unique_ptr<Frame>> frame() const override {
    return std::make_unique<Frame>();
  }
  bool run(Frame &, Operands operands, const Weight *) const noexcept override {
    runtime::runRanges(units, work,
                       [&](int64_t begin, int64_t end) { loops(operands, begin, end); });
    post.run(operands);
    return true;
  }
  std::string implementation() const override { return "loops"; }

protected:
  /// Units from `begin` to before `end`.
  virtual void loops(Operands operands, int64_t begin, int64_t end) const = 0;
  Post post;
  int64_t units = 1, work = 1; ///< multiplications of a unit
};

class LoopMatMul : public LoopCall {
public:
  explicit LoopMatMul(const task::MatMul &params) : p(params) {
    post.type = static_cast<DType>(p.dtype);
    for (const task::BatchDim &d : p.batch) {
      post.dims.push_back(d.size);
      post.strides.push_back(d.c);
    }
    post.dims.insert(post.dims.end(), {p.m, p.n});
    post.strides.insert(post.strides.end(), {p.c_row, 1});
    post.target = task::MatMulC;
    post.firstOperand = task::MatMulPost;
    post.post = p.post;
    units = p.m;
    for (const task::BatchDim &d : p.batch)
      units *= d.size;
    work = p.n * p.k;
  }

private:
  template <typename T, typename A, typename B>
  void loopsOf(Operands operands, int64_t begin, int64_t end) const {
    MatMulLoops<T, A, B> loops{p, static_cast<const A *>(operands[task::MatMulA]),
                               static_cast<const B *>(operands[task::MatMulB]),
                               static_cast<T *>(operands[task::MatMulC]),
                               static_cast<const T *>(operands[task::MatMulBias])};
    for (int64_t unit = begin; unit < end; ++unit)
      loops.unit(unit);
  }
  void loops(Operands operands, int64_t begin, int64_t end) const override {
    visitTypes(p, [&]<typename T, typename A, typename B>() {
      loopsOf<T, A, B>(operands, begin, end);
    });
  }

  task::MatMul p;
};

//===----------------------------------------------------------------------===//
// Windows: convolution and pooling over up to three spatial dims
//===----------------------------------------------------------------------===//

/// Element strides of an image tensor: {batch, channel, spatial…}.
struct ImageStrides {
  int64_t batch, channel;
  int64_t spatial[3];
};

ImageStrides imageStrides(int64_t format, int64_t channels,
                          const std::vector<int64_t> &spatial) {
  ImageStrides s{};
  bool last = format == PARTITA_FORMAT_CHANNELS_LAST;
  int64_t step = last ? channels : 1;
  for (size_t d = spatial.size(); d-- > 0;) {
    s.spatial[d] = step;
    step *= spatial[d];
  }
  s.channel = last ? 1 : step;
  s.batch = last ? step : step * channels;
  return s;
}

std::vector<int64_t> extents(const std::vector<task::SpatialDim> &dims,
                             int64_t task::SpatialDim::*field) {
  std::vector<int64_t> out;
  for (const task::SpatialDim &d : dims)
    out.push_back(d.*field);
  return out;
}

/// Calls fn(index) for every index of the box; index[d] for missing dims is 0.
template <typename Fn> void forBox(const std::vector<int64_t> &box, Fn fn) {
  int64_t extent[3] = {1, 1, 1};
  std::copy(box.begin(), box.end(), extent);
  int64_t index[3];
  for (index[0] = 0; index[0] < extent[0]; ++index[0])
    for (index[1] = 0; index[1] < extent[1]; ++index[1])
      for (index[2] = 0; index[2] < extent[2]; ++index[2])
        fn(static_cast<const int64_t *>(index));
}

int64_t offset(const int64_t *index, const int64_t *strides) {
  return index[0] * strides[0] + index[1] * strides[1] + index[2] * strides[2];
}

/// The input position that tap `kernel` of output position `out` reads; false outside.
bool windowInput(const std::vector<task::SpatialDim> &dims, const int64_t *out,
                 const int64_t *kernel, int64_t *in) {
  for (size_t d = 0; d < dims.size(); ++d) {
    in[d] = out[d] * dims[d].stride - dims[d].padBegin + kernel[d] * dims[d].dilation;
    if (in[d] < 0 || in[d] >= dims[d].in)
      return false;
  }
  return true;
}

/// The same for a transposed convolution: the input that adds into `out` through the tap.
bool transposedInput(const std::vector<task::SpatialDim> &dims, const int64_t *out,
                     const int64_t *kernel, int64_t *in) {
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t at = out[d] + dims[d].padBegin - kernel[d] * dims[d].dilation;
    if (at < 0 || at % dims[d].stride != 0 || at / dims[d].stride >= dims[d].in)
      return false;
    in[d] = at / dims[d].stride;
  }
  return true;
}

class LoopConv : public LoopCall {
public:
  LoopConv(const task::Conv &params, bool transposed)
      : p(params), transposed(transposed),
        src(imageStrides(p.src_format, p.in_channels,
                         extents(p.spatial, &task::SpatialDim::in))),
        dst(imageStrides(p.dst_format, p.out_channels,
                         extents(p.spatial, &task::SpatialDim::out))),
        outBox(extents(p.spatial, &task::SpatialDim::out)),
        kernelBox(extents(p.spatial, &task::SpatialDim::kernel)) {
    post.type = static_cast<DType>(p.dtype);
    post.dims = {p.batch, p.out_channels};
    post.strides = {dst.batch, dst.channel};
    for (size_t d = 0; d < p.spatial.size(); ++d) {
      post.dims.push_back(p.spatial[d].out);
      post.strides.push_back(dst.spatial[d]);
    }
    post.target = task::ConvDst;
    post.firstOperand = task::ConvPost;
    post.order = task::imageOrder(p.dst_format, post.dims.size());
    if (task::isOfBytes(p))
      requantization = {post.dims, p.post, post.order};
    else
      post.post = p.post;
    units = p.batch * p.out_channels;
    work = elementCount(outBox) * elementCount(kernelBox) * p.in_channels / p.groups;
  }

private:
  void loops(Operands operands, int64_t begin, int64_t end) const override {
    visitTypes(p, [&]<typename T, typename A, typename B>() {
      for (int64_t unit = begin; unit < end; ++unit)
        typed<T, A, B>(operands, unit / p.out_channels, unit % p.out_channels);
    });
  }

  template <typename T, typename A, typename B>
  void typed(Operands operands, int64_t n, int64_t oc) const {
    auto *target = static_cast<T *>(operands[task::ConvDst]);
    auto *bias = p.has_bias ? static_cast<const T *>(operands[task::ConvBias]) : nullptr;
    forBox(outBox, [&](const int64_t *out) {
      Sum<T> sum = bias ? static_cast<Sum<T>>(load(bias[oc])) : Sum<T>(0);
      sum += taps<T, A, B>(operands, n, oc, out);
      const int64_t place = n * dst.batch + oc * dst.channel + offset(out, dst.spatial);
      if (!requantization.post.empty())
        return requantize(operands, place, static_cast<int32_t>(sum), n, oc, out);
      T &to = target[place];
      if (p.adds_to_result)
        sum += static_cast<Sum<T>>(load(to));
      to = store<T>(static_cast<Compute<T>>(sum));
    });
  }

  void requantize(Operands operands, int64_t place, int32_t sum, int64_t n, int64_t oc,
                  const int64_t *out) const {
    const int64_t index[] = {n, oc, out[0], out[1], out[2]};
    const double value = requantization.of(sum, index, operands);
    visitType(task::resultType(p), [&]<typename R>() {
      static_cast<R *>(operands[task::ConvDst])[place] =
          store<R>(static_cast<Compute<R>>(value));
    });
  }

  template <typename T, typename A, typename B>
  Sum<T> taps(Operands operands, int64_t n, int64_t oc, const int64_t *out) const {
    auto *source = static_cast<const A *>(operands[task::ConvSrc]);
    auto *weights = static_cast<const B *>(operands[task::ConvWeights]);
    int64_t inPerGroup = p.in_channels / p.groups,
            outPerGroup = p.out_channels / p.groups;
    int64_t group = oc / outPerGroup;
    int64_t taps = elementCount(kernelBox);
    Sum<T> sum = 0;
    int64_t tap = 0;
    forBox(kernelBox, [&](const int64_t *kernel) {
      int64_t at = tap++, in[3] = {0, 0, 0};
      if (!(transposed ? transposedInput(p.spatial, out, kernel, in)
                       : windowInput(p.spatial, out, kernel, in)))
        return;
      for (int64_t i = 0; i < inPerGroup; ++i) {
        int64_t ic = group * inPerGroup + i;
        int64_t w = transposed ? (ic * outPerGroup + oc % outPerGroup) * taps + at
                               : (oc * inPerGroup + i) * taps + at;
        sum += static_cast<Sum<T>>(load(weights[w])) *
               static_cast<Sum<T>>(load(
                   source[n * src.batch + ic * src.channel + offset(in, src.spatial)]));
      }
    });
    return sum;
  }

  task::Conv p;
  bool transposed;
  ImageStrides src, dst;
  std::vector<int64_t> outBox, kernelBox;
  Requantization requantization;
};

/// A unit is a filter: what an output channel has of the inputs' gradients.
class LoopBackwardFilter : public LoopCall {
public:
  explicit LoopBackwardFilter(const task::ConvBackwardFilter &params)
      : p(params), src(imageStrides(p.src_format, p.in_channels,
                                    extents(p.spatial, &task::SpatialDim::in))),
        dst(imageStrides(p.dst_format, p.out_channels,
                         extents(p.spatial, &task::SpatialDim::out))),
        outBox(extents(p.spatial, &task::SpatialDim::out)),
        kernelBox(extents(p.spatial, &task::SpatialDim::kernel)) {
    units = p.out_channels;
    work = p.batch * elementCount(outBox) * elementCount(kernelBox) * p.in_channels /
           p.groups;
  }

private:
  void loops(Operands operands, int64_t begin, int64_t end) const override {
    visitType(static_cast<DType>(p.dtype), [&]<typename T>() {
      auto *target = static_cast<T *>(operands[task::BackwardFilter]);
      int64_t inPerGroup = p.in_channels / p.groups, taps = elementCount(kernelBox);
      for (int64_t oc = begin; oc < end; ++oc)
        for (int64_t i = 0; i < inPerGroup; ++i) {
          int64_t ic = oc / (p.out_channels / p.groups) * inPerGroup + i, tap = 0;
          forBox(kernelBox, [&](const int64_t *kernel) {
            target[(oc * inPerGroup + i) * taps + tap++] =
                store<T>(static_cast<Compute<T>>(sum<T>(operands, oc, ic, kernel)));
          });
        }
    });
  }

  /// Over batch and positions.
  template <typename T>
  Sum<T> sum(Operands operands, int64_t oc, int64_t ic, const int64_t *kernel) const {
    auto *source = static_cast<const T *>(operands[task::BackwardSrc]);
    auto *gradient = static_cast<const T *>(operands[task::BackwardDst]);
    Sum<T> sum = 0;
    forBox(outBox, [&](const int64_t *out) {
      int64_t in[3] = {0, 0, 0};
      if (!windowInput(p.spatial, out, kernel, in))
        return;
      for (int64_t n = 0; n < p.batch; ++n)
        sum +=
            static_cast<Sum<T>>(load(
                source[n * src.batch + ic * src.channel + offset(in, src.spatial)])) *
            static_cast<Sum<T>>(load(
                gradient[n * dst.batch + oc * dst.channel + offset(out, dst.spatial)]));
    });
    return sum;
  }

  task::ConvBackwardFilter p;
  ImageStrides src, dst;
  std::vector<int64_t> outBox, kernelBox;
};

class LoopPool : public LoopCall {
public:
  explicit LoopPool(const task::Pool &params)
      : p(params), src(imageStrides(p.src_format, p.channels,
                                    extents(p.spatial, &task::SpatialDim::in))),
        dst(imageStrides(p.dst_format, p.channels,
                         extents(p.spatial, &task::SpatialDim::out))),
        outBox(extents(p.spatial, &task::SpatialDim::out)),
        kernelBox(extents(p.spatial, &task::SpatialDim::kernel)) {
    units = p.batch * p.channels;
    work = elementCount(outBox) * elementCount(kernelBox);
  }

private:
  void loops(Operands operands, int64_t begin, int64_t end) const override {
    visitType(static_cast<DType>(p.dtype), [&]<typename T>() {
      for (int64_t unit = begin; unit < end; ++unit)
        typed<T>(operands, unit / p.channels, unit % p.channels);
    });
  }

  template <typename T> void typed(Operands operands, int64_t n, int64_t c) const {
    auto *source = static_cast<const T *>(operands[task::PoolSrc]);
    auto *target = static_cast<T *>(operands[task::PoolDst]);
    forBox(outBox, [&](const int64_t *out) {
      target[n * dst.batch + c * dst.channel + offset(out, dst.spatial)] =
          window<T>(source + n * src.batch + c * src.channel, out);
    });
  }

  template <typename T> T window(const T *image, const int64_t *out) const {
    bool isMax = p.mode == PARTITA_POOL_MAX;
    Sum<T> sum = 0;
    Compute<T> best = std::numeric_limits<Compute<T>>::has_infinity
                          ? -std::numeric_limits<Compute<T>>::infinity()
                          : std::numeric_limits<Compute<T>>::lowest();
    int64_t inside = 0;
    forBox(kernelBox, [&](const int64_t *kernel) {
      int64_t in[3] = {0, 0, 0};
      if (!windowInput(p.spatial, out, kernel, in))
        return;
      Compute<T> x = load(image[offset(in, src.spatial)]);
      ++inside;
      if (isMax)
        best = x > best || x != x ? x : best;
      else
        sum += static_cast<Sum<T>>(x);
    });
    if (isMax)
      return store<T>(best);
    int64_t count = p.mode == PARTITA_POOL_AVG_INCLUDE ? paddedTaps(out) : inside;
    return store<T>(
        static_cast<Compute<T>>(count ? sum / static_cast<Sum<T>>(count) : sum));
  }

  /// Taps of the window that lie in the image or its declared padding.
  int64_t paddedTaps(const int64_t *out) const {
    int64_t taps = 1;
    for (size_t d = 0; d < p.spatial.size(); ++d) {
      const task::SpatialDim &s = p.spatial[d];
      int64_t valid = 0, start = out[d] * s.stride - s.padBegin;
      for (int64_t k = 0; k < s.kernel; ++k)
        valid += start + k * s.dilation < s.in + s.padEnd;
      taps *= valid;
    }
    return taps;
  }

  task::Pool p;
  ImageStrides src, dst;
  std::vector<int64_t> outBox, kernelBox;
};

} // namespace

std::unique_ptr<Call> plain::matMul(const task::MatMul &params) {
  return std::make_unique<LoopMatMul>(params);
}
std::unique_ptr<Call> plain::conv(const task::Conv &params, bool transposed) {
  return std::make_unique<LoopConv>(params, transposed);
}
std::unique_ptr<Call> plain::convBackwardFilter(const task::ConvBackwardFilter &params) {
  return std::make_unique<LoopBackwardFilter>(params);
}
std::unique_ptr<Call> plain::pool(const task::Pool &params) {
  return std::make_unique<LoopPool>(params);
}

namespace {
struct Loops final : engine::Engine {
  Expected<std::shared_ptr<const Call>>
  create(const task::Params &params, const engine::WeightForm *form) const override {
    if (form)
      return makeError("the loops pack no weights");
    if (auto *p = std::get_if<task::MatMul>(&params))
      return plain::matMul(*p);
    if (auto *p = std::get_if<task::BlockMatMul>(&params))
      return plain::blockMatMul(*p);
    if (auto *p = std::get_if<task::Conv>(&params))
      return plain::conv(*p, false);
    if (auto *p = std::get_if<task::ConvTranspose>(&params))
      return plain::conv(*p, true);
    if (auto *p = std::get_if<task::ConvBackwardFilter>(&params))
      return plain::convBackwardFilter(*p);
    if (auto *p = std::get_if<task::Pool>(&params))
      return plain::pool(*p);
    return makeError(std::string(name(kindOf(params))) + " is not an engine call");
  }
};
} // namespace

const engine::Engine &plain::loops() {
  static const Loops only;
  return only;
}
