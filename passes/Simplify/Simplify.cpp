//===- Simplify.cpp - Remove work that nobody needs -----------------------===//
#include "passes/Simplify/Passes.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "passes/Simplify/KeepFewer.h"
#include "passes/Simplify/ReadParts.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace partita {
#define GEN_PASS_DEF_SIMPLIFYPASS
#include "passes/Simplify/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::graph;

/// Replaces an op that changes nothing by its operand, which gets its names.
static void drop(Operation *op, Value operand, PatternRewriter &rewriter) {
  takeValueNames(operand, op);
  rewriter.replaceOp(op, operand);
}

/// The node of the file that the op comes from; null if it has none.
static StringAttr nodeOf(Operation *op) {
  auto named = dyn_cast<NameLoc>(op->getLoc());
  return named ? named.getName() : StringAttr();
}

/// One DictionaryAttr per name of a transpose that an operand has absorbed, the newest
/// last: `result` and `input` say where the dims of its result and operand are here.
static Attribute composed(DictionaryAttr entry, ArrayRef<int64_t> permutation) {
  SmallVector<NamedAttribute> members(entry.begin(), entry.end());
  for (NamedAttribute &member : members)
    if (auto order = dyn_cast<DenseI64ArrayAttr>(member.getValue())) {
      SmallVector<int64_t> dims;
      for (int64_t to : order.asArrayRef())
        dims.push_back(permutation[to]);
      member.setValue(DenseI64ArrayAttr::get(entry.getContext(), dims));
    }
  return DictionaryAttr::get(entry.getContext(), members);
}

/// Notes that an operand was `transpose`, for who speaks of its dims as the model has
/// them, or of it by name (hints): `graph.operand_order`, dim d of the operand is dim
/// order[d] here, and `graph.absorbed`. Gone once strategies are decided.
static void noteTranspose(ContractOp op, unsigned operand, TransposeOp transpose) {
  Builder builder(op.getContext());
  ArrayRef<int64_t> permutation = transpose.getPermutation();
  SmallVector<Attribute> orders(2, builder.getDenseI64ArrayAttr({}));
  if (auto known = op->getAttrOfType<ArrayAttr>("graph.operand_order"))
    orders.assign(known.begin(), known.end());
  SmallVector<int64_t> order(permutation), identity;
  for (size_t d = 0; d < permutation.size(); ++d)
    identity.push_back(static_cast<int64_t>(d));
  if (auto before = cast<DenseI64ArrayAttr>(orders[operand]).asArrayRef();
      !before.empty())
    for (auto [d, to] : llvm::enumerate(before))
      order[d] = permutation[to];
  orders[operand] = builder.getDenseI64ArrayAttr(order);
  op->setAttr("graph.operand_order", builder.getArrayAttr(orders));

  SmallVector<Attribute> absorbed;
  if (auto known = op->getAttrOfType<ArrayAttr>("graph.absorbed"))
    for (auto entry : known.getAsRange<DictionaryAttr>())
      absorbed.push_back(entry.getAs<IntegerAttr>("operand").getInt() == operand
                             ? composed(entry, permutation)
                             : entry);
  SmallVector<StringRef> names = valueNames(transpose->getOpResult(0));
  if (StringAttr node = nodeOf(transpose))
    names.push_back(node);
  for (StringRef name : names)
    absorbed.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("name", builder.getStringAttr(name)),
         builder.getNamedAttr("operand", builder.getI64IntegerAttr(operand)),
         builder.getNamedAttr("result", builder.getDenseI64ArrayAttr(permutation)),
         builder.getNamedAttr("input", builder.getDenseI64ArrayAttr(identity))}));
  if (!absorbed.empty())
    op->setAttr("graph.absorbed", builder.getArrayAttr(absorbed));
}

static bool isZero(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto elements =
      constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!elements || !elements.isSplat())
    return false;
  auto real = dyn_cast<FloatAttr>(elements.getSplatValue<Attribute>());
  return real && real.getValue().isZero();
}

namespace {
/// contract(…, transpose(x)) → contract(…, x) with the operand's dims permuted back.
struct AbsorbTranspose : OpRewritePattern<ContractOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ContractOp op, PatternRewriter &rewriter) const override {
    for (unsigned i = 0; i < 2; ++i) {
      auto transpose = op->getOperand(i).getDefiningOp<TransposeOp>();
      if (!transpose)
        continue;
      Equation equation = op.getEquation().withTransposed(i, transpose.getPermutation());
      rewriter.modifyOpInPlace(op, [&] {
        op->setOperand(i, transpose.getInput());
        op.setEquationAttr(EquationAttr::get(getContext(), equation));
        noteTranspose(op, i, transpose);
      });
      return success();
    }
    return failure();
  }
};

struct MergeReshapes : OpRewritePattern<ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ReshapeOp op, PatternRewriter &rewriter) const override {
    // What two nodes of the file do stays two ops: hints name the dims between them.
    auto inner = op.getInput().getDefiningOp<ReshapeOp>();
    if (!inner || (nodeOf(inner) && nodeOf(inner) != nodeOf(op)))
      return failure();
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getType(), inner.getInput());
    return success();
  }
};

