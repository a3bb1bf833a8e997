//===- ByteConv.cpp - Convolutions of 8-bit integers ----------------------===//
//
// The pixels that a block of the result reads become rows of a left operand, which is
// multiplied by the panels of the packed filter (ByteTiles.h). Sums are exact modulo
// 2^32, so no bit depends on kernels, blocks or threads.
//
//   images:  channels last; others are brought to that first
//   row:     of each tap of the window the channels of its pixel; windows of 1 × 1 whose
//            pixels are whole steps are read where they lie
//   filter:  of each group the panels; then what the sums of each column begin with
//
// Filters per channel: a pixel's channels are multiplied tap by tap.
//
//===----------------------------------------------------------------------===//
#include "ByteTiles.h"
#include "Requantize.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

using namespace partita;
using namespace partita::gemm;
using engine::Call;

namespace {

/// Bytes of the rows of a block and of what it becomes, which stay in the second-level
/// cache beside a panel.
constexpr int64_t blockBytes = 128 * 1024;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t aligned(int64_t bytes) { return ceilDiv(bytes, 64) * 64; }

/// Three spatial dims, of which the first ones may be 1.
using Dims3 = std::array<task::SpatialDim, 3>;

Dims3 threeDims(const std::vector<task::SpatialDim> &given) {
  Dims3 dims;
  dims.fill({1, 1, 1, 1, 1, 0, 0});
  std::ranges::copy(given, dims.end() - static_cast<std::ptrdiff_t>(given.size()));
  return dims;
}

struct PackedFilter : Call::Weight {
  const char *at;
  explicit PackedFilter(const void *at) : at(static_cast<const char *>(at)) {}
};

/// Parts that all ways to convolve have.
class ByteConv : public Call {
public:
  ByteConv(const task::Conv &params, bool isWide)
      : p(params), requantizer(p, isWide), dims(threeDims(p.spatial)),
        inGroup(p.in_channels / p.groups), outGroup(p.out_channels / p.groups),
        isSigned(task::lhsType(p) == DType::I8) {
    for (const task::SpatialDim &d : dims)
      taps *= d.kernel, inPixels *= d.in, outPixels *= d.out;
    summands = taps * inGroup;
  }
  Expected<std::unique_ptr<Weight>> describe(void *packed) const override {
    return std::make_unique<PackedFilter>(packed);
  }
  Expected<std::unique_ptr<Frame>> frame() const override {
    return std::make_unique<Frame>();
  }

protected:
  /// Computes one thread's part.
  struct Part {
    std::span<void *const> operands;
    const uint8_t *image; ///< channels last
    const char *filter;
    char *scratch;
  };
  /// Fixes sizes, once those of a part and of the filter are known: of the scratch are
  /// first the image, then a filter that is no constant, then the parts.
  void setMemory(int64_t partBytes, int64_t filterBytes, const char *form);
  bool isCopied() const {
    return p.src_format != PARTITA_FORMAT_CHANNELS_LAST && p.in_channels > 1 &&
           inPixels > 1;
  }
  /// The image with channels last, copied where it is not.
  const uint8_t *imageOf(std::span<void *const> operands) const;
  /// Runs `units` on as many parts of the scratch as there are threads.
  bool runUnits(std::span<void *const> operands, const Weight *weight, int64_t units,
                auto &&body) const noexcept;
  /// A number of the filter as it is stored.
  int16_t weightAt(const void *raw, int64_t place) const {
    return task::rhsType(p) == DType::I8
               ? int16_t(static_cast<const int8_t *>(raw)[place])
               : int16_t(static_cast<const uint8_t *>(raw)[place]);
  }
  std::string storedForm(const char *what) const;

