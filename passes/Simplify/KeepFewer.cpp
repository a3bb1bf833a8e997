//===- KeepFewer.cpp - Boxes that nobody reads are not kept ---------------===//
#include "passes/Simplify/KeepFewer.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Graph/SeenPairs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

namespace {
/// Says how many of the boxes that a suppression keeps, from the best on, the program can
/// tell apart. Values are followed from the suppression to their readers.
class BoxesRead {
public:
  /// Nothing: all of them.
  std::optional<int64_t> of(SuppressOp op) {
    return along({op.getResult(), 2, Meaning::Places}, 0);
  }

private:
  /// Elements of a value along the dim that counts the boxes.
  enum class Meaning {
    Places, ///< the boxes, then -1
    IsKept, ///< a flag, or an i64, that is 1 for each box and 0 behind
    Other   ///< a function of each box
  };
  struct Boxes {
    Value value;
    size_t dim;
    Meaning meaning;
  };

  std::optional<int64_t> along(const Boxes &boxes, int depth);
  std::optional<int64_t> by(OpOperand &use, const Boxes &boxes, int depth);
  std::optional<int64_t> bySlice(SliceOp slice, const Boxes &boxes, int depth);
  std::optional<int64_t> byLookup(GatherOp gather, bool isIndex, const Boxes &boxes,
                                  int depth);
  std::optional<int64_t> byElement(Operation *op, const Boxes &boxes, int depth);
  std::optional<int64_t> ofNumber(Value number, int depth);
  template <typename Read>
  std::optional<int64_t> mostOf(Value value, int depth, Read read);
  template <typename Read>
  std::optional<int64_t> behindBranch(OpOperand &returned, Read read);
};
} // namespace

static std::optional<int64_t> splatOf(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto all =
      constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!all || !all.isSplat() || !isa<IntegerType>(all.getElementType()))
    return std::nullopt;
  return all.getSplatValue<APInt>().getSExtValue();
}

/// The dim of a reshape's result that is dim `dim` of its operand, where the two differ
/// in dims of size 1 alone.
static std::optional<size_t> dimBehind(ReshapeOp reshape, size_t dim) {
  const Shape from = shapeOf(reshape.getInput()), to = shapeOf(reshape.getResult());
  size_t result = 0;
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == 1)
      continue;
    while (result < to.size() && to[result] == 1)
      ++result;
    if (result == to.size() || to[result] != from[d])
      return std::nullopt;
    if (d == dim)
      return result;
    ++result;
  }
  return std::nullopt;
}

/// The most that `read` says of a use; ops whose results nobody uses read nothing.
template <typename Read>
std::optional<int64_t> BoxesRead::mostOf(Value value, int depth, Read read) {
  constexpr int maxDepth = 32;
  if (depth > maxDepth)
    return std::nullopt;
  int64_t most = 0;
  for (OpOperand &use : value.getUses()) {
    if (isOpTriviallyDead(use.getOwner()))
      continue;
    std::optional<int64_t> one = read(use);
    if (!one)
      return std::nullopt;
    most = std::max(most, *one);
  }
  return most;
}

/// The most that `read` says of a result of an op that runs the function as a branch; a
/// loop reads what its trips give in ways of its own.
template <typename Read>
std::optional<int64_t> BoxesRead::behindBranch(OpOperand &returned, Read read) {
  auto function = cast<func::FuncOp>(returned.getOwner()->getParentOp());
  auto uses = SymbolTable::getSymbolUses(function, function->getParentOp());
  if (!uses || uses->empty())
    return std::nullopt; // the program's result
  int64_t most = 0;
  for (const SymbolTable::SymbolUse &use : *uses) {
    auto branch = dyn_cast<IfOp>(use.getUser());
    std::optional<int64_t> one;
    if (branch)
      one = read(branch->getResult(returned.getOperandNumber()));
    if (!one)
      return std::nullopt;
    most = std::max(most, *one);
  }
  return most;
}

std::optional<int64_t> BoxesRead::along(const Boxes &boxes, int depth) {
  return mostOf(boxes.value, depth,
                [&](OpOperand &use) { return by(use, boxes, depth + 1); });
}

std::optional<int64_t> BoxesRead::by(OpOperand &use, const Boxes &boxes, int depth) {
  Operation *op = use.getOwner();
  if (isa<func::ReturnOp>(op))
    return behindBranch(use, [&](Value result) {
      return along({result, boxes.dim, boxes.meaning}, depth);
    });
  if (auto slice = dyn_cast<SliceOp>(op))
    return bySlice(slice, boxes, depth);
  if (auto reshape = dyn_cast<ReshapeOp>(op)) {
    std::optional<size_t> dim = dimBehind(reshape, boxes.dim);
    return dim ? along({reshape.getResult(), *dim, boxes.meaning}, depth) : std::nullopt;
  }
  if (auto concat = dyn_cast<ConcatOp>(op)) {
    auto axis = normalizeAxis(static_cast<int64_t>(concat.getAxis()),
                              shapeOf(boxes.value).size());
    return axis && static_cast<size_t>(*axis) != boxes.dim
               ? along({concat.getResult(), boxes.dim, Meaning::Other}, depth)
               : std::nullopt;
  }
  if (auto gather = dyn_cast<GatherOp>(op))
    return byLookup(gather, use.getOperandNumber() == 1, boxes, depth);
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    const bool isNumber =
        boxes.meaning == Meaning::IsKept && reduce.getKind() == ReduceKind::Sum &&
        elementCount(shapeOf(reduce.getResult())) == 1 &&
        elementCount(shapeOf(boxes.value)) == shapeOf(boxes.value)[boxes.dim];
    return isNumber ? ofNumber(reduce.getResult(), depth) : std::nullopt;
  }
  return isa<PayloadOpInterface>(op) ? byElement(op, boxes, depth) : std::nullopt;
}

