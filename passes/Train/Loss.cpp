//===- Loss.cpp - What training makes small -------------------------------===//
#include "passes/Train/Loss.h"

#include "dialects/Dist/Dist.h"

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

/// A new input, behind the other ones and before the states.
static Expected<Value> addInput(func::FuncOp main, const std::string &name,
                                RankedTensorType type) {
  unsigned place = 0;
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    auto known = main.getArgAttrOfType<StringAttr>(i, "graph.name");
    if (known && known.getValue() == name)
      return makeError("loss: \"labels\" is '" + name +
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

/// −log p of the label, and by label smoothing a share of those of all classes.
static BuiltLoss classLoss(Formula &f, const Loss &loss, Value logs, Value labels,
                           size_t axis, bool isPart) {
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
  auto all = f.dimsFrom(0, each);
  const auto number = static_cast<double>(elementCount(one));
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

static Value numberLoss(Formula &f, const Loss &loss, Value output, Value target) {
  Value each;
  if (loss.kind == LossKind::Mse)
    each = f.map("(x - y) * (x - y)", {output, target});
  else if (loss.kind == LossKind::L1)
    each = f.map("abs(x - y)", {output, target});
  else
    each = f.sub(f.op("softplus", output), f.mul(output, target));
  Value total = f.sum(each, f.dimsFrom(0, each), /*keep=*/false);
  double count = static_cast<double>(elementCount(f.shape(output)));
  return loss.mean ? f.div(total, count) : total;
}

Expected<BuiltLoss> train::buildLoss(func::FuncOp main, const Loss &loss, bool isPart) {
  auto output = outputNamed(main, loss.of);
  if (!output)
    return tl::unexpected(output.error());
  OpBuilder builder(main.front().getTerminator());
  Formula f(builder, NameLoc::get(builder.getStringAttr("loss")));
  Shape shape = f.shape(*output);
  Type element = f.type(*output);
  if (!isa<FloatType>(element))
    return makeError("loss: output '" + loss.of + "' has no floats");
  BuiltLoss result;
  if (loss.kind == LossKind::Output) {
    if (elementCount(shape) != 1)
      return makeError("loss: output '" + loss.of + "' is " + shapeText(shape) +
                       ", expected one number");
    result.value = f.reshape(*output, {});
  } else if (loss.kind == LossKind::SoftmaxCrossEntropy || loss.kind == LossKind::Nll) {
    auto axis = classAxis(loss, shape);
    if (!axis)
      return tl::unexpected(axis.error());
    Shape places = shape;
    places.erase(places.begin() + static_cast<int64_t>(*axis));
    auto labels = addInput(main, loss.labels, RankedTensorType::get(places, f.i64()));
    if (!labels)
      return tl::unexpected(labels.error());
    Value logs =
        loss.kind == LossKind::Nll
            ? *output
            : f.op("log_softmax", *output, f.attr("axis", static_cast<int64_t>(*axis)));
    result = classLoss(f, loss, logs, *labels, *axis, isPart);
  } else {
    auto target = addInput(main, loss.labels, RankedTensorType::get(shape, element));
    if (!target)
      return tl::unexpected(target.error());
    result.value = numberLoss(f, loss, *output, *target);
  }
  if (f.failed())
    return tl::unexpected(f.results({}).error());
  return result;
}
