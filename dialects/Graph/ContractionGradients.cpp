//===- ContractionGradients.cpp - Gradients of sums of products -----------===//
#include "dialects/Graph/Formula.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

namespace {
/// A tensor of a product whose dims are one loop each, or none.
struct LoopDims {
  Value value; ///< null for one that is to be made
  Equation::Tensor dims;
  Shape shape;
};
} // namespace

/// A dim of two loops becomes two: their sizes need not follow from the other tensors.
static LoopDims split(Formula &f, const ShardingRule &rule, const TensorFactors &factors,
                      Value value, const Shape &shape) {
  LoopDims result{value, {}, {}};
  for (auto [d, dim] : llvm::enumerate(factors)) {
    if (dim.empty()) {
      result.dims.emplace_back();
      result.shape.push_back(shape[d]);
    }
    for (int32_t factor : dim) {
      result.dims.push_back({rule.loopName(static_cast<size_t>(factor))});
      result.shape.push_back(rule.factors[static_cast<size_t>(factor)].size);
    }
  }
  if (value)
    result.value = f.reshape(value, result.shape);
  return result;
}

/// The cotangent of one operand is the product of the result's and the other operand. A
/// loop that no other tensor has is summed by itself: along it the cotangent is the same
/// everywhere, and it is made with one element, then stretched.
static Value contractCotangent(Formula &f, ContractOp op, const ShardingRule &rule,
                               unsigned operand, Value cotangent) {
  Value self = op->getOperand(operand), other = op->getOperand(1 - operand);
  LoopDims g = split(f, rule, rule.results[0], cotangent, f.shape(cotangent));
  LoopDims b = split(f, rule, rule.operands[1 - operand], other, f.shape(other));
  LoopDims target = split(f, rule, rule.operands[operand], nullptr, f.shape(self));
  Equation::Tensor made = target.dims;
  for (auto &dim : made)
    if (!dim.empty() && !llvm::is_contained(g.dims, dim) &&
        !llvm::is_contained(b.dims, dim))
      dim.clear();
  Value product = f.contract(g.value, b.value, Equation{{g.dims, b.dims}, {made}});
  return f.reshape(f.broadcast(product, target.shape), f.shape(self));
}

Expected<std::vector<Value>> ContractOp::gradients(OpBuilder &builder,
                                                   ArrayRef<Value> cotangents,
                                                   const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  auto rule = inferShardingRule();
  if (!rule)
    return tl::unexpected(rule.error());
  Values results(2);
  for (unsigned i = 0; i < 2; ++i)
    if (wanted[i])
      results[i] = contractCotangent(f, *this, *rule, i, cotangents[0]);
  return f.results(results);
}

//===----------------------------------------------------------------------===//
// Convolutions
//===----------------------------------------------------------------------===//

template <typename Op> static SmallVector<NamedAttribute> windowAttrs(Formula &f, Op op) {
  return {f.attr("strides", op.getStrides()), f.attr("dilations", op.getDilations()),
          f.attr("pads", op.getPads()),
          f.attr("group", static_cast<int64_t>(op.getGroup()))};
}

