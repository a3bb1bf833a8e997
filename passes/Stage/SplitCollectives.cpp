//===- SplitCollectives.cpp - Collectives by level, or by group -----------===//
#include "passes/Stage/Passes.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Comm/Groups.h"
#include "partita/Comm/Levels.h"
#include "partita/Cost/Reshard.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <set>

namespace partita {
#define GEN_PASS_DEF_SPLITCOLLECTIVESPASS
#include "passes/Stage/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

static bool isReduction(StepKind kind) {
  return kind == StepKind::AllReduce || kind == StepKind::ReduceScatter;
}

static Type elementOf(comm::StepOpInterface op) {
  return getElementTypeOrSelf(op->getResult(0).getType());
}

/// Tells if a reduction of several reductions would be rounded at each: it adds or
/// multiplies floats of 16 bits.
static bool isRounded(comm::StepOpInterface op) {
  const Step step = op.getStep();
  const Type element = elementOf(op);
  return isReduction(step.kind) && isa<FloatType>(element) &&
         element.getIntOrFloatBitWidth() == 16 &&
         (step.reduce == ReduceKind::Sum || step.reduce == ReduceKind::Prod);
}

namespace {
/// Collectives that one becomes.
struct Several {
  std::vector<Step> steps;
  /// So many of them, the first ones, are of f32: up to the last reduction, behind which
  /// values of 16 bits are rounded, once.
  size_t numWide = 0;

  /// `steps` may be empty, as may the result: it cannot be done so. Parts of a sum over
  /// further ranks are not rounded here, as they would be again.
  static Several of(comm::StepOpInterface op, std::vector<Step> steps) {
    Several result{std::move(steps), 0};
    if (!isRounded(op))
      return result;
    if (!op.getTo().getLayout().partial.empty())
      return {};
    for (auto [i, step] : llvm::enumerate(result.steps))
      if (isReduction(step.kind))
        result.numWide = i + 1;
    return result;
  }
};
} // namespace

/// The steps, of which those that are made of levels themselves take further ones.
static std::vector<Step> byLevels(const Placement &placement, const Step &step) {
  const int outermost = placement.span(step.axes).outermost();
  if (outermost < 1)
    return {step};
  std::vector<Step> result;
  for (Step &part :
       stepsByLevel(placement.mesh(), step,
                    placement.divide(step.axes, static_cast<size_t>(outermost)))) {
    std::vector<Step> inner = placement.span(part.axes).outermost() == outermost
                                  ? std::vector<Step>{std::move(part)}
                                  : byLevels(placement, part);
    std::ranges::move(inner, std::back_inserter(result));
  }
  return result.empty() ? std::vector<Step>{step} : result;
}

namespace {
/// Prices steps as the transports of ranks do them: in shared memory, or by messages
/// between all pairs of the group.
class MessagePrice {
public:
  MessagePrice(const Placement &placement, Type element)
      : placement(placement), ownBytes(bytesOf(*dtypeOf(element))) {}

  double seconds(const Step &step) const { return seconds(step, ownBytes); }
  double seconds(const Several &several) const {
    double sum = 0;
    for (auto [i, step] : llvm::enumerate(several.steps))
      sum += seconds(step, i < several.numWide ? bytesOf(DType::F32) : ownBytes);
    return sum;
  }

private:
  static double bytesOf(DType type) { return static_cast<double>(byteWidth(type)); }

  double seconds(const Step &step, double elementBytes) const {
    const Topology &topology = placement.topology();
    const Span span = placement.span(step.axes);
    const double bytes =
        elementBytes * static_cast<double>(std::max(step.before.localElements(),
                                                    step.after.localElements()));
    const CollectivePrice known =
        priceCollective(topology, span, *collectiveOf(step.kind), bytes);
    if (known.algorithm == CollectiveAlgorithm::Shared)
      return known.price.seconds;
    // Each member has a part for each other one: those of an all-to-all.
    const int passes = step.kind == StepKind::AllReduce ? 2 : 1;
    return passes * priceCollective(topology, span, Collective::AllToAll, bytes,
                                    CollectiveAlgorithm::Pairwise)
                        .price.seconds;
  }
  const Placement &placement;
  double ownBytes; ///< of an element
};

/// Writes what a collective becomes in front of it, and takes it away.
class Writer {
public:
  explicit Writer(comm::StepOpInterface op) : op(op), builder(op) {}

