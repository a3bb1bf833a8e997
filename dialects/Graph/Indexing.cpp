//===- Indexing.cpp - Operands that say where elements go -----------------===//
#include "dialects/Graph/Indexed.h"

#include "partita/Kernels/Selection.h"
#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::graph;

namespace {
/// The loops of data and of indices, dim by dim.
struct IndexedDims {
  ShardingRule rule;
  TensorFactors data, indices;
  int64_t axis = 0;
};
} // namespace

/// `looked`: what the loop of the data's axis is, `along`: of the indices' axis. A dim of
/// which the indices reach only the beginning has a loop for each side.
static Expected<IndexedDims> indexedDims(const std::vector<Shape> &shapes, int64_t axis,
                                         loop::Kind looked, loop::Kind along) {
  const Shape &data = shapes[0], &indices = shapes[1];
  auto normal = normalizeAxis(axis, data.size());
  if (!normal)
    return tl::unexpected(normal.error());
  if (indices.size() != data.size())
    return makeError("indices of rank " + std::to_string(indices.size()) +
                     " do not fit data of rank " + std::to_string(data.size()));
  IndexedDims dims;
  dims.axis = *normal;
  for (size_t d = 0; d < data.size(); ++d) {
    if (static_cast<int64_t>(d) == *normal) {
      dims.data.push_back(dims.rule.addLoop(data[d], looked));
      dims.indices.push_back(dims.rule.addLoop(indices[d], along));
      continue;
    }
    if (indices[d] > data[d])
      return makeError("dim " + std::to_string(d) + " of the indices has size " +
                       std::to_string(indices[d]) + ", but that of the data " +
                       std::to_string(data[d]));
    bool isSame = indices[d] == data[d];
    dims.data.push_back(dims.rule.addLoop(data[d], isSame ? loop::Kind(loop::Parallel{})
                                                          : loop::Replicate{}));
    dims.indices.push_back(isSame ? dims.data.back()
                                  : dims.rule.addLoop(indices[d], loop::Replicate{}));
  }
  return dims;
}

/// The index's place along the axis; -1 for none (of a masked op), an error outside.
static Expected<std::vector<int64_t>> placesOf(const HostTensor &indices, int64_t extent,
                                               bool masked) {
  std::vector<int64_t> places = reference::values<int64_t>(indices);
  for (int64_t &place : places) {
    bool isInside = place >= (masked ? 0 : -extent) && place < extent;
    if (!isInside && !masked)
      return makeError("index " + std::to_string(place) + " is outside a dim of size " +
                       std::to_string(extent));
    place = !isInside ? -1 : place < 0 ? place + extent : place;
  }
  return places;
}

//===-- Gather ------------------------------------------------------------===//

Expected<ShardingRule> GatherElementsOp::ruleFor(const std::vector<Shape> &shapes,
                                                 Adaptor adaptor) {
  auto dims =
      indexedDims(shapes, adaptor.getAxis(),
                  detail::lookupOf(adaptor.getData().getType(), adaptor.getMasked()),
                  loop::Parallel{});
  if (!dims)
    return tl::unexpected(dims.error());
  ShardingRule rule = std::move(dims->rule);
  rule.operands = {dims->data, dims->indices};
  rule.results = {dims->indices};
  return rule;
}

Expected<std::vector<HostTensor>>
GatherElementsOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &data = operands[0]->shape, &shape = operands[1]->shape;
  auto axis = static_cast<size_t>(*normalizeAxis(getAxis(), data.size()));
  auto places = placesOf(*operands[1], data[axis], getMasked());
  if (!places)
    return tl::unexpected(places.error());
  auto strides = reference::strides(data);
  const HostTensor zero = HostTensor::zeros(operands[0]->type, {});
  size_t next = 0;
  return oneResult(reference::move(
      *operands[0], shape,
      [&](const Shape &index) -> int64_t {
        int64_t place = (*places)[next++], at = 0;
        for (size_t d = 0; d < index.size(); ++d)
          at += (d == axis ? place : index[d]) * strides[d];
        return place < 0 ? -1 : at;
      },
      zero.bytes.data()));
}

Operation *GatherElementsOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                              TypeRange results,
                                              const Strategy &strategy) {
  return detail::localIndexed(*this, builder, operands, results, strategy);
}

