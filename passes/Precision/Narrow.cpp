//===- Narrow.cpp - An f32 program in bf16 or f16 -------------------------===//
#include "passes/Precision/Passes.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Formula.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Base/Compute.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "passes/Precision/Grades.h"

#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_NARROWPASS
#include "passes/Precision/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::precision;

static Type elementOf(Value value) { return getElementTypeOrSelf(value.getType()); }

static void setElement(Value value, Type element) {
  value.setType(cast<RankedTensorType>(value.getType()).clone(element));
}

namespace {
/// Arguments that become narrow, by function.
using Signatures = DenseMap<Operation *, SmallVector<bool>>;

/// Rewrites one function by its grades.
class FunctionNarrower {
public:
  FunctionNarrower(func::FuncOp function, const Grades &grades, Type narrow,
                   const Signatures &signatures)
      : function(function), grades(grades), narrow(narrow),
        wide(Float32Type::get(function.getContext())), signatures(signatures) {}

  void run() {
    SmallVector<Operation *> ops;
    for (Operation &op : function.front())
      ops.push_back(&op);
    for (BlockArgument argument : function.getArguments())
      if (signatures.at(function)[argument.getArgNumber()])
        makeNarrow(argument);
    for (Operation *op : ops)
      convert(op);
    function.setType(
        FunctionType::get(function.getContext(), function.front().getArgumentTypes(),
                          function.front().getTerminator()->getOperandTypes()));
    for (Operation *source : sources)
      if (source->use_empty())
        source->erase();
  }

private:
  void makeNarrow(Value value) {
    setElement(value, narrow);
    narrowed.insert(value);
  }

  /// Tells whether a value was f32 before the pass.
  bool wasWide(Value value) const {
    return elementOf(value) == wide || narrowed.contains(value);
  }

  void convert(Operation *op) {
    if (isa<graph::WeightOp, graph::ConstantOp>(op)) {
      sources.push_back(op);
      return;
    }
    for (OpOperand &operand : op->getOpOperands())
      if (wasWide(operand.get()))
        operand.set(as(operand.get(), typeFor(operand), op));
    if (!grades.isNarrow(op))
      return;
    if (auto cast = dyn_cast<graph::CastOp>(op); cast && cast.getTo() == wide)
      cast.setTo(narrow);
    for (Value result : op->getResults())
      if (elementOf(result) == wide)
        makeNarrow(result);
  }

  /// The type in which an op reads an operand.
  Type typeFor(OpOperand &operand) {
    Operation *op = operand.getOwner();
    bool isNarrow = grades.isNarrow(op);
    if (op->hasTrait<OpTrait::IsTerminator>()) {
      auto state = dist::resultState(function, operand.getOperandNumber());
      isNarrow = state && isNarrowState(state);
    } else if (auto call = dyn_cast<CallingOpInterface>(op)) {
      const int argument = call.getArgumentOf(operand.getOperandNumber());
      if (argument >= 0)
        isNarrow = signatures.at(call.getCallees()[0])[static_cast<size_t>(argument)];
    }
    return isNarrow ? narrow : wide;
  }

  bool isNarrowState(dist::StateAttr state) {
    for (BlockArgument argument : function.getArguments())
      if (auto own = dist::argumentState(function, argument.getArgNumber());
          own && own.getName() == state.getName())
        return elementOf(argument) == narrow;
    return false;
  }

  /// The value in a type. The cast stands behind what makes the value, and has the name
  /// of that node; of an argument in front of its first user, with its name.
  Value as(Value value, Type element, Operation *user) {
    if (elementOf(value) == element)
      return value;
    Value &known = casts[{value, element}];
    if (known)
      return known;
    OpBuilder builder(function.getContext());
    Operation *maker = value.getDefiningOp();
    if (maker)
      builder.setInsertionPointAfter(maker);
    else
      builder.setInsertionPoint(user);
    if (auto weight = dyn_cast_or_null<graph::WeightOp>(maker))
      return known = graph::WeightOp::create(
                 builder, weight.getLoc(),
                 cast<RankedTensorType>(value.getType()).clone(element),
                 weight.getNameAttr());
    if (auto constant = dyn_cast_or_null<graph::ConstantOp>(maker))
      if (auto elements = dyn_cast<DenseElementsAttr>(constant.getValue()))
        return known = constantIn(builder, constant, elements, element);
    graph::Formula f(builder, locationOf(value));
    known = f.cast(value, element);
    if (maker)
      copyStepMarks(maker, known.getDefiningOp());
    return known;
  }

