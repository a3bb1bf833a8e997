//===- Indexing.cpp - Import of ops whose operands say where things go ----===//
#include "passes/Import/Counted.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

//===-- Gather and scatter ------------------------------------------------===//

static Expected<Values> importGatherElements(Importer &importer, const Node &node) {
  Compose c(importer);
  Value data = importer.input(node, 0), indices = importer.input(node, 1);
  size_t axis = c.axis(intAttr(node, "axis", 0), data);
  checkAlong(c, data, indices, axis);
  return c.results({gatherElements(c, data, indices, axis)});
}

/// ONNX's `reduction` as attribute of a scatter.
static SmallVector<NamedAttribute> scatterAttrs(Compose &c, const Node &node,
                                                int64_t axis) {
  static const llvm::StringMap<ReduceKind> kinds = {{"add", ReduceKind::Sum},
                                                    {"mul", ReduceKind::Prod},
                                                    {"max", ReduceKind::Max},
                                                    {"min", ReduceKind::Min}};
  SmallVector<NamedAttribute> attrs{c.importer.attr("axis", axis)};
  std::string reduction = stringAttr(node, "reduction", "none");
  auto kind = kinds.find(reduction);
  if (kind != kinds.end())
    attrs.push_back(c.importer.attr(
        "kind",
        graph::ReduceKindAttr::get(c.importer.builder.getContext(), kind->second)));
  else if (reduction != "none")
    c.fail("reduction \"" + reduction + "\" is not known");
  return attrs;
}

/// A dim of which the updates reach only the beginning is a loop of data and updates both
/// where that beginning is scattered into alone, and the rest put behind it.
static Value scatterElements(Compose &c, Value data, Value indices, Value updates,
                             size_t axis, ArrayRef<NamedAttribute> attrs) {
  Shape shape = c.shape(data), reached = c.shape(indices);
  bool canCut = shape.size() == reached.size() && c.importer.countedDims(data).empty() &&
                c.importer.countedDims(indices).empty();
  graph::Formula plain(c.builder, c.importer.location); // of a weight too: hints name it
  for (size_t d = 0; canCut && d < shape.size(); ++d) {
    if (d == axis || reached[d] >= shape[d])
      continue;
    Value head = plain.slice(data, d, 0, reached[d]);
    Value rest = plain.slice(data, d, reached[d], shape[d]);
    return c.concat({scatterElements(c, head, indices, updates, axis, attrs), rest},
                    static_cast<int64_t>(d));
  }
  // Dims behind the axis are one: neighbours in memory are then rows side by side, which
  // are written together.
  const bool hasTail = canCut && shape.size() > axis + 2;
  if (!hasTail)
    return c.op("scatter_elements", {data, indices, updates}, attrs);
  auto merged = [&](Value value) {
    Shape of = c.shape(value);
    int64_t tail = 1;
    for (; of.size() > axis + 1; of.pop_back())
      tail *= of.back();
    of.push_back(tail);
    return c.reshape(value, of);
  };
  Value result =
      c.op("scatter_elements", {merged(data), merged(indices), merged(updates)}, attrs);
  return c.reshape(result, shape);
}

