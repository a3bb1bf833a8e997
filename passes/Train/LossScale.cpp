//===- LossScale.cpp - A loss that is multiplied, for narrow types --------===//
#include "passes/Train/Step.h"

#include "dialects/Interfaces/ValueNames.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

/// The states of a dynamic scale: its power of two, and the steps since it changed.
static constexpr char scaleState[] = "loss_scale", scaleAgeState[] = "loss_scale.age";

/// What the loss is multiplied by, so that small gradients are no zeros in a narrow
/// type: a number, or 2 to the power of a state, which begins as 0.
Value StepBuilder::scaleOf(Formula &f, Value output) {
  if (!spec.lossScale)
    return f.like(output, 1);
  if (!spec.lossScale->dynamic)
    return f.like(output, spec.lossScale->initial);
  power = addState(scaleState, RankedTensorType::get({}, f.f32()));
  Value scale = f.map(std::to_string(spec.lossScale->initial) + " * pow(2, x)", power);
  return f.cast(scale, f.type(output));
}

/// Takes the scale of the loss out of the gradients. Where the step asks: whether all of
/// them are finite, and the loss; x · 0 is NaN where x is not.
Value StepBuilder::unscale(Formula &f) {
  const bool isAsked = power || spec.onNan != OnNan::GoOn;
  double initial = spec.lossScale ? spec.lossScale->initial : 1;
  Value inverse =
      power ? inUpdate(f.map("pow(2, -x) / " + std::to_string(initial), power)) : Value();
  Value sum = nullptr;
  for (Parameter &p : parameters) {
    if (spec.lossScale)
      p.gradient = inUpdateOf(
          p, inverse ? f.mul(p.gradient, inUpdate(f.cast(inverse, f.type(p.gradient))))
                     : f.mul(p.gradient, 1 / initial));
    if (!isAsked)
      continue;
    Value zeros = inUpdateOf(p, f.map("x * 0", p.gradient));
    Value part = inUpdateOf(p, f.sum(zeros, f.dimsFrom(0, zeros), /*keep=*/false));
    sum = sum ? inUpdate(f.add(sum, part)) : part;
  }
  if (spec.onNan != OnNan::GoOn) {
    Value part = inUpdate(f.map("x * 0", loss));
    sum = inUpdate(f.add(sum, inUpdate(f.cast(part, f.type(sum)))));
  }
  return isAsked ? inUpdate(f.equal(sum, 0)) : nullptr;
}

/// A step with something that is not finite changes no state.
void StepBuilder::keepUnlessFinite(Formula &f, Value isFinite,
                                   std::vector<Result> &results) {
  for (Result &result : results)
    if (result.isState) {
      Value before = stateNamed(result.name);
      result.value = inUpdate(f.select(isFinite, result.value, before));
      unsigned number = cast<BlockArgument>(before).getArgNumber();
      if (auto parameter = main.getArgAttrOfType<StringAttr>(number, parameterAttr))
        result.value.getDefiningOp()->setAttr(parameterAttr, parameter);
    }
}

/// Halves the scale in a step with something that is not finite; doubles the scale after
/// `growEvery` others.
void StepBuilder::updateScale(Formula &f, Value isFinite, std::vector<Result> &results) {
  Value age = addState(scaleAgeState, RankedTensorType::get({}, f.f32()));
  std::string every = std::to_string(spec.lossScale->growEvery);
  Value flag = inUpdate(f.cast(isFinite, f.f32()));
  std::string grows = "(x + 1 >= " + every + ")";
  Value nextAge =
      inUpdate(f.map("select(y > 0 && !" + grows + ", x + 1, 0)", {age, flag}));
  Value next =
      inUpdate(f.map("select(z > 0, select(y + 1 >= " + every + ", x + 1, x), x - 1)",
                     {power, age, flag}));
  results.push_back({scaleState, next, true});
  results.push_back({scaleAgeState, nextAge, true});
}