  task::Conv p;
  Requantizer requantizer;
  Dims3 dims;
  int64_t inGroup, outGroup, taps = 1, inPixels = 1, outPixels = 1, summands = 1;
  bool isSigned;
  int64_t imageBytes = 0, ownFilter = 0, perPart = 0;
  int64_t imageSlack = 0; ///< bytes behind the image that may be read
  int parts = 1;
};

/// Convolves by products of matrices.
class TiledConv final : public ByteConv {
public:
  TiledConv(const task::Conv &params, const ByteKernels &kernels);
  Expected<void> pack(const void *raw, void *packed) const override;
  bool run(Frame &, std::span<void *const> operands,
           const Weight *weight) const noexcept override;
  std::string implementation() const override { return kernels.name; }

private:
  void packPanel(const void *raw, int64_t number, char *to) const;
  void unit(const Part &part, int64_t number) const;
  /// Place of a pixel of the result.
  struct Position {
    int64_t image, z, y, x;
  };
  Position positionOf(int64_t pixel) const;
  void next(Position &at) const;
  void readPixel(const Part &part, const Position &at, int64_t group, char *to) const;
  void readRun(const uint8_t *from, int64_t count, int64_t readable, char *to) const;
  void fillRun(int64_t count, char *to) const;
  bool isDirect() const;
  const int32_t *beginOf(const char *filter, int64_t panel) const {
    return shift ? reinterpret_cast<const int32_t *>(filter + groupPanels * p.groups *
                                                                  panelBytes) +
                       panel * kernels.columns
                 : nullptr;
  }

  const ByteKernels &kernels;
  int64_t steps, groupPanels, panelBytes, rowBytes;
  int64_t pixels, blockRows, blocks, columnBlocks = 1;
  int shift; ///< of signed bytes for kernels that read unsigned ones
};

/// A filter per channel.
class DepthwiseConv final : public ByteConv {
public:
  DepthwiseConv(const task::Conv &params, bool isWide);
  Expected<void> pack(const void *raw, void *packed) const override;
  bool run(Frame &, std::span<void *const> operands,
           const Weight *weight) const noexcept override;
  std::string implementation() const override { return "depthwise pairs:avx2"; }

private:
  void row(const Part &part, int64_t number) const;
  int64_t pairs;
};

} // namespace

//===----------------------------------------------------------------------===//
// In common
//===----------------------------------------------------------------------===//

void ByteConv::setMemory(int64_t partBytes, int64_t filterBytes, const char *form) {
  perPart = aligned(partBytes);
  imageSlack = isCopied() ? 64 : 0;
  imageBytes = isCopied() ? aligned(p.batch * inPixels * p.in_channels) + imageSlack : 0;
  if (p.weights_packed) {
    memory.packed = static_cast<uint64_t>(filterBytes);
    weightForm = {storedForm(form), form};
  } else {
    ownFilter = aligned(filterBytes);
  }
  memory.scratch = static_cast<uint64_t>(imageBytes + ownFilter + parts * perPart);
}

std::string ByteConv::storedForm(const char *) const {
  std::string form = task::rhsType(p) == DType::I8 ? "i8 filter" : "u8 filter";
  for (int64_t number : {p.out_channels, inGroup, p.groups, taps})
    form += " " + std::to_string(number);
  return form + (isSigned ? " of i8" : " of u8");
}

const uint8_t *ByteConv::imageOf(std::span<void *const> operands) const {
  auto *from = static_cast<const uint8_t *>(operands[task::ConvSrc]);
  if (!isCopied())
    return from;
  auto *to = static_cast<uint8_t *>(operands[task::ConvScratch]);
  const int64_t channels = p.in_channels;
  constexpr int64_t strip = 64;
  runtime::runRanges(p.batch * ceilDiv(inPixels, strip), strip * channels,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t number = begin; number < end; ++number) {
                         const int64_t image =
                             number / ceilDiv(inPixels, strip) * inPixels * channels;
                         const int64_t first = number % ceilDiv(inPixels, strip) * strip;
                         const int64_t last = std::min(first + strip, inPixels);
                         for (int64_t c = 0; c < channels; ++c)
                           for (int64_t i = first; i < last; ++i)
                             to[image + i * channels + c] =
                                 from[image + c * inPixels + i];
                       }
                     });
  return to;
}

