//===- Reductions.cpp - Reductions, pools and norms as ONNX nodes ---------===//
#include "passes/RankFiles/RankWriter.h"

#include "partita/Reference/Kernels.h"

#include <numeric>
#include <utility>

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

static StringRef reductionOf(ReduceKind kind) {
  switch (kind) {
  case ReduceKind::Sum:
    return "ReduceSum";
  case ReduceKind::Max:
    return "ReduceMax";
  case ReduceKind::Min:
    return "ReduceMin";
  case ReduceKind::Prod:
    return "ReduceProd";
  }
  return "";
}

static void writeReduce(RankWriter &w, Operation *op) {
  auto reduce = cast<graph::ReduceOp>(op);
  const bool isBool = typeOf(op->getResult(0)) == DType::Bool;
  std::string x = w.name(reduce.getInput());
  if (isBool)
    x = w.castTo(x, DType::U8);
  // ONNX reduces all dims where it gets no axes.
  if (!reduce.getAxes().empty())
    x = w.node(reductionOf(reduce.getKind()), {x, w.ints(graph::vec(reduce.getAxes()))},
               {{"keepdims", int64_t(reduce.getKeepDims())}});
  w.define(op->getResult(0), isBool ? w.castTo(x, DType::Bool) : x);
}

template <typename Op> static void writeSoftmax(RankWriter &w, Operation *op) {
  w.define(op->getResult(0),
           w.node(Op::onnxName(), w.names(op->getOperands()),
                  {{"axis", static_cast<int64_t>(cast<Op>(op).getAxis())}}));
}

/// Scale or bias in the shape that ONNX asks for: that of a row.
static std::string ofRow(RankWriter &w, Value value, const Shape &row) {
  std::string name = w.name(value);
  return shapeOf(value) == row ? name : w.node("Expand", {name, w.ints(row)});
}

static void writeLayerNorm(RankWriter &w, Operation *op) {
  auto norm = cast<graph::LayerNormOp>(op);
  Shape shape = shapeOf(norm.getInput());
  const int64_t axis = fromFront(norm.getAxis(), norm.getInput());
  Shape row(shape.begin() + axis, shape.end());
  w.define(
      op->getResult(0),
      w.node("LayerNormalization",
             {w.name(norm.getInput()), ofRow(w, norm.getScale(), row),
              ofRow(w, norm.getBias(), row)},
             {{"axis", axis},
              {"epsilon", static_cast<float>(norm.getEpsilon().convertToDouble())}}));
}

static void writeRmsNorm(RankWriter &w, Operation *op) {
  auto norm = cast<graph::RmsNormOp>(op);
  Shape shape = shapeOf(norm.getInput());
  const int64_t axis = fromFront(norm.getAxis(), norm.getInput());
  Shape row(shape.begin() + axis, shape.end());
  w.define(
      op->getResult(0),
      w.node("RMSNormalization",
             {w.name(norm.getInput()), ofRow(w, norm.getScale(), row)},
             {{"axis", axis},
              {"epsilon", static_cast<float>(norm.getEpsilon().convertToDouble())}}));
}

//===-- Pools -------------------------------------------------------------===//

/// Pads as long as the window, or negative ones, are elements of the operand here: ONNX
/// Runtime takes them for a mistake. It makes pads of the pool of a Pad, but of one that
/// names its axes.
static std::string padsApart(RankWriter &w, Value x, std::vector<int64_t> &pads,
                             ArrayRef<int64_t> window, ReduceKind fill) {
  const size_t n = window.size();
  bool fits = true;
  for (size_t i = 0; i < pads.size(); ++i)
    fits &= pads[i] >= 0 && pads[i] < window[i % n];
  if (fits)
    return w.name(x);
  std::vector<int64_t> axes(n);
  std::iota(axes.begin(), axes.end(), 2);
  const std::vector<int64_t> apart = std::exchange(pads, std::vector<int64_t>(2 * n, 0));
  return w.node(
      "Pad",
      {w.name(x), w.ints(apart), w.common(neutralScalar(typeOf(x), fill)), w.ints(axes)},
      {{"mode", std::string("constant")}});
}

