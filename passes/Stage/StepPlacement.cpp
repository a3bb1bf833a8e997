//===- StepPlacement.cpp - The stage of everything in a step --------------===//
#include "passes/Stage/StepPlacement.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/OpInterfaces.h"
#include "dialects/Interfaces/ValueNames.h"

#include <algorithm>

using namespace mlir;
using namespace partita;

static bool isScalar(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 0;
}

static bool isScalarOp(Operation &op) {
  return llvm::all_of(op.getOperandTypes(), isScalar) &&
         llvm::all_of(op.getResultTypes(), isScalar);
}

static int32_t statedStage(Operation &op) {
  auto stage = op.getAttrOfType<IntegerAttr>(stageAttr);
  return stage ? static_cast<int32_t>(stage.getInt()) : everywhere;
}

StepPlacement::StepPlacement(LoopedStep step, int32_t numStages)
    : step(step), numStages(numStages) {
  placeMicroBatch();
  placeStates();
  placeMain();
}

int32_t StepPlacement::ofValue(Value value) const {
  Operation *op = value.getDefiningOp();
  return op ? ofOp.lookup(op) : everywhere;
}

int32_t StepPlacement::latest(Operation &op) const {
  int32_t stage = everywhere;
  for (Value operand : op.getOperands())
    stage = std::max(stage, ofValue(operand));
  return stage;
}

int32_t StepPlacement::follow(Operation &op) const {
  int32_t stage = everywhere;
  if (dist::phaseOf(&op) != Phase::Forward)
    for (Value operand : op.getOperands())
      if (Operation *maker = operand.getDefiningOp();
          maker && dist::phaseOf(maker) != Phase::Forward)
        if (int32_t it = ofOp.lookup(maker); it != everywhere)
          stage = stage == everywhere ? it : std::min(stage, it);
  return stage == everywhere ? latest(op) : stage;
}

void StepPlacement::placeMicroBatch() {
  for (Operation &op : step.micro.front().without_terminator()) {
    int32_t stage = statedStage(op);
    if (stage == everywhere && op.getNumOperands() != 0)
      stage = follow(op);
    ofOp[&op] = stage;
    sources[&op] = sourceOf(op);
    numStages = std::max(numStages, stage + 1);
  }
  for (unsigned i = 0; i < step.numCarried(); ++i)
    carriedIn.push_back(ofValue(step.next(i)));
}

StepPlacement::Source StepPlacement::sourceOf(Operation &op) const {
  int sources = None;
  for (Value operand : op.getOperands()) {
    auto argument = dyn_cast<BlockArgument>(operand);
    sources |= !argument ? this->sources.lookup(operand.getDefiningOp())
               : step.isCarried(argument.getArgNumber()) ? Both
               : step.isScanned(argument.getArgNumber()) ? Inputs
                                                         : Parameters;
  }
  if (dist::phaseOf(&op) != Phase::Forward || isa<CallingOpInterface>(op))
    return Both;
  if (sources == Inputs) {
    const kernels::OpKind kind = kernelFactsOf(&op).kind;
    if (kind != kernels::OpKind::Pointwise && kind != kernels::OpKind::View)
      return Both;
  }
  return static_cast<Source>(sources);
}

bool StepPlacement::isMadeAgain(Operation *op) const {
  auto found = sources.find(op);
  return found != sources.end() && found->second != Both;
}

int32_t StepPlacement::firstReader(Value value) const {
  int32_t first = everywhere;
  for (Operation *user : value.getUsers()) {
    if (user->hasTrait<OpTrait::IsTerminator>())
      continue;
    int32_t stage = ofOp.lookup(user);
    for (Value result : user->getResults())
      if (stage == everywhere)
        if (int32_t it = firstReader(result); it != everywhere)
          first = first == everywhere ? it : std::min(first, it);
    if (stage != everywhere)
      first = first == everywhere ? stage : std::min(first, stage);
  }
  return first;
}

void StepPlacement::placeStates() {
  owner.assign(step.main.getNumArguments(), everywhere);
  std::map<std::string, int32_t> ofParameter;
  auto nameOf = [&](unsigned i) {
    auto name = step.main.getArgAttrOfType<StringAttr>(i, parameterAttr);
    return name ? name.str() : std::string();
  };
  for (OpOperand &operand : step.loop->getOpOperands()) {
    auto argument = dyn_cast<BlockArgument>(operand.get());
    if (!argument || !dist::argumentState(step.main, argument.getArgNumber()))
      continue;
    unsigned i = operand.getOperandNumber();
    int32_t stage =
        step.isCarried(i) ? carriedIn[i] : firstReader(step.micro.getArgument(i));
    owner[argument.getArgNumber()] = stage;
    if (!nameOf(argument.getArgNumber()).empty())
      ofParameter[nameOf(argument.getArgNumber())] = stage;
  }
  for (unsigned i = 0; i < owner.size(); ++i) {
    if (!dist::argumentState(step.main, i) || owner[i] != everywhere)
      continue;
    auto known = ofParameter.find(nameOf(i));
    owner[i] = known == ofParameter.end() ? 0 : std::max(0, known->second);
  }
  for (unsigned i = 0; i < owner.size(); ++i)
    if (!nameOf(i).empty())
      stageOfParameter[nameOf(i)] = owner[i];
}

int32_t StepPlacement::inMain(Operation &op) const {
  if (auto name = op.getAttrOfType<StringAttr>(parameterAttr))
    if (auto known = stageOfParameter.find(name.str()); known != stageOfParameter.end())
      return known->second;
  if (isScalarOp(op))
    return everywhere;
  int32_t stage = everywhere;
  for (Value operand : op.getOperands()) {
    auto argument = dyn_cast<BlockArgument>(operand);
    int32_t it = argument ? owner[argument.getArgNumber()] : ofValue(operand);
    if (operand.getDefiningOp() == step.loop)
      it = carriedIn[cast<OpResult>(operand).getResultNumber()];
    stage = std::max(stage, it);
  }
  return stage;
}

void StepPlacement::placeMain() {
  for (Operation &op : step.main.front().without_terminator())
    ofOp[&op] = &op == step.loop || op.getNumOperands() == 0 ? everywhere : inMain(op);
}
