//===- Sampling.cpp - Import of ops that sample pictures ------------------===//
//
// What is read from where is known for a resize: each result is a few elements, its taps,
// by constant weights, dim by dim, so that a resize is a sum of gathers with constant
// indices. Where a grid says it, the places are computed and the corners gathered.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Compose.h"
#include "passes/Import/Windows.h"

#include "partita/Reference/Kernels.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

//===-- Resize ------------------------------------------------------------===//

namespace {
/// How a dim is resampled, by ONNX's attributes.
struct Resampling {
  std::string mode, coordinates, rounding;
  bool antialias = false, excludeOutside = false;
  double cubic = -0.75, scale = 1, roiStart = 0, roiEnd = 1;
  int64_t from = 1, to = 1;
};

/// Per result element its taps, all as many: places and weights.
struct Taps {
  std::vector<std::vector<double>> places, weights;
  std::vector<bool> outside; ///< tf_crop_and_resize: takes the extrapolation value
};
} // namespace

/// In f32, as ONNX Runtime has it: scales and regions are f32, and in f64 their rounding
/// would decide what of two elements is the nearest to a place between them.
static float coordinateOf(const Resampling &r, int64_t i) {
  auto x = static_cast<float>(i), scale = static_cast<float>(r.scale);
  auto from = static_cast<float>(r.from), to = static_cast<float>(r.to);
  auto start = static_cast<float>(r.roiStart), end = static_cast<float>(r.roiEnd);
  if (r.coordinates == "asymmetric")
    return x / scale;
  if (r.coordinates == "align_corners")
    return to == 1 ? 0 : x * (from - 1) / (to - 1);
  if (r.coordinates == "tf_crop_and_resize")
    return to == 1 ? 0.5F * (start + end) * (from - 1)
                   : start * (from - 1) + x * (end - start) * (from - 1) / (to - 1);
  if (r.coordinates == "tf_half_pixel_for_nn")
    return (x + 0.5F) / scale;
  if (r.coordinates == "pytorch_half_pixel" && to == 1)
    return 0;
  if (r.coordinates == "half_pixel_symmetric") { // of this one ONNX Runtime adds in f64
    float offset = from / 2 * (1 - to / (scale * from));
    return static_cast<float>(offset + (x + 0.5) / scale - 0.5);
  }
  return (x + 0.5F) / scale - 0.5F;
}

static double nearestTo(const std::string &rounding, double x) {
  if (rounding == "floor")
    return std::floor(x);
  if (rounding == "ceil")
    return std::ceil(x);
  return rounding == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5);
}