/// A scatter along dim `axis`, of which data and updates may have counts. Without a kind
/// no update is neutral: those that are not there go to a row behind the data's.
static Value scatter(Compose &c, Value data, Value indices, Value updates, size_t axis,
                     ArrayRef<NamedAttribute> attrs) {
  Importer &importer = c.importer;
  if (c.failed())
    return nullptr;
  int64_t extent = c.shape(data)[axis];
  Size there = importer.sizeOf(data, axis);
  if (!there.isKnown()) {
    indices = checkedIndices(c, indices, data, axis);
    data = c.take(importer.whole(data, axis, ReduceKind::Sum));
  }
  bool hasKind =
      llvm::any_of(attrs, [](const NamedAttribute &a) { return a.getName() == "kind"; });
  if (hasKind || !importer.countOf(updates, axis)) {
    Value result = scatterElements(c, data, indices, updates, axis, attrs);
    importer.setSize(result, axis, there);
    return result;
  }
  Shape shape = c.shape(updates);
  Value places = c.iota(c.i64(), shape[axis], axis, shape.size());
  Value isThere = c.less(places, importer.countOf(updates, axis));
  indices = c.cast(c.take(importer.whole(indices, axis, ReduceKind::Sum)), c.i64());
  indices =
      c.select(c.less(indices, 0), c.add(indices, static_cast<double>(extent)), indices);
  // An index that names no row is behind that one, too.
  Value none = c.like(indices, static_cast<double>(extent) + 1);
  indices = c.select(c.less(indices, static_cast<double>(extent)), indices, none);
  indices = c.select(isThere, indices, c.like(indices, static_cast<double>(extent)));
  std::vector<int64_t> low(shape.size(), 0), high(shape.size(), 0);
  high[axis] = 1;
  updates = c.take(importer.whole(updates, axis, ReduceKind::Sum));
  Value result =
      c.op("scatter_elements", {c.pad(data, low, high), indices, updates}, attrs);
  result = c.slice(result, axis, 0, extent);
  importer.setSize(result, axis, there);
  return result;
}

static Expected<Values> importScatterElements(Importer &importer, const Node &node) {
  Compose c(importer);
  Value data = importer.input(node, 0);
  size_t axis = c.axis(intAttr(node, "axis", 0), data);
  return c.results({scatter(c, data, importer.input(node, 1), importer.input(node, 2),
                            axis, scatterAttrs(c, node, static_cast<int64_t>(axis)))});
}

/// The dims that the indices address become one, in which each row of updates has one
/// place.
static Expected<Values> importScatterND(Importer &importer, const Node &node) {
  Compose c(importer);
  Value data = importer.input(node, 0), indices = importer.input(node, 1);
  Shape shape = c.shape(data), at = c.shape(indices);
  Value before = data;
  checkComponents(c, data, indices, 0);
  auto depth = static_cast<size_t>(at.empty() ? 0 : at.back());
  if (at.empty() || depth > shape.size())
    return makeError("the indices do not address data of rank " +
                     std::to_string(shape.size()));
  int64_t rows = 1, row = 1, count = elementCount(at) / std::max<int64_t>(1, at.back());
  for (size_t d = 0; d < shape.size(); ++d)
    (d < depth ? rows : row) *= shape[d];
  Value place = linearPlace(c, indices, ArrayRef(shape).take_front(depth));
  place = c.reshape(place, {count, 1});
  Value updates = c.reshape(importer.input(node, 2), {count, row});
  Value result =
      scatter(c, c.reshape(data, {rows, row}), c.broadcast(place, {count, row}), updates,
              0, scatterAttrs(c, node, 0));
  result = c.reshape(result, shape);
  for (size_t d = 0; d < std::min(depth, shape.size()); ++d)
    importer.setSize(result, d, importer.sizeOf(before, d));
  return c.results({result});
}

/// Element t of a sequence of length n is element n − 1 − t for t < n.
static Expected<Values> importReverseSequence(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), lengths = importer.input(node, 1);
  Shape shape = c.shape(x);
  size_t time = c.axis(intAttr(node, "time_axis", 0), x);
  size_t batch = c.axis(intAttr(node, "batch_axis", 1), x);
  Shape perBatch(shape.size(), 1);
  perBatch[batch] = shape[batch];
  Value length = c.reshape(c.cast(lengths, c.i64()), perBatch);
  Value t = c.iota(c.i64(), shape[time], time, shape.size());
  Value place = c.select(c.less(t, length), c.sub(c.sub(length, 1), t), t);
  return c.results({gatherElements(c, x, c.broadcast(place, shape), time)});
}