//===-- Scatter -----------------------------------------------------------===//

/// Moving whole elements commutes with every kind where data and updates are reduced
/// alike, and with maximum and minimum of either. Combining commutes with its own kind;
/// and as only the data has one element per place, for the data as its payload does:
/// adding keeps the order (but where integers wrap), a product is linear.
static std::vector<LinearSet> scatterSets(std::optional<ReduceKind> kind, bool isFloat) {
  constexpr ReduceKind sum = ReduceKind::Sum, max = ReduceKind::Max,
                       min = ReduceKind::Min, prod = ReduceKind::Prod;
  if (!kind)
    return {{sum, {0, 2}}, {max, {0}}, {max, {2}},    {max, {0, 2}},
            {min, {0}},    {min, {2}}, {min, {0, 2}}, {prod, {0, 2}}};
  switch (*kind) {
  case ReduceKind::Sum:
    return isFloat ? std::vector<LinearSet>{{sum, {0, 2}}, {max, {0}}, {min, {0}}}
                   : std::vector<LinearSet>{{sum, {0, 2}}};
  case ReduceKind::Prod:
    return {{prod, {0, 2}}, {sum, {0}}};
  case ReduceKind::Max:
    return {{max, {0}}, {max, {2}}, {max, {0, 2}}, {min, {0}}};
  case ReduceKind::Min:
    return {{min, {0}}, {min, {2}}, {min, {0, 2}}, {max, {0}}};
  }
  return {};
}

Expected<ShardingRule> ScatterElementsOp::ruleFor(const std::vector<Shape> &shapes,
                                                  Adaptor adaptor) {
  if (shapes[1] != shapes[2])
    return makeError("indices and updates differ in shape");
  loop::Kind along = loop::Replicate{};
  if (auto kind = adaptor.getKind()) {
    bool isOnce = *kind == ReduceKind::Sum || *kind == ReduceKind::Prod;
    along = loop::Reduction{.reduce = *kind,
                            .addends = isOnce ? std::vector<int32_t>{0}
                                              : std::vector<int32_t>{}};
  }
  auto dims =
      indexedDims(shapes, adaptor.getAxis(),
                  loop::Parallel{.index = 1, .localized = adaptor.getMasked()}, along);
  if (!dims)
    return tl::unexpected(dims.error());
  ShardingRule rule = std::move(dims->rule);
  rule.operands = {dims->data, dims->indices, dims->indices};
  rule.results = {dims->data};
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(adaptor.getData().getType()));
  rule.linear = scatterSets(adaptor.getKind(), isFloat);
  return rule;
}

template <typename T> static T combined(std::optional<ReduceKind> kind, T a, T b) {
  if (!kind)
    return b;
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<T>::quiet_NaN();
  auto wrap = [](auto f, T x, T y) {
    if constexpr (std::is_floating_point_v<T>)
      return f(x, y);
    else
      return static_cast<T>(f(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
  };
  switch (*kind) {
  case ReduceKind::Sum:
    return wrap([](auto x, auto y) { return x + y; }, a, b);
  case ReduceKind::Prod:
    return wrap([](auto x, auto y) { return x * y; }, a, b);
  case ReduceKind::Max:
    return std::max(a, b);
  case ReduceKind::Min:
    return std::min(a, b);
  }
  return b;
}

template <typename T>
static HostTensor scatter(ArrayRef<const HostTensor *> operands, size_t axis,
                          const std::vector<int64_t> &places,
                          std::optional<ReduceKind> kind) {
  std::vector<T> result = reference::values<T>(*operands[0]);
  std::vector<T> updates = reference::values<T>(*operands[2]);
  auto strides = reference::strides(operands[0]->shape);
  size_t next = 0;
  reference::forEachIndex(operands[1]->shape, [&](const Shape &index) {
    size_t number = next++;
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d)
      at += (d == axis ? places[number] : index[d]) * strides[d];
    if (places[number] >= 0)
      result[at] = combined(kind, result[at], updates[number]);
  });
  return reference::tensor<T>(operands[0]->type, operands[0]->shape, result);
}

Expected<std::vector<HostTensor>>
ScatterElementsOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &data = operands[0]->shape;
  auto axis = static_cast<size_t>(*normalizeAxis(getAxis(), data.size()));
  auto places = placesOf(*operands[1], data[axis], getMasked());
  if (!places)
    return tl::unexpected(places.error());
  std::optional<ReduceKind> kind = getKind();
  return oneResult(isFloat(operands[0]->type)
                       ? scatter<double>(operands, axis, *places, kind)
                       : scatter<int64_t>(operands, axis, *places, kind));
}

