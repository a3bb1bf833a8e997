//===- CallTrial.cpp - Which op of an engine call made a NaN --------------===//
#include "KernelTrial.h"

#include "partita/Abi/TaskTable.h"
#include "partita/Base/DType.h"

#include <algorithm>
#include <cmath>
#include <optional>

using namespace partita;
using namespace partita::runtime;

namespace {
/// An element of a call's result: its place, the sum of its products, and its index in
/// the order in which operands of post-ops lie, with the numbers that masks have for the
/// dims.
struct Element {
  int64_t place = 0;
  double products = 0;
  std::vector<int64_t> index, sizes, bits;
};

double postOp(const task::PostOp &post, double x, double y) {
  const double alpha = post.alpha, beta = post.beta;
  switch (post.kind) {
  case PARTITA_POST_RELU:
    return x > 0 ? x : alpha * x;
  case PARTITA_POST_HARDSWISH:
    return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
  case PARTITA_POST_HARDSIGMOID:
    return std::clamp(alpha * x + beta, 0.0, 1.0);
  case PARTITA_POST_CLIP:
    return std::clamp(x, alpha, beta);
  case PARTITA_POST_LINEAR:
    return alpha * x + beta;
  case PARTITA_POST_BINARY_ADD:
    return x + y;
  case PARTITA_POST_BINARY_SUB:
    return x - y;
  case PARTITA_POST_BINARY_MUL:
    return x * y;
  case PARTITA_POST_ROUND:
    return std::nearbyint(x);
  default: // casts
    return x;
  }
}

/// Reads elements of a call's operands; what is outside of one is not known.
class Operands {
public:
  Operands(std::span<const TrialOperand> list) : list(list) {}
  double at(size_t operand, DType type, int64_t place) {
    if (operand >= list.size() || !list[operand].data || place < 0 ||
        static_cast<uint64_t>(place + 1) * byteWidth(type) > list[operand].bytes) {
      isKnown = false;
      return 0;
    }
    return elementAt(type, list[operand].data, place);
  }
  bool isKnown = true;

private:
  std::span<const TrialOperand> list;
};

bool isBad(double value) { return !std::isfinite(static_cast<float>(value)); }

/// Place in the operand of a post-op or bias, which is dense over the dims of the mask.
int64_t placeOf(const Element &e, uint64_t mask) {
  int64_t place = 0;
  for (size_t d = 0; d < e.index.size(); ++d)
    if (mask >> e.bits[d] & 1)
      place = place * e.sizes[d] + e.index[d];
  return place;
}

/// The first step by which the element is not finite. `next`: the name of the first post
/// op; its operands begin at `operand`.
int stepOf(const std::vector<task::PostOp> &posts, const Element &e, double value,
           int next, size_t operand, DType type, Operands &operands) {
  for (const task::PostOp &post : posts) {
    type = task::typeAfter(post.kind, type);
    double y = task::isBinary(post.kind)
                   ? operands.at(operand++, type, placeOf(e, post.mask))
                   : 0;
    value = postOp(post, value, y);
    if (!operands.isKnown)
      return -1;
    if (isBad(value))
      return next;
    ++next;
  }
  // The rounding of the result is the last step's.
  return next - 1;
}

/// Calls `visit` with every index until it returns true; whether it did.
bool findIndex(const std::vector<int64_t> &sizes, const auto &visit) {
  std::vector<int64_t> index(sizes.size(), 0);
  if (std::ranges::find(sizes, 0) != sizes.end())
    return false;
  for (;;) {
    if (visit(index))
      return true;
    size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1])
      index[--d] = 0;
    if (d == 0)
      return false;
  }
}

std::optional<Element> elementOf(const task::MatMul &p, Operands &operands) {
  const auto type = static_cast<DType>(p.dtype);
  Element e;
  for (const task::BatchDim &dim : p.batch)
    e.sizes.push_back(dim.size);
  e.sizes.insert(e.sizes.end(), {p.m, p.n});
  for (size_t d = 0; d < e.sizes.size(); ++d)
    e.bits.push_back(static_cast<int64_t>(d));
  int64_t a = 0, b = 0;
  bool found = findIndex(e.sizes, [&](const std::vector<int64_t> &index) {
    const int64_t row = index[p.batch.size()], column = index[p.batch.size() + 1];
    a = row * p.a_row, b = column * p.b_col;
    int64_t c = row * p.c_row + column;
    for (size_t d = 0; d < p.batch.size(); ++d) {
      a += index[d] * p.batch[d].a, b += index[d] * p.batch[d].b;
      c += index[d] * p.batch[d].c;
    }
    e.index = index, e.place = c;
    return isBad(operands.at(task::MatMulC, type, c));
  });
  if (!found)
    return std::nullopt;
  for (int64_t k = 0; k < p.k; ++k)
    e.products += operands.at(task::MatMulA, task::lhsType(p), a + k * p.a_col) *
                  operands.at(task::MatMulB, task::rhsType(p), b + k * p.b_row);
  return e;
}

