//===- CombineMoments.cpp - Mean and variance by one collective -----------===//
#include "passes/Shard/Passes.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Formula.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Sharding/CombinedMoments.h"
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
  MomentGroups groups;

  int64_t gatheredBytes() {
    auto type = cast<RankedTensorType>(mean.whole.getType());
    return groups.gatheredBytes(type.getNumElements(), type.getElementTypeBitWidth() / 8);
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
  if (!layout || !squares || *layout != *squares)
    return std::nullopt;
  std::vector<int64_t> axes;
  for (int64_t axis : mean->sum.getAxes())
    axes.push_back(*normalizeAxis(axis, layout->dims.size()));
  auto groups = MomentGroups::of(*layout, std::move(axes));
  if (!groups)
    return std::nullopt;
  return Moments{*mean, *variance, std::move(*groups)};
}

namespace {
/// Writes the moments of one tensor by those of the groups of its elements.
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
    const MomentProgram program =
        combinedMoments(moments.groups, moments.mean.whole.getLayout().getLayout());
    SmallVector<Value> values;
    for (const MomentOp &op : program.ops) {
      auto operand = [&](size_t i) {
        const int32_t number = op.operands[i];
        return number < 0 ? moments.mean.sum.getInput()
                          : values[static_cast<size_t>(number)];
      };
      values.push_back(op.kind == MomentOp::Kind::Gather
                           ? gathered(operand(0), op.layout)
                           : place(made(op, operand), op.layout));
    }
    if (f.failed() || !isPlaced)
      return std::nullopt;
    return std::pair(values[static_cast<size_t>(program.mean)],
                     values[static_cast<size_t>(program.variance)]);
  }

  Value made(const MomentOp &op, llvm::function_ref<Value(size_t)> operand) {
    switch (op.kind) {
    case MomentOp::Kind::Reshape:
      return f.reshape(operand(0), op.layout.globalShape());
    case MomentOp::Kind::Sum:
      return f.sum(operand(0), op.axes);
    case MomentOp::Kind::Divide:
      return f.div(operand(0), op.number);
    case MomentOp::Kind::Multiply:
      return op.operands.size() == 1 ? f.mul(operand(0), op.number)
                                     : f.mul(operand(0), operand(1));
    case MomentOp::Kind::Add:
      return f.add(operand(0), operand(1));
    case MomentOp::Kind::Subtract:
      return f.sub(operand(0), operand(1));
    case MomentOp::Kind::Gather:
      break;
    }
    llvm_unreachable("a gather is a conversion");
  }

  /// A value that was gathered from all groups.
  Value gathered(Value value, const Layout &everywhere) {
    if (!value)
      return nullptr;
    auto to =
        dist::LayoutAttr::get(builder.getContext(), mesh, everywhere.canonicalized());
    auto made = dist::ReshardOp::create(builder, value.getLoc(), value.getType(), value,
                                        to, uint64_t{0});
    copyStepMarks(moments.mean.sum, made);
    return made;
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
          moments && moments->groups.count() > 1 && moments->gatheredBytes() <= mostBytes)
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