bool ByteConv::runUnits(std::span<void *const> operands, const Weight *weight,
                        int64_t units, auto &&body) const noexcept {
  auto *scratch = static_cast<char *>(operands[task::ConvScratch]);
  Part all{operands, imageOf(operands), nullptr, nullptr};
  if (weight) {
    all.filter = static_cast<const PackedFilter *>(weight)->at;
  } else {
    if (!pack(operands[task::ConvWeights], scratch + imageBytes))
      return false;
    all.filter = scratch + imageBytes;
  }
  runtime::runParts(parts, [&](int number) {
    Part part = all;
    part.scratch = scratch + imageBytes + ownFilter + number * perPart;
    const int64_t end = runtime::partBegin(units, number + 1, parts);
    for (int64_t u = runtime::partBegin(units, number, parts); u < end; ++u)
      body(part, u);
  });
  return true;
}

/// How many threads are worth waking.
static int partsFor(double products, int64_t units) {
  constexpr double worth = 1 << 18;
  return static_cast<int>(std::min(double(runtime::teamSize()),
                                   std::clamp(products / worth, 1.0, double(units))));
}

//===----------------------------------------------------------------------===//
// Products of matrices
//===----------------------------------------------------------------------===//

TiledConv::TiledConv(const task::Conv &params, const ByteKernels &kernels)
    : ByteConv(params, kernels.leftBytes == 1), kernels(kernels),
      steps(ceilDiv(summands, kernels.summands)),
      groupPanels(ceilDiv(outGroup, kernels.columns)),
      panelBytes(steps * kernels.columns * 4), rowBytes(steps * 4),
      pixels(p.batch * outPixels), shift(kernels.leftBytes == 1 && isSigned ? 128 : 0) {
  // Rows whose lines displace each other in the cache are a line further apart.
  rowBytes += rowBytes % 1024 == 0 ? 64 : 0;
  const int64_t rows = std::max(blockBytes / (rowBytes + 4 * outGroup), kernels.rows);
  blocks = ceilDiv(pixels, std::min(rows, ceilDiv(pixels, kernels.rows) * kernels.rows));
  blockRows = ceilDiv(pixels, blocks);
  if (const int64_t team = runtime::teamSize(); blocks * p.groups < 2 * team && team > 1)
    columnBlocks = std::min(groupPanels, ceilDiv(2 * team, blocks * p.groups));
  parts = partsFor(double(pixels) * double(summands) * double(p.out_channels),
                   blocks * p.groups * columnBlocks);
  const int64_t allPanels = groupPanels * p.groups;
  setMemory(isDirect() ? 0 : blockRows * rowBytes + 64,
            allPanels * panelBytes + (shift ? allPanels * kernels.columns * 4 : 0),
            kernels.form);
}

bool TiledConv::isDirect() const {
  return kernels.leftBytes == 1 && !shift && taps == 1 &&
         inGroup % kernels.summands == 0 && inPixels == outPixels &&
         std::ranges::all_of(
             dims, [](const auto &d) { return d.stride == 1 && d.padBegin == 0; });
}

/// The panel of a group's columns; of each step the summands of a column side by side.
void TiledConv::packPanel(const void *raw, int64_t number, char *to) const {
  const int64_t group = number / groupPanels;
  const int64_t first = number % groupPanels * kernels.columns;
  const int64_t count = std::min(kernels.columns, outGroup - first);
  std::memset(to, 0, static_cast<size_t>(panelBytes));
  for (int64_t column = 0; column < count; ++column) {
    const int64_t filter = (group * outGroup + first + column) * summands;
    for (int64_t k = 0; k < summands; ++k) {
      // A row has the channels of a tap side by side, the filter the taps of a channel.
      const int64_t tap = k / inGroup, channel = k % inGroup;
      const int16_t value = weightAt(raw, filter + channel * taps + tap);
      const int64_t place =
          (k / kernels.summands * kernels.columns + column) * kernels.summands +
          k % kernels.summands;
      if (kernels.leftBytes == 2)
        std::memcpy(to + 2 * place, &value, sizeof value);
      else
        to[place] = static_cast<char>(value);
    }
  }
}