/// Update row i goes to cache row start + i.
static Expected<Values> importTensorScatter(Importer &importer, const Node &node) {
  Compose c(importer);
  Value past = importer.input(node, 0), update = importer.input(node, 1);
  Shape shape = c.shape(past);
  size_t axis = c.axis(intAttr(node, "axis", -2), past), rank = shape.size();
  Shape places = c.shape(update), perBatch(rank, 1);
  perBatch[0] = shape[0];
  Value start = importer.input(node, 2);
  start = start ? c.reshape(c.cast(start, c.i64()), perBatch)
                : c.reshape(c.scalar(c.i64(), 0), Shape(rank, 1));
  Value row = c.add(start, c.iota(c.i64(), places[axis], axis, rank));
  if (stringAttr(node, "mode", "linear") == "circular")
    row = c.op("mod", {row, c.like(row, static_cast<double>(shape[axis]))});
  return c.results({c.op("scatter_elements", {past, c.broadcast(row, places), update},
                         {importer.attr("axis", static_cast<int64_t>(axis))})});
}

//===-- Order -------------------------------------------------------------===//

/// The first (or last) place of the largest element: of the places where an element
/// equals the maximum, the least. As maximum and minimum both split along the axis. A NaN
/// is the maximum of its row and equals nothing; its own place counts.
static Expected<Values> importArg(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  size_t axis = c.axis(intAttr(node, "axis", 0), x);
  Shape shape = c.shape(x);
  auto dim = static_cast<int64_t>(axis);
  bool keep = intAttr(node, "keepdims", 1) != 0;
  bool isLast = intAttr(node, "select_last_index", 0) != 0;
  Value best =
      c.reduce(node.opType == "ArgMax" ? ReduceKind::Max : ReduceKind::Min, x, {dim});
  Value isBest = c.equal(x, best);
  if (x && isa<FloatType>(c.type(x)))
    isBest = c.op("or", {isBest, c.op("isnan", x)});
  Value places = placesAlong(c, x, axis);
  Value none = c.like(places, isLast ? -1 : static_cast<double>(shape[axis]));
  Value candidates = c.select(isBest, places, none);
  return c.results(
      {c.reduce(isLast ? ReduceKind::Max : ReduceKind::Min, candidates, {dim}, keep)});
}

static Expected<Values> importHardmax(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  size_t axis = c.axis(intAttr(node, "axis", -1), x);
  Shape shape = c.shape(x);
  auto dim = static_cast<int64_t>(axis);
  Value places = placesAlong(c, x, axis);
  Value candidates = c.select(c.equal(x, c.reduce(ReduceKind::Max, x, {dim})), places,
                              c.like(places, static_cast<double>(shape[axis])));
  Value first = c.reduce(ReduceKind::Min, candidates, {dim});
  return c.results({c.cast(c.equal(places, first), c.type(x))});
}

namespace {
struct First {
  Value values, places;
};
} // namespace

/// The first `count` elements along an axis, the largest or least first, and where they
/// stand; of equal ones that with the lower index.
static First firstOf(Compose &c, Value x, size_t axis, int64_t count, bool isLargest) {
  Importer &importer = c.importer;
  Values order = c.ops(
      "sort", 2, x,
      {importer.attr("axis", static_cast<int64_t>(axis)), importer.attr("count", count),
       importer.attr("descending", importer.builder.getBoolAttr(isLargest))});
  return {c.slice(order[0], axis, 0, count), c.slice(order[1], axis, 0, count)};
}