/// Elements behind those that the windows of `positions` cover.
static SmallVector<int64_t> uncovered(const Shape &input, const Shape &positions,
                                      ArrayRef<int64_t> kernel, ArrayRef<int64_t> strides,
                                      ArrayRef<int64_t> dilations,
                                      ArrayRef<int64_t> pads) {
  SmallVector<int64_t> more;
  for (size_t d = 0, n = kernel.size(); d < n; ++d) {
    int64_t covered =
        (positions[2 + d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d];
    more.push_back(input[2 + d] + pads[d] + pads[n + d] - covered - 1);
  }
  return more;
}

/// The cotangent of a convolution's operand: what it adds in `cotangent` comes back.
template <typename Op>
static Value imageCotangent(Formula &f, Op op, Value filter, Value cotangent,
                            const Shape &image) {
  Shape kernel = f.shape(filter);
  kernel.erase(kernel.begin(), kernel.begin() + 2);
  SmallVector<NamedAttribute> attrs = windowAttrs(f, op);
  attrs.push_back(
      f.attr("output_padding",
             ArrayRef(uncovered(image, f.shape(cotangent), kernel, op.getStrides(),
                                op.getDilations(), op.getPads()))));
  return f.op("conv_transpose", {cotangent, filter}, attrs);
}

static Value biasCotangent(Formula &f, Value cotangent) {
  std::vector<int64_t> axes = f.dimsFrom(2, cotangent);
  axes.insert(axes.begin(), 0);
  return f.sum(cotangent, axes, /*keep=*/false);
}

Expected<std::vector<Value>> ConvOp::gradients(OpBuilder &builder,
                                               ArrayRef<Value> cotangents,
                                               const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  Values results(getNumOperands());
  Value g = cotangents[0];
  if (wanted[0])
    results[0] = imageCotangent(f, *this, getFilter(), g, f.shape(getInput()));
  if (wanted[1])
    results[1] = f.shaped("conv_backward_filter", {getInput(), g}, shapeOf(getFilter()),
                          windowAttrs(f, *this));
  if (getBias() && wanted[2])
    results[2] = biasCotangent(f, g);
  return f.results(results);
}

/// Its filter is [C, O/group, kernel…]: that of the convolution from the result to the
/// operand, whose input is the cotangent. Whole strides of `output_padding` would be
/// positions of it that the operand does not have.
Expected<std::vector<Value>> ConvTransposeOp::gradients(OpBuilder &builder,
                                                        ArrayRef<Value> cotangents,
                                                        const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  Values results(getNumOperands());
  Value g = cotangents[0];
  SmallVector<int64_t> pads(getPads());
  for (size_t d = 0, n = getStrides().size(); d < n; ++d)
    pads[n + d] -= getOutputPadding()[d] / getStrides()[d] * getStrides()[d];
  SmallVector<NamedAttribute> attrs = windowAttrs(f, *this);
  attrs[2] = f.attr("pads", ArrayRef(pads));
  if (wanted[0])
    results[0] = f.op("conv", {g, getFilter()}, attrs);
  if (wanted[1])
    results[1] =
        f.shaped("conv_backward_filter", {g, getInput()}, shapeOf(getFilter()), attrs);
  if (getBias() && wanted[2])
    results[2] = biasCotangent(f, g);
  return f.results(results);
}

/// It is linear in both operands, and its own cotangent is a filter: the convolution by
/// it is what the cotangent's operand gets.
Expected<std::vector<Value>>
ConvBackwardFilterOp::gradients(OpBuilder &builder, ArrayRef<Value> cotangents,
                                const std::vector<bool> &wanted) {
  Formula f(builder, getLoc());
  Values results(2);
  Value filter = cotangents[0];
  if (wanted[0])
    results[0] = imageCotangent(f, *this, filter, getCotangent(), f.shape(getInput()));
  if (wanted[1])
    results[1] = f.op("conv", {getInput(), filter}, windowAttrs(f, *this));
  return f.results(results);
}

//===----------------------------------------------------------------------===//
// Pools
//===----------------------------------------------------------------------===//

/// Of how many elements each position is the average: [1, 1, positions…], or a number.
static Value averageCount(Formula &f, PoolOp op) {
  double all = 1;
  for (int64_t extent : op.getWindow())
    all *= static_cast<double>(extent);
  Value x = op.getInput();
  bool isPadded = llvm::any_of(op.getPads(), [](int64_t pad) { return pad != 0; });
  if (op.getCountPadding() || !isPadded)
    return f.like(x, all);
  Shape one = f.shape(x);
  one[0] = one[1] = 1;
  Value ones = f.broadcast(f.like(x, 1), one);
  auto *context = op.getContext();
  Value share =
      f.op("pool", ones,
           {f.attr("kind", PoolKindAttr::get(context, PoolKind::Average)),
            f.attr("window", op.getWindow()), f.attr("strides", op.getStrides()),
            f.attr("dilations", op.getDilations()), f.attr("pads", op.getPads()),
            f.attr("count_padding", f.builder.getBoolAttr(true))});
  return f.mul(share, all);
}

static Value averageCotangent(Formula &f, PoolOp op, Value cotangent) {
  Value x = op.getInput();
  int64_t channels = f.shape(x)[1];
  Shape filter{channels, 1};
  filter.insert(filter.end(), op.getWindow().begin(), op.getWindow().end());
  Value ones = f.broadcast(f.like(x, 1), filter);
  auto more = uncovered(f.shape(x), f.shape(cotangent), op.getWindow(), op.getStrides(),
                        op.getDilations(), op.getPads());
  return f.op("conv_transpose", {f.div(cotangent, averageCount(f, op)), ones},
              {f.attr("strides", op.getStrides()), f.attr("dilations", op.getDilations()),
               f.attr("pads", op.getPads()), f.attr("group", channels),
               f.attr("output_padding", ArrayRef(more))});
}

/// Places of the elements that taps name, in a plane of the operand [N, C, positions];
/// 0 for one that lies outside, or of no tap of the window.
struct TapPlaces {
  Value place, isInside;
};

template <typename Op>
static TapPlaces placesOf(Formula &f, Op op, Value taps, const Shape &input) {
  Shape positions = f.shape(taps);
  Value rest = f.cast(taps, f.i64()), place;
  const int64_t count = elementCount(vec(op.getWindow()));
  Value isInside =
      f.both(f.less(f.like(rest, -1), rest), f.less(rest, static_cast<double>(count)));
  int64_t step = 1;
  for (size_t d = op.getWindow().size(); d-- > 0;) {
    const auto size = static_cast<double>(op.getWindow()[d]);
    Value tap = d == 0 ? rest : f.op("mod", {rest, f.like(rest, size)});
    rest = f.div(rest, size);
    Value first = f.sub(f.mul(f.iota(f.i64(), positions[2 + d], 2 + d, input.size()),
                              static_cast<double>(op.getStrides()[d])),
                        static_cast<double>(op.getPads()[d]));
    Value at = f.add(f.mul(tap, static_cast<double>(op.getDilations()[d])), first);
    Value both =
        f.both(f.less(f.like(at, -1), at), f.less(at, static_cast<double>(input[2 + d])));
    at = f.mul(at, static_cast<double>(step));
    place = place ? f.add(place, at) : at;
    isInside = f.both(isInside, both);
    step *= input[2 + d];
  }
  return {f.select(isInside, place, f.like(place, 0)), isInside};
}

/// [N, C, elements]
static Shape planesOf(const Shape &shape) {
  return {shape[0], shape[1], elementCount(Shape(shape.begin() + 2, shape.end()))};
}

/// Each position gives its cotangent to the element that was the largest of its window.
template <typename Op>
static Value maximumCotangent(Formula &f, Op op, Value taps, Value cotangent) {
  Shape input = f.shape(op.getInput());
  if (!graph::detail::areFewTaps(op.getWindow())) {
    TapPlaces at = placesOf(f, op, taps, input);
    Shape flat = planesOf(f.shape(cotangent));
    Value given = f.select(at.isInside, cotangent, f.like(cotangent, 0));
    Value made = f.op(
        "scatter_elements",
        {f.zeros(f.type(cotangent), planesOf(input)), f.reshape(at.place, flat),
         f.reshape(given, flat)},
        {f.attr("axis", int64_t(2)),
         f.attr("kind", ReduceKindAttr::get(f.builder.getContext(), ReduceKind::Sum))});
    return f.reshape(made, input);
  }
  return f.shaped("max_pool_backward", {cotangent, taps}, f.shape(op.getInput()),
                  {f.attr("window", op.getWindow()), f.attr("strides", op.getStrides()),
                   f.attr("dilations", op.getDilations()), f.attr("pads", op.getPads())});
}

Expected<std::vector<Value>> PoolOp::gradients(OpBuilder &builder,
                                               ArrayRef<Value> cotangents,
                                               const std::vector<bool> &) {
  Formula f(builder, getLoc());
  if (getKind() == PoolKind::Average)
    return f.results({averageCotangent(f, *this, cotangents[0])});
  Values both = f.ops("max_pool", 2, getInput(),
                      {f.attr("window", getWindow()), f.attr("strides", getStrides()),
                       f.attr("dilations", getDilations()), f.attr("pads", getPads())});
  return f.results({maximumCotangent(f, *this, both[1], cotangents[0])});
}

Expected<std::vector<Value>> MaxPoolOp::gradients(OpBuilder &builder,
                                                  ArrayRef<Value> cotangents,
                                                  const std::vector<bool> &) {
  Formula f(builder, getLoc());
  if (!cotangents[0])
    return std::vector<Value>(1);
  return f.results({maximumCotangent(f, *this, getTaps(), cotangents[0])});
}

/// A cotangent counts in the element that its tap names.
Expected<std::vector<Value>> MaxPoolBackwardOp::gradients(OpBuilder &builder,
                                                          ArrayRef<Value> cotangents,
                                                          const std::vector<bool> &) {
  Formula f(builder, getLoc());
  Shape input = shapeOf(getResult()), positions = shapeOf(getCotangent());
  TapPlaces at = placesOf(f, *this, getTaps(), input);
  Value found = f.op("gather_elements",
                     {f.reshape(cotangents[0], planesOf(input)),
                      f.reshape(at.place, planesOf(positions))},
                     {f.attr("axis", int64_t(2))});
  found = f.reshape(found, positions);
  return f.results({f.select(at.isInside, found, f.like(found, 0)), nullptr});
}