Expected<void> TiledConv::pack(const void *raw, void *packed) const {
  auto *to = static_cast<char *>(packed);
  const int64_t panels = groupPanels * p.groups;
  runtime::runRanges(panels, panelBytes, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number)
      packPanel(raw, number, to + number * panelBytes);
  });
  if (!shift)
    return {};
  // (a + 128)·w is summed: so much too much.
  auto *begins = reinterpret_cast<int32_t *>(to + panels * panelBytes);
  for (int64_t i = 0; i < panels * kernels.columns; ++i) {
    const auto *panel =
        reinterpret_cast<const int8_t *>(to) + i / kernels.columns * panelBytes;
    uint32_t sum = 0;
    for (int64_t s = 0; s < steps; ++s)
      for (int64_t k = 0; k < kernels.summands; ++k)
        sum += static_cast<uint32_t>(
            panel[(s * kernels.columns + i % kernels.columns) * kernels.summands + k]);
    begins[i] = static_cast<int32_t>(0u - static_cast<uint32_t>(shift) * sum);
  }
  return {};
}

/// May write 31 elements too many, which the next run overwrites.
void TiledConv::readRun(const uint8_t *from, int64_t count, int64_t readable,
                        char *to) const {
  constexpr int64_t atOnce = 32;
  if (kernels.leftBytes == 2) {
    widenBytes(from, isSigned, count, reinterpret_cast<int16_t *>(to));
  } else if (shift) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<char>(from[i] ^ 0x80);
  } else if (ceilDiv(count, atOnce) * atOnce <= readable) {
    for (int64_t i = 0; i < count; i += atOnce)
      std::memcpy(to + i, from + i, atOnce);
  } else {
    std::memcpy(to, from, static_cast<size_t>(count));
  }
}

/// Elements outside of the image.
void TiledConv::fillRun(int64_t count, char *to) const {
  std::memset(to, shift, static_cast<size_t>(count * kernels.leftBytes));
}

TiledConv::Position TiledConv::positionOf(int64_t pixel) const {
  const auto &[depth, height, width] = dims;
  const int64_t place = pixel % outPixels;
  return {pixel / outPixels, place / width.out / height.out,
          place / width.out % height.out, place % width.out};
}

void TiledConv::next(Position &at) const {
  const auto &[depth, height, width] = dims;
  if (++at.x < width.out)
    return;
  at.x = 0;
  if (++at.y < height.out)
    return;
  at.y = 0;
  if (++at.z < depth.out)
    return;
  at.z = 0;
  ++at.image;
}

void TiledConv::readPixel(const Part &part, const Position &at, int64_t group,
                          char *to) const {
  const auto &[depth, height, width] = dims;
  const int64_t column = at.x * width.stride - width.padBegin;
  const int64_t row = at.y * height.stride - height.padBegin;
  const int64_t slice = at.z * depth.stride - depth.padBegin;
  const uint8_t *end = part.image + p.batch * inPixels * p.in_channels + imageSlack;
  const int64_t runBytes = inGroup * kernels.leftBytes;
  // Taps of a row lie side by side where nothing is between them.
  const bool isRun = width.dilation == 1 && p.groups == 1;
  const int64_t before = std::clamp<int64_t>(-column, 0, width.kernel);
  const int64_t behind = std::clamp<int64_t>(width.in - column, before, width.kernel);
  for (int64_t d = 0; d < depth.kernel; ++d)
    for (int64_t h = 0; h < height.kernel; ++h, to += width.kernel * runBytes) {
      const int64_t z = slice + d * depth.dilation, y = row + h * height.dilation;
      if (z < 0 || z >= depth.in || y < 0 || y >= height.in) {
        fillRun(width.kernel * inGroup, to);
        continue;
      }
      const uint8_t *line =
          part.image + group * inGroup +
          ((at.image * depth.in + z) * height.in + y) * width.in * p.in_channels;
      if (isRun) {
        fillRun(before * inGroup, to);
        const uint8_t *from = line + (column + before) * inGroup;
        readRun(from, (behind - before) * inGroup, end - from, to + before * runBytes);
        fillRun((width.kernel - behind) * inGroup, to + behind * runBytes);
        continue;
      }
      for (int64_t w = 0; w < width.kernel; ++w) {
        const int64_t x = column + w * width.dilation;
        if (x < 0 || x >= width.in)
          fillRun(inGroup, to + w * runBytes);
        else
          readRun(line + x * p.in_channels, inGroup, end - (line + x * p.in_channels),
                  to + w * runBytes);
      }
    }
  if (const int64_t rest = steps * kernels.summands - summands; rest > 0)
    std::memset(to, 0, static_cast<size_t>(rest * kernels.leftBytes));
}

