//===- Requantize.cpp - What sums of products of bytes become -------------===//
#include "Requantize.h"

#include "ByteTiles.h"

#include "partita/Base/Bundle/Images.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace partita;
using namespace partita::gemm;

/// Tells whether a step of a call has a kernel: not those that round twice, nor functions
/// that no quantized model has.
static bool hasKernel(const task::PostOp &op) {
  switch (op.kind) {
  case PARTITA_POST_HARDSWISH:
  case PARTITA_POST_HARDSIGMOID:
    return false;
  case PARTITA_POST_RELU:
    return op.alpha == 0;
  case PARTITA_POST_LINEAR:
    return op.alpha == 1 || op.beta == 0;
  default:
    return true;
  }
}

bool Requantizer::takes(const task::Conv &p) {
  return std::ranges::all_of(p.post, hasKernel);
}

Requantizer::Requantizer(const task::Conv &p, bool isWide)
    : isWide(isWide), type(task::resultType(p)),
      isLast(p.dst_format == PARTITA_FORMAT_CHANNELS_LAST), channels(p.out_channels) {
  extents.fill(1);
  const size_t spatial = p.spatial.size();
  for (size_t d = 0; d < spatial; ++d) {
    extents[3 - spatial + d] = p.spatial[d].out;
    pixels *= p.spatial[d].out;
  }
  const std::vector<size_t> order = task::imageOrder(p.dst_format, 2 + spatial);
  auto number = DType::I32;
  size_t next = task::ConvPost;
  for (const task::PostOp &op : p.post) {
    Step step{op, number == DType::I32};
    number = task::typeAfter(op.kind, number);
    if (task::isBinary(op.kind)) {
      step.operand = next++;
      int64_t stride = 1;
      for (size_t k = order.size(); k-- > 0;) {
        const size_t d = order[k];
        if (!(op.mask >> d & 1))
          continue;
        (d == 1 ? step.channel : step.pixel[d == 0 ? 0 : 2 + d - spatial]) = stride;
        stride *= d == 0 ? p.batch : d == 1 ? channels : p.spatial[d - 2].out;
      }
    }
    steps.push_back(step);
  }
  findScaling();
}

/// Bias, cast, factor, rounding, offset, limits, cast: in that order, each at most once.
void Requantizer::findScaling() {
  if (byteWidth(type) != 1 || !isLast)
    return;
  Scaling all;
  auto at = steps.begin();
  auto isPerChannel = [](const Step &step) {
    return !step.varies() && step.channel == 1;
  };
  auto take = [&](auto kind, auto also) {
    const bool is = at != steps.end() && at->op.kind == kind && also(*at);
    at += is;
    return is;
  };
  auto any = [](const Step &) { return true; };
  if (take(PARTITA_POST_BINARY_ADD, isPerChannel) ||
      take(PARTITA_POST_BINARY_SUB, isPerChannel))
    all.bias = &at[-1];
  if (!take(PARTITA_POST_TO_F32, any))
    return;
  if (take(PARTITA_POST_BINARY_MUL, isPerChannel))
    all.factor = &at[-1];
  else if (take(PARTITA_POST_LINEAR, [](const Step &s) { return s.op.beta == 0; }))
    all.one = at[-1].op.alpha;
  else
    return;
  if (!take(PARTITA_POST_ROUND, any))
    return;
  if (take(PARTITA_POST_LINEAR, [](const Step &s) { return s.op.alpha == 1; }))
    all.offset = at[-1].op.beta;
  if (!take(PARTITA_POST_CLIP, any) || steps.end() - at != 1)
    return;
  all.low = at[-1].op.alpha, all.high = at[-1].op.beta;
  // Kernels add and compare integers.
  for (float number : {all.offset, all.low, all.high})
    if (!(std::abs(number) <= 1 << 20) || number != std::nearbyint(number))
      return;
  scaling = all;
}

