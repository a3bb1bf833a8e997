//===- Shapes.cpp - Import of ops that move elements ----------------------===//
#include "passes/Import/Compose.h"

#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

static HostTensor integers(const std::vector<int64_t> &values) {
  return reference::tensor<int64_t>(DType::I64, {static_cast<int64_t>(values.size())},
                                    values);
}

//===-- Shapes as values --------------------------------------------------===//

/// What is there of a dim whose size is data is a value.
static Expected<Values> importShape(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape shape = shapeOf(input);
  auto rank = static_cast<int64_t>(shape.size());
  auto clamp = [&](int64_t i) {
    return std::clamp(i < 0 ? i + rank : i, int64_t(0), rank);
  };
  int64_t begin = clamp(intAttr(node, "start", 0)),
          end = clamp(intAttr(node, "end", rank));
  Shape part(shape.begin() + begin, shape.begin() + std::max(begin, end));
  if (importer.countedDims(input).empty())
    return Values{importer.constant(integers(part), node.name)};
  Compose c(importer);
  Values extents;
  for (size_t i = 0; i < part.size(); ++i) {
    Value count = importer.countOf(input, static_cast<size_t>(begin) + i);
    extents.push_back(count ? c.reshape(count, {1})
                            : c.tensor(c.i64(), {1}, {static_cast<double>(part[i])}));
  }
  return c.results({extents.empty() ? importer.constant(integers({}), node.name)
                                    : c.concat(extents, 0)});
}

static Expected<Values> importSize(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape shape = shapeOf(input);
  Compose c(importer);
  Value product;
  for (size_t d : importer.countedDims(input)) {
    Value count = importer.countOf(input, d);
    product = product ? c.mul(product, count) : count;
    shape[d] = 1;
  }
  HostTensor size = integers({elementCount(shape)});
  size.shape.clear();
  Value known = importer.constant(size, node.name);
  return c.results({product ? c.mul(product, known) : known});
}

static Expected<Values> importConstantOfShape(Importer &importer, const Node &node) {
  auto shape = importer.constantIntegers(node, 0);
  if (!shape)
    return tl::unexpected(shape.error());
  const auto *given = node.attribute<onnx_model::Tensor>("value");
  HostTensor one = HostTensor::zeros(DType::F32, {1});
  if (given) {
    one = HostTensor{given->type, {1}, {}};
    one.bytes.assign(given->bytes.begin(), given->bytes.end());
  }
  auto type = tensorType(importer.builder.getContext(), one.type, *shape);
  auto splat =
      cast<DenseElementsAttr>(graph::toAttribute(importer.builder.getContext(), one));
  if (elementCount(*shape) == 0)
    return Values{importer.empty(type)};
  if (auto ok = checkSize(type); !ok)
    return tl::unexpected(ok.error());
  return Values{graph::ConstantOp::create(importer.builder, importer.location,
                                          splat.resizeSplat(type))};
}

static Expected<Values> importRange(Importer &importer, const Node &node) {
  auto start = importer.requiredValue(node, 0), limit = importer.requiredValue(node, 1),
       step = importer.requiredValue(node, 2);
  for (const auto *operand : {&start, &limit, &step})
    if (!*operand)
      return tl::unexpected(operand->error());
  auto number = [](const HostTensor &t) { return reference::values<double>(t)[0]; };
  double from = number(*start), by = number(*step);
  if (by == 0)
    return makeError("Range with a step of 0");
  auto count =
      static_cast<int64_t>(std::max(0.0, std::ceil((number(*limit) - from) / by)));
  if (count > int64_t(1) << 28)
    return makeError("Range of " + std::to_string(count) + " elements");
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(from + static_cast<double>(i) * by);
  return Values{importer.constant(reference::tensor<double>(start->type, {count}, values),
                                  node.name)};
}

//===-- Reshapes ----------------------------------------------------------===//

/// Of the first dim that has a count.
static std::string countedText(const Importer &importer, Value value) {
  return importer.countText(value, importer.countedDims(value).front());
}