Operation *ScatterElementsOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                               TypeRange results,
                                               const Strategy &strategy) {
  return detail::localIndexed(*this, builder, operands, results, strategy);
}

//===-- What ops take in which an element waits for another ---------------===//

/// Such ops do not run in vectors: a step of theirs is as long as many of a kernel that
/// does (ShardingRuleOpInterface::getKernelSteps). The constants are nanoseconds times
/// 115, as measured on a core of 4 GHz that does 115e9 steps a second, by rows of 256 to
/// 2,000,000 elements (bench/onnxruntime: selections.py, scatters.py, detectors.py).
namespace {
struct SerialSteps {
  double running = 58;    ///< an element of a running sum
  double scattered = 80;  ///< an update that is looked up, changed and stored
  double across = 300;    ///< the same where rows are no neighbours in memory
  double ordered = 290;   ///< an entry in a pass of a sort
  double passedOver = 11; ///< an entry that a selection compares with its bound
  double found = 1000;    ///< an entry that it takes
  double level = 140;     ///< a row's way past a node of a tree
  double leaf = 130;      ///< and what its leaf weighs, looked up and added
  double deeper = 1.4;    ///< ways of the deepest of rows together to those of full trees
  double pair = 12;       ///< two boxes that are compared
  double collected = 380; ///< a box that is asked whether it is a candidate
  double looked = 1150;   ///< a candidate that is looked at, its box read
  double heaped = 320;    ///< a candidate that goes into a heap
  double sifted = 290;    ///< a level of the heap that fills the place of one taken
  double ranked = 64;     ///< entries of a run that one pass sorts
  double present = 0.5; ///< share of a row that is there, or a candidate: data say which
  double kept = 1024;   ///< boxes that are kept of a picture, if so many may be
};
constexpr SerialSteps serial;
} // namespace

static double sortSteps(double entries) {
  const double merges = std::max(0.0, std::log2(entries / serial.ranked));
  return serial.ordered * entries * (1 + merges);
}

/// Entries that were found are sorted when there is no more room, and merged with the
/// best so far.
static double selectionSteps(const kernels::Selection &selection) {
  const auto entries = static_cast<double>(selection.extent);
  const auto count = static_cast<double>(selection.count),
             room = static_cast<double>(selection.room()),
             sample = static_cast<double>(selection.sample().size);
  const double found = selection.found(), first = std::min(found, room);
  const double fills = (found - first) / (room - count);
  return serial.passedOver * entries + serial.ordered * sample + serial.found * found +
         sortSteps(first) + serial.ordered * count +
         fills * (sortSteps(room - count) + serial.ordered * count);
}

static int64_t stepCount(double rows, double each) {
  return static_cast<int64_t>(std::min(rows * each, 1e18));
}

int64_t graph::detail::runningSteps(Value result) {
  return stepCount(static_cast<double>(elementCount(shapeOf(result))), serial.running);
}

int64_t ScatterElementsOp::getKernelSteps() {
  const Shape updates = shapeOf(getUpdates());
  int64_t behind = 1;
  for (size_t d = static_cast<size_t>(*normalizeAxis(getAxis(), updates.size())) + 1;
       d < updates.size(); ++d)
    behind *= updates[d];
  return stepCount(static_cast<double>(elementCount(updates)),
                   behind == 1 ? serial.scattered : serial.across);
}

/// Tells whether data say how many elements a row has: behind them one number fills
/// it, which a sort leaves where it is.
static bool isFilled(Value row) {
  while (Operation *view = row.getDefiningOp()) {
    if (auto where = dyn_cast<WhereOp>(view)) {
      auto fill = where->getOperand(2).getDefiningOp<ConstantOp>();
      return fill && elementCount(shapeOf(fill.getResult())) == 1;
    }
    if (!isa<ReshapeOp>(view))
      return false;
    row = view->getOperand(0);
  }
  return false;
}