  /// Elements, or the one of a uniform constant.
  static Value constantIn(OpBuilder &builder, graph::ConstantOp constant,
                          DenseElementsAttr elements, Type element) {
    ArrayRef<char> raw = elements.getRawData();
    auto bytes = partita::narrowed(std::as_bytes(std::span(raw.data(), raw.size())),
                                   *dtypeOf(element));
    return graph::ConstantOp::create(
        builder, constant.getLoc(),
        DenseElementsAttr::getFromRawBuffer(
            elements.getType().clone(element),
            ArrayRef(reinterpret_cast<const char *>(bytes.data()), bytes.size())));
  }

  /// The node's name without those of values: the cast is none of the file's.
  Location locationOf(Value value) {
    if (Operation *maker = value.getDefiningOp())
      return NameLoc::get(StringAttr::get(function.getContext(), dist::nodeName(maker)));
    auto name = function.getArgAttrOfType<StringAttr>(
        cast<BlockArgument>(value).getArgNumber(), "graph.name");
    return name ? Location(NameLoc::get(name)) : value.getLoc();
  }

  func::FuncOp function;
  const Grades &grades;
  Type narrow, wide;
  const Signatures &signatures;
  DenseSet<Value> narrowed;
  DenseMap<std::pair<Value, Type>, Value> casts;
  SmallVector<Operation *> sources;
};

struct NarrowPass : partita::impl::NarrowPassBase<NarrowPass> {
  using NarrowPassBase::NarrowPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    const std::optional<Compute> type = computeFromName(compute);
    if (!type || storedType(*type) == DType::F32) {
      module.emitError("'") << compute
                            << "' is no type to narrow to: expected bf16 or f16";
      return signalPassFailure();
    }
    Builder builder(&getContext());
    Type narrow =
        *type == Compute::F16 ? Type(builder.getF16Type()) : Type(builder.getBF16Type());
    std::vector<bool> used(keep.size(), false);
    auto keeps = [&](Operation *op) {
      bool any = false;
      const std::string name = dist::nodeName(op);
      for (size_t i = 0; i < keep.size(); ++i)
        if (matchesGlob(keep[i], name))
          any = used[i] = true;
      return any;
    };
    DenseMap<Operation *, std::unique_ptr<Grades>> grades;
    Signatures signatures;
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      function.walk([&](Operation *op) { keeps(op); });
      auto own = std::make_unique<Grades>(function, storedType(*type), keeps);
      for (BlockArgument argument : function.getArguments())
        signatures[function].push_back(own->isNarrow(argument));
      grades[function] = std::move(own);
    }
    for (auto [i, isUsed] : llvm::enumerate(used))
      if (!isUsed) {
        module.emitError("--keep-f32 '") << keep[i] << "' names no node of the model";
        return signalPassFailure();
      }
    module.walk([&](CallingOpInterface call) { agree(call, signatures); });
    for (auto &[function, own] : grades)
      FunctionNarrower(cast<func::FuncOp>(function), *own, narrow, signatures).run();
  }

private:
  /// An argument has one type in all functions that a branch may run; what is carried
  /// from trip to trip is f32.
  static void agree(CallingOpInterface call, Signatures &signatures) {
    SmallVector<Operation *> callees = call.getCallees();
    for (size_t i = 0; i < signatures.at(callees[0]).size(); ++i) {
      bool isNarrow = i >= call.getNumCarried();
      for (Operation *callee : callees)
        isNarrow &= signatures.at(callee)[i];
      for (Operation *callee : callees)
        signatures.at(callee)[i] = isNarrow;
    }
  }
};
} // namespace