/// Into how many groups an axis is cut of which the first `count` elements are wanted, in
/// `rows` rows; 1: it stays whole. The groups' first elements are sorted once more, so
/// they are at most a quarter of all, and fewer of a long axis: each group finds as many
/// as all together do, and sorts them. A group of `few` elements for each that is wanted
/// takes as long to look at as those to sort that it finds. There are at least as many
/// groups as there are ranks in most meshes. Of many rows, which can be split instead,
/// none is cut. A long axis of few rows is cut where they are half of all, too, and where
/// no number of groups divides it.
static int64_t groupsOf(int64_t extent, int64_t count, int64_t rows) {
  constexpr int64_t mostGroups = 64, ranks = 8, few = 1024, isLong = 512;
  if (rows >= 2 * ranks || 4 * count > extent)
    return 1;
  const int64_t share = extent < isLong ? 4 : 16;
  const int64_t most = std::min(std::clamp(extent / (few * count), ranks, mostGroups),
                                extent / (share * count));
  int64_t groups = most;
  while (groups > 1 && extent % groups != 0)
    --groups;
  if (extent < isLong || (groups > 1 && 2 * groups >= most))
    return std::max<int64_t>(1, groups);
  return std::max<int64_t>(2, most);
}

/// The first of a long axis are among the first of its groups. So the groups are a dim
/// that splits, and only their first elements meet. They stay in the order of their
/// places, by which equal ones are told apart. What fills the last group comes last.
static Values topOf(Compose &c, Value x, size_t axis, int64_t k, bool isLargest) {
  Shape cut = c.shape(x), candidates = cut;
  int64_t extent = cut[axis];
  int64_t groups = groupsOf(extent, k, elementCount(cut) / extent);
  if (groups == 1) {
    First first = firstOf(c, x, axis, k, isLargest);
    return {first.values, first.places};
  }
  int64_t each = (extent + groups - 1) / groups;
  if (int64_t missing = groups * each - extent; missing != 0) {
    std::vector<int64_t> low(cut.size(), 0), high(cut.size(), 0);
    high[axis] = missing;
    Value last = c.importer.constant(Importer::lastInOrder(c.type(x), isLargest), "");
    x = c.op("pad", {x, last}, {c.attr("low", low), c.attr("high", high)});
  }
  cut[axis] = groups;
  cut.insert(cut.begin() + static_cast<int64_t>(axis) + 1, each);
  candidates[axis] = groups * k;
  Value grouped = c.reshape(x, cut);
  First local = firstOf(c, grouped, axis + 1, k, isLargest);
  Value begins =
      c.mul(c.iota(c.i64(), groups, axis, cut.size()), static_cast<double>(each));
  Value values = c.reshape(local.values, candidates);
  Value places = c.reshape(c.add(local.places, begins), candidates);
  First first = firstOf(c, values, axis, k, isLargest);
  return {first.values, gatherElements(c, places, first.places, axis)};
}

static Expected<Values> importTopK(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  auto given = importer.inputSizes(node, 1);
  if (!given)
    return tl::unexpected(given.error());
  size_t axis = c.axis(intAttr(node, "axis", -1), x);
  if (c.failed())
    return c.results({});
  Size count = given->empty() ? Size(0) : given->front(),
       there = importer.sizeOf(x, axis);
  int64_t extent = c.shape(x)[axis];
  bool isKnown = count.isKnown() && there.isKnown();
  int64_t k = isKnown ? count.most : std::min(boundOf(count), extent);
  if (k < (isKnown ? 0 : 1) || k > extent ||
      (!isKnown && k < boundOf(count) && count.least > k))
    return makeError("the largest " + std::to_string(k) + " of " +
                     std::to_string(extent) + " elements");
  bool isLargest = intAttr(node, "largest", 1) != 0;
  if (k == 0) {
    Value none = c.slice(x, axis, 0, 0);
    return c.results({none, c.cast(none, c.i64())});
  }
  if (isKnown)
    return c.results(topOf(c, x, axis, k, isLargest));
  // What is not there comes last.
  Value filled = x;
  if (importer.countOf(x, axis))
    filled = c.take(importer.lastInOrder(x, axis, isLargest));
  Values top = topOf(c, filled, axis, k, isLargest);
  // Fewer than k end the run.
  if (Value all = importer.countOf(x, axis); all && top[1]) {
    Value number = c.iota(c.i64(), k, axis, c.shape(x).size());
    Value checked =
        c.op("or", {c.less(top[1], all),
                    c.op("greater_equal", {number, importer.sizes.valueOf(count)})});
    Value place = c.select(checked, top[1], c.like(top[1], static_cast<double>(extent)));
    top[0] = gatherElements(c, filled, place, axis);
  }
  for (Value result : top)
    importer.setSize(result, axis, count);
  return c.results(top);
}