int64_t SortOp::getKernelSteps() {
  const Shape shape = shapeOf(getInput());
  const int64_t axis = *normalizeAxis(getAxis(), shape.size());
  const int64_t extent = shape[static_cast<size_t>(axis)];
  const auto entries = static_cast<double>(extent);
  if (extent == 0)
    return 0;
  const kernels::Selection selection{extent, static_cast<int64_t>(getCount())};
  const double there = isFilled(getInput()) ? serial.present * entries : entries;
  const double steps = selection.count == 0 ? serial.passedOver * entries
                       : selection.pays()
                           ? selectionSteps(selection)
                           : serial.passedOver * entries + sortSteps(there);
  return stepCount(static_cast<double>(elementCount(shape)) / entries, steps);
}

/// Data say how many of the boxes are candidates, and how many overlap. From the best one
/// on at least those are looked at that are kept, and compared with those that are kept
/// so far, half of all on average.
static double suppressionSteps(int64_t boxes, int64_t most) {
  const double all = static_cast<double>(boxes), candidates = serial.present * all;
  const double kept = std::min({candidates, serial.kept, static_cast<double>(most)});
  const bool takesHeap =
      kernels::Suppression::takesHeap(static_cast<int64_t>(candidates), most);
  const double order =
      takesHeap ? serial.heaped * candidates +
                      serial.sifted * std::log2(std::max(2.0, candidates)) * kept
                : sortSteps(candidates);
  return serial.collected * all + order + kept * (serial.looked + serial.pair * kept / 2);
}

int64_t SuppressOp::getKernelSteps() {
  const Shape shape = shapeOf(getScores());
  return stepCount(static_cast<double>(shape[0] * shape[1]),
                   suppressionSteps(shape[2], static_cast<int64_t>(getMost())));
}

int64_t TreesOp::getKernelSteps() {
  const auto rows = static_cast<double>(shapeOf(getRows())[0]);
  const auto trees = static_cast<double>(shapeOf(getFeatures())[0]);
  // Trees that go down together stop at the lowest leaf that one of them comes to.
  const double full = std::log2(static_cast<double>(shapeOf(getFeatures())[1] + 1));
  const double levels = std::min(static_cast<double>(getDepth()), serial.deeper * full);
  return stepCount(rows * trees, serial.level * levels + serial.leaf);
}

//===-- Sort --------------------------------------------------------------===//

Expected<ShardingRule> SortOp::ruleFor(const std::vector<Shape> &shapes,
                                       Adaptor adaptor) {
  auto axis = normalizeAxis(static_cast<int64_t>(adaptor.getAxis()), shapes[0].size());
  if (!axis)
    return tl::unexpected(axis.error());
  int64_t count = adaptor.getCount(), extent = shapes[0][static_cast<size_t>(*axis)];
  if (count < 0 || count > extent)
    return makeError("the first " + std::to_string(count) + " of " +
                     std::to_string(extent) + " elements");
  auto rule = rowRule(shapes[0], {*axis});
  if (rule)
    rule->results.push_back(rule->results[0]);
  return rule;
}

/// NaN above all numbers.
template <typename T> static bool isBelow(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b))
      return !std::isnan(a) && std::isnan(b);
  return a < b;
}

template <typename T>
static std::vector<HostTensor> sorted(const HostTensor &operand, int64_t axis,
                                      int64_t count, bool descending) {
  std::vector<T> all = reference::values<T>(operand), elements(all.size(), 0);
  std::vector<int64_t> indices(all.size(), 0);
  int64_t extent = operand.shape[axis], stride = reference::strides(operand.shape)[axis];
  std::vector<int64_t> order(static_cast<size_t>(extent));
  for (int64_t start = 0, n = operand.size(); start < n; ++start) {
    if (start / stride % extent != 0)
      continue;
    std::iota(order.begin(), order.end(), 0);
    // Equal elements stay in their order.
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      T x = all[start + a * stride], y = all[start + b * stride];
      if (descending)
        std::swap(x, y);
      return isBelow(x, y) || (!isBelow(y, x) && a < b);
    });
    for (int64_t i = 0; i < count; ++i) {
      indices[start + i * stride] = order[i];
      elements[start + i * stride] = all[start + order[i] * stride];
    }
  }
  std::vector<HostTensor> results;
  results.push_back(reference::tensor<T>(operand.type, operand.shape, elements));
  results.push_back(reference::tensor<int64_t>(DType::I64, operand.shape, indices));
  return results;
}

