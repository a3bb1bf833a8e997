//===- ReductionGradients.cpp - Gradients of reductions and norms ---------===//
#include "dialects/Graph/Formula.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

/// The product of all other elements along the axes: running products from both ends, so
/// that a zero among them is no division by zero.
static Value productOfOthers(Formula &f, Value x, ArrayRef<int64_t> axes) {
  Shape shape = f.shape(x), flat;
  std::vector<int64_t> order, back(shape.size());
  int64_t joined = 1;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!llvm::is_contained(axes, static_cast<int64_t>(d)))
      order.push_back(static_cast<int64_t>(d)), flat.push_back(shape[d]);
  for (int64_t d : axes)
    order.push_back(d), joined *= shape[static_cast<size_t>(d)];
  flat.push_back(joined);
  Shape moved;
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    moved.push_back(shape[static_cast<size_t>(order[i])]);
  }
  Value rows = f.reshape(f.transpose(x, order), flat);
  auto running = [&](bool reverse) {
    return f.op("cumprod", rows,
                {f.attr("axis", static_cast<int64_t>(flat.size()) - 1),
                 f.attr("exclusive", f.builder.getBoolAttr(true)),
                 f.attr("reverse", f.builder.getBoolAttr(reverse))});
  };
  Value others = f.mul(running(false), running(true));
  return f.transpose(f.reshape(others, moved), back);
}

/// Elements that are equally large share the cotangent of their maximum.
Expected<std::vector<Value>> ReduceOp::gradients(OpBuilder &builder,
                                                 ArrayRef<Value> cotangents,
                                                 const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Value x = getInput();
  Shape shape = f.shape(x), kept = shape;
  std::vector<int64_t> axes;
  for (int64_t axis : getAxes())
    axes.push_back(static_cast<int64_t>(f.axis(axis, x)));
  for (int64_t d : axes)
    kept[static_cast<size_t>(d)] = 1;
  Value g = f.reshape(cotangents[0], kept);
  if (getKind() == ReduceKind::Sum)
    return f.results({f.broadcast(g, shape)});
  if (getKind() == ReduceKind::Prod)
    return f.results({f.mul(g, productOfOthers(f, x, axes))});
  Value mask = f.cast(f.equal(x, f.reshape(getResult(), kept)), f.type(x));
  return f.results({f.mul(mask, f.div(g, f.sum(mask, axes)))});
}

Expected<std::vector<Value>> SoftmaxOp::gradients(OpBuilder &builder,
                                                  ArrayRef<Value> cotangents,
                                                  const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], y = getResult();
  auto axis = static_cast<int64_t>(f.axis(getAxis(), y));
  Value inner = f.sum(f.mul(g, y), {axis});
  return f.results({f.map("(x - z) * y", {g, y, inner})});
}

Expected<std::vector<Value>> LogSoftmaxOp::gradients(OpBuilder &builder,
                                                     ArrayRef<Value> cotangents,
                                                     const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], y = getResult();
  auto axis = static_cast<int64_t>(f.axis(getAxis(), y));
  return f.results({f.map("x - exp(y) * z", {g, y, f.sum(g, {axis})})});
}

Expected<std::vector<Value>> LayerNormOp::gradients(OpBuilder &builder,
                                                    ArrayRef<Value> cotangents,
                                                    const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], x = getInput();
  std::vector<int64_t> axes = f.dimsFrom(f.axis(getAxis(), x), x);
  Values results(3);
  if (wanted[2])
    results[2] = f.unbroadcast(g, f.shape(getBias()));
  if (!wanted[0] && !wanted[1])
    return f.results(results);
  Value mean = f.mean(x, axes);
  Value variance = f.mean(f.map("(x - y) * (x - y)", {x, mean}), axes);
  Value inverse = f.reciprocalRoot(variance, getEpsilon().convertToDouble());
  Value normal = f.map("(x - y) * z", {x, mean, inverse});
  if (wanted[1])
    results[1] = f.unbroadcast(f.mul(g, normal), f.shape(getScale()));
  if (wanted[0]) {
    Value scaled = f.mul(g, getScale());
    Value along = f.mean(f.mul(scaled, normal), axes);
    results[0] = f.map("(x - z - y * w) * x4",
                       {scaled, normal, f.mean(scaled, axes), along, inverse});
  }
  return f.results(results);
}

Expected<std::vector<Value>> RmsNormOp::gradients(OpBuilder &builder,
                                                  ArrayRef<Value> cotangents,
                                                  const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  Value g = cotangents[0], x = getInput();
  std::vector<int64_t> axes = f.dimsFrom(f.axis(getAxis(), x), x);
  Values results(2);
  Value inverse =
      f.reciprocalRoot(f.mean(f.mul(x, x), axes), getEpsilon().convertToDouble());
  Value normal = f.mul(x, inverse);
  if (wanted[1])
    results[1] = f.unbroadcast(f.mul(g, normal), f.shape(getScale()));
  if (wanted[0]) {
    Value scaled = f.mul(g, getScale());
    Value along = f.mean(f.mul(scaled, normal), axes);
    results[0] = f.map("(x - y * z) * w", {scaled, normal, along, inverse});
  }
  return f.results(results);
}
