//===- Shapes.cpp - Import of ops that move elements ----------------------===//
#include "passes/Import/Counted.h"

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

/// The bounds of a tensor of these sizes.
static Shape boundsOf(const std::vector<Size> &sizes) {
  Shape bounds;
  for (const Size &size : sizes)
    bounds.push_back(boundOf(size));
  return bounds;
}

static Expected<Values> importConstantOfShape(Importer &importer, const Node &node) {
  auto sizes = importer.inputSizes(node, 0);
  if (!sizes)
    return tl::unexpected(sizes.error());
  Shape shape = boundsOf(*sizes);
  const auto *given = node.attribute<onnx_model::Tensor>("value");
  HostTensor one = HostTensor::zeros(DType::F32, {1});
  if (given) {
    one = HostTensor{given->type, {1}, {}};
    one.bytes.assign(given->bytes.begin(), given->bytes.end());
  }
  auto type = tensorType(importer.builder.getContext(), one.type, shape);
  auto splat =
      cast<DenseElementsAttr>(graph::toAttribute(importer.builder.getContext(), one));
  if (elementCount(shape) == 0)
    return Values{importer.empty(type)};
  if (auto ok = checkSize(type); !ok)
    return tl::unexpected(ok.error());
  Value result = graph::ConstantOp::create(importer.builder, importer.location,
                                           splat.resizeSplat(type));
  for (size_t d = 0; d < shape.size(); ++d)
    importer.setSize(result, d, (*sizes)[d]);
  return Values{result};
}

/// Of a limit that is data: as many as there can be.
static Expected<Values> countedRange(Importer &importer, const Node &node) {
  auto start = importer.inputSizes(node, 0), limit = importer.inputSizes(node, 1);
  auto step = importer.constantIntegers(node, 2);
  if (!start || !limit || !step)
    return tl::unexpected(!start ? start.error() : !limit ? limit.error() : step.error());
  Compose c(importer);
  Type type = c.type(importer.input(node, 0));
  int64_t by = step->empty() ? 0 : (*step)[0];
  if (by == 0 || start->size() != 1 || limit->size() != 1 || !isa<IntegerType>(type))
    return makeError("Range of a limit that is data, of numbers that are not whole or "
                     "with a step of 0");
  Sizes &sizes = importer.sizes;
  Size way = sizes.scaled(sizes.sub(limit->front(), start->front()), by < 0 ? -1 : 1);
  Size count = sizes.ceilDiv(sizes.max(way, 0), std::abs(by));
  if (count.most < 1)
    return Values{importer.empty(RankedTensorType::get({0}, type))};
  Value all = c.mul(importer.places(boundOf(count)), static_cast<double>(by));
  all = c.cast(c.add(all, sizes.valueOf(start->front())), type);
  importer.setSize(all, 0, count);
  return c.results({all});
}

