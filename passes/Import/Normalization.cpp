//===- Normalization.cpp - Import of normalizations by their formulas -----===//
#include "passes/Import/Compose.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// The shape of a parameter per channel (dim 1) beside a tensor of this rank.
static Shape perChannel(int64_t channels, size_t rank) {
  Shape shape(rank > 1 ? rank - 1 : 1, 1);
  shape[0] = channels;
  return shape;
}

static Value channelParameter(Compose &c, Value parameter, Value x) {
  return c.reshape(parameter,
                   perChannel(elementCount(c.shape(parameter)), c.shape(x).size()));
}

namespace {
/// x − mean and 1 / √(variance + ε) over some dims, kept as dims of size 1.
struct Moments {
  Value mean, offset, inverse, variance;
};
} // namespace

static Moments momentsOf(Compose &c, Value x, ArrayRef<int64_t> axes, double epsilon) {
  Moments m;
  m.mean = c.mean(x, axes);
  m.offset = c.sub(x, m.mean);
  m.variance = c.mean(c.mul(m.offset, m.offset), axes);
  Value deviation = c.sqrt(c.add(m.variance, epsilon));
  m.inverse = c.div(c.like(deviation, 1), deviation);
  return m;
}

/// With mean and inverse deviation as results; computed in `stash_type`.
static Expected<Values> importLayerNormWithMoments(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), scale = importer.input(node, 1);
  Value bias = importer.input(node, 2);
  Type element = c.type(x);
  auto stash = elementTypeOfOnnx(importer, intAttr(node, "stash_type", 1));
  if (!stash)
    return tl::unexpected(stash.error());
  auto axes = c.dimsFrom(c.axis(intAttr(node, "axis", -1), x), x);
  Moments m = momentsOf(c, c.cast(x, *stash), axes, floatAttr(node, "epsilon", 1e-5));
  Value y = c.mul(c.cast(c.mul(m.offset, m.inverse), element), scale);
  if (bias)
    y = c.add(y, bias);
  return c.results({y, m.mean, m.inverse});
}

/// A parameter as it broadcasts to the dims from `axis` on; null if it has others, too.
static Value ofRow(Compose &c, Value parameter, size_t rank, size_t axis) {
  Shape shape = c.shape(parameter);
  size_t more = shape.size() - std::min(shape.size(), rank - axis);
  if (llvm::any_of(ArrayRef(shape).take_front(more), [](int64_t n) { return n != 1; }))
    return nullptr;
  return c.reshape(parameter,
                   Shape(shape.begin() + static_cast<int64_t>(more), shape.end()));
}

/// LayerNormalization of one result, and RMSNormalization. Where scale or bias differ
/// from row to row, they follow the normalization.
static Expected<Values> importRowNorm(Importer &importer, const Node &node) {
  if (node.outputs.size() > 1)
    return importLayerNormWithMoments(importer, node);
  Compose c(importer);
  Value x = importer.input(node, 0), scale = importer.input(node, 1);
  Value bias = node.hasInput(2) ? importer.input(node, 2) : c.like(scale, 0);
  size_t axis = c.axis(intAttr(node, "axis", -1), x), rank = c.shape(x).size();
  if (c.failed())
    return c.results({});
  double epsilon = floatAttr(node, "epsilon", 1e-5);
  SmallVector<NamedAttribute> attrs{
      importer.attr("axis", intAttr(node, "axis", -1)),
      importer.attr("epsilon", importer.builder.getF64FloatAttr(epsilon))};
  Value factor = ofRow(c, scale, rank, axis), summand = ofRow(c, bias, rank, axis);
  bool isInside = factor && summand;
  if (!isInside)
    factor = c.like(scale, 1), summand = c.like(scale, 0);
  Value y = node.opType == "RMSNormalization"
                ? c.op("rms_norm", {x, factor}, attrs)
                : c.op("layer_norm", {x, factor, summand}, attrs);
  if (isInside)
    return c.results({y});
  y = c.mul(y, scale);
  return c.results({node.hasInput(2) ? c.add(y, bias) : y});
}

/// offset · (inverse · scale) + bias per channel. The two factors first: both gradients
/// of theirs are then of one sum of the cotangent times the offset.
static Value normalized(Compose &c, const Moments &m, Value scale, Value bias, Value x) {
  Value factor = c.mul(m.inverse, channelParameter(c, scale, x));
  return c.add(c.mul(m.offset, factor), channelParameter(c, bias, x));
}

/// By sums, so that spatial dims split as well.
static Expected<Values> importInstanceNorm(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Moments m = momentsOf(c, x, c.dimsFrom(2, x), floatAttr(node, "epsilon", 1e-5));
  return c.results(
      {normalized(c, m, importer.input(node, 1), importer.input(node, 2), x)});
}

