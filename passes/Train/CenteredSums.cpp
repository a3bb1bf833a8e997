//===- CenteredSums.cpp - Sums of deviations from a mean are 0 ------------===//
#include "passes/Train/Order.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Formula.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/IR/Matchers.h"

#include <cstdio>

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

namespace {
/// Part of what is summed: factor · value, of which the factor is the same in all that is
/// summed.
struct Term {
  Value factor; ///< null: 1
  Value value;
  bool isNegative = false;
};

/// A sum in the backward pass, taken apart.
class Sum {
public:
  explicit Sum(ReduceOp op) : op(op), shape(shapeOf(op.getInput())) {
    isSummed.resize(shape.size(), false);
    for (int64_t axis : op.getAxes())
      isSummed[*normalizeAxis(axis, shape.size())] = true;
  }

  /// Writes the sum without what is 0 in it, unless nothing is, or more than one sum
  /// would be left.
  void rewrite() {
    addTerms(op.getInput(), false, 0);
    const size_t all = terms.size();
    llvm::erase_if(terms, [&](const Term &term) { return isCentered(term.value); });
    dropMeans();
    if (terms.size() == all || terms.size() > 1)
      return;
    OpBuilder builder(op);
    Formula f(builder, op.getLoc());
    Operation *before = op->getPrevNode();
    Value result = terms.empty() ? f.zerosLike(op.getResult()) : total(f, terms.front());
    if (!result || f.failed())
      return;
    for (Operation *made = before ? before->getNextNode() : &op->getBlock()->front();
         made != op; made = made->getNextNode())
      mark(made);
    op.getResult().replaceAllUsesWith(result);
  }

private:
  /// Sums that a norm's gradient writes are few ops deep. Those of x + x, again and
  /// again, have twice the terms at each.
  void addTerms(Value value, bool isNegative, int depth) {
    constexpr int mostDepth = 8;
    Operation *maker = depth < mostDepth ? value.getDefiningOp() : nullptr;
    auto isWhole = [&](Value operand) { return operand.getType() == value.getType(); };
    if (auto add = dyn_cast_or_null<AddOp>(maker);
        add && isWhole(add.getLhs()) && isWhole(add.getRhs())) {
      addTerms(add.getLhs(), isNegative, depth + 1);
      addTerms(add.getRhs(), isNegative, depth + 1);
    } else if (auto map = dyn_cast_or_null<MapOp>(maker);
               map && map.getPayload() == *Payload::parse("-x")) {
      addTerms(map.getInputs().front(), !isNegative, depth + 1);
    } else {
      terms.push_back(termOf(value, dyn_cast_or_null<MulOp>(maker)));
      terms.back().isNegative = isNegative;
    }
  }

