//===- Counted.cpp - Moving elements of dims that have a count ------------===//
#include "passes/Import/Counted.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;

int64_t import::boundOf(const Size &size) {
  return size.isKnown() ? size.most : std::max<int64_t>(2, size.most);
}

/// A value of its own that equals `x`, to have other counts.
static Value again(Compose &c, Value x) {
  Shape shape = c.shape(x);
  std::vector<int64_t> starts(shape.size(), 0), steps(shape.size(), 1);
  return c.shaped("slice", x, shape,
                  {c.attr("starts", ArrayRef(starts)), c.attr("steps", ArrayRef(steps))});
}

static Value atLeast(Compose &c, Value a, Value b) {
  return c.op("greater_equal", {a, b});
}

/// A vector along dim `d` of `rank` dims.
static Value along(Compose &c, Value vector, size_t d, size_t rank) {
  Shape shape(rank, 1);
  if (vector)
    shape[d] = c.shape(vector)[0];
  return c.reshape(vector, shape);
}

/// The first elements of a dim with a count: those behind it are behind that of the
/// result, too, and stay as they are.
static Value firstOf(Compose &c, Value x, size_t d, int64_t bound) {
  Value part = graph::Formula(c.builder, c.importer.location).slice(x, d, 0, bound);
  for (size_t other : c.importer.countedDims(x))
    if (other != d)
      c.importer.setCount(part, other, c.importer.countOf(x, other));
  return part;
}

Value import::taken(Compose &c, Value x, size_t d, const Size &start, int64_t step,
                    const Size &length) {
  if (!x)
    return x;
  Importer &importer = c.importer;
  int64_t bound = boundOf(length), extent = c.shape(x)[d];
  if (step == 1 && start == Size(0) && length == importer.sizeOf(x, d))
    return x;
  const bool isFirst = step == 1 && start == Size(0) && bound < extent;
  if (!isFirst)
    x = c.take(importer.whole(x, d, ReduceKind::Sum));
  if (c.failed())
    return nullptr;
  if (isFirst) {
    x = firstOf(c, x, d, bound);
  } else if (step == 1 && start == Size(0) && bound == extent) {
    x = again(c, x);
  } else {
    Value place = c.mul(importer.places(bound), static_cast<double>(step));
    place = c.clamp(c.add(place, importer.sizes.valueOf(start)), 0,
                    static_cast<double>(extent - 1));
    x = c.gather(x, place, static_cast<int64_t>(d));
  }
  importer.setSize(x, d, length);
  return x;
}

Value import::joined(Compose &c, const Values &parts, size_t axis) {
  Importer &importer = c.importer;
  Sizes &sizes = importer.sizes;
  // Behind each part that is not full, all places are further on.
  std::vector<std::pair<Size, Size>> gaps;
  Values all;
  Size total;
  int64_t extent = 0;
  for (Value part : parts) {
    Size there = importer.sizeOf(part, axis), missing = c.shape(part)[axis];
    total = sizes.add(total, there), extent += missing.most;
    missing = sizes.sub(missing, there);
    if (missing != Size(0) && part != parts.back())
      gaps.emplace_back(total, missing);
    all.push_back(c.take(importer.whole(part, axis, ReduceKind::Sum)));
  }
  Value whole = c.concat(all, static_cast<int64_t>(axis));
  int64_t bound = std::min(boundOf(total), extent);
  if (!gaps.empty()) {
    Value at = importer.places(bound), from = at;
    for (const auto &[end, missing] : gaps)
      from = c.add(from, c.select(atLeast(c, at, sizes.valueOf(end)),
                                  sizes.valueOf(missing), c.scalar(c.i64(), 0)));
    from = c.min(from, static_cast<double>(extent - 1));
    whole = c.gather(whole, from, static_cast<int64_t>(axis));
  } else if (bound < extent) {
    whole = c.slice(whole, axis, 0, bound);
  }
  importer.setSize(whole, axis, total);
  return whole;
}

Value import::padded(Compose &c, Value x, size_t d, const Size &low, const Size &high,
                     Value fill) {
  Importer &importer = c.importer;
  Sizes &sizes = importer.sizes;
  Size there = importer.sizeOf(x, d);
  Size total = sizes.max(sizes.add(low, sizes.add(there, high)), 0);
  int64_t extent = c.shape(x)[d];
  Value from = c.sub(importer.places(boundOf(total)), sizes.valueOf(low));
  Value isInside =
      c.both(atLeast(c, from, c.scalar(c.i64(), 0)), c.less(from, sizes.valueOf(there)));
  Value inside = c.gather(c.take(importer.whole(x, d, ReduceKind::Sum)),
                          c.clamp(from, 0, static_cast<double>(extent - 1)),
                          static_cast<int64_t>(d));
  Value result =
      c.select(along(c, isInside, d, c.shape(x).size()), inside, c.reshape(fill, {}));
  importer.setSize(result, d, total);
  return result;
}

