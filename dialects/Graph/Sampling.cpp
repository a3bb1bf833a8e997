//===- Sampling.cpp - Pictures read between their elements ----------------===//
#include "dialects/Graph/Graph.h"

#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::graph;

Expected<ShardingRule> RoiAlignOp::ruleFor(const std::vector<Shape> &shapes,
                                           Adaptor adaptor) {
  const Shape &data = shapes[0], &regions = shapes[1], &pictures = shapes[2];
  std::vector<int64_t> bins = vec(adaptor.getBins());
  if (data.size() != 4 || bins.size() != 2)
    return makeError("data of rank " + std::to_string(data.size()) + " and " +
                     std::to_string(bins.size()) + " numbers of bins; expected 4 and 2");
  if (std::min(bins[0], bins[1]) < 1)
    return makeError("a region of " + std::to_string(std::min(bins[0], bins[1])) +
                     " bins");
  if (regions.size() != 2 || regions[1] != 4 || pictures != Shape{regions[0]})
    return makeError("boxes are rows of 4 numbers with one picture each");
  Type type = getElementTypeOrSelf(adaptor.getBoxes().getType());
  if (!type.isF32() && !type.isF64())
    return makeError("boxes are of f32 or f64");
  ShardingRule rule;
  auto region = rule.addLoop(regions[0], loop::Parallel{});
  auto channel = rule.addLoop(data[1], loop::Parallel{});
  auto looked = loop::Reduction{.index = 2, .localized = adaptor.getMasked()};
  TensorFactors from{rule.addLoop(data[0], looked), channel};
  // A bin reads any part of the picture, and where it is depends on its number.
  for (size_t d = 2; d < 4; ++d)
    from.push_back(rule.addLoop(data[d], loop::Replicate{}));
  TensorFactors result{region, channel};
  for (int64_t count : bins)
    result.push_back(rule.addLoop(count, loop::Replicate{}));
  rule.operands = {from, {region, rule.addLoop(4, loop::Replicate{})}, {region}};
  rule.results = {result};
  return rule;
}

Operation *RoiAlignOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                        TypeRange results, const Strategy &strategy) {
  Operation *local = partita::detail::cloneWithTypes(*this, builder, operands, results);
  ShardingRule rule = *inferShardingRule();
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (const DimLayout &dim = strategy.factors[f];
        rule.factors[f].isIndexedBy(2) && (dim.sharded() || dim.padded() != dim.size()))
      cast<RoiAlignOp>(local).setMasked(true);
  return local;
}

int64_t RoiAlignOp::getFlops() {
  Shape data = shapeOf(getData()), result = shapeOf(getResult());
  int64_t samples = result[0] * result[1];
  for (size_t d = 2; d < 4; ++d)
    samples *= std::max(data[d] / 2, result[d]);
  return 8 * samples; // four elements, each with a weight
}

namespace {
/// The samples of a bin along one dim.
struct Samples {
  struct Tap {
    int64_t low, high; ///< the elements around it
    double part;       ///< the weight of `high`
  };
  std::vector<Tap> inside;
  double count = 0; ///< those outside included
};
} // namespace

/// Of bin `bin` along a dim of `extent` elements, in the precision in which the compiled
/// op computes them: how many there are is a ceiling.
template <typename T>
static Samples samplesOf(T start, T length, int64_t bins, int64_t bin, int64_t extent) {
  T size = length / static_cast<T>(bins);
  T begin = start + static_cast<T>(bin) * size;
  T count = size > 0 ? std::ceil(size) : T(0), step = size / count;
  Samples samples;
  samples.count = static_cast<double>(count);
  // Those that may be inside, and one more at either end.
  auto place = [&](T at) { return (at - begin) / step - T(0.5); };
  T low = std::floor(place(-1)) - 1, high = std::ceil(place(static_cast<T>(extent))) + 2;
  low = low > 0 ? low : 0;
  high = high < count ? high : count;
  for (T k = low, i = 0; k < high && i < static_cast<T>(2 * extent + 8);
       ++i, k = low + i) {
    T at = begin + (k + T(0.5)) * size / count;
    if (!(at >= T(-1) && at <= static_cast<T>(extent)))
      continue;
    at = std::clamp(at, T(0), static_cast<T>(extent - 1));
    auto first = static_cast<int64_t>(at);
    samples.inside.push_back({first, std::min(first + 1, extent - 1),
                              static_cast<double>(at - static_cast<T>(first))});
  }
  return samples;
}

template <typename T>
static HostTensor evaluateRegions(RoiAlignOp op, ArrayRef<const HostTensor *> operands,
                                  const std::vector<int64_t> &pictures) {
  const Shape &in = operands[0]->shape;
  std::vector<double> data = reference::values<double>(*operands[0]);
  std::vector<double> regions = reference::values<double>(*operands[1]), results;
  Shape out = shapeOf(op.getResult());
  reference::forEachIndex(out, [&](const Shape &index) {
    auto r = static_cast<size_t>(index[0]);
    if (pictures[r] < 0)
      return results.push_back(0);
    auto along = [&](size_t d) {
      return samplesOf<T>(static_cast<T>(regions[4 * r + d]),
                          static_cast<T>(regions[4 * r + 2 + d]), out[2 + d],
                          index[2 + d], in[2 + d]);
    };
    Samples rows = along(0), columns = along(1);
    auto visited = static_cast<double>(rows.inside.size() * columns.inside.size());
    double count = rows.count * columns.count;
    // A sample outside is zero.
    bool isZeroThere = !op.getLargest() || count == 0 || visited < count;
    double total = isZeroThere ? 0 : -INFINITY;
    int64_t channel = (pictures[r] * in[1] + index[1]) * in[2];
    for (const Samples::Tap &row : rows.inside)
      for (const Samples::Tap &column : columns.inside)
        for (bool below : {false, true})
          for (bool right : {false, true}) {
            int64_t at = (channel + (below ? row.high : row.low)) * in[3] +
                         (right ? column.high : column.low);
            double term = (below ? row.part : 1 - row.part) *
                          (right ? column.part : 1 - column.part) *
                          data[static_cast<size_t>(at)];
            bool isAbove = term > total || term != term; // as of every maximum, NaN is
            total = !op.getLargest() ? total + term : isAbove ? term : total;
          }
    results.push_back(op.getLargest() ? total : total / std::max(count, 1.0));
  });
  return reference::tensor<double>(operands[0]->type, out, results);
}

Expected<std::vector<HostTensor>>
RoiAlignOp::evaluate(ArrayRef<const HostTensor *> operands) {
  int64_t extent = operands[0]->shape[0];
  std::vector<int64_t> pictures = reference::values<int64_t>(*operands[2]);
  for (int64_t &picture : pictures) {
    if (!getMasked() && (picture < -extent || picture >= extent))
      return makeError("region of picture " + std::to_string(picture) + " of " +
                       std::to_string(extent));
    if (picture < 0)
      picture = getMasked() ? -1 : picture + extent;
  }
  return oneResult(operands[1]->type == DType::F64
                       ? evaluateRegions<double>(*this, operands, pictures)
                       : evaluateRegions<float>(*this, operands, pictures));
}