/// The weight of an element at this distance (in elements of the coarser grid).
static double kernelWeight(const Resampling &r, double distance) {
  double d = std::fabs(distance), a = r.cubic;
  if (r.mode == "linear")
    return std::max(0.0, 1 - d);
  if (d < 1)
    return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

static Taps tapsOf(const Resampling &r) {
  Taps taps;
  double narrowing = r.antialias ? std::min(1.0, r.scale) : 1;
  double reach = (r.mode == "linear" ? 1 : 2) / narrowing;
  auto last = static_cast<double>(r.from - 1);
  size_t most = 0;
  for (int64_t i = 0; i < r.to; ++i) {
    double x = coordinateOf(r, i), sum = 0;
    std::vector<double> places, weights;
    bool isNearest = r.mode == "nearest";
    double first = isNearest ? nearestTo(r.rounding, x) : std::floor(x - reach) + 1;
    double end = isNearest ? first : std::ceil(x + reach) - 1;
    for (double at = first; at <= end; ++at) {
      double weight = isNearest ? 1 : kernelWeight(r, (at - x) * narrowing);
      if (r.excludeOutside && (at < 0 || at > last))
        weight = 0;
      places.push_back(std::clamp(at, 0.0, last));
      weights.push_back(weight);
      sum += weight;
    }
    if (r.excludeOutside || r.antialias)
      for (double &weight : weights)
        weight /= sum;
    most = std::max(most, places.size());
    taps.places.push_back(std::move(places));
    taps.weights.push_back(std::move(weights));
    taps.outside.push_back(r.coordinates == "tf_crop_and_resize" && (x < 0 || x > last));
  }
  for (size_t i = 0; i < taps.places.size(); ++i) {
    taps.places[i].resize(most, 0);
    taps.weights[i].resize(most, 0);
  }
  return taps;
}

/// Along dim `d`: Σ over taps of the elements there by their weights.
static Value resampled(Compose &c, Value x, size_t d, const Taps &taps, bool isNearest) {
  auto count = static_cast<int64_t>(taps.places.size());
  Shape beside(c.shape(x).size() - d, 1);
  beside[0] = count;
  Value sum;
  for (size_t t = 0; t < taps.places[0].size(); ++t) {
    std::vector<double> places, weights;
    bool isUsed = false;
    for (size_t i = 0; i < taps.places.size(); ++i) {
      places.push_back(taps.places[i][t]);
      weights.push_back(taps.weights[i][t]);
      isUsed |= weights.back() != 0;
    }
    if (!isUsed)
      continue;
    Value term = c.gather(x, c.tensor(c.i64(), {count}, places), static_cast<int64_t>(d));
    if (!isNearest)
      term = c.mul(term, c.tensor(c.type(x), beside, weights));
    sum = sum ? c.add(sum, term) : term;
  }
  return sum;
}

namespace {
/// The dims that a Resize names, with their scales, and what it makes of them.
struct ResizeTarget {
  std::vector<size_t> dims;
  std::vector<double> scales;
  Shape result;
};
} // namespace

static Expected<ResizeTarget> resizeTarget(Importer &importer, const Node &node,
                                           const Shape &from) {
  ResizeTarget target{{}, {}, from};
  std::vector<int64_t> axes = intsAttr(node, "axes", {});
  if (axes.empty())
    for (size_t d = 0; d < from.size(); ++d)
      axes.push_back(static_cast<int64_t>(d));
  bool hasScales = node.hasInput(2);
  auto given = importer.requiredValue(node, hasScales ? 2 : 3);
  if (!given)
    return tl::unexpected(given.error());
  std::vector<double> values = reference::values<double>(*given);
  if (values.size() != axes.size())
    return makeError("expected one scale or size per axis");
  std::string policy = stringAttr(node, "keep_aspect_ratio_policy", "stretch");
  double common = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = normalizeAxis(axes[i], from.size());
    if (!axis)
      return tl::unexpected(axis.error());
    auto d = static_cast<size_t>(*axis);
    auto extent = static_cast<double>(from[d]);
    double scale = hasScales ? values[i] : values[i] / extent;
    target.dims.push_back(d);
    target.scales.push_back(scale);
    target.result[d] =
        static_cast<int64_t>(hasScales ? std::floor(extent * values[i]) : values[i]);
    common = i == 0                   ? scale
             : policy == "not_larger" ? std::min(common, scale)
                                      : std::max(common, scale);
  }
  for (size_t i = 0; i < axes.size() && !hasScales && policy != "stretch"; ++i) {
    target.scales[i] = common;
    target.result[target.dims[i]] = static_cast<int64_t>(
        std::floor(common * static_cast<double>(from[target.dims[i]]) + 0.5));
  }
  return target;
}

/// Up to opset 10 the nearest element is the one before, but where a dim becomes smaller
/// the one behind.
static bool isCeilWhenSmaller(const Node &node) {
  return node.sinceVersion < 11 && stringAttr(node, "mode", "nearest") == "nearest";
}

/// By taps; false: graph.resize does it.
static bool needsTaps(const Node &node, const ResizeTarget &target) {
  auto isSmaller = [](double scale) { return scale < 1; };
  if (isCeilWhenSmaller(node) && llvm::any_of(target.scales, isSmaller))
    return true;
  std::string coordinates =
      stringAttr(node, "coordinate_transformation_mode", "half_pixel");
  return stringAttr(node, "mode", "nearest") == "cubic" ||
         coordinates == "tf_crop_and_resize" || coordinates == "half_pixel_symmetric" ||
         coordinates == "tf_half_pixel_for_nn" || intAttr(node, "antialias", 0) != 0 ||
         intAttr(node, "exclude_outside", 0) != 0;
}

