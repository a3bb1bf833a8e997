//===- Detection.cpp - Boxes and regions as ONNX nodes --------------------===//
#include "passes/RankFiles/RankWriter.h"

#include "partita/Reference/Kernels.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

//===-- Suppression -------------------------------------------------------===//

/// Scores of which those that are no candidates are below every threshold.
static std::string candidateScores(RankWriter &w, graph::SuppressOp op) {
  const double least = std::nextafter(std::numeric_limits<float>::lowest(), 0.0F);
  std::string scores =
      w.node("Max", {w.name(op.getScores()), w.scalar(DType::F32, least)});
  return w.where(w.name(op.getCandidates()), scores,
                 w.scalar(DType::F32, -std::numeric_limits<double>::infinity()));
}

/// Places in a tensor of `rows` rows of what NonMaxSuppression gives, a triple (batch,
/// class, box) per box, those of a row behind each other: the batch, the class, and how
/// many of the row are before it.
static std::string placesOf(RankWriter &w, const std::string &triples, int64_t classes,
                            int64_t rows) {
  auto column = [&](int64_t i) { return w.reshape(w.slice(triples, 1, i, i + 1), {-1}); };
  std::string first = w.common(reference::tensor<int64_t>(DType::I64, {}, {0}));
  auto before = [&](const std::string &counts) {
    return w.node("CumSum", {counts, first}, {{"exclusive", int64_t(1)}});
  };
  std::string row =
      w.node("Add", {w.node("Mul", {column(0), w.ints({classes})}), column(1)});
  std::string ones = w.castTo(w.node("GreaterOrEqual", {row, w.ints({0})}), DType::I64);
  std::string counts = w.node(
      "ScatterElements", {w.node("Expand", {w.ints({0}), w.ints({rows})}), row, ones},
      {{"axis", int64_t(0)}, {"reduction", std::string("add")}});
  std::string begin = w.node("Gather", {before(counts), row}, {{"axis", int64_t(0)}});
  std::string place = w.node("Sub", {before(ones), begin});
  return w.node("Concat",
                {w.slice(triples, 1, 0, 2), w.node("Unsqueeze", {place, w.ints({1})})},
                {{"axis", int64_t(1)}});
}

static void writeSuppress(RankWriter &w, Operation *op) {
  auto suppress = cast<graph::SuppressOp>(op);
  if (typeOf(suppress.getScores()) != DType::F32)
    return (void)w.fail("(graph.suppress) has boxes of another type than f32, and "
                        "NonMaxSuppression has that alone");
  const Shape shape = shapeOf(op->getResult(0));
  std::string none = w.node("Expand", {w.ints({-1}), w.ints(shape)});
  if (elementCount(shape) == 0)
    return w.define(op->getResult(0), none);
  const auto most = std::min(static_cast<int64_t>(suppress.getMost()), shape[2]);
  std::string triples =
      w.node("NonMaxSuppression",
             {w.name(suppress.getBoxes()), candidateScores(w, suppress), w.ints({most}),
              w.reshape(w.name(suppress.getThreshold()), {1}),
              w.common(reference::tensor<double>(
                  DType::F32, {1}, {std::numeric_limits<float>::lowest()}))},
             {{"center_point_box", int64_t(suppress.getCenters())}});
  w.define(op->getResult(0),
           w.node("ScatterND", {none, placesOf(w, triples, shape[1], shape[0] * shape[1]),
                                w.reshape(w.slice(triples, 1, 2, 3), {-1})}));
}

//===-- Regions -----------------------------------------------------------===//

/// Corners in f64: there, half an element more and the sum of begin and length are exact,
/// so that RoiAlign has the number of samples that the op has.
static std::string cornersOf(RankWriter &w, Value boxes) {
  std::string wide = w.castTo(w.name(boxes), DType::F64);
  std::string begin = w.node("Add", {w.slice(wide, 1, 0, 2), w.scalar(DType::F64, 0.5)});
  std::string end = w.node("Add", {begin, w.slice(wide, 1, 2, 4)});
  // ONNX has the column first.
  return w.node(
      "Gather",
      {w.node("Concat", {begin, end}, {{"axis", int64_t(1)}}), w.ints({1, 0, 3, 2})},
      {{"axis", int64_t(1)}});
}

static void writeRoiAlign(RankWriter &w, Operation *op) {
  auto align = cast<graph::RoiAlignOp>(op);
  const DType type = typeOf(op->getResult(0));
  std::string pictures = w.castTo(w.name(align.getPictures()), DType::I64), isThere;
  if (align.getMasked()) {
    std::string zero = w.scalar(DType::I64, 0);
    isThere = w.reshape(w.node("GreaterOrEqual", {pictures, zero}), {-1, 1, 1, 1});
    pictures = w.node("Max", {pictures, zero});
  }
  std::string bins =
      w.node("RoiAlign",
             {w.castTo(w.name(align.getData()), DType::F64),
              cornersOf(w, align.getBoxes()), pictures},
             {{"coordinate_transformation_mode", std::string("half_pixel")},
              {"mode", std::string(align.getLargest() ? "max" : "avg")},
              {"output_height", align.getBins()[0]},
              {"output_width", align.getBins()[1]},
              {"sampling_ratio", int64_t(0)},
              {"spatial_scale", 1.0F}});
  if (type != DType::F64)
    bins = w.castTo(bins, type);
  if (align.getMasked())
    bins = w.where(isThere, bins, w.common(HostTensor::zeros(type, {})));
  w.define(op->getResult(0), bins);
}

void rank_files::addDetection(WriterTable &table) {
  table[graph::SuppressOp::getOperationName()] = writeSuppress;
  table[graph::RoiAlignOp::getOperationName()] = writeRoiAlign;
}
