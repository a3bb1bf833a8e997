//===- CombineMoments.cpp - Mean and variance by one collective -----------===//
#include "passes/Shard/Passes.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Formula.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"

namespace partita {
#define GEN_PASS_DEF_COMBINEMOMENTSPASS
#include "passes/Shard/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::graph;

namespace {
/// A mean that ranks reduce: reshard(reduce(sum, x) / count).
struct Mean {
  dist::ReshardOp whole;
  DivOp share;
  ReduceOp sum;
  int64_t count; ///< of elements that one mean is of

  static std::optional<Mean> of(Value value);
};

/// Mean and variance of one tensor, each reduced by ranks.
struct Moments {
  Mean mean, variance;
  SmallVector<int64_t> axes; ///< that are reduced, ascending
  Layout layout;             ///< of the tensor
  /// Groups into which ranks split each dim of the tensor; 1: the dim is not reduced.
  SmallVector<int64_t> groups;

  int64_t numGroups() const {
    int64_t result = 1;
    for (int64_t count : groups)
      result *= count;
    return result;
  }
  /// Bytes of both moments of all groups.
  int64_t gatheredBytes() {
    auto type = cast<RankedTensorType>(mean.whole.getType());
    return 2 * numGroups() * type.getNumElements() * type.getElementTypeBitWidth() / 8;
  }
};
} // namespace

std::optional<Mean> Mean::of(Value value) {
  Mean mean;
  mean.whole = value.getDefiningOp<dist::ReshardOp>();
  mean.share = mean.whole ? mean.whole.getInput().getDefiningOp<DivOp>() : nullptr;
  mean.sum = mean.share ? mean.share.getLhs().getDefiningOp<ReduceOp>() : nullptr;
  DenseFPElementsAttr count;
  if (!mean.sum || mean.sum.getKind() != ReduceKind::Sum || !mean.sum.getKeepDims() ||
      !matchPattern(mean.share.getRhs(), m_Constant(&count)) || !count.isSplat())
    return std::nullopt;
  Shape shape = shapeOf(mean.sum.getInput());
  mean.count = 1;
  for (int64_t axis : mean.sum.getAxes())
    mean.count *= shape[*normalizeAxis(axis, shape.size())];
  if (count.getSplatValue<APFloat>().convertToDouble() != static_cast<double>(mean.count))
    return std::nullopt;
  return mean;
}

/// The layout of an operand or a result by the op's strategy; absent without one.
static std::optional<Layout> layoutOf(Operation *op, bool isResult) {
  const RuleRef facts = ruleOf(op);
  if (!facts->rule)
    return std::nullopt;
  auto strategy = dist::strategyOf(op, *facts->rule);
  if (!strategy)
    return std::nullopt;
  return (isResult ? resultLayout(*facts->rule, *strategy, 0)
                   : operandLayout(*facts->rule, *strategy, 0))
      .canonicalized();
}

/// Tells if a conversion sums parts over ranks and moves nothing else.
static bool onlyReduces(Mean mean) {
  auto from = layoutOf(mean.share, true);
  if (!from || from->partial.size() != 1 || from->partial[0].kind != ReduceKind::Sum)
    return false;
  from->partial.clear();
  return from->canonicalized() == mean.whole.getLayout().getLayout().canonicalized();
}

/// The moments whose variance ends in `op`, where ranks hold equal groups of what is
/// reduced.
static std::optional<Moments> momentsOf(dist::ReshardOp op) {
  auto variance = Mean::of(op.getResult());
  auto square = variance ? variance->sum.getInput().getDefiningOp<MulOp>() : nullptr;
  auto centered = square && square.getLhs() == square.getRhs()
                      ? square.getLhs().getDefiningOp<SubOp>()
                      : nullptr;
  auto mean = centered ? Mean::of(centered.getRhs()) : std::nullopt;
  if (!mean || mean->sum.getInput() != centered.getLhs() ||
      mean->sum.getAxes() != variance->sum.getAxes() || !onlyReduces(*mean) ||
      !onlyReduces(*variance))
    return std::nullopt;
  auto layout = layoutOf(mean->sum, false), squares = layoutOf(variance->sum, false);
  if (!layout || !squares || *layout != *squares || !layout->partial.empty())
    return std::nullopt;
  Moments result{*mean, *variance, {}, *layout, {}};
  result.groups.assign(layout->dims.size(), 1);
  for (int64_t axis : mean->sum.getAxes())
    result.axes.push_back(*normalizeAxis(axis, layout->dims.size()));
  llvm::sort(result.axes);
  for (int64_t axis : result.axes) {
    const auto d = static_cast<size_t>(axis);
    const DimLayout &dim = layout->dims[d];
    if (dim.factors.size() != 1 || !dim.factors[0].blocks.empty() ||
        dim.factors[0].padded != dim.factors[0].size)
      return std::nullopt;
    result.groups[d] = product(dim.factors[0].axes);
  }
  return result;
}

namespace {
/// Writes the moments of one tensor by those of the groups of its elements that ranks
/// hold: with mₖ and Qₖ, mean and sum of squared deviations of n elements each, the mean
/// is Σ mₖ / p and the sum Σ Qₖ + n · Σ (mₖ − mean)² (T. Chan, G. Golub, R. LeVeque,
/// "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979).
class Combiner {
public:
  Combiner(Moments &moments, dist::MeshAttr mesh)
      : moments(moments), mesh(mesh), builder(moments.mean.whole),
        f(builder, moments.mean.whole.getLoc()) {}