static Expected<Values> resizeByTaps(Importer &importer, const Node &node,
                                     const ResizeTarget &target) {
  Compose c(importer);
  Value input = importer.input(node, 0);
  Type element = c.type(input);
  Resampling r;
  r.mode = stringAttr(node, "mode", "nearest");
  r.coordinates = stringAttr(node, "coordinate_transformation_mode", "half_pixel");
  r.antialias = intAttr(node, "antialias", 0) != 0;
  r.excludeOutside = intAttr(node, "exclude_outside", 0) != 0;
  r.cubic = floatAttr(node, "cubic_coeff_a", -0.75);
  std::vector<double> roi;
  if (r.coordinates == "tf_crop_and_resize") {
    auto given = importer.requiredValue(node, 1);
    if (!given)
      return tl::unexpected(given.error());
    roi = reference::values<double>(*given);
    if (roi.size() != 2 * target.dims.size())
      return makeError("expected a begin and an end per axis in 'roi'");
  }
  Shape shape = c.shape(input);
  Value x =
      r.mode == "nearest" || isa<FloatType>(element) ? input : c.cast(input, c.f32());
  Value outside;
  for (size_t i = 0; i < target.dims.size(); ++i) {
    size_t d = target.dims[i];
    r.from = shape[d], r.to = target.result[d], r.scale = target.scales[i];
    r.rounding = isCeilWhenSmaller(node) && r.scale < 1
                     ? "ceil"
                     : stringAttr(node, "nearest_mode", "round_prefer_floor");
    if (!roi.empty())
      r.roiStart = roi[i], r.roiEnd = roi[target.dims.size() + i];
    bool isCropped = r.roiStart != 0 || r.roiEnd != 1;
    if (r.from == r.to && r.scale == 1 && !isCropped)
      continue;
    Taps taps = tapsOf(r);
    x = resampled(c, x, d, taps, r.mode == "nearest");
    if (!llvm::is_contained(taps.outside, true))
      continue;
    Shape beside(shape.size() - d, 1);
    beside[0] = r.to;
    std::vector<double> flags(taps.outside.begin(), taps.outside.end());
    Value here = c.tensor(importer.builder.getI1Type(), beside, flags);
    outside = outside ? c.op("or", {outside, here}) : here;
  }
  if (outside)
    x = c.select(outside, c.like(x, floatAttr(node, "extrapolation_value", 0)), x);
  return c.results({c.cast(x, element)});
}

static Expected<Values> importResize(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  auto target = resizeTarget(importer, node, shapeOf(input));
  if (!target)
    return tl::unexpected(target.error());
  if (needsTaps(node, *target))
    return resizeByTaps(importer, node, *target);
  if (target->result == shapeOf(input))
    return Values{input};
  auto mode = modeAttr<graph::ResizeModeAttr>(importer, node, "mode", "mode", "nearest");
  auto coordinates = modeAttr<graph::CoordinatesAttr>(
      importer, node, "coordinates", "coordinate_transformation_mode", "half_pixel");
  auto rounding = modeAttr<graph::RoundingAttr>(importer, node, "rounding",
                                                "nearest_mode", "round_prefer_floor");
  for (const auto *attr : {&mode, &coordinates, &rounding})
    if (!*attr)
      return tl::unexpected(attr->error());
  std::vector<double> scales(shapeOf(input).size(), 1);
  for (size_t i = 0; i < target->dims.size(); ++i)
    scales[target->dims[i]] = target->scales[i];
  return single(importer.emitShaped(
      "graph.resize", input, target->result,
      {importer.attr("scales", importer.builder.getDenseF64ArrayAttr(scales)), *mode,
       *coordinates, *rounding}));
}

//===-- Grids -------------------------------------------------------------===//

namespace {
/// One spatial dim of a sampled picture.
struct GridDim {
  int64_t size;
  double low, high; ///< the borders at which reflection turns
};
} // namespace

/// Into [low, high] by turning back at the borders.
static Value reflected(Compose &c, Value x, const GridDim &dim) {
  double range = dim.high - dim.low;
  if (range <= 0)
    return c.broadcast(c.like(x, 0), c.shape(x));
  Value from = c.sub(x, dim.low);
  Value rounds = c.op("floor", c.div(from, 2 * range));
  Value t = c.sub(from, c.mul(rounds, 2 * range));
  Value back = c.sub(c.like(t, 2 * range), t);
  return c.add(c.select(c.less(t, range), t, back), dim.low);
}