  /// Drops pairs of a term and what is less by its mean: x·k − mean(x·k), as the
  /// cotangent behind an offset from a mean is, whose sum is the gradient of a bias in
  /// front of it.
  void dropMeans() {
    for (size_t i = 0; i < terms.size(); ++i) {
      auto less = llvm::find_if(terms, [&](const Term &other) {
        return &other != &terms[i] && isLessMean(other, terms[i]);
      });
      if (less == terms.end())
        continue;
      const auto k = static_cast<size_t>(less - terms.begin());
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(std::max(i, k)));
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(std::min(i, k)));
      i = static_cast<size_t>(-1); // others may follow
    }
  }

  /// Tells if the first term is −Σ of the second one over the number of what is summed:
  /// in some order a share, a sign, and a factor that the second one has, too.
  bool isLessMean(const Term &mean, const Term &term) const {
    auto stretched = mean.value.getDefiningOp<BroadcastOp>();
    if (mean.factor || !stretched || !isEqualInSum(stretched.getInput()))
      return false;
    bool isNegative = mean.isNegative, isShare = false;
    Value at = unreshaped(stretched.getInput()), factor;
    auto take = [&](Value next, Value times = {}) {
      const bool isFirst = !times || !factor;
      factor = times ? times : factor;
      at = unreshaped(next);
      return isFirst;
    };
    for (Operation *maker = at.getDefiningOp(); maker && !isa<ReduceOp>(maker);
         maker = at.getDefiningOp()) {
      auto map = dyn_cast<MapOp>(maker);
      auto product = dyn_cast<MulOp>(maker);
      bool isKnown = false;
      if (product) {
        isKnown = take(product.getLhs(), product.getRhs());
      } else if (map && map.getPayload() == share() && !isShare) {
        isKnown = isShare = take(map.getInputs()[0]);
      } else if (map && map.getPayload() == *Payload::parse("-x")) {
        isKnown = take(map.getInputs()[0]);
        isNegative = !isNegative;
      } else if (map && map.getPayload() == *Payload::parse("-(x * y)")) {
        isKnown = take(map.getInputs()[0], map.getInputs()[1]);
        isNegative = !isNegative;
      }
      if (!isKnown)
        return false;
    }
    auto sum = at.getDefiningOp<ReduceOp>();
    return isShare && isNegative != term.isNegative && sum &&
           sum.getKind() == ReduceKind::Sum && sum.getInput() == term.value &&
           sum.getAxesAttr() == op->getAttr("axes") && !factor == !term.factor &&
           (!factor || unreshaped(factor) == unreshaped(term.factor));
  }

  /// Payload of a mean: x times one over the number of what is summed.
  Payload share() const {
    double count = 1;
    for (size_t d = 0; d < shape.size(); ++d)
      count *= isSummed[d] ? static_cast<double>(shape[d]) : 1;
    char text[40];
    std::snprintf(text, sizeof text, "x * %.17g", 1 / count);
    return *Payload::parse(text);
  }

  static Value unreshaped(Value value) {
    while (auto reshape = value.getDefiningOp<ReshapeOp>())
      value = reshape.getInput();
    return value;
  }

  Term termOf(Value value, MulOp product) const {
    if (product)
      for (auto [factor, other] : {std::pair(product.getLhs(), product.getRhs()),
                                   std::pair(product.getRhs(), product.getLhs())})
        if (Value small = unstretched(factor);
            other.getType() == value.getType() && isEqualInSum(small))
          return {small, other};
    return {Value(), value};
  }

  static Value unstretched(Value value) {
    auto stretched = value.getDefiningOp<BroadcastOp>();
    return stretched ? Value(stretched.getInput()) : value;
  }

  /// Tells if the value has the extents of the summed tensor, beginning with the last
  /// dim, but for those that are summed, which are 1 or lacking.
  bool isEqualInSum(Value value) const {
    const Shape own = shapeOf(value);
    if (own.size() > shape.size())
      return false;
    const size_t lacking = shape.size() - own.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t extent = d < lacking ? 1 : own[d - lacking];
      if (extent != (isSummed[d] ? 1 : shape[d]))
        return false;
    }
    return true;
  }

  /// Tells if the value is x − mean(x), over dims all of which are summed.
  bool isCentered(Value value) const {
    auto offset = value.getDefiningOp<SubOp>();
    auto mean = offset ? unstretched(offset.getRhs()).getDefiningOp<DivOp>() : DivOp();
    auto sum = mean ? mean.getLhs().getDefiningOp<ReduceOp>() : ReduceOp();
    DenseFPElementsAttr count;
    if (!sum || sum.getKind() != ReduceKind::Sum || !sum.getKeepDims() ||
        sum.getInput() != offset.getLhs() || shapeOf(sum.getInput()) != shape ||
        !matchPattern(mean.getRhs(), m_Constant(&count)) || !count.isSplat())
      return false;
    int64_t elements = 1;
    for (int64_t axis : sum.getAxes()) {
      const auto d = static_cast<size_t>(*normalizeAxis(axis, shape.size()));
      if (!isSummed[d] && shape[d] != 1)
        return false;
      elements *= shape[d];
    }
    return count.getSplatValue<APFloat>().convertToDouble() ==
           static_cast<double>(elements);
  }

  /// The sum of the one term that is left.
  Value total(Formula &f, const Term &term) {
    Operation *sum = f.builder.clone(*op);
    sum->setOperand(0, term.value);
    Value result = sum->getResult(0);
    if (!term.factor)
      return term.isNegative ? f.map("-x", result) : result;
    Value factor = f.reshape(term.factor, f.shape(result));
    return term.isNegative ? f.map("-(x * y)", {result, factor}) : f.mul(result, factor);
  }

  void mark(Operation *made) {
    if (isa<ConstantOp>(made))
      return;
    dist::setPhase(made, dist::phaseOf(op.getOperation()));
    if (Attribute stage = op->getAttr(stageAttr))
      made->setAttr(stageAttr, stage);
  }

  ReduceOp op;
  Shape shape;
  std::vector<bool> isSummed; ///< by dim
  std::vector<Term> terms;
};
} // namespace

void train::dropCenteredSums(Block &block) {
  SmallVector<ReduceOp> sums;
  for (auto sum : block.getOps<ReduceOp>())
    if (const Phase phase = dist::phaseOf(sum.getOperation());
        sum.getKind() == ReduceKind::Sum &&
        (phase == Phase::Backward || phase == Phase::Weight))
      sums.push_back(sum);
  for (ReduceOp sum : sums)
    Sum(sum).rewrite();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (op.use_empty() && dist::phaseOf(&op) != Phase::Forward &&
        !isa<CallingOpInterface>(op))
      op.erase();
}
