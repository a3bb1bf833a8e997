//===- Selection.cpp - Import of operators that choose elements -----------===//
//
// What they give is as long as the data say: a tensor of the most elements that there can
// be, and a count (docs/rules-any-op.md, Bounded sizes). Where what decides is a
// constant, the size is known and there is no count.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Compose.h"

#include "partita/Reference/Kernels.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

namespace {
/// Where a condition holds: [bound] i64 with a count, and zeros behind it; or, without
/// one, as many as there are.
struct Places {
  Value indices, count;
};
} // namespace

/// A dim with a count is at least this long.
static int64_t boundOf(int64_t most) { return std::max<int64_t>(most, 2); }

static Value scatterAdd(Compose &c, Value data, Value indices, Value updates) {
  Builder &builder = c.importer.builder;
  return c.op("scatter_elements", {data, indices, updates},
              {c.importer.attr("axis", int64_t(0)),
               c.importer.attr("kind", graph::ReduceKindAttr::get(builder.getContext(),
                                                                  ReduceKind::Sum))});
}

/// How many elements of a vector of 0 and 1 are 1 up to each of them, itself included.
static Value runningSum(Compose &c, Value ones) {
  return c.op("cumsum", ones, c.importer.attr("axis", int64_t(0)));
}

static Value counted(Compose &c, Value value, size_t d, Value count) {
  if (value && count)
    c.importer.setCount(value, d, count);
  return value;
}

/// Zeros behind all counts of a value, which keeps them.
static Value zeroBehind(Compose &c, Value value) {
  if (!value)
    return value;
  Value filled = c.take(c.importer.whole(value));
  if (filled)
    for (size_t d : c.importer.countedDims(value))
      counted(c, filled, d, c.importer.countOf(value, d));
  return filled;
}

/// Of a vector of bools. Each place goes to where the running sum says, as a sum with
/// zeros, so that the vector may be split. Zero is added where the condition does not
/// hold: to an element of its own, since one to which many are added makes each wait for
/// the one before.
static Places placesOf(Compose &c, Value condition) {
  if (!condition)
    return {};
  Shape shape = c.shape(condition);
  Value ones = c.cast(condition, c.i64()), none = c.scalar(c.i64(), 0);
  Value count = c.sum(ones, {0}, false), here = c.importer.places(shape[0]);
  Value at = c.select(condition, c.sub(runningSum(c, ones), 1), here);
  Value place = c.select(condition, here, none);
  Value indices = scatterAdd(c, c.zeros(c.i64(), {boundOf(shape[0])}), at, place);
  // Of a constant it is known, and the places are those that there are.
  auto known = count ? c.importer.constantValue(count) : std::nullopt;
  int64_t found = known ? reference::values<int64_t>(*known)[0] : 0;
  if (found > 0)
    return {c.slice(indices, 0, 0, found), Value()};
  return {counted(c, indices, 0, count), count};
}

//===-- By a condition ----------------------------------------------------===//

static Expected<Values> compressByConstant(Compose &c, Value x,
                                           const std::vector<int64_t> &condition,
                                           size_t axis) {
  std::vector<double> kept;
  for (size_t i = 0; i < condition.size(); ++i)
    if (condition[i] != 0)
      kept.push_back(static_cast<double>(i));
  if (kept.empty())
    return makeError("no element is kept");
  Shape shape{static_cast<int64_t>(kept.size())};
  return c.results(
      {c.gather(x, c.tensor(c.i64(), shape, kept), static_cast<int64_t>(axis))});
}

/// The slices along the axis for which the condition, which may be shorter, holds.
static Expected<Values> importCompress(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), condition = importer.input(node, 1);
  int64_t given = 0;
  if (const auto *attribute = node.attribute<int64_t>("axis"))
    given = *attribute;
  else
    x = c.reshape(x, {elementCount(c.shape(x))});
  size_t axis = c.axis(given, x);
  if (c.failed())
    return c.results({});
  if (auto known = importer.constantValue(condition);
      known && importer.countedDims(x).empty())
    return compressByConstant(c, x, reference::values<int64_t>(*known), axis);
  if (c.shape(condition).size() != 1 || c.shape(condition)[0] > c.shape(x)[axis])
    return makeError("the condition does not fit dim " + std::to_string(axis) +
                     " of size " + std::to_string(c.shape(x)[axis]));
  if (elementCount(c.shape(condition)) == 0 || elementCount(c.shape(x)) == 0)
    return makeError("an operand has no elements");
  condition = c.take(importer.whole(condition));
  if (Value all = importer.countOf(x, axis)) {
    // An element that is not there is not kept, whatever the condition says of it.
    Value place = importer.places(c.shape(condition)[0]);
    condition = c.both(condition, c.less(place, all));
    x = c.take(importer.whole(x, axis, ReduceKind::Sum));
  }
  Places places = placesOf(c, condition);
  return c.results(
      {zeroBehind(c, c.gather(x, places.indices, static_cast<int64_t>(axis)))});
}

