//===- Loss.cpp - What training makes small -------------------------------===//
#include "passes/Train/Loss.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Base/Bundle/Evaluation.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

static std::string shapeText(const Shape &shape) {
  std::string text;
  for (int64_t extent : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

/// The output of a name; an error lists those that there are.
static Expected<Value> outputNamed(func::FuncOp main, const std::string &name) {
  std::string known;
  for (unsigned i = 0; i < main.getNumResults(); ++i) {
    auto output = main.getResultAttrOfType<StringAttr>(i, "graph.name");
    if (!output)
      continue;
    if (output.getValue() == name)
      return main.front().getTerminator()->getOperand(i);
    known += (known.empty() ? "'" : ", '") + output.getValue().str() + "'";
  }
  return makeError("loss: the model has no output '" + name + "'; it has " + known);
}

/// A new input, behind the other ones and before the states. `role`: what it is to the
/// loss, for messages.
static Expected<Value> addInput(func::FuncOp main, const std::string &role,
                                const std::string &name, RankedTensorType type) {
  unsigned place = 0;
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    auto known = main.getArgAttrOfType<StringAttr>(i, "graph.name");
    if (known && known.getValue() == name)
      return makeError("loss: " + role + " is '" + name +
                       "', which is an input of the model already");
    if (!dist::argumentState(main, i))
      place = i + 1;
  }
  Builder builder(main.getContext());
  auto attrs = builder.getDictionaryAttr(
      builder.getNamedAttr("graph.name", builder.getStringAttr(name)));
  if (failed(main.insertArgument(place, type, attrs,
                                 NameLoc::get(builder.getStringAttr(name)))))
    return makeError("loss: input '" + name + "' cannot be added");
  return Value(main.getArgument(place));
}

static bool isOfClasses(const Loss &loss) {
  return loss.kind == LossKind::SoftmaxCrossEntropy || loss.kind == LossKind::Nll;
}

/// Where the classes are.
static Expected<size_t> classAxis(const Loss &loss, const Shape &shape) {
  if (shape.size() < 2)
    return makeError("loss: output '" + loss.of + "' is " + shapeText(shape) +
                     ", expected a batch and classes");
  if (!loss.axis && shape.size() > 2)
    return makeError("loss: output '" + loss.of + "' is " + shapeText(shape) +
                     ": \"axis\" must say which dim has the classes (-1: the last)");
  auto axis = normalizeAxis(loss.axis.value_or(1), shape.size());
  if (!axis)
    return makeError("loss: \"axis\": " + axis.error().message);
  return static_cast<size_t>(*axis);
}

namespace {
/// The loss of each label or number, and what there is to divide its sum by.
struct EachLoss {
  Value each;
  Value counts; ///< 1 for what counts, else 0; null: everything does
};
} // namespace

/// −log p of the label, and by label smoothing a share of those of all classes.
static EachLoss eachClass(Formula &f, const Loss &loss, Value logs, Value labels,
                          size_t axis) {
  Shape shape = f.shape(logs), one = shape;
  one[axis] = 1;
  Value places = f.reshape(labels, one), counts;
  if (loss.ignoreIndex) {
    // An ignored label need not be a class.
    auto ignored = static_cast<double>(*loss.ignoreIndex);
    Value isIgnored = f.equal(places, ignored);
    places = f.select(isIgnored, f.like(places, 0), places);
    counts = f.select(isIgnored, f.like(logs, 0), f.like(logs, 1));
  }
  Value each =
      f.op("gather_elements", {logs, places}, f.attr("axis", static_cast<int64_t>(axis)));
  each = f.mul(each, -(1 - loss.labelSmoothing));
  if (loss.labelSmoothing > 0) {
    double share = -loss.labelSmoothing / static_cast<double>(shape[axis]);
    each = f.add(each, f.mul(f.sum(logs, {static_cast<int64_t>(axis)}), share));
  }
  return {each, counts};
}

static Value eachNumber(Formula &f, const Loss &loss, Value output, Value target) {
  if (loss.kind == LossKind::Mse)
    return f.map("(x - y) * (x - y)", {output, target});
  if (loss.kind == LossKind::L1)
    return f.map("abs(x - y)", {output, target});
  return f.sub(f.op("softplus", output), f.mul(output, target));
}

/// The sum or the mean.
static BuiltLoss reduced(Formula &f, const Loss &loss, const EachLoss &made,
                         bool isPart) {
  const auto &[each, counts] = made;
  auto all = f.dimsFrom(0, each);
  const auto number = static_cast<double>(elementCount(f.shape(each)));
  if (!counts) {
    Value total = f.sum(each, all, /*keep=*/false);
    return {loss.mean ? f.div(total, number) : total, nullptr};
  }
  Value total = f.sum(f.mul(each, counts), all, /*keep=*/false);
  if (!loss.mean)
    return {total, nullptr};
  Value counted = f.sum(counts, all, /*keep=*/false);
  // Of a part both are divided by a number that all parts have, so that a narrow type
  // has gradients as large as those of a mean.
  if (isPart)
    return {f.div(total, number), f.div(counted, number)};
  return {f.div(total, counted), nullptr};
}

/// The mean over what counts in rows of weight 1: rows are dim `d`.
static BuiltLoss weighted(Formula &f, EachLoss made, Value weights, size_t d) {
  Type wide = f.type(made.each).isF64() ? f.type(made.each) : f.f32();
  Value each = f.cast(made.each, wide);
  Shape shape = f.shape(each), rows(shape.size(), 1);
  rows[d] = shape[d];
  auto all = f.dimsFrom(0, each);
  Value counts = f.cast(f.reshape(weights, rows), wide), counted;
  if (made.counts) {
    counts = f.mul(f.cast(made.counts, wide), counts);
    counted = f.sum(counts, all, /*keep=*/false);
  } else {
    const auto ofRow =
        static_cast<double>(elementCount(shape) / std::max<int64_t>(shape[d], 1));
    counted = f.mul(f.sum(counts, all, /*keep=*/false), ofRow);
  }
  Value total = f.sum(f.mul(each, counts), all, /*keep=*/false);
  return {f.div(total, f.max(counted, 1)), counted};
}

namespace {
/// Values of `main` that a loss is made of.
struct LossEnds {
  Value output, labels; ///< no labels: the model computes its loss
  size_t axis = 0;      ///< of classes
};
} // namespace

/// Finds the output, and adds the argument of the labels.
static Expected<LossEnds> lossEnds(func::FuncOp main, const Loss &loss) {
  auto output = outputNamed(main, loss.of);
  if (!output)
    return tl::unexpected(output.error());
  LossEnds ends{*output, nullptr};
  Shape shape = shapeOf(*output);
  Type element = getElementTypeOrSelf(output->getType());
  if (!isa<FloatType>(element))
    return makeError("loss: output '" + loss.of + "' has no floats");
  if (loss.kind == LossKind::Output) {
    if (elementCount(shape) != 1)
      return makeError("loss: output '" + loss.of + "' is " + shapeText(shape) +
                       ", expected one number");
    return ends;
  }
  if (isOfClasses(loss)) {
    auto axis = classAxis(loss, shape);
    if (!axis)
      return tl::unexpected(axis.error());
    ends.axis = *axis;
    shape.erase(shape.begin() + static_cast<int64_t>(*axis));
    element = IntegerType::get(main.getContext(), 64);
  }
  auto labels =
      addInput(main, "\"labels\"", loss.labels, RankedTensorType::get(shape, element));
  if (!labels)
    return tl::unexpected(labels.error());
  ends.labels = *labels;
  return ends;
}

static void expand(LogSoftmaxOp op) {
  OpBuilder builder(op);
  Operation *before = op->getPrevNode();
  Formula f(builder, op.getLoc());
  Type element = f.type(op.getInput());
  const bool isNarrow = !element.isF32() && !element.isF64();
  Value x = isNarrow ? f.cast(op.getInput(), builder.getF32Type()) : op.getInput();
  const auto axis = static_cast<int64_t>(f.axis(op.getAxis(), x));
  Value top = f.reduce(ReduceKind::Max, x, {axis});
  Value sum = f.sum(f.map("exp(x - y)", {x, top}), {axis});
  Value logs = f.map("x - y - log(z)", {x, top, sum});
  if (isNarrow)
    logs = f.cast(logs, element);
  for (Operation *made = op->getPrevNode(); made != before; made = made->getPrevNode())
    if (made->getNumOperands() != 0)
      copyStepMarks(op, made);
  op.getResult().replaceAllUsesWith(logs);
  op.erase();
}

void train::expandLogSoftmax(ModuleOp module) { module.walk(expand); }

static EachLoss eachLoss(Formula &f, const Loss &loss, const LossEnds &ends) {
  if (!isOfClasses(loss))
    return {eachNumber(f, loss, ends.output, ends.labels), nullptr};
  const auto axis = static_cast<int64_t>(ends.axis);
  Value logs = loss.kind == LossKind::Nll
                   ? ends.output
                   : f.op("log_softmax", ends.output, f.attr("axis", axis));
  return eachClass(f, loss, logs, ends.labels, ends.axis);
}

Expected<BuiltLoss> train::buildLoss(func::FuncOp main, const Loss &loss, bool isPart) {
  auto ends = lossEnds(main, loss);
  if (!ends)
    return tl::unexpected(ends.error());
  OpBuilder builder(main.front().getTerminator());
  Formula f(builder, NameLoc::get(builder.getStringAttr("loss")));
  BuiltLoss result;
  if (!ends->labels)
    result.value = f.reshape(ends->output, {});
  else
    result = reduced(f, loss, eachLoss(f, loss, *ends), isPart);
  if (f.failed())
    return tl::unexpected(f.results({}).error());
  return result;
}

Expected<BuiltLoss> train::buildEvaluatedLoss(func::FuncOp main, const Loss &loss) {
  auto ends = lossEnds(main, loss);
  if (!ends)
    return tl::unexpected(ends.error());
  OpBuilder builder(main.front().getTerminator());
  Formula f(builder, NameLoc::get(builder.getStringAttr("loss")));
  BuiltLoss result;
  if (!ends->labels || shapeOf(ends->labels).empty()) {
    Value value = ends->labels
                      ? reduced(f, loss, eachLoss(f, loss, *ends), /*isPart=*/false).value
                      : f.reshape(ends->output, {});
    result.value = f.type(value).isF64() ? value : f.cast(value, f.f32());
  } else {
    const int64_t rows = shapeOf(ends->labels)[0];
    auto weights = addInput(main, "the input of \"evaluate\"", rowWeightsInput,
                            RankedTensorType::get({rows}, f.f32()));
    if (!weights)
      return tl::unexpected(weights.error());
    // Labels lack the dim of classes.
    const size_t d = isOfClasses(loss) && ends->axis == 0 ? 1 : 0;
    result = weighted(f, eachLoss(f, loss, *ends), *weights, d);
  }
  if (f.failed())
    return tl::unexpected(f.results({}).error());
  return result;
}
