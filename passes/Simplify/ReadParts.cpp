//===- ReadParts.cpp - Slices of what was joined before -------------------===//
#include "passes/Simplify/ReadParts.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

namespace {
/// Elements starts[d] + i · steps[d], i < sizes[d], of every dim d.
struct Range {
  SmallVector<int64_t> starts, steps, sizes;

  bool isWhole(size_t d, int64_t size) const {
    return starts[d] == 0 && steps[d] == 1 && sizes[d] == size;
  }
  bool isWhole(ArrayRef<int64_t> shape) const {
    for (auto [d, size] : llvm::enumerate(shape))
      if (!isWhole(d, size))
        return false;
    return true;
  }
};

/// A part of a concatenation, and what of it is in a range.
struct PartRange {
  Value part;
  Range range;
};

} // namespace

/// The parts in which the range lies; none if it goes over several in another order than
/// one by one.
static SmallVector<PartRange> partsIn(ConcatOp concat, const Range &range) {
  auto rank = static_cast<int64_t>(range.starts.size());
  auto counted = static_cast<int64_t>(concat.getAxis());
  auto axis = static_cast<size_t>(counted < 0 ? counted + rank : counted);
  int64_t first = range.starts[axis],
          last = first + (range.sizes[axis] - 1) * range.steps[axis];
  SmallVector<PartRange> parts;
  int64_t begin = 0;
  for (Value part : concat.getInputs()) {
    int64_t end =
        begin +
        cast<RankedTensorType>(part.getType()).getDimSize(static_cast<unsigned>(axis));
    if (std::min(first, last) < end && std::max(first, last) >= begin) {
      PartRange entry{part, range};
      bool isAll = std::min(first, last) >= begin && std::max(first, last) < end;
      if (!isAll && range.steps[axis] != 1)
        return {};
      entry.range.starts[axis] = isAll ? first - begin : std::max(first, begin) - begin;
      if (!isAll)
        entry.range.sizes[axis] = std::min(last + 1, end) - std::max(first, begin);
      parts.push_back(std::move(entry));
    }
    begin = end;
  }
  return parts;
}

/// The range of a reshape's operand that is the range of its result; nothing where a dim
/// that is not read whole is not a dim of the operand.
static std::optional<Range> before(ReshapeOp reshape, const Range &range) {
  ArrayRef<int64_t> from =
                        cast<RankedTensorType>(reshape.getInput().getType()).getShape(),
                    to = reshape.getType().getShape();
  Range result{SmallVector<int64_t>(from.size(), 0), SmallVector<int64_t>(from.size(), 1),
               SmallVector<int64_t>(from)};
  for (size_t d = 0; d < to.size(); ++d) {
    if (range.isWhole(d, to[d]))
      continue;
    int64_t outer = 1, reached = 1;
    for (size_t i = 0; i < d; ++i)
      outer *= to[i];
    size_t at = 0;
    while (at < from.size() && (reached < outer || (from[at] == 1 && to[d] != 1)))
      reached *= from[at++];
    if (at == from.size() || reached != outer || from[at] != to[d])
      return std::nullopt;
    result.starts[at] = range.starts[d];
    result.steps[at] = range.steps[d];
    result.sizes[at] = range.sizes[d];
  }
  return result;
}

static int64_t elements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

/// Whether a slice of the value is to be one of what it was joined of.
static bool readsParts(Value value, const Range &range) {
  if (range.isWhole(cast<RankedTensorType>(value.getType()).getShape()) ||
      llvm::is_contained(range.sizes, 0))
    return false;
  Operation *op = value.getDefiningOp();
  if (auto reshape = dyn_cast_or_null<ReshapeOp>(op)) {
    auto inner = before(reshape, range);
    return inner && reshape->hasOneUse() && readsParts(reshape.getInput(), *inner);
  }
  auto concat = dyn_cast_or_null<ConcatOp>(op);
  if (!concat)
    return false;
  size_t parts = partsIn(concat, range).size();
  return parts == 1 ||
         (parts > 1 && concat->hasOneUse() &&
          2 * elements(range.sizes) <= elements(concat.getType().getShape()));
}