/// Begin of the operand's numbers of a pixel.
int64_t Requantizer::placeOf(const Step &step, int64_t pixel) const {
  int64_t place = pixel / pixels * step.pixel[0], rest = pixel % pixels;
  for (size_t d = 3; d-- > 0; rest /= extents[d])
    place += rest % extents[d] * step.pixel[1 + d];
  return place;
}

void Requantizer::apply(const Step &step, std::span<void *const> operands,
                        const SumBlock &block) const {
  SumStep kernel{step.op.kind, step.isInteger, step.op.alpha, step.op.beta, nullptr, 0};
  if (!step.operand)
    return sumStep(kernel, block.rows, block.columns, block.sums, block.row);
  auto *y =
      static_cast<const int32_t *>(operands[step.operand]) + block.channel * step.channel;
  // Kernels read whole vectors.
  int32_t own[mostByteColumns];
  const bool isCut = step.channel != 0 && block.columns % sumsAtOnce != 0;
  auto rowsFrom = [&](const int32_t *from, int64_t first, int64_t rows) {
    kernel.yColumn = isCut ? 1 : step.channel;
    if (isCut)
      for (int64_t c = 0; c < block.columns; ++c)
        own[c] = from[c * step.channel];
    kernel.y = isCut ? own : from;
    sumStep(kernel, rows, block.columns, block.sums + first * block.row, block.row);
  };
  if (isCut)
    std::memset(own, 0, sizeof own);
  if (!step.varies())
    return rowsFrom(y, 0, block.rows);
  for (int64_t r = 0; r < block.rows; ++r)
    rowsFrom(y + placeOf(step, block.pixel + r), r, 1);
}

/// All steps at once, if there is a way.
bool Requantizer::scale(std::span<void *const> operands, const SumBlock &block) const {
  if (!scaling)
    return false;
  auto of = [&](const Step *step) -> const int32_t * {
    return step ? static_cast<const int32_t *>(operands[step->operand]) + block.channel
                : nullptr;
  };
  const auto kernel = isWide ? scaleWide : scaleNarrow;
  kernel({block.sums, block.row, block.rows, block.columns, of(scaling->bias),
          scaling->bias && scaling->bias->op.kind == PARTITA_POST_BINARY_SUB,
          reinterpret_cast<const float *>(of(scaling->factor)), scaling->one,
          scaling->offset, scaling->low, scaling->high,
          static_cast<uint8_t *>(operands[task::ConvDst]) + block.pixel * channels +
              block.channel,
          channels});
  return true;
}

void Requantizer::store(std::span<void *const> operands, const SumBlock &block) const {
  const auto width = static_cast<int64_t>(byteWidth(type));
  auto *dst = static_cast<uint8_t *>(operands[task::ConvDst]);
  const int64_t column = isLast ? 1 : pixels;
  for (int64_t r = 0, rows; r < block.rows; r += rows) {
    const int64_t pixel = block.pixel + r, image = pixel / pixels;
    // Pixels of one image lie evenly.
    rows = isLast ? block.rows : std::min(block.rows - r, (image + 1) * pixels - pixel);
    uint8_t *to = dst + width * (isLast ? pixel * channels + block.channel
                                        : (image * channels + block.channel) * pixels +
                                              pixel % pixels);
    const int64_t toRow = isLast ? channels : 1;
    const int32_t *from = block.sums + r * block.row;
    if (width == 1) {
      storeBytes(from, block.row, rows, block.columns, to, toRow, column);
      continue;
    }
    for (int64_t i = 0; i < rows; ++i, from += block.row, to += 4 * toRow)
      if (isLast)
        std::memcpy(to, from, static_cast<size_t>(4 * block.columns));
      else
        for (int64_t c = 0; c < block.columns; ++c)
          std::memcpy(to + 4 * c * column, from + c, 4);
  }
}

void Requantizer::run(std::span<void *const> operands, const SumBlock &block) const {
  if (scale(operands, block))
    return;
  for (const Step &step : steps)
    if (byteWidth(task::typeAfter(step.op.kind, DType::I32)) == 4)
      apply(step, operands, block);
  store(operands, block);
}
