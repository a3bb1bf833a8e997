//===- ShapeGradients.cpp - Gradients of ops that move elements -----------===//
#include "dialects/Graph/Formula.h"

#include "partita/Reference/Kernels.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

Expected<std::vector<Value>> ReshapeOp::gradients(OpBuilder &builder,
                                                  ArrayRef<Value> cotangents,
                                                  const std::vector<bool> &) {
  Formula f(builder, getLoc());
  return f.results({f.reshape(cotangents[0], f.shape(getInput()))});
}

Expected<std::vector<Value>> TransposeOp::gradients(OpBuilder &builder,
                                                    ArrayRef<Value> cotangents,
                                                    const std::vector<bool> &) {
  Formula f(builder, getLoc());
  std::vector<int64_t> inverse(getPermutation().size());
  for (auto [d, from] : llvm::enumerate(getPermutation()))
    inverse[static_cast<size_t>(from)] = static_cast<int64_t>(d);
  return f.results({f.transpose(cotangents[0], inverse)});
}

Expected<std::vector<Value>> BroadcastOp::gradients(OpBuilder &builder,
                                                    ArrayRef<Value> cotangents,
                                                    const std::vector<bool> &) {
  Formula f(builder, getLoc());
  return f.results({f.unbroadcast(cotangents[0], f.shape(getInput()))});
}

/// Zeros between the elements of dim `d`, `step` − 1 behind each.
static Value spread(Formula &f, Value g, size_t d, int64_t step) {
  Shape rows = f.shape(g);
  rows.insert(rows.begin() + static_cast<int64_t>(d) + 1, 1);
  SmallVector<int64_t> low(rows.size(), 0), high(rows.size(), 0);
  high[d + 1] = step - 1;
  Shape joined = f.shape(g);
  joined[d] *= step;
  return f.reshape(f.pad(f.reshape(g, rows), low, high), joined);
}

/// Where a slice took elements, they go back; zeros stand elsewhere.
Expected<std::vector<Value>> SliceOp::gradients(OpBuilder &builder,
                                                ArrayRef<Value> cotangents,
                                                const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Value g = cotangents[0];
  Shape input = f.shape(getInput());
  SmallVector<int64_t> low, high;
  for (size_t d = 0; d < input.size(); ++d) {
    int64_t count = f.shape(g)[d], step = getSteps()[d], first = getStarts()[d];
    if (step < 0) {
      g = f.reversed(g, d);
      first += (count - 1) * step;
    }
    if (int64_t distance = std::abs(step); distance > 1 && count > 1)
      g = f.slice(spread(f, g, d, distance), d, 0, (count - 1) * distance + 1);
    if (!g)
      break;
    low.push_back(first);
    high.push_back(input[d] - first - f.shape(g)[d]);
  }
  return f.results({f.pad(g, low, high)});
}

Expected<std::vector<Value>> ConcatOp::gradients(OpBuilder &builder,
                                                 ArrayRef<Value> cotangents,
                                                 const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  Values results;
  size_t d = f.axis(getAxis(), cotangents[0]);
  int64_t from = 0;
  for (auto [i, input] : llvm::enumerate(getInputs())) {
    int64_t extent = f.shape(input)[d];
    results.push_back(wanted[i] ? f.slice(cotangents[0], d, from, from + extent)
                                : Value());
    from += extent;
  }
  return f.results(results);
}

static NamedAttribute sumKind(Formula &f) {
  return f.attr("kind", ReduceKindAttr::get(f.builder.getContext(), ReduceKind::Sum));
}

/// Adds the rows of `g`, along dim `d`, to those rows of zeros that `places` names.
static Value addRows(Formula &f, Value g, Value places, size_t d, const Shape &shape) {
  Shape along(f.shape(g).size(), 1);
  along[d] = f.shape(g)[d];
  Value indices = f.broadcast(f.reshape(places, along), f.shape(g));
  return f.op("scatter_elements", {f.zeros(f.type(g), shape), indices, g},
              {f.attr("axis", static_cast<int64_t>(d)), sumKind(f)});
}

/// The element that stands at place `i` of a padded dim, by the mode.
static int64_t paddedFrom(PadMode mode, int64_t i, int64_t extent) {
  if (mode == PadMode::Edge)
    return std::clamp<int64_t>(i, 0, extent - 1);
  int64_t period = 2 * (extent - 1);
  if (period == 0)
    return 0;
  int64_t at = ((i % period) + period) % period;
  return at < extent ? at : period - at;
}