/// The range of the value, of which readsParts; each op that is made for it is called
/// `inner`, the last one `outer`. The flag says whether one was made.
static std::pair<Value, bool> read(Value value, const Range &range, Location outer,
                                   Location inner, PatternRewriter &rewriter) {
  auto type = cast<RankedTensorType>(value.getType());
  if (range.isWhole(type.getShape()))
    return {value, false};
  auto result = RankedTensorType::get(range.sizes, type.getElementType());
  if (!readsParts(value, range))
    return {SliceOp::create(rewriter, outer, result, value, range.starts, range.steps),
            true};
  if (auto reshape = value.getDefiningOp<ReshapeOp>()) {
    Value part =
        read(reshape.getInput(), *before(reshape, range), inner, inner, rewriter).first;
    return {ReshapeOp::create(rewriter, outer, result, part), true};
  }
  auto concat = value.getDefiningOp<ConcatOp>();
  SmallVector<PartRange> parts = partsIn(concat, range);
  if (parts.size() == 1)
    return read(parts[0].part, parts[0].range, outer, inner, rewriter);
  SmallVector<Value> joined;
  for (const PartRange &part : parts)
    joined.push_back(read(part.part, part.range, inner, inner, rewriter).first);
  return {ConcatOp::create(rewriter, outer, result, joined, concat.getAxis()), true};
}

namespace {
struct ReadParts : OpRewritePattern<SliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SliceOp op, PatternRewriter &rewriter) const override {
    Range range{llvm::to_vector(op.getStarts()), llvm::to_vector(op.getSteps()),
                llvm::to_vector(op.getType().getShape())};
    if (!readsParts(op.getInput(), range))
      return failure();
    // The last op that is made is called as the slice was, the others as its node.
    auto named = dyn_cast<NameLoc>(op.getLoc());
    Location inner = named ? Location(NameLoc::get(named.getName())) : op.getLoc();
    auto [value, isNew] = read(op.getInput(), range, op.getLoc(), inner, rewriter);
    if (!isNew)
      takeValueNames(value, op);
    rewriter.replaceOp(op, value);
    return success();
  }
};

/// gather(concat(a, b), 1) → slice(concat(a, b)): what is looked up at one constant place
/// of a joined dim is a part of it, as the boxes are among what a suppression gives.
struct ReadOnePlace : OpRewritePattern<GatherOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GatherOp op, PatternRewriter &rewriter) const override {
    auto concat = op.getData().getDefiningOp<ConcatOp>();
    auto index = op.getIndices().getDefiningOp<ConstantOp>();
    auto place =
        index ? dyn_cast<DenseElementsAttr>(index.getValue()) : DenseElementsAttr();
    const auto rank = shapeOf(op.getData()).size();
    auto axis = normalizeAxis(static_cast<int64_t>(op.getAxis()), rank);
    if (!concat || !place || place.getNumElements() != 1 || !axis || op.getMasked())
      return failure();
    auto joined = normalizeAxis(static_cast<int64_t>(concat.getAxis()), rank);
    if (!joined || *joined != *axis)
      return failure();
    const auto d = static_cast<size_t>(*axis);
    Range range{SmallVector<int64_t>(rank, 0), SmallVector<int64_t>(rank, 1),
                SmallVector<int64_t>(concat.getType().getShape())};
    const int64_t at = (*place.value_begin<APInt>()).getSExtValue();
    range.starts[d] = at < 0 ? at + range.sizes[d] : at;
    if (range.starts[d] < 0 || range.starts[d] >= range.sizes[d])
      return failure();
    range.sizes[d] = 1;
    auto type = RankedTensorType::get(range.sizes, concat.getType().getElementType());
    Value part = SliceOp::create(rewriter, op.getLoc(), type, concat.getResult(),
                                 range.starts, range.steps);
    if (type != op.getType())
      part = ReshapeOp::create(rewriter, op.getLoc(), op.getType(), part);
    rewriter.replaceOp(op, part);
    return success();
  }
};
} // namespace

void partita::addReadParts(RewritePatternSet &patterns) {
  patterns.add<ReadParts, ReadOnePlace>(patterns.getContext());
}