static Expected<Values> importRange(Importer &importer, const Node &node) {
  for (size_t i : {0, 1})
    if (!importer.constantValue(importer.input(node, i)) &&
        importer.sizes.read(importer.input(node, i)))
      return countedRange(importer, node);
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

/// The extent that a dim of `size` elements has, if a dim of the input has them, or some
/// in each.
static int64_t extentLike(Importer &importer, Value input, const Size &size) {
  if (size.isKnown())
    return size.most;
  for (size_t d : importer.countedDims(input)) {
    Size own = importer.sizeOf(input, d);
    int64_t extent = shapeOf(input)[d];
    if (own.most > 0 && importer.sizes.scaled(own, size.most / own.most) == size)
      return extent * (size.most / own.most);
    if (size.most > 0 && importer.sizes.scaled(size, own.most / size.most) == own &&
        extent % (own.most / size.most) == 0)
      return extent / (own.most / size.most);
  }
  return boundOf(size);
}

static Expected<Values> importReshape(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape from = shapeOf(input), shape;
  auto asked = importer.inputSizes(node, 1);
  if (!asked)
    return tl::unexpected(asked.error());
  int64_t known = 1, open = -1;
  for (size_t d = 0; d < asked->size(); ++d) {
    int64_t extent = extentLike(importer, input, (*asked)[d]);
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
    shape.push_back(extent);
  }
  if (open >= 0) {
    if (known == 0 || elementCount(from) % known != 0)
      return makeError("the open dim of the shape does not divide " +
                       std::to_string(elementCount(from)) + " elements");
    shape[static_cast<size_t>(open)] = elementCount(from) / known;
  }
  auto result = importer.reshape(input, shape);
  if (!result)
    return single(result);
  // A number says how many there are, not how many there can be.
  for (size_t d = 0; d < shape.size(); ++d) {
    const Size &size = (*asked)[d];
    Size there = importer.sizeOf(*result, d);
    if (size.most > 0 && (size.isKnown() ? !there.isKnown() : !(there == size)))
      return makeError(
          importer.countedDims(input).empty()
              ? "dim " + std::to_string(d) +
                    " of the shape is data, and the input's are not"
              : countedText(importer, input) + ", and its shape becomes " +
                    (size.isKnown() ? std::to_string(size.most) : "another size") +
                    " at dim " + std::to_string(d));
  }
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
  auto asked = importer.inputSizes(node, 1);
  if (!asked)
    return tl::unexpected(asked.error());
  Shape from = shapeOf(input), wanted;
  size_t rank = std::max(from.size(), asked->size());
  // What the input has already is not asked for again.
  std::vector<size_t> counted;
  for (size_t i = 0; i < asked->size(); ++i) {
    const Size &size = (*asked)[i];
    size_t d = i + rank - asked->size(), own = d + from.size() - rank;
    bool isThere = d + from.size() >= rank && (importer.sizeOf(input, own) == size);
    if (!isThere && !size.isKnown())
      counted.push_back(d);
    if (!isThere && !size.isKnown() && d + from.size() >= rank && from[own] != 1)
      return makeError("dim " + std::to_string(own) + " of its input has " +
                       std::to_string(from[own]) +
                       " elements at most, and becomes one of "
                       "as many as the data say");
    wanted.push_back(isThere ? from[own] : boundOf(size));
    if (!isThere && size.isKnown() && size.most != 1 && d + from.size() >= rank &&
        importer.countOf(input, own))
      return makeError(importer.countText(input, own) + ", and becomes " +
                       std::to_string(size.most));
  }
  auto result = broadcastShapes({from, wanted});
  if (!result)
    return tl::unexpected(result.error());
  if (*result == from)
    return Values{input};
  auto wide = importer.emitShaped("graph.broadcast", input, *result);
  for (size_t d : counted)
    if (wide)
      importer.setSize(*wide, d, (*asked)[d - (rank - asked->size())]);
  return single(wide);
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

/// Elements [start, end) of a dim that has a count, or up to places that are data.
static Expected<Value> sliceBySizes(Importer &importer, Value input, size_t d, Size start,
                                    Size end, int64_t step) {
  Sizes &sizes = importer.sizes;
  Size extent = importer.sizeOf(input, d);
  // Of numbers of one sign the difference is the most.
  int64_t most = shapeOf(input)[d], way = step > 0 ? 1 : -1;
  if (start.isKnown() && end.isKnown() && (start.most < 0) == (end.most < 0))
    most = std::min(most, std::max<int64_t>(0, (end.most - start.most) * way));
  auto place = [&](const Size &at, int64_t low, const Size &high) {
    return sizes.min(sizes.max(at.most < 0 ? sizes.add(at, extent) : at, low), high);
  };
  for (const Size &at : {start, end})
    if (at.least < 0 && at.most >= 0)
      return makeError("a place of the slice of dim " + std::to_string(d) +
                       " is data, and may count from the end or not");
  int64_t low = step > 0 ? 0 : -1;
  Size high = step > 0 ? extent : sizes.sub(extent, 1);
  Size from = place(start, low, high), to = place(end, low, high);
  Size length = sizes.max(sizes.scaled(sizes.sub(to, from), way), 0);
  length = sizes.ceilDiv(length, std::abs(step));
  length.most = std::min(length.most, (most + std::abs(step) - 1) / std::abs(step));
  if (length.most < 1) {
    Shape none = shapeOf(input);
    none[d] = 0;
    return importer.empty(
        RankedTensorType::get(none, getElementTypeOrSelf(input.getType())));
  }
  Compose c(importer);
  Value part = taken(c, input, d, from, step, length);
  return part ? Expected<Value>(part) : tl::unexpected(c.results({}).error());
}

/// A place far outside of every tensor is one a little outside.
static Size nearby(const Size &size) {
  constexpr int64_t far = int64_t(1) << 40;
  return size.isKnown() ? Size(std::clamp(size.most, -far, far)) : size;
}

static Expected<Values> importSlice(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape result = shapeOf(input);
  std::vector<int64_t> begin(result.size(), 0), step(result.size(), 1);
  auto starts = importer.inputSizes(node, 1);
  auto ends = importer.inputSizes(node, 2);
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
    Size first = nearby((*starts)[i]), last = nearby((*ends)[i]);
    if (importer.countOf(input, *axis) || !first.isKnown() || !last.isKnown()) {
      auto part = sliceBySizes(importer, input, *axis, first, last, steps[i]);
      if (!part)
        return single(part);
      input = *part;
      result[*axis] = shapeOf(input)[*axis];
      continue;
    }
    int64_t extent = result[*axis], by = steps[i];
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? extent : extent - 1;
    auto place = [&](const Size &size) {
      int64_t at = size.most;
      return std::clamp(at < 0 ? at + extent : at, low, high);
    };
    int64_t from = place(first), to = place(last);
    begin[*axis] = from;
    step[*axis] = by;
    result[*axis] = std::max<int64_t>(0, by > 0 ? (to - from + by - 1) / by
                                                : (from - to - by - 1) / -by);
  }
  return single(slice(importer, input, result, begin, step));
}

/// Of a dim that has a count, or into parts that are data: they make up all of it.
static Expected<Values> splitBySizes(Importer &importer, Value input, size_t axis,
                                     const std::vector<Size> &parts) {
  Compose c(importer);
  Values results;
  Size start;
  for (const Size &part : parts) {
    if (part.most < 1)
      return makeError("a part has no elements");
    results.push_back(taken(c, input, axis, start, 1, part));
    start = importer.sizes.add(start, part);
  }
  if (!(start == importer.sizeOf(input, axis)))
    return makeError("the parts do not make up dim " + std::to_string(axis) +
                     ", of which or of whose parts the sizes are data");
  return c.results(results);
}

static Expected<Values> importSplit(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape shape = shapeOf(input);
  auto axis = normalizeAxis(intAttr(node, "axis", 0), shape.size());
  if (!axis)
    return tl::unexpected(axis.error());
  std::vector<int64_t> sizes;
  if (node.hasInput(1)) {
    auto given = importer.inputSizes(node, 1);
    if (!given)
      return tl::unexpected(given.error());
    auto isKnown = [](const Size &size) { return size.isKnown(); };
    if (importer.countOf(input, *axis) || !llvm::all_of(*given, isKnown))
      return splitBySizes(importer, input, *axis, *given);
    for (const Size &size : *given)
      sizes.push_back(size.most);
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
  auto axis = normalizeAxis(intAttr(node, "axis", 0), shapeOf(operands[0]).size());
  if (axis && llvm::any_of(operands, [&](Value v) {
        auto d = static_cast<size_t>(*axis);
        return shapeOf(v).size() > d && importer.countOf(v, d);
      })) {
    Compose c(importer);
    return c.results({joined(c, operands, static_cast<size_t>(*axis))});
  }
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
  auto pads = importer.inputSizes(node, 1);
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
  Compose c(importer);
  std::string mode = stringAttr(node, "mode", "constant");
  Value fill = importer.input(node, 2);
  if (!fill)
    fill = importer.scalar(getElementTypeOrSelf(input.getType()), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = normalizeAxis(axes[i], rank);
    if (!axis)
      return tl::unexpected(axis.error());
    const Size &before = (*pads)[i], &behind = (*pads)[axes.size() + i];
    if ((importer.countOf(input, *axis) && !(before == Size(0) && behind == Size(0))) ||
        !before.isKnown() || !behind.isKnown()) {
      if (mode != "constant")
        return makeError("dim " + std::to_string(*axis) +
                         " has or gets as many elements as the data say, and mode \"" +
                         mode + "\" needs the last of them");
      input = padded(c, input, *axis, before, behind, fill);
      if (c.failed())
        return c.results({});
      continue;
    }
    low[*axis] = before.most;
    high[*axis] = behind.most;
  }
  auto isZero = [](int64_t amount) { return amount == 0; };
  if (!importer.countedDims(input).empty() && llvm::all_of(low, isZero) &&
      llvm::all_of(high, isZero))
    return Values{input};
  if (mode == "wrap")
    return padByWrapping(importer, input, low, high);
  auto kind = modeAttr<graph::PadModeAttr>(importer, node, "mode", "mode", "constant");
  if (!kind)
    return tl::unexpected(kind.error());
  return single(importer.emit("graph.pad", {input, fill},
                              {importer.attr("low", ArrayRef(low)),
                               importer.attr("high", ArrayRef(high)), *kind}));
}

//===-- Gathers, sums, resampling -----------------------------------------===//

static Expected<Values> importGather(Importer &importer, const Node &node) {
  Compose c(importer);
  Value data = importer.input(node, 0), indices = importer.input(node, 1);
  size_t axis = c.axis(intAttr(node, "axis", 0), data);
  checkAlong(c, data, indices, axis);
  return c.results({c.gather(data, indices, static_cast<int64_t>(axis))});
}

/// Whether constant indices of one component are 0, 1, … `count` - 1. They look up all
/// slices in their order, as PyTorch's masks by index look up a mask of the same shape.
static bool areAllInOrder(const Importer &importer, Value indices, int64_t count) {
  auto type = cast<RankedTensorType>(indices.getType());
  if (type.getNumElements() != count || !importer.countedDims(indices).empty())
    return false;
  auto known = importer.constantValue(indices);
  if (!known)
    return false;
  std::vector<int64_t> places = reference::values<int64_t>(*known);
  for (int64_t i = 0; i < count; ++i)
    if (places[static_cast<size_t>(i)] != i)
      return false;
  return true;
}

static Expected<Values> importGatherND(Importer &importer, const Node &node) {
  Compose c(importer);
  Value data = importer.input(node, 0), indices = importer.input(node, 1);
  int64_t batch = intAttr(node, "batch_dims", 0);
  checkComponents(c, data, indices, batch);
  Shape shape = c.shape(data), at = c.shape(indices);
  int64_t depth = at.empty() ? 0 : at.back();
  bool isOne = depth > 1 && batch >= 0 &&
               batch + depth <= static_cast<int64_t>(shape.size()) &&
               importer.countedDims(data).empty() && elementCount(shape) > 0;
  if (isOne) {
    // The dims that the indices address become one, which splits as a Gather's does. An
    // op also where the data are a weight: hints go by the weight's name.
    auto first = shape.begin() + batch;
    std::vector<int64_t> dims(first, first + depth);
    *first = elementCount(dims);
    shape.erase(first + 1, first + depth);
    data = graph::Formula(c.builder, importer.location).reshape(data, shape);
    indices = linearPlace(c, indices, dims);
  }
  if (c.failed())
    return c.results({});
  if (batch == 0 && (isOne || depth == 1) && importer.countedDims(data).empty() &&
      areAllInOrder(importer, indices, shape.front())) {
    Shape result(at.begin(), at.end() - 1);
    result.insert(result.end(), shape.begin() + 1, shape.end());
    return c.results(
        {graph::Formula(c.builder, importer.location).reshape(data, result)});
  }
  return c.results(
      {c.op("gather_nd", {data, indices}, importer.attr("batch_dims", batch))});
}

/// What is before each group of a long axis, then each group: of [rest, n]
///   local [rest, groups, n/groups]   running along the last dim
///   total [rest, groups, 1]          of each group
///   before                           running along the groups, exclusive
/// so that the axis splits, where only a number per group has to meet. A tensor of many
/// rows splits along these. Neutral elements fill the last group of a length that no
/// number of groups divides.
static Value cumulative(Compose &c, Value x, size_t axis, ReduceKind kind,
                        bool isExclusive, bool isReverse) {
  auto running = [&](Value a, size_t d, bool exclusive) {
    Builder &builder = c.importer.builder;
    return c.op(kind == ReduceKind::Prod ? "cumprod" : "cumsum", a,
                {c.attr("axis", static_cast<int64_t>(d)),
                 c.attr("exclusive", builder.getBoolAttr(exclusive)),
                 c.attr("reverse", builder.getBoolAttr(isReverse))});
  };
  constexpr int64_t mostGroups = 64, fewGroups = 8, isLong = 512, manyRows = 64;
  Shape shape = c.shape(x), cut = shape;
  int64_t extent = x ? shape[axis] : 0, groups = mostGroups;
  while (groups > 1 && extent % groups != 0)
    --groups;
  if (extent < isLong || elementCount(shape) / extent >= manyRows)
    return running(x, axis, isExclusive);
  groups = groups < fewGroups ? mostGroups : groups;
  int64_t each = (extent + groups - 1) / groups;
  std::vector<int64_t> low(shape.size(), 0), high = low;
  high[axis] = groups * each - extent;
  cut[axis] = groups;
  cut.insert(cut.begin() + static_cast<int64_t>(axis) + 1, each);
  Value filled = high[axis] != 0 ? c.pad(x, low, high, kind == ReduceKind::Prod) : x;
  Value grouped = c.reshape(filled, cut);
  Value before = running(c.reduce(kind, grouped, {static_cast<int64_t>(axis) + 1}), axis,
                         /*exclusive=*/true);
  Value local = running(grouped, axis + 1, isExclusive);
  Value all = c.op(kind == ReduceKind::Prod ? "mul" : "add", {before, local});
  cut = shape;
  cut[axis] = groups * each;
  return c.slice(c.reshape(all, cut), axis, 0, extent);
}

static Expected<Values> importCumulative(Importer &importer, const Node &node) {
  Compose c(importer);
  Value input = importer.input(node, 0);
  auto given = importer.constantIntegers(node, 1);
  if (!given)
    return tl::unexpected(given.error());
  size_t axis = c.axis(given->empty() ? 0 : (*given)[0], input);
  if (c.failed())
    return c.results({});
  ReduceKind kind = node.opType == "CumProd" ? ReduceKind::Prod : ReduceKind::Sum;
  // From the end: what is behind the count changes nothing.
  Size there = importer.sizeOf(input, axis);
  input = c.take(importer.whole(input, axis, kind));
  Value result = cumulative(c, input, axis, kind, intAttr(node, "exclusive", 0) != 0,
                            intAttr(node, "reverse", 0) != 0);
  importer.setSize(result, axis, there);
  return c.results({result});
}

void import::addShapes(HandlerTable &table) {
  table["Shape"] = takesCounts(importShape);
  table["Size"] = takesCounts(importSize);
  table["ConstantOfShape"] = takesCounts(importConstantOfShape);
  table["Range"] = takesCounts(importRange);
  table["Reshape"] = takesCounts(importReshape);
  table["Flatten"] = takesCounts(importFlatten);
  table["Squeeze"] = takesCounts(importSqueeze);
  table["Unsqueeze"] = takesCounts(importUnsqueeze);
  table["Transpose"] = takesCounts(importTranspose);
  table["Expand"] = takesCounts(importExpand);
  table["Slice"] = takesCounts(importSlice);
  table["Split"] = takesCounts(importSplit);
  table["Concat"] = takesCounts(importConcat);
  table["Pad"] = takesCounts(importPad);
  table["Gather"] = takesCounts(importGather);
  table["GatherND"] = takesCounts(importGatherND);
  table["CumSum"] = takesCounts(importCumulative);
  table["CumProd"] = takesCounts(importCumulative);
}