/// Where the padding mode takes a coordinate from.
static Value padded(Compose &c, Value x, const GridDim &dim, const std::string &mode) {
  if (mode == "border")
    return c.clamp(x, 0, static_cast<double>(dim.size - 1));
  if (mode == "reflection")
    return c.clamp(reflected(c, x, dim), 0, static_cast<double>(dim.size - 1));
  return x;
}

namespace {
/// A tap of one dim: where, with what weight (null: 1), and whether it is in the picture
/// (null: always).
struct GridTap {
  Value place, weight, inside;
};
} // namespace

static std::vector<GridTap> gridTaps(Compose &c, Value x, const GridDim &dim,
                                     const std::string &mode,
                                     const std::string &padding) {
  std::vector<GridTap> taps;
  auto add = [&](Value at, Value weight) {
    Value place = padded(c, at, dim, padding);
    auto last = static_cast<double>(dim.size - 1);
    Value inside;
    if (padding == "zeros")
      inside = c.both(c.op("greater_equal", {at, c.like(at, 0)}),
                      c.op("less_equal", {at, c.like(at, last)}));
    taps.push_back({c.cast(c.clamp(place, 0, last), c.i64()), weight, inside});
  };
  if (mode == "nearest") {
    add(c.op("round", x), nullptr);
    return taps;
  }
  Value low = c.op("floor", x), part = c.sub(x, low);
  if (mode == "linear" || mode == "bilinear") {
    add(low, c.sub(c.like(part, 1), part));
    add(c.add(low, 1), part);
    return taps;
  }
  constexpr double a = -0.75;
  auto inner = [&](Value d) { // within one element
    Value square = c.mul(d, d);
    return c.add(c.mul(c.sub(c.mul(d, a + 2), a + 3), square), 1);
  };
  auto outer = [&](Value d) {
    Value once = c.add(c.mul(c.sub(c.mul(d, a), 5 * a), d), 8 * a);
    return c.sub(c.mul(once, d), 4 * a);
  };
  Value rest = c.sub(c.like(part, 1), part);
  add(c.sub(low, 1), outer(c.add(part, 1)));
  add(low, inner(part));
  add(c.add(low, 1), inner(rest));
  add(c.add(low, 2), outer(c.add(rest, 1)));
  return taps;
}

/// Σ over all combinations of taps of the elements of `x` [N, spatial…, C] there. `taps`
/// per spatial dim, of shape [N, result…, 1]. The spatial dims are looked up as one,
/// which splits.
static Value gathered(Compose &c, Value x,
                      const std::vector<std::vector<GridTap>> &taps) {
  Shape shape = c.shape(x);
  if (c.failed() || shape.empty())
    return nullptr;
  Shape rows = {shape.front(), 1, shape.back()};
  for (size_t d = 1; d + 1 < shape.size(); ++d)
    rows[1] *= shape[d];
  x = c.reshape(x, rows);
  Value sum;
  std::vector<size_t> at(taps.size(), 0);
  for (;;) {
    Value place, weight, inside;
    for (size_t d = 0; d < taps.size(); ++d) {
      const GridTap &tap = taps[d][at[d]];
      place = place ? c.add(c.mul(place, static_cast<double>(shape[d + 1])), tap.place)
                    : tap.place;
      if (tap.weight)
        weight = weight ? c.mul(weight, tap.weight) : tap.weight;
      if (tap.inside)
        inside = inside ? c.both(inside, tap.inside) : tap.inside;
    }
    Value term = c.op("gather_nd", {x, place}, c.importer.attr("batch_dims", int64_t(1)));
    if (weight)
      term = c.mul(term, weight);
    if (inside)
      term = c.select(inside, term, c.like(term, 0));
    sum = sum ? c.add(sum, term) : term;
    size_t d = 0;
    while (d < at.size() && ++at[d] == taps[d].size())
      at[d++] = 0;
    if (d == at.size() || c.failed())
      return sum;
  }
}