static Expected<Values> importReshape(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape from = shapeOf(input);
  auto shape = importer.constantIntegers(node, 1);
  if (!shape)
    return tl::unexpected(shape.error());
  const std::vector<int64_t> asked = *shape;
  int64_t known = 1, open = -1;
  for (size_t d = 0; d < shape->size(); ++d) {
    int64_t &extent = (*shape)[d];
    if (extent == 0 && intAttr(node, "allowzero", 0) == 0) {
      if (d >= from.size())
        return makeError("the shape copies dim " + std::to_string(d) +
                         " of an input of rank " + std::to_string(from.size()));
      extent = from[d];
    }
    if (extent == -1 && open < 0)
      open = static_cast<int64_t>(d);
    else if (extent < 0)
      return makeError("the shape has extent " + std::to_string(extent) + " at dim " +
                       std::to_string(d));
    else
      known *= extent;
  }
  if (open >= 0) {
    if (known == 0 || elementCount(from) % known != 0)
      return makeError("the open dim of the shape does not divide " +
                       std::to_string(elementCount(from)) + " elements");
    (*shape)[open] = elementCount(from) / known;
  }
  auto result = importer.reshape(input, *shape);
  if (!result)
    return single(result);
  // A number says how many there are, not how many there can be.
  for (size_t d : importer.countedDims(*result))
    if (asked[d] > 0)
      return makeError(countedText(importer, input) + ", and its shape becomes " +
                       std::to_string(asked[d]) + " at dim " + std::to_string(d));
  return single(result);
}

static Expected<Values> importFlatten(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape from = shapeOf(input);
  int64_t axis = intAttr(node, "axis", 1);
  axis += axis < 0 ? static_cast<int64_t>(from.size()) : 0;
  if (axis < 0 || axis > static_cast<int64_t>(from.size()))
    return makeError("axis is out of range");
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < from.size(); ++d)
    (static_cast<int64_t>(d) < axis ? outer : inner) *= from[d];
  return single(importer.reshape(input, {outer, inner}));
}

static Expected<Values> importSqueeze(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape from = shapeOf(input), to;
  std::vector<bool> gone(from.size(), !node.hasInput(1));
  if (!node.hasInput(1) && !importer.countedDims(input).empty())
    return makeError(countedText(importer, input) +
                     ", and without axes it would go where that is one");
  if (node.hasInput(1)) {
    auto axes = importer.constantIntegers(node, 1);
    if (!axes)
      return tl::unexpected(axes.error());
    for (int64_t axis : *axes) {
      auto normal = normalizeAxis(axis, from.size());
      if (!normal)
        return tl::unexpected(normal.error());
      if (from[*normal] != 1)
        return makeError("dim " + std::to_string(*normal) + " has size " +
                         std::to_string(from[*normal]) + " and cannot be squeezed");
      gone[*normal] = true;
    }
  }
  for (size_t d = 0; d < from.size(); ++d)
    if (!gone[d] || from[d] != 1)
      to.push_back(from[d]);
  return single(importer.reshape(input, to));
}

static Expected<Values> importUnsqueeze(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape from = shapeOf(input);
  auto axes = importer.constantIntegers(node, 1);
  if (!axes)
    return tl::unexpected(axes.error());
  std::vector<bool> added(from.size() + axes->size(), false);
  for (int64_t axis : *axes) {
    auto normal = normalizeAxis(axis, added.size());
    if (!normal || added[*normal])
      return makeError("bad axis " + std::to_string(axis));
    added[*normal] = true;
  }
  Shape to;
  size_t next = 0;
  for (bool isNew : added)
    to.push_back(isNew ? 1 : from[next++]);
  return single(importer.reshape(input, to));
}

static Expected<Values> importTranspose(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  auto rank = static_cast<int64_t>(shapeOf(input).size());
  std::vector<int64_t> reversed;
  for (int64_t d = rank; d-- > 0;)
    reversed.push_back(d);
  auto perm = intsAttr(node, "perm", reversed);
  return single(importer.emit("graph.transpose", input,
                              importer.attr("permutation", ArrayRef(perm))));
}