/// Some panels of a block of pixels, of one group.
void TiledConv::unit(const Part &part, int64_t number) const {
  const int64_t columnBlock = number % columnBlocks;
  const int64_t group = number / columnBlocks % p.groups;
  const int64_t block = number / columnBlocks / p.groups;
  const int64_t begin = block * pixels / blocks, end = (block + 1) * pixels / blocks;
  const char *left = part.scratch;
  int64_t leftRow = rowBytes;
  if (isDirect()) {
    leftRow = p.in_channels;
    left = reinterpret_cast<const char *>(part.image) + begin * leftRow + group * inGroup;
  } else {
    Position at = positionOf(begin);
    for (int64_t pixel = begin; pixel < end; ++pixel, next(at))
      readPixel(part, at, group, part.scratch + (pixel - begin) * rowBytes);
  }
  alignas(64) int32_t sums[mostByteRows * mostByteColumns];
  const int64_t rowTiles = ceilDiv(end - begin, kernels.rows);
  const int64_t last = (columnBlock + 1) * groupPanels / columnBlocks;
  for (int64_t q = columnBlock * groupPanels / columnBlocks; q < last; ++q) {
    const int64_t panel = group * groupPanels + q, first = q * kernels.columns;
    const int64_t columns = std::min(kernels.columns, outGroup - first);
    ByteTile tile{nullptr,         leftRow, part.filter + panel * panelBytes, steps, sums,
                  kernels.columns, false,   beginOf(part.filter, panel)};
    for (int64_t t = 0; t < rowTiles; ++t) {
      const int64_t from = t * (end - begin) / rowTiles;
      const int64_t rows = (t + 1) * (end - begin) / rowTiles - from;
      tile.left = left + from * leftRow;
      kernels.tile[rows - 1](tile);
      requantizer.run(part.operands, {sums, kernels.columns, rows, columns, begin + from,
                                      group * outGroup + first});
    }
  }
}

bool TiledConv::run(Frame &, std::span<void *const> operands,
                    const Weight *weight) const noexcept {
  return runUnits(operands, weight, blocks * p.groups * columnBlocks,
                  [&](const Part &part, int64_t number) { unit(part, number); });
}

//===----------------------------------------------------------------------===//
// A filter per channel
//===----------------------------------------------------------------------===//

/// Bytes of the sums of a pixel and what vectors read behind them.
static int64_t sumBytes(int64_t channels) { return aligned(4 * channels) + 64; }

DepthwiseConv::DepthwiseConv(const task::Conv &params, bool isWide)
    : ByteConv(params, isWide), pairs(ceilDiv(taps, 2)) {
  const int64_t rows = p.batch * dims[0].out * dims[1].out;
  parts = partsFor(4 * double(p.out_channels) * double(outPixels) * double(taps), rows);
  const int64_t channels = p.out_channels;
  // Sums of a pixel, its taps, and a pixel of zeros.
  setMemory(sumBytes(channels) +
                aligned(2 * pairs * static_cast<int64_t>(sizeof(void *))) + channels,
            ceilDiv(channels, depthwiseChannels) * pairs * 64, "pairs of taps");
}

