//===- ConvCheck.h - Convolutions against naive loops -----------*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_RUNTIME_CONVCHECK_H
#define PARTITA_TEST_UNIT_RUNTIME_CONVCHECK_H

#include "EngineCheck.h"

namespace partita::test {

inline int64_t place(int64_t format, int64_t channels, const std::vector<int64_t> &extent,
                     int64_t n, int64_t c, const std::vector<int64_t> &at) {
  int64_t spatial = 0, all = 1;
  for (size_t d = 0; d < extent.size(); ++d) {
    spatial = spatial * extent[d] + at[d];
    all *= extent[d];
  }
  return format == PARTITA_FORMAT_CHANNELS_LAST ? (n * all + spatial) * channels + c
                                                : (n * channels + c) * all + spatial;
}

template <typename Fn> void forAll(const std::vector<int64_t> &box, Fn fn) {
  int64_t count = elementCount(box);
  std::vector<int64_t> at(box.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = box.size(); d-- > 0; rest /= box[d])
      at[d] = rest % box[d];
    fn(at);
  }
}

/// Compares the result with sums in double. `made`: null for the engine's.
inline void checkConv(task::Conv p, bool transposed, const std::string &what,
                      std::shared_ptr<const Call> made = nullptr) {
  auto type = static_cast<DType>(p.dtype);
  task::Params params = p;
  if (transposed)
    params = task::ConvTranspose(p);
  auto needs = task::operandNeeds(params, *Mesh::parse(""));
  REQUIRE(needs);
  std::vector<Buffer> buffers;
  std::vector<void *> operands;
  for (size_t i = 0; i < needs->size(); ++i) {
    buffers.emplace_back(type, static_cast<int64_t>((*needs)[i].bytes / byteWidth(type)));
    buffers.back().fill(static_cast<unsigned>(i) + 1);
  }
  for (Buffer &b : buffers)
    operands.push_back(b.data);
  // The definition of both, by scattering input elements through the kernel's taps.
  std::vector<double> result(static_cast<size_t>(buffers[2].count), 0.0);
  for (size_t i = 0; p.adds_to_result && i < result.size(); ++i)
    result[i] = buffers[2].get(static_cast<int64_t>(i));
  Prepared run(params, operands, task::ConvScratch, std::move(made));
  INFO(what << " of " << name(type) << " by " << run.call->implementation());
  std::vector<int64_t> in, out, kernel;
  for (auto &d : p.spatial) {
    in.push_back(d.in);
    out.push_back(d.out);
    kernel.push_back(d.kernel);
  }
  int64_t ig = p.in_channels / p.groups, og = p.out_channels / p.groups;
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t g = 0; g < p.groups; ++g)
      for (int64_t i = 0; i < ig; ++i)
        for (int64_t o = 0; o < og; ++o)
          forAll(transposed ? in : out, [&](const std::vector<int64_t> &at) {
            int64_t tap = 0;
            forAll(kernel, [&](const std::vector<int64_t> &k) {
              int64_t w = tap++;
              std::vector<int64_t> other(at.size());
              for (size_t d = 0; d < at.size(); ++d) {
                auto &s = p.spatial[d];
                other[d] = at[d] * s.stride - s.padBegin + k[d] * s.dilation;
                if (other[d] < 0 || other[d] >= (transposed ? s.out : s.in))
                  return;
              }
              const auto &from = transposed ? at : other, &to = transposed ? other : at;
              int64_t taps = elementCount(kernel);
              double weight =
                  buffers[1].get(transposed ? ((g * ig + i) * og + o) * taps + w
                                            : ((g * og + o) * ig + i) * taps + w);
              result[static_cast<size_t>(
                  place(p.dst_format, p.out_channels, out, n, g * og + o, to))] +=
                  weight * buffers[0].get(place(p.src_format, p.in_channels, in, n,
                                                g * ig + i, from));
            });
          });
  double worst = 0;
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t c = 0; c < p.out_channels; ++c)
      forAll(out, [&](const std::vector<int64_t> &at) {
        int64_t where = place(p.dst_format, p.out_channels, out, n, c, at);
        double x =
            result[static_cast<size_t>(where)] + (p.has_bias ? buffers[3].get(c) : 0);
        size_t next = task::ConvPost;
        for (const task::PostOp &op : p.post) {
          double alpha = op.alpha;
          if (task::isBinary(op.kind)) {
            bool last = p.dst_format == PARTITA_FORMAT_CHANNELS_LAST;
            int64_t index = op.mask & 1 ? n : 0;
            if (!last && (op.mask & 2))
              index = index * p.out_channels + c;
            for (size_t d = 0; d < out.size(); ++d)
              index = op.mask >> (d + 2) & 1 ? index * out[d] + at[d] : index;
            if (last && (op.mask & 2))
              index = index * p.out_channels + c;
            alpha = buffers[next++].get(index);
          }
          x = unary(op.kind, x, alpha, op.beta);
        }
        worst =
            std::max(worst, std::fabs(buffers[2].get(where) - x) / (1 + std::fabs(x)));
      });
  CHECK(worst <= tolerance(type));
}

