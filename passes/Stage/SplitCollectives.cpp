//===- SplitCollectives.cpp - Collectives by level, or by axis ------------===//
#include "passes/Stage/Passes.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Comm/Levels.h"
#include "partita/Cost/Reshard.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/Support/FormatVariadic.h"

#include <set>

namespace partita {
#define GEN_PASS_DEF_SPLITCOLLECTIVESPASS
#include "passes/Stage/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

/// Tells if a sum of several sums would be rounded at each: elements have 16 bits.
static bool isRounded(Type element) {
  return element.isIntOrFloat() && element.getIntOrFloatBitWidth() == 16;
}

static bool isReduction(StepKind kind) {
  return kind == StepKind::AllReduce || kind == StepKind::ReduceScatter;
}

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
/// Prices steps of an element type, as the transports of ranks do them: in shared memory,
/// or by messages between all pairs of the group.
class MessagePrice {
public:
  MessagePrice(const Placement &placement, Type element)
      : placement(placement),
        elementBytes(static_cast<double>(byteWidth(*dtypeOf(element)))) {}

  double seconds(const Step &step) const {
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
  double seconds(ArrayRef<Step> steps) const {
    double sum = 0;
    for (const Step &step : steps)
      sum += seconds(step);
    return sum;
  }

private:
  const Placement &placement;
  double elementBytes;
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

  static void replace(comm::StepOpInterface op, ArrayRef<Step> steps) {
    OpBuilder builder(op);
    Value value = op->getOperand(0);
    for (const Step &step : steps) {
      value = comm::emitStep(builder, op->getLoc(), op.getFrom().getMesh(), step, value);
      for (NamedAttribute attribute : op->getAttrs())
        if (!value.getDefiningOp()->hasAttr(attribute.getName()))
          value.getDefiningOp()->setAttr(attribute.getName(), attribute.getValue());
    }
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
  }

  void splitByLevel(const Placement &placement) {
    int64_t split = 0;
    double before = 0, after = 0;
    for (comm::StepOpInterface op : steps()) {
      Type element = getElementTypeOrSelf(op->getResult(0).getType());
      if (isReduction(op.getStepKind()) && isRounded(element))
        continue;
      const Step step = op.getStep();
      const std::vector<Step> levels = byLevels(placement, step);
      const MessagePrice price(placement, element);
      if (levels.size() == 1 || price.seconds(levels) >= price.seconds(step))
        continue;
      ++split;
      before += price.seconds(step);
      after += price.seconds(levels);
      replace(op, levels);
    }
    numSplit += static_cast<unsigned>(split);
    getOperation().emitRemark()
        << "hierarchical collectives: " << split << " go level by level"
        << (split ? llvm::formatv(", {0:F3} ms in place of {1:F3}", 1e3 * after,
                                  1e3 * before)
                        .str()
                  : "");
  }

  std::set<AxisList> groups() {
    std::set<AxisList> found;
    getOperation().walk([&](comm::CommOpInterface op) {
      if (op.getReceivedElements() == 0)
        return;
      AxisList axes = op.getAxes();
      llvm::sort(axes); // whichever is major, the ranks are the same
      found.insert(canonical(axes));
    });
    return found;
  }

  /// Reduces over several axes one after the other, until there are few enough groups.
  void limitGroups(const Mesh &mesh) {
    const std::set<AxisList> before = groups();
    int64_t split = 0;
    while (static_cast<int64_t>(groups().size()) > mostGroups && splitWidest(split)) {
    }
    const std::set<AxisList> left = groups();
    if (static_cast<int64_t>(left.size()) > mostGroups) {
      const std::set<AxisList> &fewest = left.size() < before.size() ? left : before;
      std::string names;
      for (const AxisList &axes : fewest)
        names += (names.empty() ? "" : ", ") + mesh.str(axes);
      return fail("--comm-reuse " + std::to_string(mostGroups) + ": the program has " +
                  std::to_string(fewest.size()) + " groups of ranks: " + names);
    }
    if (split)
      getOperation().emitRemark()
          << "--comm-reuse: " << before.size() << " groups of ranks became "
          << left.size() << "; " << split
          << " all-reduces over several axes are one for each";
  }

  /// Splits all reductions over the most axes. False: none has several.
  bool splitWidest(int64_t &split) {
    auto maySplit = [](comm::StepOpInterface op) {
      return op.getStepKind() == StepKind::AllReduce &&
             !isRounded(getElementTypeOrSelf(op->getResult(0).getType()));
    };
    AxisList widest;
    for (comm::StepOpInterface op : steps())
      if (AxisList axes = op.getAxes(); maySplit(op) && axes.size() > widest.size())
        widest = axes;
    if (widest.size() < 2)
      return false;
    for (comm::StepOpInterface op : steps())
      if (maySplit(op) && op.getAxes() == widest) {
        replace(op, stepsByAxis(op.getDevices(), op.getStep()));
        ++split;
      }
    return true;
  }

  std::optional<Topology> topology;
};
} // namespace

std::unique_ptr<Pass>
partita::createSplitCollectivesPass(std::optional<Topology> topology,
                                    int64_t mostGroups) {
  return std::make_unique<SplitCollectivesPass>(std::move(topology), mostGroups);
}
