//===- Manual.cpp - Graphs that are written per rank ----------------------===//
#include "dialects/Dist/Manual.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/Notes.h"

#include <map>

using namespace mlir;
using namespace partita;
using namespace partita::dist;

//===-- The op ------------------------------------------------------------===//

/// Elements of padding would be garbage that the program reads; of an operand that has
/// given blocks it is what nobody reads.
static LogicalResult verifyEven(ManualOp op, StringRef what, LayoutAttr layout,
                                Value value) {
  for (auto [d, dim] : llvm::enumerate(layout.getLayout().dims))
    for (const DimFactor &factor : dim.factors)
      if (factor.blocks.empty() ? factor.padded != factor.size : value != op.getInput())
        return op.emitOpError("expected dims that are divided evenly, got dim ")
               << d << " of " << layout.str();
  if (layout.getLayout().localShape() != shapeOf(value))
    return op.emitOpError("expected ")
           << what << " of local shape [" << ArrayRef(layout.getLayout().localShape())
           << "] for layout " << layout.str() << ", got " << value.getType();
  return success();
}

/// Every rank has a tensor of its own and gets one of its own.
static LogicalResult verifyPieces(ManualOp op) {
  if (op.getPieces()->getMesh() != op.getFrom().getMesh())
    return op.emitOpError("has pieces on mesh \"")
           << op.getPieces()->devices().str() << "\" and layouts on mesh \""
           << op.getFrom().devices().str() << "\"";
  if (!op.getFrom().getLayout().isReplicated() || !op.getTo().getLayout().isReplicated())
    return op.emitOpError("expected whole tensors around pieces, got ")
           << op.getFrom().str() << " and " << op.getTo().str();
  if (op.getEnter() || op.getLeave())
    return op.emitOpError("exchanges pieces of local tensors, and enters or leaves");
  if (auto ok = op.getExchange()->verify(op.getFrom().devices()); !ok)
    return op.emitOpError("is inconsistent: ") << ok.error().message;
  return success();
}

LogicalResult ManualOp::verify() {
  if (getFrom().getMesh() != getTo().getMesh())
    return emitOpError("leads from mesh \"")
           << getFrom().devices().str() << "\" to mesh \"" << getTo().devices().str()
           << "\"";
  if (MeshAttr around = findMesh(*this); around && around != getFrom().getMesh())
    return noteMesh(emitOpError("is for mesh \"")
                        << getFrom().devices().str() << "\", the program is for \""
                        << around.getMesh().str() << "\"",
                    *this);
  const Layout &from = getFrom().getLayout(), &to = getTo().getLayout();
  if (!getPieces() && from.globalShape() != to.globalShape())
    return emitOpError("leads from a tensor of shape [")
           << ArrayRef(from.globalShape()) << "] to one of shape ["
           << ArrayRef(to.globalShape()) << "]";
  if (failed(verifyEven(*this, "an operand", getFrom(), getInput())) ||
      failed(verifyEven(*this, "a result", getTo(), getResult())))
    return failure();
  if (getElementTypeOrSelf(getInput()) != getElementTypeOrSelf(getResult()))
    return emitOpError("changes the element type");
  if (getEnter() && getLeave())
    return emitOpError("both enters and leaves");
  if ((getEnter() && !from.isReplicated()) || (getLeave() && !to.isReplicated()))
    return emitOpError("expected the tensor outside to be whole, got ")
           << (getEnter() ? getFrom() : getTo()).str();
  return getPieces() ? verifyPieces(*this) : success();
}

std::optional<Pieces> ManualOp::getExchange() {
  if (!getPieces())
    return std::nullopt;
  return getPieces()->between(shapeOf(getInput()), shapeOf(getResult()));
}

Expected<ShardingRule> ManualOp::inferShardingRule() {
  ShardingRule rule;
  auto add = [&](std::vector<TensorFactors> &tensors, Value value, bool isOutside) {
    tensors.emplace_back();
    for (int64_t extent : shapeOf(value))
      tensors.back().push_back(rule.addLoop(
          extent, isOutside ? loop::Kind(loop::Parallel{}) : loop::Replicate{}));
  };
  add(rule.operands, getInput(), getEnter());
  add(rule.results, getResult(), getLeave());
  return rule;
}

Layout dist::outerLayout(ManualOp op) {
  RuleRef facts = ruleOf(op);
  auto strategy = strategyOf(op, facts->rule);
  assert(strategy && (op.getEnter() || op.getLeave()) && "the op is on the border");
  return (op.getEnter() ? partita::operandLayout(*facts->rule, *strategy, 0)
                        : partita::resultLayout(*facts->rule, *strategy, 0))
      .canonicalized();
}