//===-- Patterns of places ------------------------------------------------===//

/// Negative indices count from the depth; others name no place.
static Expected<Values> importOneHot(Importer &importer, const Node &node) {
  Compose c(importer);
  Value indices = importer.input(node, 0), values = importer.input(node, 2);
  auto depth = importer.constantIntegers(node, 1);
  if (!depth)
    return tl::unexpected(depth.error());
  Shape shape = c.shape(indices);
  auto rank = static_cast<int64_t>(shape.size());
  int64_t axis = intAttr(node, "axis", -1);
  axis += axis < 0 ? rank + 1 : 0;
  if (axis < 0 || axis > rank || depth->size() != 1)
    return makeError("axis or depth is out of range");
  shape.insert(shape.begin() + axis, 1);
  int64_t count = (*depth)[0];
  Value at = c.reshape(c.cast(indices, c.i64()), shape);
  at = c.select(c.less(at, 0), c.add(at, static_cast<double>(count)), at);
  Value places = c.iota(c.i64(), count, static_cast<size_t>(axis), shape.size());
  Value off = c.reshape(c.slice(values, 0, 0, 1), {});
  Value on = c.reshape(c.slice(values, 0, 1, 2), {});
  return c.results({c.select(c.equal(at, places), on, off)});
}

/// Row + k against column decides; k may be computed.
static Expected<Values> importTrilu(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), k = importer.input(node, 1);
  Shape shape = c.shape(x);
  if (shape.size() < 2)
    return makeError("Trilu of rank " + std::to_string(shape.size()));
  Value row = placesAlong(c, x, shape.size() - 2);
  Value column = placesAlong(c, x, shape.size() - 1);
  if (k)
    row = c.add(row, c.reshape(k, {}));
  Value kept = intAttr(node, "upper", 1) != 0 ? c.op("less_equal", {row, column})
                                              : c.op("greater_equal", {row, column});
  return c.results({c.select(kept, x, c.like(x, 0))});
}

static Expected<Values> importEyeLike(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Shape shape = c.shape(x);
  if (shape.size() != 2)
    return makeError("EyeLike of rank " + std::to_string(shape.size()));
  Type element = c.type(x);
  if (int64_t type = intAttr(node, "dtype", 0); type != 0) {
    auto given = elementTypeOfOnnx(importer, type);
    if (!given)
      return tl::unexpected(given.error());
    element = *given;
  }
  Value row = placesAlong(c, x, 0), column = placesAlong(c, x, 1);
  row = c.add(row, static_cast<double>(intAttr(node, "k", 0)));
  return c.results({c.cast(c.equal(row, column), element)});
}

void import::addIndexing(HandlerTable &table) {
  table["GatherElements"] = takesCounts(importGatherElements);
  table["ScatterElements"] = takesCounts(importScatterElements);
  table["ScatterND"] = takesCounts(importScatterND);
  table["ReverseSequence"] = importReverseSequence;
  table["TensorScatter"] = importTensorScatter;
  table["ArgMax"] = takesCounts(importArg);
  table["ArgMin"] = takesCounts(importArg);
  table["Hardmax"] = takesCounts(importHardmax);
  table["TopK"] = takesCounts(importTopK);
  table["OneHot"] = takesCounts(importOneHot);
  table["Trilu"] = takesCounts(importTrilu);
  table["EyeLike"] = takesCounts(importEyeLike);
}