Expected<std::vector<HostTensor>>
SortOp::evaluate(ArrayRef<const HostTensor *> operands) {
  int64_t axis = *normalizeAxis(getAxis(), operands[0]->shape.size()), count = getCount();
  return isFloat(operands[0]->type)
             ? sorted<double>(*operands[0], axis, count, getDescending())
             : sorted<int64_t>(*operands[0], axis, count, getDescending());
}

//===-- Suppression -------------------------------------------------------===//

Expected<ShardingRule> SuppressOp::ruleFor(const std::vector<Shape> &shapes,
                                           Adaptor adaptor) {
  const Shape &scores = shapes[0], &boxes = shapes[2];
  if (scores.size() != 3 || shapes[1] != scores || boxes.size() != 3 ||
      boxes != Shape{scores[0], scores[2], 4} || !shapes[3].empty())
    return makeError("scores and candidates must be [b, c, n], boxes [b, n, 4] and the "
                     "threshold a scalar");
  if (static_cast<int64_t>(adaptor.getMost()) < 0)
    return makeError("most is negative");
  ShardingRule rule;
  std::vector<int32_t> batch = rule.addLoop(scores[0], loop::Parallel{});
  std::vector<int32_t> classes = rule.addLoop(scores[1], loop::Parallel{});
  std::vector<int32_t> all = rule.addLoop(scores[2], loop::Replicate{});
  TensorFactors row{batch, classes, all};
  rule.operands = {row, row, {batch, all, rule.addLoop(4, loop::Replicate{})}, {}};
  rule.results = {row};
  return rule;
}

/// Data say how many there are: a sort of all boxes, and for each a look at some tens
/// that are kept.
int64_t SuppressOp::getFlops() {
  Shape scores = shapeOf(getScores());
  int64_t perBox = 40;
  for (int64_t n = 1; n < scores[2]; n *= 2)
    perBox += 4;
  return elementCount(scores) * perBox;
}

namespace {
template <typename T> struct Box {
  T low[2], high[2];

  Box(const T *at, bool centers) {
    for (int d = 0; d < 2; ++d) {
      T one = at[d], other = at[d + 2], half = other / 2;
      low[d] = centers ? one - half : std::min(one, other);
      high[d] = centers ? one + half : std::max(one, other);
    }
  }
  T area() const { return (high[0] - low[0]) * (high[1] - low[1]); }

  /// Tells whether the intersection is more than the threshold of the union.
  bool overlaps(const Box &other, T threshold) const {
    T size[2];
    for (int d = 0; d < 2; ++d)
      size[d] = std::min(high[d], other.high[d]) - std::max(low[d], other.low[d]);
    T both = size[0] * size[1], either = area() + other.area() - both;
    bool hasAreas = size[0] > 0 && size[1] > 0 && both > 0 && area() > 0 &&
                    other.area() > 0 && either > 0;
    return hasAreas && both / either > threshold;
  }
};
} // namespace

/// In the precision of the type: a box at the threshold is kept or not by its rounding.
template <typename T>
static HostTensor suppressed(ArrayRef<const HostTensor *> operands, int64_t most,
                             bool centers) {
  const Shape &shape = operands[0]->shape;
  auto numbers = [&](size_t operand) {
    std::vector<double> wide = reference::values<double>(*operands[operand]);
    return std::vector<T>(wide.begin(), wide.end());
  };
  std::vector<T> scores = numbers(0), corners = numbers(2);
  T threshold = numbers(3)[0];
  std::vector<int64_t> candidates = reference::values<int64_t>(*operands[1]);
  int64_t n = shape[2];
  std::vector<int64_t> result(scores.size(), -1);
  for (int64_t row = 0; row < shape[0] * shape[1]; ++row) {
    const T *score = scores.data() + row * n,
            *box = corners.data() + row / shape[1] * n * 4;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < n; ++i)
      if (candidates[row * n + i] != 0 && !std::isnan(score[i]))
        order.push_back(i);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return score[a] > score[b] || (score[a] == score[b] && a < b);
    });
    std::vector<Box<T>> kept;
    for (int64_t i : order) {
      Box<T> one(box + i * 4, centers);
      bool isGone = std::any_of(kept.begin(), kept.end(), [&](const Box<T> &other) {
        return one.overlaps(other, threshold);
      });
      if (isGone || static_cast<int64_t>(kept.size()) == most)
        continue;
      result[row * n + static_cast<int64_t>(kept.size())] = i;
      kept.push_back(one);
    }
  }
  return reference::tensor<int64_t>(DType::I64, shape, result);
}