/// The place of an image's element: batch, channel and position by the format.
int64_t imagePlace(const task::Conv &p, int64_t format, bool isSource, int64_t batch,
                   int64_t channel, const std::vector<int64_t> &at) {
  const int64_t channels = isSource ? p.in_channels : p.out_channels;
  const bool isLast = format == PARTITA_FORMAT_CHANNELS_LAST;
  int64_t place = isLast ? batch : batch * channels + channel;
  for (size_t d = 0; d < at.size(); ++d)
    place = place * (isSource ? p.spatial[d].in : p.spatial[d].out) + at[d];
  return isLast ? place * channels + channel : place;
}

double productsOf(const task::Conv &p, int64_t batch, int64_t channel,
                  const std::vector<int64_t> &at, Operands &operands) {
  const int64_t own = p.in_channels / p.groups, perGroup = p.out_channels / p.groups;
  std::vector<int64_t> sizes{own}, source(at.size());
  for (const task::SpatialDim &dim : p.spatial)
    sizes.push_back(dim.kernel);
  double sum = 0;
  int64_t weight = channel;
  for (int64_t size : sizes)
    weight *= size;
  findIndex(sizes, [&](const std::vector<int64_t> &index) {
    bool isInside = true;
    for (size_t d = 0; d < at.size(); ++d) {
      const task::SpatialDim &dim = p.spatial[d];
      // Dense filters have dilation 1.
      source[d] = at[d] * dim.stride - dim.padBegin + index[d + 1] * dim.dilation;
      isInside &= source[d] >= 0 && source[d] < dim.in;
    }
    if (isInside)
      sum += operands.at(task::ConvSrc, task::lhsType(p),
                         imagePlace(p, p.src_format, true, batch,
                                    channel / perGroup * own + index[0], source)) *
             operands.at(task::ConvWeights, task::rhsType(p), weight);
    ++weight;
    return false;
  });
  return sum;
}

std::optional<Element> elementOf(const task::Conv &p, Operands &operands) {
  const auto type = static_cast<DType>(p.dtype);
  Element e;
  std::vector<int64_t> sizes{p.batch, p.out_channels};
  for (const task::SpatialDim &dim : p.spatial)
    sizes.push_back(dim.out);
  std::vector<int64_t> at, own;
  bool found = findIndex(sizes, [&](const std::vector<int64_t> &index) {
    at.assign(index.begin() + 2, index.end());
    e.place = imagePlace(p, p.dst_format, false, index[0], index[1], at);
    own = index;
    return isBad(operands.at(task::ConvDst, task::resultType(p), e.place));
  });
  if (!found)
    return std::nullopt;
  std::vector<int64_t> order{0, 1};
  for (size_t d = 2; d < sizes.size(); ++d)
    order.push_back(static_cast<int64_t>(d));
  if (p.dst_format == PARTITA_FORMAT_CHANNELS_LAST)
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  for (int64_t d : order) {
    e.bits.push_back(d);
    e.sizes.push_back(sizes[static_cast<size_t>(d)]);
    e.index.push_back(own[static_cast<size_t>(d)]);
  }
  e.products = productsOf(p, own[0], own[1], at, operands);
  if (p.has_bias)
    e.products += operands.at(task::ConvBias, type, own[1]);
  return e;
}
} // namespace

int runtime::tryCall(const task::Params &params, std::span<const TrialOperand> operands,
                     std::span<const std::byte> resultBefore) {
  Operands from(operands);
  if (auto *p = std::get_if<task::MatMul>(&params)) {
    const auto type = static_cast<DType>(p->dtype);
    auto e = elementOf(*p, from);
    if (!e || !from.isKnown)
      return -1;
    double value = e->products;
    if (isBad(value))
      return 0;
    int next = 1;
    if (p->bias_mask != 0) {
      bool perColumn = p->bias_mask & 1;
      value += from.at(task::MatMulBias, type,
                       e->index[e->index.size() - (perColumn ? 1 : 2)]);
      if (isBad(value))
        return from.isKnown ? 1 : -1;
      next = 2;
    }
    return stepOf(p->post, *e, value, next, task::MatMulPost, type, from);
  }
  auto *p = std::get_if<task::Conv>(&params);
  auto e = p ? elementOf(*p, from) : std::nullopt;
  if (!e || !from.isKnown)
    return -1;
  const auto type = static_cast<DType>(p->dtype);
  double value = e->products;
  if (isBad(value))
    return 0;
  int next = 1;
  if (p->adds_to_result) {
    if (static_cast<uint64_t>(e->place + 1) * byteWidth(type) > resultBefore.size())
      return -1;
    value += elementAt(type, resultBefore.data(), e->place);
    if (isBad(value))
      return 1;
    next = 2;
  }
  return stepOf(p->post, *e, value, next, task::ConvPost, type, from);
}