Expected<ReshardPlan> ManualOp::getPlan() {
  return planReshard(getFrom().devices(), getFrom().getLayout().canonicalized(),
                     getTo().getLayout().canonicalized(), reshardOptionsOf(*this));
}

ManualOp dist::findManual(Operation *op) {
  ManualOp found;
  op->walk([&](ManualOp manual) {
    found = manual;
    return WalkResult::interrupt();
  });
  return found;
}

//===-- What may differ ---------------------------------------------------===//

namespace {
/// Axes in prime parts over which a value may differ, each with the op that began it.
class Differing {
public:
  bool empty() const { return digits.empty(); }
  bool operator==(const Differing &other) const {
    return llvm::equal(digits, other.digits,
                       [](const auto &a, const auto &b) { return a.first == b.first; });
  }

  /// Parts whose cuts do not nest with what is there become the whole axis.
  void add(const Mesh &mesh, const AxisRef &digit, Operation *origin) {
    bool isApart = llvm::all_of(digits, [&](const auto &known) {
      return known.first == digit || !overlap(known.first, digit);
    });
    if (isApart) {
      digits.try_emplace(digit, origin);
      return;
    }
    eraseAxis(digit.axis);
    for (const AxisRef &part : primes({mesh.whole(digit.axis)}))
      digits.try_emplace(part, origin);
  }
  void add(const Mesh &mesh, const AxisList &axes, Operation *origin) {
    for (const AxisRef &digit : primes(axes))
      add(mesh, digit, origin);
  }
  void add(const Mesh &mesh, const Differing &other) {
    for (const auto &[digit, origin] : other.digits)
      add(mesh, digit, origin);
  }
  /// `axes` are of those, or all of their axis is.
  void remove(const Mesh &mesh, const AxisList &axes) {
    for (const AxisRef &ref : axes)
      if (isWhole(mesh, ref.axis)) {
        Operation *origin = digits.lower_bound({ref.axis, 0, 0})->second;
        eraseAxis(ref.axis);
        for (const AxisRef &part : primes(around(mesh, ref.axis, axes)))
          digits.try_emplace(part, origin);
      } else {
        for (const AxisRef &digit : primes({ref}))
          digits.erase(digit);
      }
  }
  /// Those that are not in `other`, of which all are.
  AxisList without(const Mesh &mesh, const Differing &other) const {
    AxisList list;
    for (const auto &[digit, origin] : digits)
      if (!isWhole(mesh, digit.axis) && !other.digits.contains(digit))
        list.push_back(digit);
    for (int32_t axis = 0; axis < static_cast<int32_t>(mesh.axes().size()); ++axis)
      if (isWhole(mesh, axis))
        llvm::append_range(list, around(mesh, axis, other.axes()));
    llvm::sort(list);
    return canonical(list);
  }

  AxisList axes() const {
    AxisList list;
    for (const auto &[digit, origin] : digits)
      list.push_back(digit);
    return canonical(list);
  }
  Operation *origin() const { return digits.begin()->second; }

private:
  void eraseAxis(int32_t axis) {
    std::erase_if(digits, [&](const auto &known) { return known.first.axis == axis; });
  }
  bool isWhole(const Mesh &mesh, int32_t axis) const {
    int64_t parts = 1;
    for (const auto &[digit, origin] : digits)
      parts *= digit.axis == axis ? digit.size : 1;
    return parts > 1 && parts == mesh.whole(axis).size;
  }
  /// The parts of an axis that some others, which nest, leave: whatever the cuts of the
  /// whole axis, it is these and those.
  static AxisList around(const Mesh &mesh, int32_t axis, AxisList others) {
    AxisList list;
    int64_t at = 1;
    llvm::sort(others);
    for (const AxisRef &other : others)
      if (other.axis == axis) {
        list.push_back({axis, at, other.pre / at});
        at = other.pre * other.size;
      }
    list.push_back({axis, at, mesh.whole(axis).size / at});
    return canonical(list);
  }

  std::map<AxisRef, Operation *> digits;
};

AxisList axesIn(const Layout &layout) {
  AxisList axes = layout.shardingAxes();
  llvm::append_range(axes, layout.partialAxes());
  return axes;
}

/// Follows the values of one function, and of those that it runs.
class Follower {
public:
  /// `spreads`: inserts spreads, which change no value.
  Follower(MeshAttr mesh, bool spreads)
      : attribute(mesh), mesh(mesh.getMesh()), spreads(spreads) {}