  /// Absent where an op that a group needs cannot be split so: then nothing is changed.
  std::optional<std::pair<Value, Value>> run() {
    Operation *const first = builder.getInsertionPoint()->getPrevNode();
    auto result = write();
    Operation *const end = &*builder.getInsertionPoint();
    while (!result && end->getPrevNode() != first)
      end->getPrevNode()->erase();
    return result;
  }

private:
  std::optional<std::pair<Value, Value>> write() {
    Value grouped = group();
    const int64_t n = moments.mean.count / moments.numGroups();
    Value mean = place(f.div(place(f.sum(grouped, inner), local), double(n)), local);
    Value distance = place(f.sub(grouped, mean), layout);
    Value squares = place(f.mul(distance, distance), layout);
    Value sum = place(f.sum(squares, inner), local);
    Value means = gathered(mean), sums = gathered(sum);
    const double p = static_cast<double>(moments.numGroups());
    Value all = place(f.div(place(f.sum(means, outer), whole), p), whole);
    Value apart = place(f.sub(means, all), everywhere);
    Value between = place(f.sum(place(f.mul(apart, apart), everywhere), outer), whole);
    Value total = place(
        f.add(place(f.sum(sums, outer), whole), place(f.mul(between, double(n)), whole)),
        whole);
    Value variance = place(f.div(total, static_cast<double>(moments.mean.count)), whole);
    Value meanAtLast = ungrouped(all), varianceAtLast = ungrouped(variance);
    if (f.failed() || !isPlaced)
      return std::nullopt;
    return std::pair(meanAtLast, varianceAtLast);
  }

  /// The tensor with a dim for the groups in front of each dim that is split.
  Value group() {
    Value tensor = moments.mean.sum.getInput();
    Shape shape = shapeOf(tensor), split;
    for (size_t d = 0; d < shape.size(); ++d) {
      const DimLayout &dim = moments.layout.dims[d];
      const int64_t groups = moments.groups[d];
      if (groups > 1) {
        outer.push_back(static_cast<int64_t>(split.size()));
        split.push_back(groups);
        DimLayout each = dim;
        each.factors[0].size = each.factors[0].padded = groups;
        layout.dims.push_back(each);
        local.dims.push_back(each);
        everywhere.dims.push_back(bare(groups));
        whole.dims.push_back(bare(1));
      }
      if (groups > 1 || llvm::is_contained(moments.axes, static_cast<int64_t>(d))) {
        inner.push_back(static_cast<int64_t>(split.size()));
        layout.dims.push_back(bare(shape[d] / groups));
        for (Layout *reduced : {&local, &everywhere, &whole})
          reduced->dims.push_back(bare(1));
      } else {
        for (Layout *kept : {&layout, &local, &everywhere, &whole})
          kept->dims.push_back(dim);
      }
      split.push_back(shape[d] / groups);
    }
    return place(f.reshape(tensor, split), layout);
  }