  void replace(const Several &several) {
    Value value = op->getOperand(0);
    const Type narrow = elementOf(op);
    if (several.numWide)
      value = cast(value, several.steps.front().before, builder.getF32Type());
    for (auto [i, step] : llvm::enumerate(several.steps)) {
      value = comm::emitStep(builder, op->getLoc(), op.getFrom().getMesh(), step, value);
      for (NamedAttribute attribute : op->getAttrs())
        if (!value.getDefiningOp()->hasAttr(attribute.getName()))
          value.getDefiningOp()->setAttr(attribute.getName(), attribute.getValue());
      if (i + 1 == several.numWide)
        value = cast(value, step.after, narrow);
    }
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
  }

private:
  /// A value in this layout as another type, through which parts of sums pass.
  Value cast(Value value, const Layout &layout, Type to) {
    const ShardingRule rule = castRule(layout, getElementTypeOrSelf(value.getType()), to);
    Layout dims = layout;
    dims.partial.clear();
    Strategy strategy = strategyForLayout(rule, rule.results[0], dims);
    for (const PartialAxes &partial : layout.partial)
      for (auto [set, linear] : llvm::enumerate(rule.linear))
        if (linear.kind == partial.kind)
          strategy.passing.push_back({static_cast<int32_t>(set), partial.axes});
    auto made = graph::CastOp::create(builder, op->getLoc(), value, to);
    copyStepMarks(op, made);
    const dist::MeshAttr mesh = op.getFrom().getMesh();
    dist::setStrategy(mesh, made, rule, strategy);
    made->setAttr(dist::ruleAttr, dist::RuleAttr::get(builder.getContext(), rule));
    return made;
  }

  /// The rule of a cast of the whole tensor.
  ShardingRule castRule(const Layout &layout, Type from, Type to) {
    const auto type = RankedTensorType::get(layout.globalShape(), from);
    auto whole = graph::ConstantOp::create(
        builder, op->getLoc(),
        DenseElementsAttr::get(type, builder.getFloatAttr(from, 0)));
    auto cast = graph::CastOp::create(builder, op->getLoc(), whole, to);
    ShardingRule rule = *ruleOf(cast)->rule;
    cast->erase();
    whole->erase();
    return rule;
  }