static Expected<Values> importExpand(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  auto shape = importer.constantIntegers(node, 1);
  if (!shape)
    return tl::unexpected(shape.error());
  auto result = broadcastShapes({shapeOf(input), *shape});
  if (!result)
    return tl::unexpected(result.error());
  if (*result == shapeOf(input))
    return Values{input};
  return single(importer.emitShaped("graph.broadcast", input, *result));
}

//===-- Cutting and joining -----------------------------------------------===//

static Expected<Value> slice(Importer &importer, Value input, const Shape &result,
                             std::vector<int64_t> starts, std::vector<int64_t> steps) {
  if (result == shapeOf(input) && llvm::all_of(steps, [](int64_t s) { return s == 1; }))
    return input;
  if (elementCount(result) == 0)
    return importer.empty(
        RankedTensorType::get(result, getElementTypeOrSelf(input.getType())));
  return importer.emitShaped("graph.slice", input, result,
                             {importer.attr("starts", ArrayRef(starts)),
                              importer.attr("steps", ArrayRef(steps))});
}

/// The first `most` elements of a dim that has a count.
static Expected<Value> firstOf(Importer &importer, Value input, size_t d, int64_t most) {
  Compose c(importer);
  int64_t bound = std::max<int64_t>(most, 2);
  if (bound >= shapeOf(input)[d] && most == bound)
    return input;
  Value count = importer.countBy("graph.min", importer.countOf(input, d), most);
  Value all = c.take(importer.whole(input, d, ReduceKind::Sum));
  Value first = c.slice(all, d, 0, std::min(bound, shapeOf(input)[d]));
  if (first)
    importer.setCount(first, d, count);
  return first ? Expected<Value>(first) : tl::unexpected(c.results({}).error());
}

static Expected<Values> importSlice(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape result = shapeOf(input);
  std::vector<int64_t> begin(result.size(), 0), step(result.size(), 1);
  auto starts = importer.constantIntegers(node, 1);
  auto ends = importer.constantIntegers(node, 2);
  if (!starts || !ends)
    return tl::unexpected(!starts ? starts.error() : ends.error());
  std::vector<int64_t> axes(starts->size()), steps(starts->size(), 1);
  for (size_t i = 0; i < axes.size(); ++i)
    axes[i] = static_cast<int64_t>(i);
  for (auto [i, into] : {std::pair(size_t(3), &axes), std::pair(size_t(4), &steps)}) {
    if (!node.hasInput(i))
      continue;
    auto given = importer.constantIntegers(node, i);
    if (!given)
      return tl::unexpected(given.error());
    *into = std::move(*given);
  }
  if (ends->size() != starts->size() || axes.size() != starts->size() ||
      steps.size() != starts->size())
    return makeError("starts, ends, axes and steps differ in length");
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = normalizeAxis(axes[i], result.size());
    if (!axis || steps[i] == 0)
      return makeError(!axis ? axis.error().message : "a step of 0");
    if (importer.countOf(input, *axis) && (*starts)[i] == 0 && steps[i] == 1 &&
        (*ends)[i] > 0) {
      auto first = firstOf(importer, input, *axis, (*ends)[i]);
      if (!first)
        return single(first);
      input = *first;
      result[*axis] = shapeOf(input)[*axis];
      continue;
    }
    int64_t extent = result[*axis], by = steps[i];
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? extent : extent - 1;
    auto place = [&](int64_t at) {
      return std::clamp(at < 0 ? std::max(at, -extent - 1) + extent : at, low, high);
    };
    int64_t from = place((*starts)[i]);
    // A huge negative end of a backward slice means "past the first element".
    int64_t to = (*ends)[i] < -extent ? (by > 0 ? 0 : -1) : place((*ends)[i]);
    begin[*axis] = from;
    step[*axis] = by;
    result[*axis] = std::max<int64_t>(0, by > 0 ? (to - from + by - 1) / by
                                                : (from - to - by - 1) / -by);
  }
  return single(slice(importer, input, result, begin, step));
}