  static DimLayout bare(int64_t size) { return Layout::replicated({size}).dims[0]; }

  /// A value that was gathered from all groups.
  Value gathered(Value value) {
    if (!value)
      return nullptr;
    auto to =
        dist::LayoutAttr::get(builder.getContext(), mesh, everywhere.canonicalized());
    auto made = dist::ReshardOp::create(builder, value.getLoc(), value.getType(), value,
                                        to, uint64_t{0});
    copyStepMarks(moments.mean.sum, made);
    return made;
  }

  Value ungrouped(Value value) {
    return place(f.reshape(value, shapeOf(moments.mean.whole.getResult())),
                 moments.mean.whole.getLayout().getLayout());
  }

  /// Gives the maker of a value the strategy by which its result is laid so.
  Value place(Value value, const Layout &to) {
    Operation *op = value ? value.getDefiningOp() : nullptr;
    if (!op)
      return value;
    copyStepMarks(moments.mean.sum, op);
    const RuleRef facts = ruleOf(op);
    if (!facts->rule) {
      isPlaced = false;
      return value;
    }
    const ShardingRule &rule = *facts->rule;
    Strategy strategy = strategyForLayout(rule, rule.results[0], to);
    isPlaced &= verifyStrategy(mesh.getMesh(), rule, strategy).has_value() &&
                resultLayout(rule, strategy, 0).canonicalized() == to.canonicalized();
    dist::setStrategy(mesh, op, rule, strategy);
    return value;
  }

  Moments &moments;
  dist::MeshAttr mesh;
  OpBuilder builder;
  Formula f;
  /// Dims of groups, and those that each rank reduces for its groups.
  SmallVector<int64_t> outer, inner;
  /// Layouts of the grouped tensor, of a moment per group where the groups are and on all
  /// ranks, and of a moment of all groups.
  Layout layout, local, everywhere, whole;
  bool isPlaced = true;
};

struct CombineMomentsPass : partita::impl::CombineMomentsPassBase<CombineMomentsPass> {
  using CombineMomentsPassBase::CombineMomentsPassBase;

  void runOnOperation() override {
    auto mesh = getOperation()->getAttrOfType<dist::MeshAttr>(dist::meshAttr);
    if (!mesh)
      return markAllAnalysesPreserved();
    SmallVector<dist::ReshardOp> conversions;
    getOperation().walk([&](dist::ReshardOp op) { conversions.push_back(op); });
    for (dist::ReshardOp op : conversions)
      if (auto moments = momentsOf(op);
          moments && moments->numGroups() > 1 && moments->gatheredBytes() <= mostBytes)
        combine(*moments, mesh);
  }

private:
  void combine(Moments &moments, dist::MeshAttr mesh) {
    auto combined = Combiner(moments, mesh).run();
    if (!combined)
      return;
    ++numCombined;
    moments.mean.whole.getResult().replaceAllUsesWith(combined->first);
    moments.variance.whole.getResult().replaceAllUsesWith(combined->second);
    Operation *squares = moments.variance.sum.getInput().getDefiningOp();
    Operation *distances = squares->getOperand(0).getDefiningOp();
    for (Operation *op :
         {moments.variance.whole.getOperation(), moments.variance.share.getOperation(),
          moments.variance.sum.getOperation(), squares, distances,
          moments.mean.whole.getOperation(), moments.mean.share.getOperation(),
          moments.mean.sum.getOperation()})
      if (op->use_empty())
        op->erase();
  }
};
} // namespace