static std::vector<int64_t> channelsLast(size_t rank) {
  std::vector<int64_t> order{0};
  for (size_t d = 2; d < rank; ++d)
    order.push_back(static_cast<int64_t>(d));
  order.push_back(1);
  return order;
}
static std::vector<int64_t> channelsSecond(size_t rank) {
  std::vector<int64_t> order{0, static_cast<int64_t>(rank) - 1};
  for (size_t d = 1; d + 1 < rank; ++d)
    order.push_back(static_cast<int64_t>(d));
  return order;
}

static Expected<Values> importGridSample(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), grid = importer.input(node, 1);
  Shape shape = c.shape(x);
  size_t spatial = shape.size() - 2, last = c.shape(grid).size() - 1;
  if (shape.size() < 3 || c.shape(grid)[last] != static_cast<int64_t>(spatial))
    return makeError("the grid does not address a picture of rank " +
                     std::to_string(shape.size()));
  bool isAligned = intAttr(node, "align_corners", 0) != 0;
  std::string mode = stringAttr(node, "mode", "linear");
  std::string padding = stringAttr(node, "padding_mode", "zeros");
  std::vector<std::vector<GridTap>> taps;
  for (size_t d = 0; d < spatial; ++d) {
    int64_t size = shape[2 + d];
    auto extent = static_cast<double>(size);
    GridDim dim{size, isAligned ? 0 : -0.5, isAligned ? extent - 1 : extent - 0.5};
    // The grid names the last dim first.
    auto from = static_cast<int64_t>(spatial - 1 - d);
    Value g = c.slice(grid, last, from, from + 1);
    g = isAligned ? c.mul(c.add(g, 1), (extent - 1) / 2)
                  : c.div(c.sub(c.mul(c.add(g, 1), extent), 1), 2);
    if (mode == "nearest")
      g = c.op("round", g);
    // A cubic reads beyond the borders, and each of its taps is taken back on its own.
    if (padding != "zeros" && mode != "cubic" && mode != "bicubic")
      g = padded(c, g, dim, padding);
    taps.push_back(gridTaps(c, g, dim, mode, padding));
  }
  Value y = gathered(c, c.transpose(x, channelsLast(shape.size())), taps);
  return c.results({c.transpose(y, channelsSecond(shape.size()))});
}

/// Each tap of the filter reads the picture at its place plus an offset from data,
/// between elements by bilinear interpolation; then a contraction over channels and taps.
/// Groups of channels that share offsets are pictures of their own.
static Expected<Values> importDeformConv(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), filter = importer.input(node, 1);
  Value offset = importer.input(node, 2), mask = importer.input(node, 4);
  Shape in = c.shape(x), w = c.shape(filter), at = c.shape(offset);
  if (in.size() != 4 || w.size() != 4)
    return makeError("DeformConv of rank " + std::to_string(in.size()));
  WindowAttrs window = windowOf(node, in, {w[2], w[3]});
  int64_t group = intAttr(node, "group", 1), sets = intAttr(node, "offset_group", 1);
  int64_t taps = w[2] * w[3], rows = at[2], columns = at[3];
  int64_t pictures = in[0] * sets, channels = in[1] / sets;
  if (at[1] != sets * taps * 2 || in[1] % sets != 0 || in[1] != w[1] * group)
    return makeError("the offsets or the filter do not fit the picture's channels");
  Value moved = c.reshape(offset, {pictures, taps, 2, rows, columns});
  std::vector<std::vector<GridTap>> corners;
  for (size_t d = 0; d < 2; ++d) {
    std::vector<double> begin;
    for (int64_t t = 0; t < taps; ++t)
      begin.push_back(static_cast<double>(
          (d == 0 ? t / w[3] : t % w[3]) * window.dilations[d] - window.pads[d]));
    Value place = c.slice(moved, 2, static_cast<int64_t>(d), static_cast<int64_t>(d) + 1);
    place = c.reshape(place, {pictures, taps, rows, columns, 1});
    place = c.add(place, c.tensor(c.type(x), {taps, 1, 1, 1}, begin));
    Value start = c.mul(c.iota(c.type(x), at[2 + d], 2 + d, 5),
                        static_cast<double>(window.strides[d]));
    auto extent = static_cast<double>(in[2 + d]);
    GridDim dim{in[2 + d], 0, extent - 1};
    corners.push_back(gridTaps(c, c.add(place, start), dim, "linear", "zeros"));
  }
  Value last =
      c.transpose(c.reshape(x, {pictures, channels, in[2], in[3]}), {0, 2, 3, 1});
  Value sampled = gathered(c, last, corners);
  if (mask)
    sampled = c.mul(sampled, c.reshape(mask, {pictures, taps, rows, columns, 1}));
  sampled = c.transpose(c.reshape(sampled, {in[0], sets, taps, rows, columns, channels}),
                        {0, 1, 5, 2, 3, 4});
  sampled = c.reshape(sampled, {in[0], group, w[1], taps, rows, columns});
  Value y = c.contract(sampled, c.reshape(filter, {group, w[0] / group, w[1], taps}),
                       "n g c t h w, g o c t -> n g o h w");
  y = c.reshape(y, {in[0], w[0], rows, columns});
  if (Value bias = importer.input(node, 3))
    y = c.add(y, c.reshape(bias, {w[0], 1, 1}));
  return c.results({y});
}