Expected<std::vector<Value>> PadOp::gradients(OpBuilder &builder,
                                              ArrayRef<Value> cotangents,
                                              const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  Value g = cotangents[0];
  Values results(2);
  if (getMode() == PadMode::Constant) {
    SmallVector<int64_t> low, high;
    for (int64_t amount : getLow())
      low.push_back(-amount);
    for (int64_t amount : getHigh())
      high.push_back(-amount);
    Value inner = f.pad(g, low, high);
    results[0] = inner;
    if (wanted[1]) {
      auto all = [&](Value v) { return f.sum(v, f.dimsFrom(0, v), /*keep=*/false); };
      results[1] = f.reshape(f.sub(all(g), all(inner)), f.shape(getValue()));
    }
    return f.results(results);
  }
  for (size_t d = 0; d < getLow().size() && g; ++d) {
    if (getLow()[d] == 0 && getHigh()[d] == 0)
      continue;
    Shape shape = f.shape(g);
    int64_t extent = f.shape(getInput())[d];
    std::vector<double> places;
    for (int64_t i = 0; i < shape[d]; ++i)
      places.push_back(
          static_cast<double>(paddedFrom(getMode(), i - getLow()[d], extent)));
    Value named = f.tensor(f.i64(), {shape[d]}, places);
    shape[d] = extent;
    g = addRows(f, g, named, d, shape);
  }
  results[0] = g;
  return f.results(results);
}

//===----------------------------------------------------------------------===//
// Lookups
//===----------------------------------------------------------------------===//

Expected<std::vector<Value>> GatherOp::gradients(OpBuilder &builder,
                                                 ArrayRef<Value> cotangents,
                                                 const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Shape data = f.shape(getData()), indices = f.shape(getIndices()), rows = data;
  size_t d = f.axis(getAxis(), getData());
  rows[d] = elementCount(indices);
  Value g = f.reshape(cotangents[0], rows);
  return f.results({addRows(f, g, f.reshape(getIndices(), {rows[d]}), d, data)});
}

/// Rows of a flat view of the data, by places counted over the dims that are indexed.
Expected<std::vector<Value>> GatherNDOp::gradients(OpBuilder &builder,
                                                   ArrayRef<Value> cotangents,
                                                   const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Shape data = f.shape(getData()), indices = f.shape(getIndices());
  auto batch = static_cast<size_t>(getBatchDims());
  size_t depth = static_cast<size_t>(indices.back()), last = indices.size() - 1;
  Value place = nullptr;
  for (size_t k = 0; k < batch + depth; ++k) {
    Value at;
    if (k < batch) {
      at = f.iota(f.i64(), data[k], k, indices.size());
    } else {
      auto column = static_cast<int64_t>(k - batch);
      at = f.cast(f.slice(getIndices(), last, column, column + 1), f.i64());
      auto extent = static_cast<double>(data[k]);
      at = f.select(f.less(at, 0), f.add(at, extent), at);
    }
    place = place ? f.add(f.mul(place, static_cast<double>(data[k])), at) : at;
  }
  int64_t count = 1, rows = 1;
  for (size_t k = 0; k < batch + depth; ++k)
    rows *= data[k];
  for (size_t d = 0; d < last; ++d)
    count *= indices[d];
  int64_t width = elementCount(data) / rows;
  Shape whole(indices.begin(), indices.end());
  whole.back() = 1;
  Value made = addRows(f, f.reshape(cotangents[0], {count, width}),
                       f.reshape(f.broadcast(place, whole), {count}), 0, {rows, width});
  return f.results({f.reshape(made, data)});
}

Expected<std::vector<Value>> CumSumOp::gradients(OpBuilder &builder,
                                                 ArrayRef<Value> cotangents,
                                                 const std::vector<bool> &) {
  Formula f(builder, getLoc());
  return f.results({f.op("cumsum", cotangents[0],
                         {f.attr("axis", static_cast<int64_t>(getAxis())),
                          f.attr("exclusive", builder.getBoolAttr(getExclusive())),
                          f.attr("reverse", builder.getBoolAttr(!getReverse()))})});
}

/// The values `by` places further along dim `d`, zeros behind the end; the other way
/// round if `reverse`.
static Value further(Formula &f, Value v, size_t d, int64_t by, bool reverse) {
  Shape low(f.shape(v).size()), high = low;
  (reverse ? low : high)[d] = by;
  (reverse ? high : low)[d] = -by;
  return f.pad(v, low, high);
}

