//===- Grades.cpp - Which ops compute in the narrower type ----------------===//
#include "passes/Precision/Grades.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/RuleCache.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::precision;

static bool isWide(mlir::Value value) {
  return getElementTypeOrSelf(value.getType()).isF32();
}

namespace {
enum class Kind : uint8_t { Source, Product, Movement, Pointwise, Other };
} // namespace

/// A contraction without a sum multiplies elements and rounds once, as pointwise ops do:
/// positions times frequencies, of which bf16 has not the digits.
static bool hasSum(graph::ContractOp op) {
  RuleRef facts = ruleOf(op);
  llvm::DenseSet<int32_t> kept;
  for (const auto &dim : facts->rule->results[0])
    kept.insert(dim.begin(), dim.end());
  for (auto [f, factor] : llvm::enumerate(facts->rule->factors))
    if (factor.size > 1 && !kept.contains(static_cast<int32_t>(f)))
      return true;
  return false;
}

static bool isFunctionOfReals(PayloadOpInterface op) {
  return llvm::any_of(op.getPayload().nodes(), [](const ScalarNode &n) {
    return (n.op >= ScalarOp::Exp && n.op <= ScalarOp::Cos && n.op != ScalarOp::Sqrt) ||
           n.op == ScalarOp::Pow || n.op == ScalarOp::Mod || n.op == ScalarOp::Bits;
  });
}

static Kind kindOf(Operation *op) {
  if (isa<graph::WeightOp, graph::ConstantOp>(op))
    return Kind::Source;
  if (auto contract = dyn_cast<graph::ContractOp>(op))
    return hasSum(contract) ? Kind::Product : Kind::Pointwise;
  if (isa<graph::ConvOp, graph::ConvTransposeOp>(op))
    return Kind::Product;
  if (isa<graph::ReshapeOp, graph::TransposeOp, graph::BroadcastOp, graph::SliceOp,
          graph::ConcatOp, graph::PadOp, graph::GatherOp, graph::GatherNDOp,
          graph::GatherElementsOp, graph::MaxPoolOp, graph::PoolOp, graph::ResizeOp>(op))
    return Kind::Movement;
  if (auto scatter = dyn_cast<graph::ScatterElementsOp>(op))
    return scatter.getKind() ? Kind::Other : Kind::Movement;
  if (auto payload = dyn_cast<PayloadOpInterface>(op))
    return isFunctionOfReals(payload) ? Kind::Other : Kind::Pointwise;
  return Kind::Other;
}

/// Tells whether a uniform constant is another number in the narrower type: the scale of
/// attention is no place to round. One that is out of range becomes the largest number.
static bool losesDigits(mlir::Value value, DType narrow) {
  auto constant = value.getDefiningOp<graph::ConstantOp>();
  if (!constant || !isWide(value) || !constant.getValue().isSplat())
    return false;
  auto number = dyn_cast<FloatAttr>(constant.getValue().getSplatValue<Attribute>());
  if (!number)
    return false;
  const float exact = number.getValue().convertToFloat();
  const float rounded = narrow == DType::F16 ? halfToFloat(floatToHalf(exact))
                                             : bfloat16ToFloat(floatToBfloat16(exact));
  return std::isfinite(rounded) && rounded != exact;
}

/// A lookup in weights makes data of them.
static bool isLookup(Operation *op) {
  return isa<graph::GatherOp, graph::GatherNDOp, graph::GatherElementsOp>(op);
}

static bool isTerminator(Operation *op) { return op->hasTrait<OpTrait::IsTerminator>(); }

Grades::Grades(func::FuncOp function, DType narrow,
               std::function<bool(Operation *)> keeps)
    : function(function), narrow(narrow), keeps(std::move(keeps)) {
  do {
    values.clear();
    wideOps.clear();
    narrowArguments.clear();
    beginArguments();
    do {
      followOperands();
    } while (followReaders());
  } while (!settleStates());
  chooseNeutral();
}

static bool isWritten(func::FuncOp function, dist::StateAttr state) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto made = dist::resultState(function, i);
        made && made.getName() == state.getName())
      return true;
  return false;
}

void Grades::beginArguments() {
  const bool isMain = function.isPublic();
  for (BlockArgument argument : function.getArguments()) {
    if (!isWide(argument))
      continue;
    Value &value = values[argument];
    dist::StateAttr state = dist::argumentState(function, argument.getArgNumber());
    if (state && !wideStates.contains(argument))
      value.grade = isWritten(function, state) ? Grade::Narrow : Grade::Neutral;
    else if (!isMain)
      value.grade = Grade::Neutral;
  }
}

Grades::Value Grades::gradeOf(Operation *op) const {
  const Kind kind = kindOf(op);
  if (kind == Kind::Source)
    return {Grade::Neutral};
  if (keeps(op) || kind == Kind::Other || wideOps.contains(op)) {
    bool isMade = llvm::any_of(op->getOperands(), isWide);
    bool ofStatistics = isMade;
    for (mlir::Value operand : op->getOperands())
      if (auto known = values.find(operand); known != values.end())
        ofStatistics &=
            known->second.isStatistic || known->second.grade == Grade::Neutral;
    return {Grade::Wide, isa<graph::ReduceOp>(op) || ofStatistics};
  }
  if (kind == Kind::Product)
    return {isWide(op->getOperand(0)) ? Grade::Narrow : Grade::Wide};
  bool anyWide = false, anyNarrow = false, anyStatistic = false, allStatistics = true;
  bool isOfConstants = true, isInexact = false;
  for (mlir::Value operand : op->getOperands()) {
    auto known = values.find(operand);
    if (known == values.end()) {
      Operation *from = operand.getDefiningOp();
      isOfConstants &= from && kindOf(from) == Kind::Source;
      continue;
    }
    const Value &value = known->second;
    isInexact |= losesDigits(operand, narrow);
    isOfConstants &= value.grade == Grade::Neutral;
    anyWide |= value.grade == Grade::Wide;
    anyNarrow |= value.grade == Grade::Narrow;
    anyStatistic |= value.isStatistic;
    allStatistics &= value.isStatistic || value.grade == Grade::Neutral;
  }
  if (isOfConstants)
    return {Grade::Neutral};
  const bool isStatistic = anyStatistic && allStatistics;
  if (kind == Kind::Pointwise && (!anyNarrow || anyStatistic || isInexact))
    return {Grade::Wide, isStatistic};
  if (anyNarrow || (!anyWide && isLookup(op)))
    return {Grade::Narrow};
  return {Grade::Wide, isStatistic};
}