std::optional<int64_t> BoxesRead::bySlice(SliceOp slice, const Boxes &boxes, int depth) {
  const int64_t start = slice.getStarts()[boxes.dim], step = slice.getSteps()[boxes.dim],
                size = shapeOf(slice.getResult())[boxes.dim];
  if (size == 0)
    return 0;
  if (start != 0 || (size > 1 && step != 1))
    return std::max(start, start + (size - 1) * step) + 1;
  if (size == 1)
    return 1;
  std::optional<int64_t> inner =
      along({slice.getResult(), boxes.dim, boxes.meaning}, depth);
  return std::min(inner.value_or(size), size);
}

/// Boxes are indices, or of each box elements are taken along another dim.
std::optional<int64_t> BoxesRead::byLookup(GatherOp gather, bool isIndex,
                                           const Boxes &boxes, int depth) {
  auto axis = normalizeAxis(static_cast<int64_t>(gather.getAxis()),
                            shapeOf(gather.getData()).size());
  if (!axis || (!isIndex && static_cast<size_t>(*axis) == boxes.dim))
    return std::nullopt;
  const auto at = static_cast<size_t>(*axis);
  size_t dim = boxes.dim;
  if (isIndex)
    dim += at;
  else if (dim > at)
    dim += shapeOf(gather.getIndices()).size() - 1;
  return along({gather.getResult(), dim, Meaning::Other}, depth);
}

std::optional<int64_t> BoxesRead::byElement(Operation *op, const Boxes &boxes,
                                            int depth) {
  Value result = op->getResult(0);
  const size_t rank = shapeOf(boxes.value).size(), wide = shapeOf(result).size();
  Meaning meaning = Meaning::Other;
  if (isa<CastOp>(op) && boxes.meaning == Meaning::IsKept &&
      getElementTypeOrSelf(result.getType()).isInteger(64))
    meaning = Meaning::IsKept;
  if (auto compared = dyn_cast<GreaterEqualOp>(op))
    if (boxes.meaning == Meaning::Places && compared.getLhs() == boxes.value &&
        splatOf(compared.getRhs()) == 0)
      meaning = Meaning::IsKept;
  return along({result, boxes.dim + (wide - rank), meaning}, depth);
}

/// The dim of "places < number" along which the places are, where the elements of
/// `places` are their own, [0, 1, 2, …], as the import says of a weight; nothing else.
static std::optional<size_t> dimOfPlaces(Value places, Value number, Value result) {
  auto weight = places.getDefiningOp<WeightOp>();
  auto known =
      weight ? weight->getAttrOfType<DenseI64ArrayAttr>(graph::detail::progressionAttr)
             : nullptr;
  const Shape shape = shapeOf(places);
  if (!known || known[0] != 0 || known[1] != 1 || elementCount(shapeOf(number)) != 1)
    return std::nullopt;
  const auto dim = std::ranges::find_if(shape, [](int64_t size) { return size > 1; });
  return shapeOf(result).size() - static_cast<size_t>(shape.end() - dim);
}

/// Follows the number of boxes: with k boxes at most, min(number, k) is the same, and so
/// are the first k of "place < number".
std::optional<int64_t> BoxesRead::ofNumber(Value number, int depth) {
  return mostOf(number, depth, [&](OpOperand &use) -> std::optional<int64_t> {
    Operation *op = use.getOwner();
    if (isa<ReshapeOp>(op))
      return ofNumber(op->getResult(0), depth + 1);
    if (isa<func::ReturnOp>(op))
      return behindBranch(use, [&](Value result) { return ofNumber(result, depth + 1); });
    if (isa<WhereOp>(op) && use.getOperandNumber() > 0)
      return ofNumber(op->getResult(0), depth + 1);
    if (isa<LessOp>(op) && use.getOperandNumber() == 1)
      if (auto dim = dimOfPlaces(op->getOperand(0), use.get(), op->getResult(0)))
        return along({op->getResult(0), *dim, Meaning::Other}, depth + 1);
    if (!isa<MinOp>(op))
      return std::nullopt;
    return splatOf(op->getOperand(1 - use.getOperandNumber()));
  });
}

namespace {
struct KeepFewer : OpRewritePattern<SuppressOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SuppressOp op, PatternRewriter &rewriter) const override {
    std::optional<int64_t> read = BoxesRead().of(op);
    // A suppression that keeps none has no form of its own.
    if (!read || *read < 1 || *read >= static_cast<int64_t>(op.getMost()))
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op.setMost(static_cast<uint64_t>(*read)); });
    return success();
  }
};
} // namespace

void partita::addKeepFewer(RewritePatternSet &patterns) {
  patterns.add<KeepFewer>(patterns.getContext());
}