/// theta [N, r, r + 1] times the base grid in homogeneous coordinates.
static Expected<Values> importAffineGrid(Importer &importer, const Node &node) {
  Compose c(importer);
  Value theta = importer.input(node, 0);
  auto size = importer.constantIntegers(node, 1);
  if (!size)
    return tl::unexpected(size.error());
  if (size->size() < 4)
    return makeError("AffineGrid of a size of " + std::to_string(size->size()) + " dims");
  Shape spatial(size->begin() + 2, size->end());
  bool isAligned = intAttr(node, "align_corners", 0) != 0;
  size_t rank = spatial.size();
  std::vector<double> base;
  reference::forEachIndex(spatial, [&](const Shape &index) {
    for (size_t k = rank; k-- > 0;) {
      auto n = static_cast<double>(spatial[k]), i = static_cast<double>(index[k]);
      base.push_back(isAligned ? (n == 1 ? -1 : -1 + 2 * i / (n - 1))
                               : -1 + (2 * i + 1) / n);
    }
    base.push_back(1);
  });
  auto across = static_cast<int64_t>(rank + 1);
  Value points = c.tensor(c.type(theta), {elementCount(spatial), across}, base);
  Value grid = c.contract(points, theta, "p k, n r k -> n p r");
  Shape result{(*size)[0]};
  llvm::append_range(result, spatial);
  result.push_back(static_cast<int64_t>(rank));
  return c.results({c.reshape(grid, result)});
}

namespace {
/// What RoiAlign's attributes say of the regions.
struct Regions {
  Value rois; ///< x, y of the first corner, x, y of the second
  double scale = 1;
  bool isHalf = true, isMax = false;
  int64_t height = 1, width = 1, samples = 0;

  /// Where the regions begin along spatial dim `d` and how long they are, in elements of
  /// the picture, [regions, 1].
  std::pair<Value, Value> along(Compose &c, size_t d) const {
    auto edge = [&](int64_t at) {
      Value v = c.mul(c.slice(rois, 1, at, at + 1), scale);
      return isHalf ? c.sub(v, 0.5) : v;
    };
    auto first = static_cast<int64_t>(1 - d);
    Value start = edge(first), length = c.sub(edge(first + 2), start);
    return {start, isHalf ? length : c.max(length, 1)};
  }
};
} // namespace

/// As many samples per bin as the region is long: an op, for the data say how many.
static Expected<Values> adaptiveRoiAlign(Compose &c, const Regions &regions, Value x,
                                         Value pictures) {
  // f16 holds places to a quarter of an element in a picture of 500.
  Regions wide = regions;
  wide.rois = c.cast(regions.rois, c.type(x).isF64() ? c.type(x) : Type(c.f32()));
  auto rows = wide.along(c, 0), columns = wide.along(c, 1);
  Value boxes = c.concat({rows.first, columns.first, rows.second, columns.second}, 1);
  const Shape bins{regions.height, regions.width};
  return c.results(
      {c.op("roi_align", {x, boxes, pictures},
            {c.importer.attr("bins", ArrayRef(bins)),
             c.importer.attr("largest", c.builder.getBoolAttr(regions.isMax))})});
}

