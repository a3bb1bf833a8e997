//===- Shapes.cpp - Ops that move elements, as ONNX nodes -----------------===//
#include "passes/RankFiles/RankWriter.h"

#include "partita/Reference/Kernels.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

static void writeReshape(RankWriter &w, Operation *op) {
  w.define(op->getResult(0),
           w.reshape(w.name(op->getOperand(0)), shapeOf(op->getResult(0))));
}

static void writeTranspose(RankWriter &w, Operation *op) {
  auto transpose = cast<graph::TransposeOp>(op);
  w.define(op->getResult(0), w.transpose(w.name(op->getOperand(0)),
                                         graph::vec(transpose.getPermutation())));
}

static void writeBroadcast(RankWriter &w, Operation *op) {
  w.define(op->getResult(0), w.node("Expand", {w.name(op->getOperand(0)),
                                               w.ints(shapeOf(op->getResult(0)))}));
}

static void writeSlice(RankWriter &w, Operation *op) {
  auto slice = cast<graph::SliceOp>(op);
  Shape from = shapeOf(slice.getInput()), to = shapeOf(op->getResult(0));
  std::vector<int64_t> starts, ends, axes, steps;
  for (size_t d = 0; d < from.size(); ++d) {
    int64_t start = slice.getStarts()[d], step = slice.getSteps()[d];
    if (start == 0 && step == 1 && from[d] == to[d])
      continue;
    int64_t end = start + step * to[d];
    starts.push_back(start);
    // In front of the first element is no number but the lowest.
    ends.push_back(end < 0 ? std::numeric_limits<int64_t>::min() : end);
    axes.push_back(static_cast<int64_t>(d));
    steps.push_back(step);
  }
  std::string x = w.name(slice.getInput());
  w.define(op->getResult(0), axes.empty()
                                 ? x
                                 : w.node("Slice", {x, w.ints(starts), w.ints(ends),
                                                    w.ints(axes), w.ints(steps)}));
}

static void writeConcat(RankWriter &w, Operation *op) {
  auto concat = cast<graph::ConcatOp>(op);
  w.define(op->getResult(0), w.node("Concat", w.names(op->getOperands()),
                                    {{"axis", static_cast<int64_t>(concat.getAxis())}}));
}

static void writePad(RankWriter &w, Operation *op) {
  auto pad = cast<graph::PadOp>(op);
  std::vector<int64_t> pads = graph::vec(pad.getLow());
  pads.insert(pads.end(), pad.getHigh().begin(), pad.getHigh().end());
  const bool isConstant = pad.getMode() == graph::PadMode::Constant;
  Names inputs{w.name(pad.getInput()), w.ints(pads)};
  if (isConstant)
    inputs.push_back(w.name(pad.getValue()));
  w.define(op->getResult(0),
           w.node("Pad", std::move(inputs),
                  {{"mode", graph::stringifyPadMode(pad.getMode()).str()}}));
}

static void writeResize(RankWriter &w, Operation *op) {
  auto resize = cast<graph::ResizeOp>(op);
  Shape from = shapeOf(resize.getInput()), to = shapeOf(op->getResult(0));
  std::vector<float> scales;
  bool isByScales = true;
  for (size_t d = 0; d < from.size(); ++d) {
    scales.push_back(static_cast<float>(resize.getScales()[d]));
    isByScales &= static_cast<int64_t>(
                      std::floor(static_cast<float>(from[d]) * scales.back())) == to[d];
  }
  std::vector<double> wide(scales.begin(), scales.end());
  std::string byScales = w.common(
      reference::tensor<double>(DType::F32, {static_cast<int64_t>(wide.size())}, wide));
  Names inputs{w.name(resize.getInput()), ""};
  if (isByScales)
    inputs.push_back(byScales);
  else
    inputs.insert(inputs.end(), {"", w.ints(to)});
  const bool isNearest = resize.getMode() == graph::ResizeMode::Nearest;
  Attributes attributes{{"mode", graph::stringifyResizeMode(resize.getMode()).str()},
                        {"coordinate_transformation_mode",
                         graph::stringifyCoordinates(resize.getCoordinates()).str()}};
  if (isNearest)
    attributes["nearest_mode"] = graph::stringifyRounding(resize.getRounding()).str();
  w.define(op->getResult(0), w.node("Resize", std::move(inputs), std::move(attributes)));
}

template <typename Op> static void writeRunning(RankWriter &w, Operation *op) {
  auto running = cast<Op>(op);
  std::string axis = w.common(reference::tensor<int64_t>(
      DType::I64, {}, {static_cast<int64_t>(running.getAxis())}));
  Names inputs{w.name(running.getInput()), axis};
  Attributes attributes{{"exclusive", int64_t(running.getExclusive())},
                        {"reverse", int64_t(running.getReverse())}};
  w.define(op->getResult(0), std::is_same_v<Op, graph::CumSumOp>
                                 ? w.node("CumSum", inputs, attributes)
                                 : w.laterNode(26, "CumProd", inputs, attributes));
}

void rank_files::addShapes(WriterTable &table) {
  table[graph::ReshapeOp::getOperationName()] = writeReshape;
  table[graph::TransposeOp::getOperationName()] = writeTranspose;
  table[graph::BroadcastOp::getOperationName()] = writeBroadcast;
  table[graph::SliceOp::getOperationName()] = writeSlice;
  table[graph::ConcatOp::getOperationName()] = writeConcat;
  table[graph::PadOp::getOperationName()] = writePad;
  table[graph::ResizeOp::getOperationName()] = writeResize;
  table[graph::CumSumOp::getOperationName()] = writeRunning<graph::CumSumOp>;
  table[graph::CumProdOp::getOperationName()] = writeRunning<graph::CumProdOp>;
}