static Expected<Values> nonZeroOfConstant(Compose &c, const HostTensor &known) {
  // As floats, of which a fraction is not 0; integers stay apart from 0.
  std::vector<double> elements = reference::values<double>(known);
  Shape shape = known.shape.empty() ? Shape{1} : known.shape;
  std::vector<std::vector<double>> places(shape.size());
  size_t number = 0;
  reference::forEachIndex(shape, [&](const Shape &index) {
    if (elements[number++] != 0)
      for (size_t d = 0; d < index.size(); ++d)
        places[d].push_back(static_cast<double>(index[d]));
  });
  Shape result{static_cast<int64_t>(shape.size()),
               static_cast<int64_t>(places.empty() ? 0 : places[0].size())};
  if (elementCount(result) == 0)
    return c.results({c.importer.empty(RankedTensorType::get(result, c.i64()))});
  std::vector<double> all;
  for (const std::vector<double> &row : places)
    all.insert(all.end(), row.begin(), row.end());
  return c.results({c.tensor(c.i64(), result, all)});
}

/// The places of what is not 0, [rank, count]: those of all elements as one dim, taken
/// apart.
static Expected<Values> importNonZero(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  if (auto known = importer.constantValue(x))
    return nonZeroOfConstant(c, *known);
  Shape shape = c.shape(x).empty() ? Shape{1} : c.shape(x);
  int64_t elements = elementCount(shape);
  if (elements == 0)
    return c.results({importer.empty(
        RankedTensorType::get({static_cast<int64_t>(shape.size()), 0}, c.i64()))});
  x = c.reshape(c.take(importer.whole(x)), {elements});
  Value isZero =
      c.type(x) == importer.builder.getI1Type() ? c.op("not", x) : c.equal(x, 0);
  Places places = placesOf(c, c.op("not", isZero));
  Values rows;
  int64_t stride = elements;
  for (int64_t extent : shape) {
    stride /= extent;
    Value place = places.indices;
    if (stride != 1)
      place = c.div(place, static_cast<double>(stride));
    if (stride * extent != elements)
      place = c.op("mod", {place, c.like(place, static_cast<double>(extent))});
    rows.push_back(c.reshape(place, {1, boundOf(elements)}));
  }
  return c.results({c.concat(rows, 0)});
}

//===-- Equal elements ----------------------------------------------------===//

/// The order of the rows of `x` [n, k], and of equal ones as they stand: by the last
/// element first, as each sort keeps the order that it finds.
static Value orderOfRows(Compose &c, Value x) {
  Importer &importer = c.importer;
  int64_t n = c.shape(x)[0], k = c.shape(x)[1];
  auto sortBy = [&](Value column) {
    return c.ops("sort", 2, column,
                 {importer.attr("axis", int64_t(0)), importer.attr("count", n),
                  importer.attr("descending", importer.builder.getBoolAttr(false))})[1];
  };
  auto resort = [&](Value column, Value order) {
    return c.gather(order, sortBy(c.gather(column, order, 0)), 0);
  };
  constexpr int64_t mostUnrolled = 4;
  Value order;
  if (k <= mostUnrolled || !importer.keepsLoops) {
    for (int64_t i = k; i-- > 0;) {
      Value column = c.reshape(c.slice(x, 1, i, i + 1), {n});
      order = order ? resort(column, order) : sortBy(column);
    }
    return order;
  }
  Value columns = c.reversed(c.transpose(x, {1, 0}), 0);
  return c.repeat(k, {c.iota(c.i64(), n, 0, 1)}, {columns}, 1,
                  [&](const Values &in) { return Values{resort(in[1], in[0])}; })[0];
}