void Grades::followOperands() {
  for (Operation &op : function.front().without_terminator()) {
    if (llvm::none_of(op.getResults(), isWide))
      continue;
    Value value = gradeOf(&op);
    for (mlir::Value result : op.getResults())
      if (isWide(result))
        values[result] = value;
  }
}

/// Tells whether one op alone reads a value, and computes in f32: the value is likely to
/// be stored nowhere. A result of the function has its type, unless a state lies in it.
bool Grades::isReadWide(mlir::Value value) const {
  if (value.use_empty() || llvm::any_of(value.getUsers(), [&](Operation *user) {
        return user != *value.user_begin();
      }))
    return false;
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isTerminator(user))
      return !dist::resultState(function, use.getOperandNumber());
    if (keeps(user) || wideOps.contains(user) || isa<CallingOpInterface>(user))
      return true;
    switch (kindOf(user)) {
    case Kind::Product:
      return false;
    case Kind::Movement:
      return isReadWide(user->getResult(0));
    case Kind::Pointwise: {
      auto known = values.find(user->getResult(0));
      return known == values.end() || known->second.grade == Grade::Wide;
    }
    default:
      return true;
    }
  });
}

/// Tells whether the call of a product may apply the op to its sums, before it rounds
/// them: a bias, a Relu.
bool Grades::mayJoinProduct(Operation *op) const {
  bool any = false;
  for (mlir::Value operand : op->getOperands()) {
    auto known = values.find(operand);
    if (known == values.end())
      return false;
    if (known->second.grade == Grade::Neutral)
      continue;
    Operation *maker = operand.getDefiningOp();
    if (!maker || !operand.hasOneUse() || keeps(maker))
      return false;
    const Kind kind = kindOf(maker);
    if (kind != Kind::Product && !(kind == Kind::Pointwise && mayJoinProduct(maker)))
      return false;
    any = true;
  }
  return any;
}

bool Grades::followReaders() {
  bool changed = false;
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    if (op.getNumResults() != 1 || kindOf(&op) != Kind::Pointwise ||
        wideOps.contains(&op))
      continue;
    auto known = values.find(op.getResult(0));
    if (known != values.end() && known->second.grade == Grade::Narrow &&
        isReadWide(op.getResult(0)) && !mayJoinProduct(&op)) {
      wideOps.insert(&op);
      known->second.grade = Grade::Wide;
      changed = true;
    }
  }
  return changed;
}

bool Grades::settleStates() {
  bool settled = true;
  Operation *end = function.front().getTerminator();
  for (BlockArgument argument : function.getArguments()) {
    auto known = values.find(argument);
    dist::StateAttr state = dist::argumentState(function, argument.getArgNumber());
    if (!state || known == values.end() || known->second.grade != Grade::Narrow)
      continue;
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      dist::StateAttr made = dist::resultState(function, i);
      if (!made || made.getName() != state.getName())
        continue;
      auto result = values.find(end->getOperand(i));
      if (result != values.end() && result->second.grade == Grade::Narrow)
        continue;
      wideStates.insert(argument);
      settled = false;
    }
  }
  return settled;
}

bool Grades::isReadNarrow(mlir::Value value) const {
  return llvm::all_of(value.getUses(),
                      [&](OpOperand &use) { return isNarrow(use.getOwner()); });
}

/// Tells whether the op puts elements of one tensor elsewhere: rounding them before or
/// behind it gives the same.
static bool onlyMoves(Operation *op) {
  return isa<graph::ReshapeOp, graph::TransposeOp, graph::BroadcastOp, graph::SliceOp>(
      op);
}

/// Values made of weights alone are as their readers are; where these differ they are
/// f32. What is only moved on the way to narrow readers is rounded before, where it may
/// join the kernel that makes it.
///
///   %n = layer_norm %x      %r = reshape %n      contract(cast %r)     two kernels
///   %n = layer_norm %x      %r = reshape(cast %n)      contract(%r)    one
void Grades::chooseNeutral() {
  auto gradeIn = [&](mlir::Value value) {
    auto known = values.find(value);
    return known == values.end() ? Grade::Wide : known->second.grade;
  };
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    if (kindOf(&op) == Kind::Source)
      continue;
    bool isNarrow = llvm::any_of(op.getResults(), [&](mlir::Value result) {
      return gradeIn(result) == Grade::Narrow ||
             ((gradeIn(result) == Grade::Neutral || (onlyMoves(&op) && !keeps(&op))) &&
              isReadNarrow(result) && !result.use_empty());
    });
    if (isNarrow)
      narrowOps.insert(&op);
  }
  for (BlockArgument argument : function.getArguments()) {
    dist::StateAttr state = dist::argumentState(function, argument.getArgNumber());
    const Grade grade = gradeIn(argument);
    if (grade == Grade::Narrow || (grade == Grade::Neutral && !state &&
                                   isReadNarrow(argument) && !argument.use_empty()))
      narrowArguments.insert(argument);
  }
}