  FailureOr<std::vector<Differing>> run(FunctionOpInterface function,
                                        std::vector<Differing> arguments) {
    for (auto [argument, differing] : llvm::zip_equal(function.getArguments(), arguments))
      values[argument] = std::move(differing);
    Block &block = function.front();
    for (Operation &op : llvm::make_early_inc_range(block.without_terminator()))
      if (failed(follow(op)))
        return failure();
    std::vector<Differing> results;
    for (Value value : block.getTerminator()->getOperands())
      results.push_back(values[value]);
    return results;
  }

  DenseSet<Operation *> local; ///< ops that read what may differ

  std::string since(const Differing &differing) const {
    return "may differ over " + mesh.str(differing.axes()) + " since '" +
           nodeName(differing.origin()) + "'";
  }

private:
  LogicalResult follow(Operation &op) {
    if (auto manual = dyn_cast<ManualOp>(op))
      return followManual(manual);
    if (auto call = dyn_cast<CallingOpInterface>(op))
      return followCall(call);
    Differing all;
    for (Value operand : op.getOperands())
      all.add(mesh, values[operand]);
    if (!all.empty()) {
      local.insert(&op);
      if (failed(checkWhole(op, all)))
        return failure();
    }
    for (OpOperand &operand : op.getOpOperands())
      spread(operand, all);
    for (Value result : op.getResults())
      values[result] = all;
    return success();
  }

  /// Blocks of a value that differs between ranks are blocks of several tensors.
  LogicalResult checkWhole(Operation &op, const Differing &operands) const {
    StrategyAttr strategy = strategyAttrOf(&op);
    auto reshard = dyn_cast<ReshardOp>(op);
    bool splits = isa<WindowOp>(op) ||
                  (reshard && !reshard.getLayout().getLayout().isReplicated()) ||
                  (strategy && !(strategy.getStrategy().loops.empty() &&
                                 strategy.getStrategy().passes.empty()));
    if (!splits)
      return success();
    return emitError(op.getLoc(), "'" + nodeName(&op) +
                                      "' splits a value that is written per rank: it " +
                                      since(operands));
  }

  /// Pieces are named by rank, so that what was the same need not be so now.
  LogicalResult followPieces(ManualOp op) {
    Differing taken = values[op.getInput()];
    taken.add(mesh, op.getExchange()->differingAxes(mesh), op);
    spread(op.getInputMutable(), taken);
    values[op.getResult()] = std::move(taken);
    return success();
  }

  LogicalResult followManual(ManualOp op) {
    if (op.getPieces())
      return followPieces(op);
    Differing differing = values[op.getInput()];
    if (op.getEnter() && !differing.empty())
      return emitError(op.getLoc(), "'" + nodeName(op) +
                                        "' cuts what must be one tensor on all ranks, "
                                        "but its operand " +
                                        since(differing));
    const Layout &from = op.getFrom().getLayout(), &to = op.getTo().getLayout();
    Differing taken = differing;
    taken.add(mesh, axesIn(from), op);
    if (!isSpread(op))
      spread(op.getInputMutable(), taken);
    differing = std::move(taken);
    differing.remove(mesh, axesIn(from));
    if (op.getLeave() && !differing.empty())
      return emitError(op.getLoc(),
                       "'" + nodeName(op) + "' says that its operand lies in " +
                           op.getFrom().str() +
                           ", the same along all other axes, but it " + since(differing));
    differing.add(mesh, axesIn(to), op);
    values[op.getResult()] = std::move(differing);
    return success();
  }

  /// Axes that the arguments of a callee may differ over, and what is carried around to
  /// them.
  FailureOr<std::vector<Differing>> argumentsOf(CallingOpInterface op,
                                                FunctionOpInterface callee,
                                                ArrayRef<Differing> results) {
    std::vector<Differing> arguments(callee.getNumArguments());
    for (OpOperand &operand : op->getOpOperands()) {
      const Differing &differing = values[operand.get()];
      int argument = op.getArgumentOf(operand.getOperandNumber());
      if (argument >= 0)
        arguments[static_cast<size_t>(argument)].add(mesh, differing);
      else if (!differing.empty())
        return emitError(op.getLoc(), "the condition of '" + nodeName(op) +
                                          "' must be the same on all ranks, but it " +
                                          since(differing));
    }
    for (unsigned i = 0; i < op.getNumCarried(); ++i)
      arguments[i].add(mesh, results[i]);
    return arguments;
  }