/// Taps of a window over those that are elements of the operand, by position. A
/// window without any averages nothing: its factor is infinite and the result NaN.
static std::string tapsPerElement(RankWriter &w, graph::PoolOp pool) {
  const Shape in = shapeOf(pool.getInput()), out = shapeOf(pool.getResult());
  std::string factors;
  for (size_t d = 0; d < pool.getWindow().size(); ++d) {
    std::vector<double> list;
    for (int64_t p = 0; p < out[d + 2]; ++p) {
      int64_t count = 0;
      for (int64_t tap = 0; tap < pool.getWindow()[d]; ++tap) {
        const int64_t i =
            p * pool.getStrides()[d] - pool.getPads()[d] + tap * pool.getDilations()[d];
        count += i >= 0 && i < in[d + 2];
      }
      list.push_back(static_cast<double>(pool.getWindow()[d]) /
                     static_cast<double>(count));
    }
    Shape beside(out.size() - d - 2, 1);
    beside[0] = out[d + 2];
    std::string factor =
        w.common(reference::tensor<double>(typeOf(pool.getResult()), beside, list));
    factors = d == 0 ? factor : w.node("Mul", {factors, factor});
  }
  return factors;
}

static void writePool(RankWriter &w, Operation *op) {
  auto pool = cast<graph::PoolOp>(op);
  const bool isMax = pool.getKind() == graph::PoolKind::Max;
  std::vector<int64_t> pads = graph::vec(pool.getPads());
  const std::vector<int64_t> given = pads;
  std::string x = padsApart(w, pool.getInput(), pads, pool.getWindow(),
                            isMax ? ReduceKind::Max : ReduceKind::Sum);
  const bool isApart = !isMax && pads != given && !pool.getCountPadding();
  Attributes attributes{{"kernel_shape", graph::vec(pool.getWindow())},
                        {"strides", graph::vec(pool.getStrides())},
                        {"dilations", graph::vec(pool.getDilations())},
                        {"pads", pads}};
  if (!isMax)
    attributes["count_include_pad"] = int64_t(pool.getCountPadding());
  std::string y = w.node(isMax ? "MaxPool" : "AveragePool", {x}, std::move(attributes));
  w.define(op->getResult(0), isApart ? w.node("Mul", {y, tapsPerElement(w, pool)}) : y);
}

/// Begins of the windows of spatial dim `d`, to be broadcast to all positions `out`.
static std::string windowStarts(RankWriter &w, const Shape &out, size_t d, int64_t stride,
                                int64_t pad) {
  std::vector<int64_t> starts;
  for (int64_t p = 0; p < out[d + 2]; ++p)
    starts.push_back(p * stride - pad);
  Shape beside(out.size() - d - 2, 1);
  beside[0] = out[d + 2];
  return w.reshape(w.ints(starts), beside);
}

/// The taps at whose places the windows have their largest elements. `places` are those
/// in the operand, of dims `in`, all dims counted.
static std::string tapsAt(RankWriter &w, graph::MaxPoolOp pool, const std::string &places,
                          const Shape &in, ArrayRef<int64_t> pads) {
  const size_t n = pool.getWindow().size();
  const Shape out = shapeOf(pool.getTaps());
  std::string taps;
  int64_t pitch = elementCount(Shape(in.begin() + 2, in.end()));
  auto number = [&](int64_t value) { return w.ints({value}); };
  for (size_t d = 0; d < n; ++d) {
    pitch /= in[d + 2];
    std::string row = pitch == 1 ? places : w.node("Div", {places, number(pitch)});
    row = w.node("Mod", {row, number(in[d + 2])});
    row = w.node("Sub", {row, windowStarts(w, out, d, pool.getStrides()[d], pads[d])});
    if (pool.getDilations()[d] != 1)
      row = w.node("Div", {row, number(pool.getDilations()[d])});
    taps = d == 0
               ? row
               : w.node("Add", {w.node("Mul", {taps, number(pool.getWindow()[d])}), row});
  }
  // Windows without an element above the type's least have no place in ONNX Runtime; the
  // first tap is theirs.
  const int64_t last = elementCount(graph::vec(pool.getWindow())) - 1;
  taps = w.where(w.node("Less", {places, number(0)}), number(0), taps);
  return w.node("Min", {w.node("Max", {taps, number(0)}), number(last)});
}