Expected<std::vector<HostTensor>>
SuppressOp::evaluate(ArrayRef<const HostTensor *> operands) {
  auto most = static_cast<int64_t>(getMost());
  return std::vector<HostTensor>{operands[0]->type == DType::F64
                                     ? suppressed<double>(operands, most, getCenters())
                                     : suppressed<float>(operands, most, getCenters())};
}

//===-- Trees -------------------------------------------------------------===//

Expected<ShardingRule> TreesOp::ruleFor(const std::vector<Shape> &shapes,
                                        Adaptor adaptor) {
  const Shape &rows = shapes[0], &nodes = shapes[1], &weights = shapes[4];
  if (rows.size() != 2 || nodes.size() != 2 || shapes[2] != nodes || shapes[3] != nodes ||
      weights.size() != 3 || weights[0] != nodes[0] || weights[1] != nodes[1])
    return makeError("rows must be [r, f], features, splits and children [t, n], and "
                     "weights [t, n, k]");
  if (static_cast<int64_t>(adaptor.getDepth()) < 0)
    return makeError("depth is negative");
  ShardingRule rule;
  std::vector<int32_t> row = rule.addLoop(rows[0], loop::Parallel{});
  std::vector<int32_t> feature = rule.addLoop(rows[1], loop::Replicate{});
  std::vector<int32_t> tree = rule.addLoop(nodes[0], loop::Parallel{});
  std::vector<int32_t> node = rule.addLoop(nodes[1], loop::Replicate{});
  std::vector<int32_t> weight = rule.addLoop(weights[2], loop::Parallel{});
  TensorFactors table{tree, node};
  rule.operands = {{row, feature}, table, table, table, {tree, node, weight}};
  rule.results = {{tree, row, weight}};
  return rule;
}

/// A comparison of a level, for each element.
int64_t TreesOp::getFlops() {
  return elementCount(shapeOf(getResult())) * static_cast<int64_t>(getDepth());
}

Expected<std::vector<HostTensor>>
TreesOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &shape = operands[0]->shape, &table = operands[4]->shape;
  std::vector<double> x = reference::values<double>(*operands[0]);
  std::vector<int64_t> features = reference::values<int64_t>(*operands[1]);
  std::vector<double> splits = reference::values<double>(*operands[2]);
  std::vector<int64_t> children = reference::values<int64_t>(*operands[3]);
  std::vector<double> weights = reference::values<double>(*operands[4]), result;
  int64_t rows = shape[0], width = shape[1], nodes = table[1], each = table[2];
  for (int64_t t = 0; t < table[0]; ++t)
    for (int64_t r = 0; r < rows; ++r) {
      int64_t at = t * nodes;
      for (int64_t step = 0; step < static_cast<int64_t>(getDepth()); ++step) {
        int64_t given = features[at], feature = given < 0 ? ~given : given;
        double value = x[r * width + std::clamp<int64_t>(feature, 0, width - 1)];
        bool isBehind = std::isnan(value) ? given >= 0 : value > splits[at];
        int64_t child = children[at] + (isBehind ? 1 : 0);
        at = t * nodes + std::clamp<int64_t>(child, 0, nodes - 1);
      }
      for (int64_t k = 0; k < each; ++k)
        result.push_back(weights[at * each + k]);
    }
  return oneResult(
      reference::tensor<double>(operands[0]->type, {table[0], rows, each}, result));
}