/// Compares the gradient with sums in double, over batch and positions, of what the taps
/// read times what came of it.
/// `made`: null for the engine's.
inline void checkBackwardFilter(const task::ConvBackwardFilter &p,
                                const std::string &what,
                                std::shared_ptr<const Call> made = nullptr) {
  auto type = static_cast<DType>(p.dtype);
  auto needs = task::operandNeeds(p, *Mesh::parse(""));
  REQUIRE(needs);
  std::vector<Buffer> buffers;
  std::vector<void *> operands;
  for (size_t i = 0; i < needs->size(); ++i) {
    buffers.emplace_back(type, static_cast<int64_t>((*needs)[i].bytes / byteWidth(type)));
    buffers.back().fill(static_cast<unsigned>(i) + 1);
  }
  for (Buffer &b : buffers)
    operands.push_back(b.data);
  Prepared run(p, operands, task::BackwardScratch, std::move(made));
  INFO(what << " of " << name(type) << " by " << run.call->implementation());
  std::vector<int64_t> in, out, kernel;
  for (auto &d : p.spatial) {
    in.push_back(d.in);
    out.push_back(d.out);
    kernel.push_back(d.kernel);
  }
  int64_t ig = p.in_channels / p.groups, og = p.out_channels / p.groups, where = 0;
  double worst = 0;
  for (int64_t o = 0; o < p.out_channels; ++o)
    for (int64_t i = 0; i < ig; ++i)
      forAll(kernel, [&](const std::vector<int64_t> &k) {
        double sum = 0, size = 1;
        forAll(out, [&](const std::vector<int64_t> &at) {
          std::vector<int64_t> from(at.size());
          for (size_t d = 0; d < at.size(); ++d) {
            auto &s = p.spatial[d];
            from[d] = at[d] * s.stride - s.padBegin + k[d] * s.dilation;
            if (from[d] < 0 || from[d] >= s.in)
              return;
          }
          for (int64_t n = 0; n < p.batch; ++n) {
            double product =
                buffers[0].get(
                    place(p.src_format, p.in_channels, in, n, o / og * ig + i, from)) *
                buffers[1].get(place(p.dst_format, p.out_channels, out, n, o, at));
            sum += product;
            size += std::fabs(product);
          }
        });
        worst = std::max(worst, std::fabs(buffers[2].get(where++) - sum) / size);
      });
  CHECK(worst <= tolerance(type));
}

inline task::SpatialDim window(int64_t in, int64_t kernel, int64_t stride,
                               int64_t dilation, int64_t begin, int64_t end) {
  int64_t out = (in + begin + end - dilation * (kernel - 1) - 1) / stride + 1;
  return {in, out, kernel, stride, dilation, begin, end};
}

} // namespace partita::test

#endif // PARTITA_TEST_UNIT_RUNTIME_CONVCHECK_H