static void writeMaxPool(RankWriter &w, Operation *op) {
  auto pool = cast<graph::MaxPoolOp>(op);
  std::vector<int64_t> pads = graph::vec(pool.getPads());
  const std::vector<int64_t> given = pads;
  const size_t n = pool.getWindow().size();
  std::string x = padsApart(w, pool.getInput(), pads, pool.getWindow(), ReduceKind::Max);
  Shape in = shapeOf(pool.getInput());
  if (pads != given)
    for (size_t d = 0; d < n; ++d)
      in[d + 2] += given[d] + given[n + d];
  Names found = w.nodes("MaxPool", 2, {x},
                        {{"kernel_shape", graph::vec(pool.getWindow())},
                         {"strides", graph::vec(pool.getStrides())},
                         {"dilations", graph::vec(pool.getDilations())},
                         {"pads", pads}});
  w.define(pool.getLargest(), found[0]);
  w.define(pool.getTaps(),
           w.castTo(tapsAt(w, pool, found[1], in, pads), typeOf(pool.getTaps())));
}

/// Scatters what the windows give among zeros. A tap in another rank's block gives
/// nothing.
static void writeMaxPoolBackward(RankWriter &w, Operation *op) {
  auto pool = cast<graph::MaxPoolBackwardOp>(op);
  const Shape made = shapeOf(pool.getResult()), out = shapeOf(pool.getTaps());
  const std::string taps = w.castTo(w.name(pool.getTaps()), DType::I64);
  auto number = [&](int64_t value) { return w.ints({value}); };
  int64_t below = elementCount(graph::vec(pool.getWindow()));
  int64_t pitch = elementCount(Shape(made.begin() + 2, made.end()));
  const Shape flat{made[0], made[1], pitch};
  std::string place, inside;
  for (size_t d = 0; d < pool.getWindow().size(); ++d) {
    below /= pool.getWindow()[d];
    pitch /= made[d + 2];
    std::string at = w.node("Div", {taps, number(below)});
    at = w.node("Mod", {at, number(pool.getWindow()[d])});
    at = w.node("Mul", {at, number(pool.getDilations()[d])});
    at = w.node("Add",
                {at, windowStarts(w, out, d, pool.getStrides()[d], pool.getPads()[d])});
    std::string here = w.node("And", {w.node("Less", {number(-1), at}),
                                      w.node("Less", {at, number(made[d + 2])})});
    at = w.node("Mul", {at, number(pitch)});
    place = d == 0 ? at : w.node("Add", {place, at});
    inside = d == 0 ? here : w.node("And", {inside, here});
  }
  const std::string zero = w.scalar(typeOf(pool.getResult()), 0);
  const Shape positions{out[0], out[1], elementCount(Shape(out.begin() + 2, out.end()))};
  const std::string sums =
      w.node("ScatterElements",
             {w.node("Expand", {zero, w.ints(flat)}),
              w.reshape(w.where(inside, place, number(0)), positions),
              w.reshape(w.where(inside, w.name(pool.getCotangent()), zero), positions)},
             {{"axis", int64_t(2)}, {"reduction", std::string("add")}});
  w.define(op->getResult(0), w.reshape(sums, made));
}

void rank_files::addReductions(WriterTable &table) {
  table[graph::ReduceOp::getOperationName()] = writeReduce;
  table[graph::SoftmaxOp::getOperationName()] = writeSoftmax<graph::SoftmaxOp>;
  table[graph::LogSoftmaxOp::getOperationName()] = writeSoftmax<graph::LogSoftmaxOp>;
  table[graph::LayerNormOp::getOperationName()] = writeLayerNorm;
  table[graph::RmsNormOp::getOperationName()] = writeRmsNorm;
  table[graph::PoolOp::getOperationName()] = writePool;
  table[graph::MaxPoolOp::getOperationName()] = writeMaxPool;
  table[graph::MaxPoolBackwardOp::getOperationName()] = writeMaxPoolBackward;
}