/// An op that folds to its operand goes, and its names stay with the operand: a folder
/// has no place for them.
struct DropUnchanged : RewritePattern {
  explicit DropUnchanged(MLIRContext *context)
      : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    SmallVector<OpFoldResult> folded;
    if (!isa_and_nonnull<GraphDialect>(op->getDialect()) || failed(op->fold(folded)) ||
        folded.size() != 1)
      return failure();
    auto operand = dyn_cast<Value>(folded[0]);
    if (!operand)
      return failure();
    drop(op, operand, rewriter);
    return success();
  }
};

/// conv(pad(x)) → conv(x) with wider pads, where the pad is of zeros and of spatial dims
/// alone: a causal convolution is then one window, of which a rank fetches a halo, and
/// not a tensor that has to be made whole.
struct AbsorbPad : OpRewritePattern<ConvOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ConvOp op, PatternRewriter &rewriter) const override {
    auto pad = op.getInput().getDefiningOp<PadOp>();
    if (!pad || pad.getMode() != PadMode::Constant || !isZero(pad.getValue()))
      return failure();
    ArrayRef<int64_t> low = pad.getLow(), high = pad.getHigh();
    auto isCut = [](int64_t amount) { return amount < 0; };
    if (low[0] || low[1] || high[0] || high[1] || llvm::any_of(low, isCut) ||
        llvm::any_of(high, isCut))
      return failure();
    SmallVector<int64_t> pads(op.getPads());
    size_t spatial = low.size() - 2;
    for (size_t d = 0; d < spatial; ++d) {
      pads[d] += low[d + 2];
      pads[spatial + d] += high[d + 2];
    }
    rewriter.modifyOpInPlace(op, [&] {
      op.getInputMutable().assign(pad.getInput());
      op.setPads(pads);
    });
    return success();
  }
};

/// The sum of parts that zeros around them keep apart is their concatenation: so the
/// gradient of a split, of queries, keys and values, is one op without sums, and splits
/// as the parts do.
///
///     add(add(pad(q, 0, 2n), pad(k, n, n)), pad(v, 2n, 0))  →  concat(q, k, v)
struct JoinPads : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AddOp op, PatternRewriter &rewriter) const override {
    SmallVector<PadOp> parts;
    if (!collect(op, op.getType(), parts))
      return failure();
    std::optional<size_t> dim = paddedDim(parts.front());
    if (!dim)
      return failure();
    llvm::sort(parts,
               [&](PadOp a, PadOp b) { return a.getLow()[*dim] < b.getLow()[*dim]; });
    int64_t next = 0;
    SmallVector<Value> values;
    for (PadOp part : parts) {
      if (paddedDim(part) != dim || part.getLow()[*dim] != next)
        return failure();
      next += shapeOf(part.getInput())[*dim];
      values.push_back(part.getInput());
    }
    if (next != shapeOf(op.getResult())[*dim])
      return failure();
    auto joined =
        ConcatOp::create(rewriter, op.getLoc(), op.getType(), values,
                         rewriter.getI64IntegerAttr(static_cast<int64_t>(*dim)));
    rewriter.replaceOp(op, joined);
    return success();
  }

private:
  /// The pads of zeros that a tree of sums adds up; false if it adds anything else.
  static bool collect(AddOp op, Type type, SmallVector<PadOp> &parts) {
    for (Value operand : op->getOperands()) {
      if (operand.getType() != type || !operand.hasOneUse())
        return false;
      auto pad = operand.getDefiningOp<PadOp>();
      auto inner = operand.getDefiningOp<AddOp>();
      if (pad && pad.getMode() == PadMode::Constant && isZero(pad.getValue()))
        parts.push_back(pad);
      else if (!inner || !collect(inner, type, parts))
        return false;
    }
    return true;
  }

  /// The one dim around which there are zeros; none is cut.
  static std::optional<size_t> paddedDim(PadOp pad) {
    std::optional<size_t> dim;
    for (auto [d, low, high] : llvm::enumerate(pad.getLow(), pad.getHigh())) {
      if (low < 0 || high < 0 || ((low || high) && dim))
        return std::nullopt;
      if (low || high)
        dim = d;
    }
    return dim;
  }
};

/// Gives what an op is replaced by the op's part of a training step and its parameter.
class KeepMarks : public RewriterBase::Listener {
public:
  void notifyPatternBegin(const Pattern &, Operation *) override { made.clear(); }
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    made.push_back(op);
  }
  void notifyOperationReplaced(Operation *op, ValueRange) override {
    for (Operation *other : made)
      copyStepMarks(op, other);
    made.clear();
  }

private:
  SmallVector<Operation *> made; ///< of the pattern that is applied
};

struct SimplifyPass : partita::impl::SimplifyPassBase<SimplifyPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<AbsorbPad, AbsorbTranspose, JoinPads, MergeReshapes, DropUnchanged>(
        &getContext());
    addReadParts(patterns);
    addKeepFewer(patterns);
    GreedyRewriteConfig config;
    config.enableFolding(false);
    KeepMarks marks;
    config.setListener(&marks);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns), config)))
      signalPassFailure();
  }
};
} // namespace
