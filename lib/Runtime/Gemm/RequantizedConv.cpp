//===- RequantizedConv.cpp - Post-ops behind another convolution ----------===//
//
// Another engine's convolution of 8-bit integers leaves its sums in scratch, from where
// they become the result: with vectors, but by a second way through the caches.
//
//===----------------------------------------------------------------------===//
#include "ByteTiles.h"
#include "Requantize.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::gemm;
using engine::Call;

namespace {

class RequantizedConv final : public Call {
public:
  RequantizedConv(const task::Conv &p, std::unique_ptr<Call> sums);
  Expected<void> pack(const void *raw, void *packed) const override {
    return sums->pack(raw, packed);
  }
  Expected<std::unique_ptr<Weight>> describe(void *packed) const override {
    return sums->describe(packed);
  }
  Expected<std::unique_ptr<Frame>> frame() const override { return sums->frame(); }
  bool run(Frame &frame, std::span<void *const> operands,
           const Weight *weight) const noexcept override;
  std::string implementation() const override {
    return sums->implementation() + ", requantized";
  }

private:
  void finish(std::span<void *const> operands, int32_t *from, int64_t pixel) const;

  std::unique_ptr<Call> sums;
  Requantizer requantizer;
  int64_t pixels, channels;
  uint64_t sumBytes; ///< of scratch, where the other call's begins
};

} // namespace

RequantizedConv::RequantizedConv(const task::Conv &p, std::unique_ptr<Call> other)
    : sums(std::move(other)), requantizer(p, quadKernels() != nullptr), pixels(p.batch),
      channels(p.out_channels) {
  for (const task::SpatialDim &d : p.spatial)
    pixels *= d.out;
  // Vectors read behind the last channel.
  sumBytes = static_cast<uint64_t>((pixels * channels * 4 + 63) / 64 * 64 + 64);
  memory = sums->sizes();
  memory.scratch += sumBytes;
  weightForm = sums->form();
}

void RequantizedConv::finish(std::span<void *const> operands, int32_t *from,
                             int64_t pixel) const {
  // Steps write whole vectors, which are another pixel's in place.
  alignas(64) int32_t own[mostByteColumns];
  for (int64_t c = 0; c < channels; c += mostByteColumns) {
    const int64_t columns = std::min(mostByteColumns, channels - c);
    std::memcpy(own, from + c, static_cast<size_t>(4 * columns));
    requantizer.run(operands, {own, mostByteColumns, 1, columns, pixel, c});
  }
}

bool RequantizedConv::run(Frame &frame, std::span<void *const> operands,
                          const Weight *weight) const noexcept {
  auto *scratch = static_cast<char *>(operands[task::ConvScratch]);
  std::array<void *, task::ConvPost> inner;
  std::copy_n(operands.begin(), inner.size(), inner.begin());
  inner[task::ConvDst] = scratch;
  inner[task::ConvScratch] = sums->sizes().scratch ? scratch + sumBytes : nullptr;
  if (!sums->run(frame, inner, weight))
    return false;
  auto *all = reinterpret_cast<int32_t *>(scratch);
  constexpr int64_t worth = 16; // of a multiplication per sum
  runtime::runRanges(pixels, worth * channels, [&](int64_t begin, int64_t end) {
    if (requantizer.isOneStep())
      return requantizer.run(
          operands, {all + begin * channels, channels, end - begin, channels, begin, 0});
    for (int64_t pixel = begin; pixel < end; ++pixel)
      finish(operands, all + pixel * channels, pixel);
  });
  return true;
}

std::unique_ptr<Call> gemm::requantized(const task::Conv &p, std::unique_ptr<Call> sums) {
  if (!pairKernels() || !sums || !Requantizer::takes(p))
    return nullptr;
  return std::make_unique<RequantizedConv>(p, std::move(sums));
}