static Expected<Values> importSplit(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape shape = shapeOf(input);
  auto axis = normalizeAxis(intAttr(node, "axis", 0), shape.size());
  if (!axis)
    return tl::unexpected(axis.error());
  std::vector<int64_t> sizes;
  if (node.hasInput(1)) {
    auto given = importer.constantIntegers(node, 1);
    if (!given)
      return tl::unexpected(given.error());
    sizes = std::move(*given);
  } else {
    auto parts = static_cast<int64_t>(node.outputs.size());
    int64_t each = (shape[*axis] + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::min(each, shape[*axis] - i * each));
  }
  Values results;
  std::vector<int64_t> starts(shape.size(), 0), steps(shape.size(), 1);
  for (int64_t size : sizes) {
    if (size < 0 || starts[*axis] + size > shape[*axis])
      return makeError("the parts do not make up dim " + std::to_string(*axis) +
                       " of size " + std::to_string(shape[*axis]));
    Shape part = shape;
    part[*axis] = size;
    auto value = slice(importer, input, part, starts, steps);
    if (!value)
      return tl::unexpected(value.error());
    results.push_back(*value);
    starts[*axis] += size;
  }
  return results;
}

static Expected<Values> importConcat(Importer &importer, const Node &node) {
  Values operands;
  // What has no elements adds nothing, if something has.
  for (size_t i = 0; i < node.inputs.size(); ++i)
    operands.push_back(importer.input(node, i));
  auto isEmpty = [](Value v) { return elementCount(shapeOf(v)) == 0; };
  if (llvm::all_of(operands, isEmpty)) {
    Shape shape = shapeOf(operands[0]);
    auto axis = normalizeAxis(intAttr(node, "axis", 0), shape.size());
    if (!axis)
      return tl::unexpected(axis.error());
    for (Value other : llvm::drop_begin(operands))
      shape[*axis] += shapeOf(other)[*axis];
    return Values{importer.empty(
        RankedTensorType::get(shape, getElementTypeOrSelf(operands[0].getType())))};
  }
  llvm::erase_if(operands, isEmpty);
  if (operands.size() == 1)
    return operands;
  return single(importer.emit("graph.concat", operands,
                              importer.attr("axis", intAttr(node, "axis", 0))));
}

/// As if the tensor were repeated: places are counted modulo the extent.
static Expected<Values> padByWrapping(Importer &importer, Value x,
                                      const std::vector<int64_t> &low,
                                      const std::vector<int64_t> &high) {
  Compose c(importer);
  Shape shape = c.shape(x);
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t extent = shape[d] + low[d] + high[d];
    if (extent < 1 || shape[d] < 1)
      return makeError("dim " + std::to_string(d) + " has no elements");
    if (low[d] == 0 && high[d] == 0)
      continue;
    std::vector<double> places;
    for (int64_t i = 0; i < extent; ++i)
      places.push_back(
          static_cast<double>(((i - low[d]) % shape[d] + shape[d]) % shape[d]));
    x = c.gather(x, c.tensor(c.i64(), {extent}, places), static_cast<int64_t>(d));
  }
  return c.results({x});
}