/// Whether each row of `x` [n, k] differs from the one before; the first does.
static Value differsFromLast(Compose &c, Value x) {
  int64_t n = c.shape(x)[0];
  Value first = c.tensor(c.importer.builder.getI1Type(), {1}, {1});
  if (n == 1)
    return first;
  Value isSame = c.equal(c.slice(x, 0, 1, n), c.slice(x, 0, 0, n - 1));
  Value differs = c.reduce(ReduceKind::Max, c.op("not", isSame), {1}, false);
  return c.concat({first, differs}, 0);
}

/// Unique of a tensor without elements: slices along `axis` are all equal, if there are
/// any.
static Expected<Values> uniqueOfNone(Compose &c, Value x, size_t axis) {
  int64_t n = c.shape(x)[axis], count = n == 0 ? 0 : 1;
  auto numbers = [&](const Shape &shape, int64_t value) -> Value {
    auto type = RankedTensorType::get(shape, c.i64());
    if (elementCount(shape) == 0)
      return c.importer.empty(type);
    return c.tensor(c.i64(), shape,
                    std::vector<double>(static_cast<size_t>(elementCount(shape)),
                                        static_cast<double>(value)));
  };
  return c.results({c.slice(x, axis, 0, count), numbers({count}, 0), numbers({n}, 0),
                    numbers({count}, n)});
}

/// Slices along an axis, or elements, without those that there are before: sorted, or in
/// the order in which they appear. All is done on the sorted ones, of which equal ones
/// are a group.
static Expected<Values> importUnique(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  if (!node.attribute<int64_t>("axis"))
    x = c.reshape(x, {elementCount(c.shape(x))});
  size_t axis = c.axis(intAttr(node, "axis", 0), x);
  Shape shape = c.shape(x);
  if (c.failed())
    return c.results({});
  if (elementCount(shape) == 0)
    return uniqueOfNone(c, x, axis);
  int64_t n = shape[axis];
  std::vector<int64_t> front{static_cast<int64_t>(axis)};
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != axis)
      front.push_back(static_cast<int64_t>(d));
  Value rows = c.reshape(c.transpose(x, front), {n, elementCount(shape) / n});
  Value order = orderOfRows(c, rows);
  Value begins = differsFromLast(c, c.gather(rows, order, 0));
  Value isBegin = c.cast(begins, c.i64()), zeros = c.zeros(c.i64(), {n});
  // Per sorted row: its group, as the results count them.
  Value group = c.sub(runningSum(c, isBegin), 1);
  Places starts = placesOf(c, begins);
  Value firsts = c.gather(order, starts.indices, 0);
  if (intAttr(node, "sorted", 1) == 0) {
    Value isFirst = scatterAdd(c, zeros, order, isBegin);
    Value number = c.sub(runningSum(c, isFirst), 1);
    if (firsts)
      group = c.gather(number, c.gather(c.take(importer.whole(firsts)), group, 0), 0);
    firsts = placesOf(c, c.op("not", c.equal(isFirst, 0))).indices;
  }
  if (c.failed())
    return c.results({});
  Value count = importer.countOf(firsts, 0);
  Value sizes = scatterAdd(c, c.zeros(c.i64(), c.shape(firsts)), group,
                           c.broadcast(c.scalar(c.i64(), 1), {n}));
  return c.results({zeroBehind(c, c.gather(x, firsts, static_cast<int64_t>(axis))),
                    zeroBehind(c, firsts), scatterAdd(c, zeros, order, group),
                    counted(c, sizes, 0, count)});
}

//===-- Boxes -------------------------------------------------------------===//

namespace {
/// NonMaxSuppression: the places of the boxes that each batch and class keeps, then one
/// row of the result for each.
class Suppression {
public:
  Suppression(Importer &importer, const Node &node)
      : c(importer), importer(importer), node(node) {}

  Expected<Values> run();

private:
  Expected<void> read();
  /// A scalar of a tensor of one element; null where there is none.
  Value scalarInput(size_t i);
  Expected<Values> rowsOf(Value kept, Value isKept);
  /// Rows where one batch and class has the boxes, which lie in their places already.
  Expected<Values> rowsOfOne(Value kept, Value isKept);

  Compose c;
  Importer &importer;
  const Node &node;
  Value corners, scores, candidates, threshold;
  Value limit; ///< of boxes per class, where it is data; else null
  int64_t batches = 0, classes = 0, boxes = 0, most = 0;
};
} // namespace

Value Suppression::scalarInput(size_t i) {
  Value value = importer.input(node, i);
  return value ? c.reshape(value, {}) : value;
}