  /// Carried values differ at the end of a trip as at its begin, so trips are followed
  /// until nothing is added.
  LogicalResult followCall(CallingOpInterface op) {
    std::vector<Differing> results(op->getNumResults());
    const bool last = std::exchange(spreads, false);
    for (bool changes = true; std::exchange(changes, false);)
      for (Operation *callee : op.getCallees()) {
        auto function = cast<FunctionOpInterface>(callee);
        auto arguments = argumentsOf(op, function, results);
        if (failed(arguments))
          return failure();
        auto given = run(function, *arguments);
        if (failed(given))
          return failure();
        for (auto [result, now] : llvm::zip(results, *given)) {
          Differing before = result;
          result.add(mesh, now);
          changes |= !(result == before);
        }
      }
    spreads = last;
    if (spreads && failed(spreadCall(op, results)))
      return failure();
    for (auto [value, differing] : llvm::zip_equal(op->getResults(), results))
      values[value] = differing;
    return success();
  }

  /// Operands are as the values that are carried around, results as those of any callee.
  LogicalResult spreadCall(CallingOpInterface op, ArrayRef<Differing> results) {
    for (Operation *callee : op.getCallees()) {
      auto function = cast<FunctionOpInterface>(callee);
      auto arguments = argumentsOf(op, function, results);
      if (failed(arguments) || failed(run(function, *arguments)))
        return failure();
      for (OpOperand &operand : op->getOpOperands())
        if (int argument = op.getArgumentOf(operand.getOperandNumber()); argument >= 0)
          spread(operand, (*arguments)[static_cast<size_t>(argument)]);
      for (OpOperand &given : function.front().getTerminator()->getOpOperands())
        spread(given, results[given.getOperandNumber()]);
    }
    return success();
  }

  /// Lets the operand be read as what may differ so; each value is spread once.
  void spread(OpOperand &operand, const Differing &wanted) {
    Value value = operand.get();
    AxisList axes = wanted.without(mesh, values[value]);
    if (!spreads || axes.empty() ||
        !isa<FloatType>(getElementTypeOrSelf(value.getType())))
      return;
    Layout layout = Layout::replicated(shapeOf(value));
    layout.partial = {{ReduceKind::Sum, axes}};
    auto form = LayoutAttr::get(attribute.getContext(), attribute, layout);
    Value &slot = spreadOf[{value, form}];
    if (!slot) {
      OpBuilder builder(attribute.getContext());
      builder.setInsertionPointAfterValue(value);
      slot = ManualOp::create(builder, value.getLoc(), value.getType(), value, form, form,
                              false, false, PiecesAttr());
      if (Operation *maker = value.getDefiningOp())
        setPhase(slot.getDefiningOp(), phaseOf(maker));
      Differing differing = values[value];
      for (const AxisRef &digit : primes(axes))
        differing.add(mesh, digit, wanted.origin());
      values[slot] = std::move(differing);
    }
    operand.set(slot);
  }

  MeshAttr attribute;
  const Mesh &mesh;
  bool spreads;
  DenseMap<std::pair<Value, Attribute>, Value> spreadOf;
  DenseMap<Value, Differing> values;
};
} // namespace

LogicalResult dist::verifyManual(ModuleOp module) {
  ManualOp first = findManual(module);
  if (!first)
    return success();
  for (auto function : module.getOps<FunctionOpInterface>()) {
    if (function.isExternal() || isRun(module, function))
      continue;
    Follower follower(first.getFrom().getMesh(), /*spreads=*/false);
    auto results =
        follower.run(function, std::vector<Differing>(function.getNumArguments()));
    if (failed(results))
      return failure();
    for (auto [i, differing] : llvm::enumerate(*results)) {
      if (differing.empty())
        continue;
      auto name = function.getResultAttrOfType<StringAttr>(static_cast<unsigned>(i),
                                                           "graph.name");
      return emitError(
          function.getLoc(),
          "output " + (name ? "'" + name.getValue().str() + "'" : std::to_string(i)) +
              " must be one tensor on all ranks, but it " + follower.since(differing) +
              "; a ToGlobal says of which tensor each rank has a part");
    }
  }
  return success();
}

LogicalResult dist::spreadManual(FunctionOpInterface function) {
  ManualOp first = findManual(function->getParentOp());
  if (!first)
    return success();
  return Follower(first.getFrom().getMesh(), /*spreads=*/true)
      .run(function, std::vector<Differing>(function.getNumArguments()));
}

FailureOr<DenseSet<Operation *>> dist::localOps(FunctionOpInterface function) {
  ManualOp first = findManual(function->getParentOp());
  if (!first)
    return DenseSet<Operation *>();
  Follower follower(first.getFrom().getMesh(), /*spreads=*/false);
  if (failed(follower.run(function, std::vector<Differing>(function.getNumArguments()))))
    return failure();
  return std::move(follower.local);
}