/// In training mode: by the moments of the batch, with running ones as further results.
static Expected<Values> importBatchNormTraining(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  std::vector<int64_t> axes = c.dimsFrom(2, x);
  axes.insert(axes.begin(), 0);
  Moments m = momentsOf(c, x, axes, floatAttr(node, "epsilon", 1e-5));
  Value y = normalized(c, m, importer.input(node, 1), importer.input(node, 2), x);
  double momentum = floatAttr(node, "momentum", 0.9);
  auto running = [&](size_t input, Value now) {
    Value before = importer.input(node, input);
    now = c.cast(c.reshape(now, c.shape(before)), c.type(before));
    Value next = c.add(c.mul(before, momentum), c.mul(now, 1 - momentum));
    for (auto &[state, becomes] : importer.nextStates)
      if (state == before)
        becomes = next;
    return next;
  };
  return c.results({y, running(3, m.mean), running(4, m.variance)});
}

/// y = x · s + b with s = scale / sqrt(var + epsilon), b = bias - mean · s, both folded
/// when the parameters are constants.
static Expected<Values> importBatchNorm(Importer &importer, const Node &node) {
  bool byBatch = importer.training && importer.training->batchStatistics;
  if (byBatch || (intAttr(node, "training_mode", 0) != 0 && !importer.training))
    return importBatchNormTraining(importer, node);
  if (node.outputs.size() > 1 && !importer.training)
    return makeError("BatchNormalization with running moments, but not in training mode");
  Compose c(importer);
  Value x = importer.input(node, 0), scale = importer.input(node, 1);
  Value mean = importer.input(node, 3), variance = importer.input(node, 4);
  Value deviation = c.sqrt(c.add(variance, floatAttr(node, "epsilon", 1e-5)));
  Value s = c.div(scale, deviation);
  Value b = c.sub(importer.input(node, 2), c.mul(mean, s));
  Value scaled = c.mul(x, channelParameter(c, s, x));
  return c.results({c.add(scaled, channelParameter(c, b, x))});
}

static Expected<Values> importLpNorm(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  auto axis = static_cast<int64_t>(c.axis(intAttr(node, "axis", -1), x));
  bool isOne = intAttr(node, "p", 2) == 1;
  Value norm = isOne ? c.sum(c.op("abs", x), {axis}) : c.sqrt(c.sum(c.mul(x, x), {axis}));
  // Of zeros the norm is zero, and so is the result.
  norm = c.select(c.equal(norm, 0), c.like(norm, 1), norm);
  return c.results({c.div(x, norm)});
}

/// Σ over a window of channels is an average over it, with pads that count, times its
/// size: the channels are the rows of a picture, whose columns are all other elements.
static Expected<Values> importLrn(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Shape shape = c.shape(x);
  int64_t size = intAttr(node, "size", 1);
  if (shape.size() < 2)
    return makeError("LRN of rank " + std::to_string(shape.size()));
  Shape picture{shape[0], 1, shape[1], 1};
  for (size_t d = 2; d < shape.size(); ++d)
    picture[3] *= shape[d];
  auto list = [&](std::initializer_list<int64_t> values) {
    return importer.builder.getDenseI64ArrayAttr(SmallVector<int64_t>(values));
  };
  Value squares = c.reshape(c.mul(x, x), picture);
  Value average = c.op(
      "pool", squares,
      {importer.attr("kind", graph::PoolKindAttr::get(importer.builder.getContext(),
                                                      graph::PoolKind::Average)),
       importer.attr("window", list({size, 1})), importer.attr("strides", list({1, 1})),
       importer.attr("dilations", list({1, 1})),
       importer.attr("pads", list({(size - 1) / 2, 0, size / 2, 0})),
       importer.attr("count_padding", importer.builder.getBoolAttr(true))});
  Value base = c.add(c.mul(c.reshape(average, shape), floatAttr(node, "alpha", 1e-4)),
                     floatAttr(node, "bias", 1));
  return c.results({c.div(x, c.pow(base, floatAttr(node, "beta", 0.75)))});
}

void import::addNormalization(HandlerTable &table) {
  table["LayerNormalization"] = takesCounts(importRowNorm);
  table["RMSNormalization"] = takesCounts(importRowNorm);
  table["InstanceNormalization"] = takesCounts(importInstanceNorm);
  table["BatchNormalization"] = takesCounts(importBatchNorm);
  table["LpNormalization"] = takesCounts(importLpNorm);
  table["LRN"] = importLrn;
}