/// A given number of samples per bin: a formula of gathers.
static Expected<Values> sampledRoiAlign(Compose &c, const Regions &regions, Value x,
                                        Value pictures) {
  Shape shape = c.shape(x);
  int64_t count = c.shape(regions.rois)[0], samples = regions.samples;
  Value inside;
  auto dimTaps = [&](size_t d, int64_t bins) {
    auto extent = static_cast<double>(shape[2 + d]);
    auto [start, length] = regions.along(c, d);
    start = c.reshape(start, {count, 1, 1, 1});
    length = c.reshape(length, {count, 1, 1, 1});
    Value step = c.div(length, static_cast<double>(bins * samples));
    Value i = c.add(c.iota(c.type(x), bins * samples, 1 + d, 4), 0.5);
    Value at = c.add(start, c.mul(i, step));
    Value here = c.both(c.op("greater_equal", {at, c.like(at, -1)}),
                        c.op("less_equal", {at, c.like(at, extent)}));
    inside = inside ? c.both(inside, here) : here;
    GridDim dim{shape[2 + d], 0, extent - 1};
    return gridTaps(c, c.clamp(at, 0, extent - 1), dim, "linear", "border");
  };
  int64_t height = regions.height, width = regions.width;
  std::vector<std::vector<GridTap>> taps{dimTaps(0, height), dimTaps(1, width)};
  // Gathered without a batch dim: the picture of each region is an index of its own.
  Shape grid{count, height * samples, width * samples, 1};
  Value picture = c.reshape(pictures, {count, 1, 1, 1});
  Value all = c.transpose(x, {0, 2, 3, 1}), sum;
  for (const GridTap &row : taps[0])
    for (const GridTap &column : taps[1]) {
      Value places = c.concat({c.broadcast(picture, grid), c.broadcast(row.place, grid),
                               c.broadcast(column.place, grid)},
                              3);
      Value term =
          c.mul(c.op("gather_nd", {all, places}), c.mul(row.weight, column.weight));
      sum = !sum ? term : regions.isMax ? c.max(sum, term) : c.add(sum, term);
    }
  sum = c.select(inside, sum, c.like(sum, 0));
  Value bins = c.reshape(sum, {count, height, samples, width, samples, shape[1]});
  Value y = regions.isMax ? c.reduce(ReduceKind::Max, bins, {2, 4}, false)
                          : c.mean(bins, {2, 4}, false);
  return c.results({c.transpose(y, {0, 3, 1, 2})});
}

/// The average over samples of each bin, or the largest of what they are added up from,
/// as ONNX's definition has it.
static Expected<Values> importRoiAlign(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  std::string mode = stringAttr(node, "mode", "avg");
  if (mode != "avg" && mode != "max")
    return makeError("RoiAlign with mode \"" + mode + "\"");
  Regions regions;
  regions.rois = importer.input(node, 1);
  regions.scale = floatAttr(node, "spatial_scale", 1);
  regions.isMax = mode == "max";
  regions.isHalf =
      stringAttr(node, "coordinate_transformation_mode", "half_pixel") == "half_pixel";
  regions.height = intAttr(node, "output_height", 1);
  regions.width = intAttr(node, "output_width", 1);
  regions.samples = intAttr(node, "sampling_ratio", 0);
  Value pictures = c.cast(importer.input(node, 2), c.i64());
  return regions.samples < 1 ? adaptiveRoiAlign(c, regions, x, pictures)
                             : sampledRoiAlign(c, regions, x, pictures);
}

//===-- Blocks ------------------------------------------------------------===//

static Expected<Values> importTile(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  auto times = importer.constantIntegers(node, 1);
  if (!times)
    return tl::unexpected(times.error());
  Shape shape = c.shape(x), split, wide, joined;
  if (times->size() != shape.size())
    return makeError("expected one repetition per dim");
  for (size_t d = 0; d < shape.size(); ++d) {
    split.insert(split.end(), {1, shape[d]});
    wide.insert(wide.end(), {(*times)[d], shape[d]});
    joined.push_back((*times)[d] * shape[d]);
  }
  if (joined == shape)
    return c.results({x});
  return c.results({c.reshape(c.broadcast(c.reshape(x, split), wide), joined)});
}

