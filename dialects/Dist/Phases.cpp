//===- Phases.cpp - Parts of a training step that values belong to --------===//
#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace partita;

Phase dist::phaseOf(Operation *op) {
  auto phase = op->getAttrOfType<PhaseAttr>(phaseAttr);
  return phase ? phase.getValue() : Phase::Forward;
}

void dist::setPhase(Operation *op, Phase phase) {
  if (phase == Phase::Forward)
    op->removeAttr(phaseAttr);
  else
    op->setAttr(phaseAttr, PhaseAttr::get(op->getContext(), phase));
}

static bool isEarlier(Phase a, Phase b) { return orderOf(a) < orderOf(b); }

static Block *bodyOf(Operation *callee) {
  auto function = dyn_cast_or_null<FunctionOpInterface>(callee);
  return function && !function.isExternal() ? &function.getFunctionBody().front()
                                            : nullptr;
}

/// Ops of other dialects have no phase unless they say one.
static bool hasPhase(Operation *op) {
  StringRef dialect = op->getName().getDialectNamespace();
  return op->hasAttr(phaseAttr) || dialect == "graph" || dialect == "dist" ||
         dialect == "comm";
}

static std::optional<Phase> latest(std::optional<Phase> a, std::optional<Phase> b) {
  return !a || (b && isEarlier(*a, *b)) ? b : a;
}

static std::optional<Phase> phaseOfCall(CallingOpInterface call, unsigned number) {
  std::optional<Phase> phase;
  for (Operation *callee : call.getCallees()) {
    Block *body = bodyOf(callee);
    if (!body || number >= body->getTerminator()->getNumOperands())
      continue;
    Value yielded = body->getTerminator()->getOperand(number);
    auto argument = dyn_cast<BlockArgument>(yielded);
    if (!argument) {
      phase = latest(phase, dist::phaseOf(yielded));
      continue;
    }
    for (OpOperand &operand : call->getOpOperands())
      if (call.getArgumentOf(operand.getOperandNumber()) ==
          static_cast<int>(argument.getArgNumber()))
        phase = latest(phase, dist::phaseOf(operand.get()));
  }
  return phase;
}

std::optional<Phase> dist::phaseOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumOperands() == 0)
    return std::nullopt;
  if (auto call = dyn_cast<CallingOpInterface>(op))
    return phaseOfCall(call, cast<OpResult>(value).getResultNumber());
  return hasPhase(op) ? std::optional(phaseOf(op)) : std::nullopt;
}

/// The readers of a value: those in its functions in place of an op that runs some, and
/// none for what ends the function.
static void forEachReader(Value value, function_ref<void(Operation *)> visit) {
  for (OpOperand &use : value.getUses()) {
    auto call = dyn_cast<CallingOpInterface>(use.getOwner());
    if (!call) {
      if (!use.getOwner()->hasTrait<OpTrait::IsTerminator>())
        visit(use.getOwner());
      continue;
    }
    int argument = call.getArgumentOf(use.getOperandNumber());
    for (Operation *callee : call.getCallees())
      if (Block *body = bodyOf(callee);
          body && argument >= 0 && argument < static_cast<int>(body->getNumArguments()))
        forEachReader(body->getArgument(static_cast<unsigned>(argument)), visit);
  }
}

bool dist::isConversion(Operation *op) { return isa<ReshardOp, WindowOp>(op); }

Attribute dist::formOf(Operation *conversion) {
  if (auto window = dyn_cast<WindowOp>(conversion))
    return window.getWindows();
  return cast<ReshardOp>(conversion).getLayout().canonical();
}

/// The earliest phase of the ops that read the value, directly or through conversions.
static std::optional<Phase> earliestReader(Value value) {
  std::optional<Phase> earliest;
  forEachReader(value, [&](Operation *reader) {
    std::optional<Phase> phase = dist::isConversion(reader)
                                     ? earliestReader(reader->getResult(0))
                                     : dist::phaseOf(reader);
    if (phase && (!earliest || isEarlier(*phase, *earliest)))
      earliest = phase;
  });
  return earliest;
}

Phase dist::phaseOfConversion(Operation *conversion) {
  Value from = conversion->getOperand(0);
  for (Operation *op = from.getDefiningOp(); op && isConversion(op);
       op = from.getDefiningOp())
    from = op->getOperand(0);
  if (std::optional<Phase> phase = phaseOf(from))
    return *phase;
  return earliestReader(conversion->getResult(0)).value_or(Phase::Forward);
}

void dist::markConversions(FunctionOpInterface function) {
  for (Operation &op : function.getFunctionBody().front())
    if (isConversion(&op) && !op.hasAttr(phaseAttr))
      setPhase(&op, phaseOfConversion(&op));
}

LogicalResult dist::verifyPhases(FunctionOpInterface function) {
  for (Operation &op : function.getFunctionBody().front().without_terminator())
    for (Value result : op.getResults()) {
      std::optional<Phase> phase = phaseOf(result);
      if (!phase || *phase == Phase::Forward)
        continue;
      Operation *early = nullptr;
      forEachReader(result, [&](Operation *reader) {
        if (!early && hasPhase(reader) && isEarlier(phaseOf(reader), *phase))
          early = reader;
      });
      if (!early)
        continue;
      InFlightDiagnostic error = early->emitOpError("is in phase ")
                                 << name(phaseOf(early)) << " and reads '"
                                 << op.getName().getStringRef() << "' of phase "
                                 << name(*phase);
      error.attachNote(op.getLoc()) << "made here";
      return error;
    }
  return success();
}