Value import::checkedIndices(Compose &c, Value indices, Value data, size_t d) {
  Value count = c.importer.countOf(data, d);
  Value at = c.cast(indices, c.i64());
  at = c.select(c.less(at, 0), c.add(at, count), at);
  Value isThere = c.both(c.less(at, count), atLeast(c, at, c.like(at, 0)));
  return c.select(isThere, at, c.like(at, static_cast<double>(c.shape(data)[d])));
}

void import::checkAlong(Compose &c, Value &data, Value &indices, size_t axis) {
  if (c.failed() || !c.importer.countOf(data, axis))
    return;
  indices = checkedIndices(c, indices, data, axis);
  data = c.take(c.importer.whole(data, axis, ReduceKind::Sum));
}

void import::checkComponents(Compose &c, Value &data, Value &indices, int64_t batch) {
  Shape at = c.shape(indices);
  if (at.empty() || batch < 0 ||
      static_cast<size_t>(batch + at.back()) > c.shape(data).size())
    return;
  size_t last = at.size() - 1;
  auto first = static_cast<size_t>(batch), end = first + static_cast<size_t>(at.back());
  auto isCounted = [&](size_t d) { return c.importer.countOf(data, d) != nullptr; };
  if (!llvm::any_of(llvm::seq(first, end), isCounted))
    return;
  Values components;
  for (size_t d = first; d < end; ++d) {
    auto i = static_cast<int64_t>(d - first);
    Value component = c.cast(c.slice(indices, last, i, i + 1), c.i64());
    components.push_back(isCounted(d) ? checkedIndices(c, component, data, d)
                                      : component);
  }
  indices = c.concat(components, static_cast<int64_t>(last));
  for (size_t d = first; d < end; ++d)
    data = c.take(c.importer.whole(data, d, ReduceKind::Sum));
}

Value import::linearPlace(Compose &c, Value indices, ArrayRef<int64_t> dims) {
  Shape shape = c.shape(indices);
  if (shape.empty())
    return c.fail("a scalar has no components");
  Value components = c.cast(indices, c.i64()), place;
  double stride = 1;
  for (size_t d = dims.size(); d-- > 0; stride *= static_cast<double>(dims[d])) {
    auto i = static_cast<int64_t>(d);
    Value looked = c.gather(c.importer.places(dims[d]),
                            c.slice(components, shape.size() - 1, i, i + 1), 0);
    looked = stride == 1 ? looked : c.mul(looked, stride);
    place = place ? c.add(place, looked) : looked;
  }
  if (place)
    return place;
  shape.back() = 1;
  return c.broadcast(c.scalar(c.i64(), 0), shape);
}

Value import::gatherElements(Compose &c, Value data, Value indices, size_t axis) {
  Shape shape = c.shape(data), reached = c.shape(indices);
  // An op also where the data are a weight: hints go by the weight's name.
  graph::Formula plain(c.builder, c.importer.location);
  if (shape.size() == reached.size() && c.importer.countedDims(data).empty())
    for (size_t d = 0; d < shape.size(); ++d)
      if (d != axis && reached[d] < shape[d])
        data = plain.slice(data, d, 0, reached[d]);
  return c.op("gather_elements", {data, indices},
              c.importer.attr("axis", static_cast<int64_t>(axis)));
}

Value import::either(Compose &c, Value condition, Value yes, Value no) {
  Importer &importer = c.importer;
  Sizes &sizes = importer.sizes;
  Shape a = c.shape(yes), b = c.shape(no), shape = a;
  if (c.failed() || a.size() != b.size() || c.type(yes) != c.type(no))
    return c.fail(
        "the branches of an If whose condition is computed give tensors of other "
        "types or ranks");
  condition = c.reshape(condition, {});
  std::vector<std::pair<size_t, Size>> chosen;
  for (size_t d = 0; d < shape.size(); ++d) {
    Size one = importer.sizeOf(yes, d), other = importer.sizeOf(no, d);
    if (one == other && a[d] == b[d])
      continue;
    shape[d] = std::max({a[d], b[d], int64_t(2)});
    Value size = c.select(condition, sizes.valueOf(one), sizes.valueOf(other));
    auto read = sizes.read(size);
    if (!read)
      return c.fail("the branches of an If give tensors of sizes that have no bound");
    chosen.emplace_back(d, one == other ? one : read->front());
  }
  auto widened = [&](Value value) {
    for (const auto &[d, size] : chosen)
      value = c.take(importer.whole(value, d, ReduceKind::Sum));
    Shape own = c.shape(value);
    if (elementCount(own) == 0)
      return c.zeros(c.type(value), shape);
    std::vector<int64_t> low(own.size(), 0), high;
    for (size_t d = 0; d < own.size(); ++d)
      high.push_back(shape[d] - own[d]);
    return c.pad(value, low, high);
  };
  Value result = c.select(condition, widened(yes), widened(no));
  for (const auto &[d, size] : chosen)
    importer.setSize(result, d, size);
  return result;
}

Value import::placesAlong(Compose &c, Value x, size_t d) {
  Shape shape = c.shape(x);
  Value places = c.iota(c.i64(), shape[d], d, shape.size());
  if (Value count = places ? c.importer.countOf(x, d) : Value())
    c.importer.setCount(places, d, count);
  return places;
}