static Expected<Values> importPad(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  size_t rank = shapeOf(input).size();
  auto pads = importer.constantIntegers(node, 1);
  if (!pads)
    return tl::unexpected(pads.error());
  std::vector<int64_t> axes;
  for (size_t d = 0; d < rank; ++d)
    axes.push_back(static_cast<int64_t>(d));
  if (node.hasInput(3)) {
    auto given = importer.constantIntegers(node, 3);
    if (!given)
      return tl::unexpected(given.error());
    axes = std::move(*given);
  }
  if (pads->size() != 2 * axes.size())
    return makeError("expected " + std::to_string(2 * axes.size()) + " pads, got " +
                     std::to_string(pads->size()));
  std::vector<int64_t> low(rank, 0), high(rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = normalizeAxis(axes[i], rank);
    if (!axis)
      return tl::unexpected(axis.error());
    low[*axis] = (*pads)[i];
    high[*axis] = (*pads)[axes.size() + i];
  }
  if (stringAttr(node, "mode", "constant") == "wrap")
    return padByWrapping(importer, input, low, high);
  Value fill = importer.input(node, 2);
  if (!fill)
    fill = importer.scalar(getElementTypeOrSelf(input.getType()), 0);
  auto mode = modeAttr<graph::PadModeAttr>(importer, node, "mode", "mode", "constant");
  if (!mode)
    return tl::unexpected(mode.error());
  return single(importer.emit("graph.pad", {input, fill},
                              {importer.attr("low", ArrayRef(low)),
                               importer.attr("high", ArrayRef(high)), *mode}));
}

//===-- Gathers, sums, resampling -----------------------------------------===//

/// In a dim that has a count, negative indices count from it, and one that is not below
/// it names no element: it becomes one outside of the dim, which ends the run.
static Value checkedIndices(Compose &c, Value indices, Value count, int64_t extent) {
  Value at = c.cast(indices, c.i64());
  at = c.select(c.less(at, 0), c.add(at, count), at);
  Value isThere = c.both(c.less(at, count), c.op("greater_equal", {at, c.like(at, 0)}));
  return c.select(isThere, at, c.like(at, static_cast<double>(extent)));
}

static Expected<Values> importGather(Importer &importer, const Node &node) {
  Compose c(importer);
  Value data = importer.input(node, 0), indices = importer.input(node, 1);
  size_t axis = c.axis(intAttr(node, "axis", 0), data);
  if (Value count = c.failed() ? Value() : importer.countOf(data, axis)) {
    indices = checkedIndices(c, indices, count, c.shape(data)[axis]);
    data = c.take(importer.whole(data, axis, ReduceKind::Sum));
  }
  return c.results({c.gather(data, indices, static_cast<int64_t>(axis))});
}

static Expected<Values> importGatherND(Importer &importer, const Node &node) {
  return single(
      importer.emit("graph.gather_nd", {importer.input(node, 0), importer.input(node, 1)},
                    importer.attr("batch_dims", intAttr(node, "batch_dims", 0))));
}

static Expected<Values> importCumulative(Importer &importer, const Node &node) {
  auto axis = importer.constantIntegers(node, 1);
  if (!axis)
    return tl::unexpected(axis.error());
  auto flag = [&](const char *name) {
    return importer.attr(name, importer.builder.getBoolAttr(intAttr(node, name, 0) != 0));
  };
  return single(importer.emit(
      node.opType == "CumProd" ? "graph.cumprod" : "graph.cumsum",
      importer.input(node, 0),
      {importer.attr("axis", (*axis)[0]), flag("exclusive"), flag("reverse")}));
}

void import::addShapes(HandlerTable &table) {
  table["Shape"] = takesCounts(importShape);
  table["Size"] = takesCounts(importSize);
  table["ConstantOfShape"] = importConstantOfShape;
  table["Range"] = importRange;
  table["Reshape"] = takesCounts(importReshape);
  table["Flatten"] = takesCounts(importFlatten);
  table["Squeeze"] = takesCounts(importSqueeze);
  table["Unsqueeze"] = takesCounts(importUnsqueeze);
  table["Transpose"] = takesCounts(importTranspose);
  table["Expand"] = importExpand;
  table["Slice"] = takesCounts(importSlice);
  table["Split"] = takesCounts(importSplit);
  table["Concat"] = takesCounts(importConcat);
  table["Pad"] = importPad;
  table["Gather"] = takesCounts(importGather);
  table["GatherND"] = takesCounts(importGatherND);
  table["CumSum"] = importCumulative;
  table["CumProd"] = importCumulative;
}
