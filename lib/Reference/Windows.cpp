//===- Windows.cpp - Convolution and pooling by their definition ----------===//
#include "partita/Reference/Kernels.h"

#include <cassert>
#include <cmath>
#include <limits>

using namespace partita;
using namespace partita::reference;

namespace {
/// Spatial extents of an [N, C, spatial…] shape.
Shape spatial(const Shape &shape) { return {shape.begin() + 2, shape.end()}; }

/// Calls `body` with (kernel element, input element) numbers for the window at `at`, and
/// -1 as input element for padding.
void forWindow(const Shape &at, const Shape &kernel, const Shape &input,
               const Window &window, const std::function<void(int64_t, int64_t)> &body) {
  auto inputStrides = strides(input);
  int64_t k = 0;
  forEachIndex(kernel, [&](const Shape &offset) {
    int64_t element = 0;
    for (size_t d = 0; d < kernel.size(); ++d) {
      int64_t i =
          at[d] * window.strides[d] - window.pads[d] + offset[d] * window.dilations[d];
      element =
          i < 0 || i >= input[d] || element < 0 ? -1 : element + i * inputStrides[d];
    }
    body(k++, element);
  });
}
} // namespace

HostTensor reference::conv(const HostTensor &input, const HostTensor &filter,
                           const HostTensor *bias, const Window &window,
                           const Shape &result, DType sums) {
  std::vector<double> x = values<double>(input), w = values<double>(filter), b;
  if (bias)
    b = values<double>(*bias);
  Shape in = spatial(input.shape), kernel = spatial(filter.shape), out = spatial(result);
  int64_t inSize = elementCount(in), kernelSize = elementCount(kernel);
  int64_t outSize = elementCount(out);
  int64_t channels = input.shape[1], perGroup = filter.shape[1];
  int64_t outChannels = result[1], outPerGroup = outChannels / window.group;
  std::vector<double> y(static_cast<size_t>(elementCount(result)));
  int64_t place = 0;
  forEachIndex(out, [&](const Shape &at) {
    std::vector<std::pair<int64_t, int64_t>> taps;
    forWindow(at, kernel, in, window, [&](int64_t k, int64_t element) {
      if (element >= 0)
        taps.emplace_back(k, element);
    });
    for (int64_t n = 0; n < result[0]; ++n)
      for (int64_t o = 0; o < outChannels; ++o) {
        int64_t firstChannel = o / outPerGroup * perGroup;
        double sum = bias ? b[o] : 0;
        for (int64_t c = 0; c < perGroup; ++c) {
          const double *wc = &w[(o * perGroup + c) * kernelSize];
          const double *xc = &x[(n * channels + firstChannel + c) * inSize];
          for (auto [k, element] : taps)
            sum += wc[k] * xc[element];
        }
        y[(n * outChannels + o) * outSize + place] = sum;
      }
    ++place;
  });
  return tensor<double>(sums, result, y);
}

HostTensor reference::convTranspose(const HostTensor &input, const HostTensor &filter,
                                    const HostTensor *bias, const Window &window,
                                    const Shape &result) {
  std::vector<double> x = values<double>(input), w = values<double>(filter), b;
  if (bias)
    b = values<double>(*bias);
  Shape in = spatial(input.shape), kernel = spatial(filter.shape), out = spatial(result);
  int64_t inSize = elementCount(in), kernelSize = elementCount(kernel);
  int64_t outSize = elementCount(out);
  int64_t channels = input.shape[1], outPerGroup = filter.shape[1];
  int64_t perGroup = channels / window.group, outChannels = result[1];
  std::vector<double> y(static_cast<size_t>(elementCount(result)));
  if (bias)
    for (size_t i = 0; i < y.size(); ++i)
      y[i] = b[static_cast<int64_t>(i) / outSize % outChannels];
  // Scatter: every input element adds to the window of the output it came from.
  int64_t place = 0;
  forEachIndex(in, [&](const Shape &at) {
    forWindow(at, kernel, out, window, [&](int64_t k, int64_t element) {
      if (element < 0)
        return;
      for (int64_t n = 0; n < result[0]; ++n)
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t o = 0; o < outPerGroup; ++o)
            y[(n * outChannels + c / perGroup * outPerGroup + o) * outSize + element] +=
                x[(n * channels + c) * inSize + place] *
                w[(c * outPerGroup + o) * kernelSize + k];
    });
    ++place;
  });
  return tensor<double>(input.type, result, y);
}

HostTensor reference::convBackwardFilter(const HostTensor &input,
                                         const HostTensor &cotangent,
                                         const Window &window, const Shape &filter) {
  std::vector<double> x = values<double>(input), g = values<double>(cotangent);
  Shape in = spatial(input.shape), out = spatial(cotangent.shape);
  Shape kernel = spatial(filter);
  int64_t inSize = elementCount(in), outSize = elementCount(out);
  int64_t kernelSize = elementCount(kernel), perGroup = filter[1];
  int64_t channels = input.shape[1], outChannels = filter[0];
  int64_t outPerGroup = outChannels / window.group;
  std::vector<double> y(static_cast<size_t>(elementCount(filter)));
  int64_t place = 0;
  forEachIndex(out, [&](const Shape &at) {
    forWindow(at, kernel, in, window, [&](int64_t k, int64_t element) {
      if (element < 0)
        return;
      for (int64_t n = 0; n < input.shape[0]; ++n)
        for (int64_t o = 0; o < outChannels; ++o)
          for (int64_t c = 0; c < perGroup; ++c)
            y[(o * perGroup + c) * kernelSize + k] +=
                g[(n * outChannels + o) * outSize + place] *
                x[(n * channels + o / outPerGroup * perGroup + c) * inSize + element];
    });
    ++place;
  });
  return tensor<double>(input.type, filter, y);
}

HostTensor reference::pool(const HostTensor &input, const std::vector<int64_t> &kernel,
                           const Window &window, bool isMax, bool countPadding,
                           const Shape &result) {
  std::vector<double> x = values<double>(input);
  Shape in = spatial(input.shape), out = spatial(result);
  int64_t inSize = elementCount(in), outSize = elementCount(out);
  int64_t planes = result[0] * result[1];
  std::vector<double> y(static_cast<size_t>(elementCount(result)));
  int64_t place = 0;
  forEachIndex(out, [&](const Shape &at) {
    std::vector<int64_t> taps;
    int64_t padded = 0;
    // Padding counts only up to the declared pads: what a partial last window sticks out
    // further (ceil_mode) is not part of the image.
    forEachIndex(kernel, [&](const Shape &offset) {
      bool counted = true;
      for (size_t d = 0; d < kernel.size(); ++d) {
        int64_t i =
            at[d] * window.strides[d] - window.pads[d] + offset[d] * window.dilations[d];
        counted &= i < in[d] + window.pads[kernel.size() + d];
      }
      padded += counted;
    });
    forWindow(at, kernel, in, window, [&](int64_t, int64_t element) {
      if (element >= 0)
        taps.push_back(element);
    });
    for (int64_t p = 0; p < planes; ++p) {
      double value = isMax ? -std::numeric_limits<double>::infinity() : 0;
      for (int64_t element : taps) {
        double v = x[p * inSize + element];
        value = !isMax ? value + v : std::isnan(v) || v > value ? v : value;
      }
      if (!isMax)
        value /= static_cast<double>(countPadding ? padded
                                                  : static_cast<int64_t>(taps.size()));
      y[p * outSize + place] = value;
    }
    ++place;
  });
  return tensor<double>(input.type, result, y);
}