/// With y[j] = Π x[k] over k ≤ j (over k < j if exclusive), the cotangent of x[i] is the
/// product before it times
///     s[i] = Σ g[j] · Π x[k], j ≥ i, i < k ≤ j,  so  s[i] = g[i] + x[i + 1] · s[i + 1]:
/// no division, so that zeros do no harm. The recurrence is solved in log₂(n) steps, each
/// of which reaches twice as far as the one before.
Expected<std::vector<Value>> CumProdOp::gradients(OpBuilder &builder,
                                                  ArrayRef<Value> cotangents,
                                                  const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Value x = getInput(), g = cotangents[0];
  size_t d = f.axis(getAxis(), x);
  auto next = [&](Value v, int64_t by) { return further(f, v, d, by, getReverse()); };
  Value sum = getExclusive() ? next(g, 1) : g, factor = next(x, 1);
  for (int64_t by = 1, extent = f.shape(x)[d]; by < extent; by *= 2) {
    sum = f.add(sum, f.mul(factor, next(sum, by)));
    if (by * 2 < extent)
      factor = f.mul(factor, next(factor, by));
  }
  Value before = f.op("cumprod", x,
                      {f.attr("axis", static_cast<int64_t>(d)),
                       f.attr("exclusive", builder.getBoolAttr(true)),
                       f.attr("reverse", builder.getBoolAttr(getReverse()))});
  return f.results({f.mul(before, sum)});
}

/// Resampling is linear, dim by dim: [extent, new extent], what each element gives to
/// each of the result.
static Expected<HostTensor> resamplingMatrix(ResizeOp op, size_t d) {
  int64_t from = shapeOf(op.getInput())[d], to = shapeOf(op.getResult())[d];
  HostTensor identity = HostTensor::zeros(DType::F64, {from, from});
  std::vector<double> values(static_cast<size_t>(from * from), 0);
  for (int64_t i = 0; i < from; ++i)
    values[static_cast<size_t>(i * from + i)] = 1;
  identity = reference::tensor<double>(DType::F64, {from, from}, values);
  Builder builder(op.getContext());
  auto rows = RankedTensorType::get({from, to}, builder.getF64Type());
  Operation *one = op->clone();
  one->setAttr("scales", builder.getDenseF64ArrayAttr({1.0, op.getScales()[d]}));
  one->getResult(0).setType(rows);
  auto made = cast<EvaluateOpInterface>(one).evaluate({&identity});
  one->destroy();
  if (!made)
    return tl::unexpected(made.error());
  return std::move(made->front());
}

Expected<std::vector<Value>> ResizeOp::gradients(OpBuilder &builder,
                                                 ArrayRef<Value> cotangents,
                                                 const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Value g = cotangents[0];
  for (size_t d = 0; d < getScales().size() && g; ++d) {
    Shape shape = f.shape(g);
    int64_t extent = f.shape(getInput())[d];
    if (getScales()[d] == 1 && shape[d] == extent)
      continue;
    auto matrix = resamplingMatrix(*this, d);
    if (!matrix)
      return tl::unexpected(matrix.error());
    Value weights =
        f.tensor(f.type(g), matrix->shape, reference::values<double>(*matrix));
    Equation::Tensor before, after;
    for (size_t k = 0; k < shape.size(); ++k) {
      before.push_back({"d" + std::to_string(k)});
      after.push_back({k == d ? "s" : "d" + std::to_string(k)});
    }
    Equation::Tensor rows{{"s"}, {"d" + std::to_string(d)}};
    g = f.contract(g, weights, Equation{{before, rows}, {after}});
  }
  return f.results({g});
}

//===----------------------------------------------------------------------===//
// Places along an axis
//===----------------------------------------------------------------------===//

Expected<std::vector<Value>> GatherElementsOp::gradients(OpBuilder &builder,
                                                         ArrayRef<Value> cotangents,
                                                         const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Values results(2);
  results[0] =
      f.op("scatter_elements", {f.zerosLike(getData()), getIndices(), cotangents[0]},
           {f.attr("axis", static_cast<int64_t>(getAxis())), sumKind(f)});
  return f.results(results);
}

