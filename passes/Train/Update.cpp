//===- Update.cpp - From gradients to the next parameters -----------------===//
#include "passes/Train/Update.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Train/Optimizer.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

namespace {
/// What the formulas of a rule see.
class Names {
public:
  explicit Names(Formula &f) : f(f) {}

  void set(const std::string &name, double value) { known[name] = value; }
  void set(const std::string &name, Value value) { known[name] = value; }
  Value value(const std::string &name) const { return std::get<Value>(known.at(name)); }
  /// The value of a formula, in the element type of `like`.
  Value evaluate(const std::string &formula, Type element) {
    auto payload = Payload::parse(formula);
    if (!payload)
      return f.fail(payload.error().message);
    std::vector<Payload::Leaf> leaves;
    Values operands;
    for (const std::string &name : payload->attributeNames()) {
      auto it = known.find(name);
      if (it == known.end())
        return f.fail("formula \"" + formula + "\" has no '" + name + "'");
      if (const double *number = std::get_if<double>(&it->second)) {
        leaves.emplace_back(*number);
        continue;
      }
      leaves.emplace_back(static_cast<int32_t>(operands.size()));
      operands.push_back(f.cast(std::get<Value>(it->second), element));
    }
    return compact(payload->withLeaves({}, leaves), operands, element);
  }

private:
  /// Numbers may have made operands needless, or all of the formula.
  Value compact(const Payload &payload, const Values &operands, Type element) {
    std::vector<int32_t> read = payload.operandsRead();
    if (read.empty())
      return f.scalar(element, payload.nodes().back().value);
    std::vector<Payload::Leaf> places(operands.size(), 0.0);
    Values kept;
    for (int32_t operand : read) {
      places[static_cast<size_t>(operand)] = static_cast<int32_t>(kept.size());
      kept.push_back(operands[static_cast<size_t>(operand)]);
    }
    if (payload.nodes().back().op == ScalarOp::Operand)
      return kept[0];
    return f.map(payload.withLeaves(places), kept);
  }

  Formula &f;
  std::map<std::string, std::variant<double, Value>> known;
};

/// Ops of the update have its phase, and the name of the parameter; those that work on
/// tensors of its shape belong to it. Numbers of the step (a rate) are one for all.
class Marker : public OpBuilder::Listener {
public:
  void begin(const Parameter &of) {
    name = of.name + "/update";
    parameter = &of;
  }
  /// Ops that follow belong to all parameters together.
  void end() {
    name = "update";
    parameter = nullptr;
  }

  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    MLIRContext *context = op->getContext();
    op->setLoc(NameLoc::get(StringAttr::get(context, name)));
    if (isa<ConstantOp>(op)) // a constant is of no phase: equal ones are one
      return;
    dist::setPhase(op, Phase::Update);
    if (parameter)
      markParameter(op, *parameter);
  }

private:
  std::string name = "update";
  const Parameter *parameter = nullptr;
};
} // namespace

void train::markParameter(Operation *op, const Parameter &parameter) {
  auto shape = shapeOf(parameter.value);
  auto isOfIt = [&](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getShape() == ArrayRef(shape);
  };
  if (llvm::any_of(op->getOperandTypes(), isOfIt) ||
      llvm::any_of(op->getResultTypes(), isOfIt))
    op->setAttr(parameterAttr, StringAttr::get(op->getContext(), parameter.name));
}

/// √Σx² over the whole tensor.
static Value squares(Formula &f, Value x) {
  return f.sum(f.mul(x, x), f.dimsFrom(0, x), /*keep=*/false);
}

/// The common norm of all gradients, which are scaled to the greatest one if there is one
/// (Pascanu et al., 2013; the small number is PyTorch's).
static Value clip(Formula &f, Marker &marker, std::vector<Parameter> &parameters,
                  std::optional<double> most) {
  Value total = nullptr;
  for (Parameter &p : parameters) {
    marker.begin(p);
    Value part = squares(f, p.gradient);
    marker.end();
    part = f.type(part).isF64() ? part : f.cast(part, f.f32());
    total = total ? f.add(total, part) : part;
  }
  Value norm = f.sqrt(total);
  if (!most)
    return norm;
  Value scale = f.map("min(1, " + std::to_string(*most) + " / (x + 0.000001))", norm);
  for (Parameter &p : parameters) {
    Value narrow = f.cast(scale, f.type(p.gradient));
    marker.begin(p);
    p.gradient = f.mul(p.gradient, narrow);
    marker.end();
  }
  return norm;
}

static void updateOne(Formula &f, Names names, const UpdateRule &rule,
                      const Optimizer &optimizer, const Parameter &p,
                      const NewState &newState, Updated &updated) {
  Type element = f.type(p.value);
  names.set("p", p.value);
  names.set("g", p.gradient);
  names.set("decay", p.decays ? optimizer.weightDecay : 0);
  for (const std::string &state : rule.states)
    names.set(state, newState(p, state));
  for (const Line &line : rule.lines) {
    Value value = names.evaluate(line.formula, element);
    names.set(line.name, line.isNorm ? f.sqrt(squares(f, value)) : value);
  }
  updated.parameters.push_back(names.value("p"));
  for (const std::string &state : rule.states)
    updated.states.emplace_back(p.name + "." + state, names.value(state));
}

Expected<Updated> train::buildUpdate(Block &block, const Spec &spec, Value step,
                                     const std::vector<Parameter> &given,
                                     const NewState &newState) {
  Marker marker;
  OpBuilder builder(block.getTerminator());
  builder.setListener(&marker);
  Formula f(builder, builder.getUnknownLoc());
  std::vector<Parameter> parameters = given;
  Updated updated;
  if (spec.clipNorm || spec.gradientNorm)
    updated.norm = clip(f, marker, parameters, spec.clipNorm);

  UpdateRule rule = updateRule(spec.optimizer);
  Type wide = builder.getF64Type();
  Names names(f);
  for (const auto &[name, number] : rule.numbers)
    names.set(name, number);
  names.set("t", f.cast(step, wide));
  for (const Line &line : rule.once)
    names.set(line.name, names.evaluate(line.formula, wide));
  Value rate = names.evaluate(rateFormula(spec.optimizer.rate, spec.schedule), wide);
  names.set("rate", rate);
  updated.rate = f.cast(rate, f.f32());
  for (const Parameter &p : parameters) {
    marker.begin(p);
    updateOne(f, names, rule, spec.optimizer, p, newState, updated);
  }
  if (f.failed())
    return tl::unexpected(f.results({}).error());
  return updated;
}