  comm::StepOpInterface op;
  OpBuilder builder;
};

struct SplitCollectivesPass
    : partita::impl::SplitCollectivesPassBase<SplitCollectivesPass> {
  using SplitCollectivesPassBase::SplitCollectivesPassBase;
  SplitCollectivesPass(std::optional<Topology> topology, int64_t mostGroups)
      : topology(std::move(topology)) {
    this->mostGroups = mostGroups;
  }

  void runOnOperation() override {
    dist::MeshAttr mesh = dist::findMesh(getOperation());
    if (!mesh)
      return;
    if (!cluster.empty()) {
      auto read = readTopologyFile(cluster);
      if (!read)
        return fail(read.error().message);
      topology = std::move(*read);
    }
    if (topology) {
      auto placement = Placement::create(mesh.getMesh(), *topology);
      if (!placement)
        return fail(placement.error().message);
      splitByLevel(*placement);
    }
    if (mostGroups > 0)
      limitGroups(mesh.getMesh());
  }

private:
  void fail(const std::string &message) {
    getOperation().emitError(message);
    signalPassFailure();
  }

  SmallVector<comm::StepOpInterface> steps() {
    SmallVector<comm::StepOpInterface> found;
    getOperation().walk([&](comm::StepOpInterface op) {
      if (op.mayShareCall() && op.getReceivedElements() > 0)
        found.push_back(op);
    });
    return found;
  }

  void splitByLevel(const Placement &placement) {
    int64_t split = 0;
    double before = 0, after = 0;
    for (comm::StepOpInterface op : steps()) {
      const Step step = op.getStep();
      const Several levels = Several::of(op, byLevels(placement, step));
      const MessagePrice price(placement, elementOf(op));
      if (levels.steps.size() < 2 || price.seconds(levels) >= price.seconds(step))
        continue;
      ++split;
      before += price.seconds(step);
      after += price.seconds(levels);
      Writer(op).replace(levels);
    }
    numSplit += static_cast<unsigned>(split);
    getOperation().emitRemark()
        << "hierarchical collectives: " << split << " go level by level"
        << (split ? llvm::formatv(", {0:F3} ms in place of {1:F3}", 1e3 * after,
                                  1e3 * before)
                        .str()
                  : "");
  }

  /// Ops over the same axes, which are split alike; one without ops is not split.
  struct Use {
    SmallVector<comm::StepOpInterface> ops;
    GroupUse groups;
  };

  std::vector<Use> uses() {
    const auto splittable = steps();
    const llvm::SmallPtrSet<Operation *, 16> known(splittable.begin(), splittable.end());
    std::map<std::pair<StepKind, AxisList>, Use> byAxes;
    for (comm::StepOpInterface op : splittable)
      byAxes[{op.getStepKind(), op.getAxes()}].ops.push_back(op);
    std::vector<Use> result;
    for (auto &[key, use] : byAxes) {
      use.groups = {waysOf(use.ops), static_cast<int64_t>(use.ops.size())};
      result.push_back(std::move(use));
    }
    getOperation().walk([&](comm::CommOpInterface op) {
      if (op.getReceivedElements() > 0 && !known.contains(op))
        result.push_back({{}, {{{op.getAxes()}}, 1}});
    });
    return result;
  }

  static Several inParts(comm::StepOpInterface op, const AxisParts &parts) {
    return Several::of(op, stepsByParts(op.getDevices(), op.getStep(), parts));
  }

  /// Parts by which all of the ops may be several.
  std::vector<AxisParts> waysOf(ArrayRef<comm::StepOpInterface> ops) {
    comm::StepOpInterface first = ops.front();
    std::vector<AxisParts> ways = partsOf(first.getStep());
    std::erase_if(ways, [&](const AxisParts &parts) {
      return parts.size() > 1 && llvm::any_of(ops, [&](comm::StepOpInterface op) {
               return inParts(op, parts).steps.empty();
             });
    });
    return ways;
  }

  /// Splits collectives over several axes until there are few enough groups.
  void limitGroups(const Mesh &mesh) {
    std::vector<Use> found = uses();
    std::vector<GroupUse> groups;
    for (const Use &use : found)
      groups.push_back(use.groups);
    const std::vector<size_t> ways = groupsWithin(mostGroups, groups);
    std::set<AxisList> before, left;
    int64_t split = 0;
    for (auto [use, way] : llvm::zip_equal(groups, ways)) {
      before.insert(groupOf(use.ways[0][0]));
      for (const AxisList &part : use.ways[way])
        left.insert(groupOf(part));
      split += way ? use.steps : 0;
    }
    if (static_cast<int64_t>(left.size()) > mostGroups) {
      std::string names;
      for (const AxisList &axes : left)
        names += (names.empty() ? "" : ", ") + mesh.str(axes);
      return fail("--comm-reuse " + std::to_string(mostGroups) + ": the program has " +
                  std::to_string(left.size()) + " groups of ranks: " + names);
    }
    for (auto [use, way] : llvm::zip_equal(found, ways))
      for (comm::StepOpInterface op : use.ops)
        if (way)
          Writer(op).replace(inParts(op, use.groups.ways[way]));
    if (split)
      getOperation().emitRemark()
          << "--comm-reuse: " << before.size() << " groups of ranks became "
          << left.size() << "; " << split
          << (split == 1 ? " collective over several axes is"
                         : " collectives over several axes are")
          << " one for each part of them";
  }

  std::optional<Topology> topology;
};
} // namespace

std::unique_ptr<Pass>
partita::createSplitCollectivesPass(std::optional<Topology> topology,
                                    int64_t mostGroups) {
  return std::make_unique<SplitCollectivesPass>(std::move(topology), mostGroups);
}