Expected<void> DepthwiseConv::pack(const void *raw, void *packed) const {
  std::vector<int16_t> numbers(static_cast<size_t>(p.out_channels * taps));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = weightAt(raw, static_cast<int64_t>(i));
  packDepthwise(numbers.data(), p.out_channels, taps, static_cast<int16_t *>(packed));
  return {};
}

/// A row of pixels of the result.
void DepthwiseConv::row(const Part &part, int64_t number) const {
  const auto &[depth, height, width] = dims;
  const int64_t channels = p.out_channels;
  auto *sums = reinterpret_cast<int32_t *>(part.scratch);
  auto *at = reinterpret_cast<const uint8_t **>(part.scratch + sumBytes(channels));
  auto *zeros = reinterpret_cast<uint8_t *>(at) +
                aligned(2 * pairs * static_cast<int64_t>(sizeof(void *)));
  std::memset(zeros, 0, static_cast<size_t>(channels));
  const int64_t image = number / height.out / depth.out;
  const int64_t slice = number / height.out % depth.out * depth.stride - depth.padBegin;
  const int64_t line = number % height.out * height.stride - height.padBegin;
  const DepthwisePixel pixel{
      at,       pairs,    reinterpret_cast<const int16_t *>(part.filter),
      channels, isSigned, sums};
  for (int64_t x = 0; x < width.out; ++x) {
    const uint8_t **next = at;
    at[2 * pairs - 1] = zeros;
    for (int64_t d = 0; d < depth.kernel; ++d)
      for (int64_t h = 0; h < height.kernel; ++h)
        for (int64_t w = 0; w < width.kernel; ++w) {
          const int64_t from[3] = {slice + d * depth.dilation, line + h * height.dilation,
                                   x * width.stride - width.padBegin +
                                       w * width.dilation};
          const bool isInside = from[0] >= 0 && from[0] < depth.in && from[1] >= 0 &&
                                from[1] < height.in && from[2] >= 0 && from[2] < width.in;
          *next++ =
              !isInside
                  ? zeros
                  : part.image +
                        (((image * depth.in + from[0]) * height.in + from[1]) * width.in +
                         from[2]) *
                            channels;
        }
    depthwisePixel(pixel);
    for (int64_t c = 0; c < channels; c += mostByteColumns)
      requantizer.run(part.operands,
                      {sums + c, 0, 1, std::min(mostByteColumns, channels - c),
                       number * width.out + x, c});
  }
}

bool DepthwiseConv::run(Frame &, std::span<void *const> operands,
                        const Weight *weight) const noexcept {
  return runUnits(operands, weight, p.batch * dims[0].out * dims[1].out,
                  [&](const Part &part, int64_t number) { row(part, number); });
}

//===----------------------------------------------------------------------===//
// Choice
//===----------------------------------------------------------------------===//

std::unique_ptr<Call> gemm::byteConv(const task::Conv &p, bool isWide) {
  const ByteKernels *kernels = pairKernels();
  // A table may say what no program has: the bytes of scratch must be numbers.
  double most = double(p.batch) * double(p.in_channels) * double(p.out_channels);
  for (const task::SpatialDim &d : p.spatial)
    most *= double(d.in) * double(d.out) * double(d.kernel);
  if (!kernels || !task::isOfBytes(p) || p.adds_to_result || p.has_bias || most > 1e18 ||
      !Requantizer::takes(p))
    return nullptr;
  isWide &= quadKernels() != nullptr;
  if (p.groups == p.in_channels && p.groups == p.out_channels &&
      p.groups >= depthwiseChannels)
    return std::make_unique<DepthwiseConv>(p, isWide);
  if (isWide && task::rhsType(p) == DType::I8)
    kernels = quadKernels();
  return std::make_unique<TiledConv>(p, *kernels);
}
