//===- SumApart.cpp - A gradient's sum for each stage that adds to it -----===//
#include "passes/Stage/StepPlacement.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace partita;

namespace {
/// A term of a sum of gradients, and the cast behind the sum that holds for it; null:
/// none.
struct Term {
  Value value;
  graph::CastOp cast;
};
using Terms = std::map<int32_t, SmallVector<Term>>; ///< by stage
} // namespace

static bool isWidening(graph::CastOp cast) {
  auto bits = [](Value value) {
    return getElementTypeOrSelf(value.getType()).getIntOrFloatBitWidth();
  };
  return bits(cast.getInput()) < bits(cast.getResult());
}

/// The terms of a sum, through a cast of the whole, too: narrow gradients that are summed
/// over micro-batches are wide there. A sum that has other readers is a term.
static void addTerms(const StepPlacement &places, Value value, graph::CastOp cast,
                     Terms &terms) {
  Operation *op = value.getDefiningOp();
  if (auto wide = dyn_cast_or_null<graph::CastOp>(op);
      wide && !cast && wide->hasOneUse() && isWidening(wide))
    return addTerms(places, wide.getInput(), wide, terms);
  auto sum = dyn_cast_or_null<graph::AddOp>(op);
  if (sum && sum->hasOneUse() && sum.getLhs().getType() == sum.getType() &&
      sum.getRhs().getType() == sum.getType()) {
    addTerms(places, sum.getLhs(), cast, terms);
    addTerms(places, sum.getRhs(), cast, terms);
    return;
  }
  terms[op ? places.of(op) : everywhere].push_back({value, cast});
}

static void mark(Operation *op, int32_t stage) {
  dist::setPhase(op, Phase::Weight);
  op->setAttr(stageAttr, Builder(op->getContext()).getI64IntegerAttr(stage));
}

/// The terms of a stage on top of what is carried, before `next`.
static Value total(Operation *next, int32_t stage, const SmallVector<Term> &terms,
                   Value onto) {
  OpBuilder builder(next);
  for (Term term : terms) {
    Value value = term.value;
    if (term.cast) {
      IRMapping mapping;
      mapping.map(term.cast.getInput(), value);
      Operation *wide = builder.clone(*term.cast.getOperation(), mapping);
      mark(wide, stage);
      value = wide->getResult(0);
    }
    auto sum = graph::AddOp::create(builder, next->getLoc(), onto, value);
    mark(sum, stage);
    onto = sum;
  }
  return onto;
}

/// Another carried value, which begins as carried value `like` does; its number. Trips
/// give it on as it is, until somebody says otherwise.
static unsigned addCarried(LoopedStep &step, unsigned like) {
  const unsigned place = step.numCarried();
  Type type = step.micro.getArgument(like).getType();
  Operation *end = step.micro.front().getTerminator();
  (void)step.micro.insertArgument(place, type, step.micro.getArgAttrDict(like),
                                  step.micro.getArgument(like).getLoc());
  end->insertOperands(place, Value(step.micro.getArgument(place)));
  OpBuilder builder(step.loop);
  step.micro.setFunctionType(builder.getFunctionType(
      step.micro.front().getArgumentTypes(), end->getOperandTypes()));
  SmallVector<Value> carried(step.loop.getCarried());
  carried.push_back(carried[like]);
  SmallVector<Type> types(step.loop.getResultTypes());
  types.insert(types.begin() + place, type);
  auto loop = graph::RepeatOp::create(
      builder, step.loop.getLoc(), types, step.loop.getBodyAttr(),
      step.loop.getTripsAttr(), carried, step.loop.getScanned(), step.loop.getShared());
  SmallVector<Value> results(loop->getResults());
  results.erase(results.begin() + place);
  step.loop->replaceAllUsesWith(results);
  step.loop->erase();
  step.loop = loop;
  return place;
}

/// Adds the sums behind the loop to that of carried value `first`, for all its readers.
static void addBehind(LoopedStep &step, unsigned first, ArrayRef<unsigned> sums,
                      Location loc) {
  OpBuilder builder(step.loop->getContext());
  builder.setInsertionPointAfter(step.loop);
  Value sum = step.loop->getResult(first);
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : sum.getUses())
    uses.push_back(&use);
  auto parameter = step.micro.getArgAttr(first, parameterAttr);
  for (unsigned place : sums) {
    auto added = graph::AddOp::create(builder, loc, sum, step.loop->getResult(place));
    dist::setPhase(added, Phase::Update);
    if (parameter)
      added->setAttr(parameterAttr, parameter);
    sum = added;
  }
  for (OpOperand *use : uses)
    use->set(sum);
}

void partita::sumApart(LoopedStep &step) {
  const StepPlacement places(step, 1);
  const unsigned numCarried = step.numCarried();
  for (unsigned i = 0; i < numCarried; ++i) {
    auto next = step.next(i).getDefiningOp<graph::AddOp>();
    if (!next || next.getLhs() != step.micro.getArgument(i) ||
        dist::phaseOf(next.getOperation()) != Phase::Weight)
      continue;
    Terms terms;
    addTerms(places, next.getRhs(), {}, terms);
    // A term that is everywhere can be added in any stage.
    auto common = terms.extract(everywhere);
    if (terms.size() < 2)
      continue;
    if (common)
      llvm::append_range(terms.begin()->second, common.mapped());
    // The first stage keeps the carried sum, each other gets one of its own.
    Operation *end = step.micro.front().getTerminator();
    SmallVector<unsigned> sums;
    for (const auto &[stage, own] : terms) {
      const bool isFirst = stage == terms.begin()->first;
      const unsigned place = isFirst ? i : addCarried(step, i);
      end->setOperand(place, total(next, stage, own, step.micro.getArgument(place)));
      if (!isFirst)
        sums.push_back(place);
    }
    addBehind(step, i, sums, next.getLoc());
  }
}