Expected<void> Suppression::read() {
  corners = importer.input(node, 0);
  scores = importer.input(node, 1);
  Shape of = c.shape(corners), per = c.shape(scores);
  if (of.size() != 3 || per.size() != 3 || of[2] != 4 || of[0] != per[0] ||
      of[1] != per[2])
    return makeError("boxes and scores do not have shapes [b, n, 4] and [b, c, n]");
  batches = per[0], classes = per[1], boxes = per[2];
  Value count = importer.countOf(scores, 2);
  if (importer.countedDims(corners).size() != (count ? 1 : 0) ||
      importer.countedDims(scores).size() != (count ? 1 : 0) ||
      importer.countOf(corners, 1) != count)
    return makeError("of boxes and scores only the number of boxes may be data, and of "
                     "both the same");
  most = boxes;
  if (Value given = importer.input(node, 2); !given) {
    most = 0;
  } else if (auto known = importer.constantValue(given)) {
    most = std::min(boxes, std::max<int64_t>(0, reference::values<int64_t>(*known)[0]));
  } else {
    limit = scalarInput(2);
  }
  if (elementCount(per) == 0 || most == 0)
    return {};
  threshold = scalarInput(3);
  if (!threshold)
    threshold = c.scalar(c.type(scores), 0);
  corners = c.take(importer.whole(corners));
  scores = c.take(importer.whole(scores));
  if (Value lowest = scalarInput(4))
    candidates = c.op("greater", {scores, lowest});
  else
    candidates = c.broadcast(c.tensor(importer.builder.getI1Type(), {}, {1}), per);
  if (count)
    candidates = c.both(candidates, c.less(c.iota(c.i64(), boxes, 2, 3), count));
  return {};
}

Expected<Values> Suppression::run() {
  if (auto ok = read(); !ok)
    return tl::unexpected(ok.error());
  if (batches * classes * boxes == 0 || most == 0)
    return c.results({importer.empty(RankedTensorType::get({0, 3}, c.i64()))});
  SmallVector<NamedAttribute> attributes{importer.attr("most", most)};
  if (intAttr(node, "center_point_box", 0) != 0)
    attributes.push_back(importer.attr("centers", importer.builder.getUnitAttr()));
  Value kept = c.op("suppress", {scores, candidates, corners, threshold}, attributes);
  kept = c.slice(kept, 2, 0, most);
  Value isKept = c.op("greater_equal", {kept, c.like(kept, 0)});
  if (limit)
    isKept = c.both(isKept, c.less(c.iota(c.i64(), most, 2, 3), limit));
  return batches * classes == 1 && most > 1 && !importer.constantValue(isKept)
             ? rowsOfOne(kept, isKept)
             : rowsOf(kept, isKept);
}

Expected<Values> Suppression::rowsOfOne(Value kept, Value isKept) {
  isKept = c.reshape(isKept, {most, 1});
  Value none = c.zeros(c.i64(), {most, 1});
  Value box = c.select(isKept, c.reshape(kept, {most, 1}), none);
  Value count = c.sum(c.cast(isKept, c.i64()), {0, 1}, false);
  return c.results({counted(c, c.concat({none, none, box}, 1), 0, count)});
}

Expected<Values> Suppression::rowsOf(Value kept, Value isKept) {
  int64_t perBatch = classes * most, all = batches * perBatch;
  Places places = placesOf(c, c.reshape(isKept, {all}));
  auto divided = [&](Value value, int64_t by) {
    return by == 1 ? value : c.div(value, static_cast<double>(by));
  };
  Value batch = divided(places.indices, perBatch);
  Value byClass = divided(places.indices, most);
  byClass = c.op("mod", {byClass, c.like(byClass, static_cast<double>(classes))});
  Values columns;
  for (Value column :
       {batch, byClass, c.gather(c.reshape(kept, {all}), places.indices, 0)})
    columns.push_back(c.reshape(column, {boundOf(all), 1}));
  return c.results({zeroBehind(c, c.concat(columns, 1))});
}

static Expected<Values> importNonMaxSuppression(Importer &importer, const Node &node) {
  return Suppression(importer, node).run();
}

void import::addSelection(HandlerTable &table) {
  table["Compress"] = takesCounts(importCompress);
  table["NonZero"] = takesCounts(importNonZero);
  table["Unique"] = importUnique;
  table["NonMaxSuppression"] = takesCounts(importNonMaxSuppression);
}