static Expected<Values> importDepthToSpace(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Shape s = c.shape(x);
  int64_t b = intAttr(node, "blocksize", 1);
  if (s.size() != 4 || s[1] % (b * b) != 0)
    return makeError("the channels do not make up blocks");
  int64_t channels = s[1] / (b * b);
  bool isCrd = stringAttr(node, "mode", "DCR") == "CRD";
  Value blocks = isCrd ? c.reshape(x, {s[0], channels, b, b, s[2], s[3]})
                       : c.reshape(x, {s[0], b, b, channels, s[2], s[3]});
  std::vector<int64_t> order = isCrd ? std::vector<int64_t>{0, 1, 4, 2, 5, 3}
                                     : std::vector<int64_t>{0, 3, 4, 1, 5, 2};
  return c.results(
      {c.reshape(c.transpose(blocks, order), {s[0], channels, s[2] * b, s[3] * b})});
}

static Expected<Values> importSpaceToDepth(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Shape s = c.shape(x);
  int64_t b = intAttr(node, "blocksize", 1);
  if (s.size() != 4 || s[2] % b != 0 || s[3] % b != 0)
    return makeError("the picture is not made up of blocks");
  Value blocks = c.reshape(x, {s[0], s[1], s[2] / b, b, s[3] / b, b});
  return c.results({c.reshape(c.transpose(blocks, {0, 3, 5, 1, 2, 4}),
                              {s[0], s[1] * b * b, s[2] / b, s[3] / b})});
}

/// Overlapping blocks added up are a transposed convolution whose filter puts element k
/// of a column at place k of its block.
static Expected<Values> importCol2Im(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  auto image = importer.constantIntegers(node, 1),
       block = importer.constantIntegers(node, 2);
  if (!image || !block)
    return tl::unexpected(!image ? image.error() : block.error());
  size_t n = block->size();
  Shape shape = c.shape(x);
  int64_t taps = elementCount(*block);
  auto strides = intsAttr(node, "strides", std::vector<int64_t>(n, 1));
  auto dilations = intsAttr(node, "dilations", std::vector<int64_t>(n, 1));
  auto pads = intsAttr(node, "pads", std::vector<int64_t>(2 * n, 0));
  if (shape.size() != 3 || shape[1] % taps != 0 || image->size() != n)
    return makeError("the columns do not make up blocks");
  Shape columns{shape[0], shape[1]}, filter{shape[1], 1};
  std::vector<int64_t> rest;
  for (size_t d = 0; d < n; ++d) {
    int64_t span =
        (*image)[d] + pads[d] + pads[n + d] - ((*block)[d] - 1) * dilations[d] - 1;
    columns.push_back(span / strides[d] + 1);
    rest.push_back(span % strides[d]);
    filter.push_back((*block)[d]);
  }
  std::vector<double> ones(static_cast<size_t>(shape[1] * taps), 0);
  for (int64_t row = 0; row < shape[1]; ++row)
    ones[static_cast<size_t>(row * taps + row % taps)] = 1;
  Value picture =
      c.op("conv_transpose", {c.reshape(x, columns), c.tensor(c.type(x), filter, ones)},
           {importer.attr("strides", ArrayRef(strides)),
            importer.attr("dilations", ArrayRef(dilations)),
            importer.attr("pads", ArrayRef(pads)),
            importer.attr("output_padding", ArrayRef(rest)),
            importer.attr("group", shape[1] / taps)});
  return c.results({picture});
}

void import::addSampling(HandlerTable &table) {
  table["Resize"] = importResize;
  table["GridSample"] = importGridSample;
  table["AffineGrid"] = importAffineGrid;
  table["RoiAlign"] = takesCounts(importRoiAlign);
  table["DeformConv"] = importDeformConv;
  table["Tile"] = takesCounts(importTile);
  table["DepthToSpace"] = importDepthToSpace;
  table["SpaceToDepth"] = importSpaceToDepth;
  table["Col2Im"] = importCol2Im;
}