/// 1 where an update is what stands at its place behind the scatter, 0 where a later one
/// replaced it: each update writes its number, and looks what is there.
static Value lastWritten(Formula &f, ScatterElementsOp op, NamedAttribute axis) {
  Value indices = op.getIndices();
  Shape shape = f.shape(indices);
  size_t d = f.axis(op.getAxis(), op.getData());
  Value own = f.broadcast(f.iota(f.i64(), shape[d], d, shape.size()), shape);
  Value zeros = f.zeros(f.i64(), f.shape(op.getData()));
  Value written = f.op("scatter_elements", {zeros, indices, own}, axis);
  return f.equal(f.op("gather_elements", {written, indices}, axis), own);
}

namespace {
/// Cotangents of the data and the updates of a scatter that combines them.
struct ScatterCotangents {
  Formula &f;
  ScatterElementsOp op;
  Value g;

  NamedAttribute axis() { return f.attr("axis", static_cast<int64_t>(op.getAxis())); }
  Value at(Value data) {
    return f.op("gather_elements", {data, op.getIndices()}, axis());
  }
  Value combined(Value data, Value updates, ReduceKind kind) {
    return f.op("scatter_elements", {data, op.getIndices(), updates},
                {axis(), f.attr("kind", ReduceKindAttr::get(op.getContext(), kind))});
  }
  Value asNumber(Value condition) { return f.cast(condition, f.type(g)); }

  /// Those that are equally large share the cotangent, as in a maximum over a dim.
  std::pair<Value, Value> ofExtreme() {
    Value ofData = asNumber(f.equal(op.getData(), op.getResult()));
    Value ofUpdates = asNumber(f.equal(op.getUpdates(), at(op.getResult())));
    Value share = f.div(g, combined(ofData, ofUpdates, ReduceKind::Sum));
    return {f.mul(ofData, share), f.mul(ofUpdates, at(share))};
  }

  /// The product of the others: of two zeros or more it is 0; a single one has that of
  /// all that are not 0, which have 0.
  std::pair<Value, Value> ofProduct() {
    auto isZero = [&](Value v) { return f.equal(v, 0); };
    auto orOne = [&](Value v) { return f.select(isZero(v), f.like(v, 1), v); };
    Value zeros = combined(asNumber(isZero(op.getData())),
                           asNumber(isZero(op.getUpdates())), ReduceKind::Sum);
    Value rest =
        f.mul(g, combined(orOne(op.getData()), orOne(op.getUpdates()), ReduceKind::Prod));
    auto cotangent = [&](Value v, Value zerosThere, Value restThere) {
      Value others = f.sub(zerosThere, asNumber(isZero(v)));
      return f.select(f.equal(others, 0), f.div(restThere, orOne(v)), f.like(g, 0));
    };
    return {cotangent(op.getData(), zeros, rest),
            cotangent(op.getUpdates(), at(zeros), at(rest))};
  }
};
} // namespace

/// Where updates replace elements, these have no part in the result.
Expected<std::vector<Value>>
ScatterElementsOp::gradients(OpBuilder &builder, ArrayRef<Value> cotangents,
                             const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  Value g = cotangents[0];
  NamedAttribute axis = f.attr("axis", static_cast<int64_t>(getAxis()));
  if (getKind() && *getKind() != ReduceKind::Sum) {
    ScatterCotangents made{f, *this, g};
    auto [data, updates] =
        *getKind() == ReduceKind::Prod ? made.ofProduct() : made.ofExtreme();
    return f.results(
        {wanted[0] ? data : Value(), Value(), wanted[2] ? updates : Value()});
  }
  Values results(3);
  if (wanted[0])
    results[0] = getKind() ? g
                           : f.op("scatter_elements",
                                  {g, getIndices(), f.zerosLike(getUpdates())}, axis);
  if (wanted[2])
    results[2] = f.op("gather_elements", {g, getIndices()}, axis);
  if (wanted[2] && !getKind())
    results[2] = f.select(lastWritten(f, *this, axis), results[2], f.like(results[2], 0));
  return f.results(results);
}

Expected<std::vector<Value>> SortOp::gradients(OpBuilder &builder,
                                               ArrayRef<Value> cotangents,
                                               const std::vector<bool> &) {
  Formula f(builder, getLoc());
  if (!cotangents[0])
    return std::vector<Value>(1);
  size_t d = f.axis(getAxis(), getInput());
  auto count = static_cast<int64_t>(getCount());
  auto first = [&](Value v) { return f.slice(v, d, 0, count); };
  return f.results(
      {f.op("scatter_elements",
            {f.zerosLike(getInput()), first(getIndices()), first(cotangents[0])},
            {f.attr("axis", static_cast<int64_t>(d)), sumKind(f)})});
}
