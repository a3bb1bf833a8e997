//===- Differentiate.cpp - Reverse mode over a program --------------------===//
#include "passes/Train/Differentiate.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/ValueNames.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

namespace {
/// Gives each op that is built its phase and the name of what it differentiates.
class Marker : public OpBuilder::Listener {
public:
  void begin(Operation *differentiated, Phase phase) {
    node = dist::nodeName(differentiated);
    stage = differentiated->getAttr(stageAttr);
    this->phase = phase;
  }

  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    MLIRContext *context = op->getContext();
    if (!isa<ConstantOp>(op)) { // a constant is of no phase: equal ones are one
      dist::setPhase(op, phase);
      if (stage)
        op->setAttr(stageAttr, stage);
    }
    StringRef suffix = phase == Phase::Weight ? "/weight" : "/backward";
    op->setLoc(NameLoc::get(StringAttr::get(context, node + suffix)));
  }

private:
  std::string node;
  Attribute stage; ///< null: the op has none
  Phase phase = Phase::Backward;
};

class ReverseMode {
public:
  ReverseMode(Block &block, const Values &wanted)
      : block(block), builder(OpBuilder(block.getTerminator())), wanted(wanted) {
    builder.setListener(&marker);
    for (Operation &op : block.without_terminator())
      ops.push_back(&op);
    findActive();
  }

  Expected<Values> run(ArrayRef<Seed> seeds) {
    for (const Seed &seed : seeds)
      if (reason.contains(seed.value))
        cotangents[seed.value] = seed.cotangent;
    for (Operation *op : llvm::reverse(ops))
      if (auto ok = visit(op); !ok)
        return tl::unexpected(ok.error());
    Values results;
    for (Value value : wanted)
      results.push_back(cotangents.lookup(value));
    return results;
  }

private:
  /// A value is active if it depends on something wanted, of which one is remembered.
  void findActive() {
    llvm::DenseSet<Value> isWanted(wanted.begin(), wanted.end());
    for (Value argument : block.getArguments())
      if (isWanted.contains(argument))
        reason[argument] = argument;
      else
        ofData.insert(argument);
    for (Operation *op : ops) {
      Value why;
      bool data = false;
      for (Value operand : op->getOperands()) {
        if (Value known = reason.lookup(operand); known && !why)
          why = known;
        data |= ofData.contains(operand);
      }
      for (Value result : op->getResults()) {
        if (why && isReal(result))
          reason[result] = why;
        if (data)
          ofData.insert(result);
      }
    }
  }

  std::string nameOf(Value argument) const {
    auto known = cast<BlockArgument>(argument);
    Operation *function = block.getParentOp();
    if (auto state = dist::argumentState(function, known.getArgNumber()))
      return "parameter '" + state.getName().str() + "'";
    return "argument " + std::to_string(known.getArgNumber());
  }

  Expected<void> visit(Operation *op) {
    Values given;
    for (Value result : op->getResults())
      given.push_back(cotangents.lookup(result));
    if (llvm::none_of(given, [](Value value) { return value != nullptr; }))
      return {};
    // A loop is taken apart once, for all of its operands, and is gone then.
    if (isa<CallingOpInterface>(op)) {
      std::vector<bool> asked;
      for (Value operand : op->getOperands())
        asked.push_back(reason.contains(operand));
      return differentiateOp(op, Phase::Backward, given, asked);
    }
    for (Phase phase : {Phase::Backward, Phase::Weight}) {
      std::vector<bool> asked;
      for (Value operand : op->getOperands())
        asked.push_back(reason.contains(operand) &&
                        ofData.contains(operand) == (phase == Phase::Backward));
      if (llvm::is_contained(asked, true))
        if (auto ok = differentiateOp(op, phase, given, asked); !ok)
          return ok;
    }
    return {};
  }

  Expected<void> differentiateOp(Operation *op, Phase phase, ArrayRef<Value> given,
                                 const std::vector<bool> &asked) {
    std::string node = dist::nodeName(op);
    marker.begin(op, phase);
    Values operands(op->operand_begin(), op->operand_end());
    auto fail = [&](const std::string &why) -> Expected<void> {
      size_t first = static_cast<size_t>(llvm::find(asked, true) - asked.begin());
      return makeError("node '" + node + "' (" + op->getName().getStringRef().str() +
                       ") " + why + ", and the loss depends on " +
                       nameOf(reason.lookup(operands[first])) + " through it");
    };
    auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
    Expected<Values> made = std::vector<Value>();
    if (isa<CallingOpInterface>(op))
      made = callGradients(op, builder, given, asked);
    else if (auto manual = dyn_cast<dist::ManualOp>(op))
      made = manualGradients(manual, builder, given[0]);
    else if (differentiable)
      made = differentiable.gradients(builder, given, asked);
    else
      return fail("has no gradient");
    if (!made)
      return fail("cannot be differentiated: " + made.error().message);
    Formula f(builder, builder.getUnknownLoc());
    for (auto [i, operand] : llvm::enumerate(operands)) {
      Value more = asked[i] ? (*made)[i] : Value();
      if (!more)
        continue;
      Value &sum = cotangents[operand];
      sum = sum ? f.add(sum, more) : more;
    }
    return {};
  }

  Block &block;
  Marker marker;
  OpBuilder builder;
  const Values &wanted;
  std::vector<Operation *> ops;
  /// Of an active value the argument on which it depends.
  DenseMap<Value, Value> reason;
  llvm::DenseSet<Value> ofData; ///< depends on arguments that are not wanted
  DenseMap<Value, Value> cotangents;
};
} // namespace

Expected<Values> train::differentiate(Block &block, ArrayRef<Seed> seeds,
                                      const Values &wanted) {
  return ReverseMode(block, wanted).run(seeds);
}
