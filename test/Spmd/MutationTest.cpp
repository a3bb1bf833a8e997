//===- MutationTest.cpp - A damaged partitioned program is noticed --------===//
//
// Small programs are partitioned so that every comm op occurs; then every comm op, mask,
// layout and coordinate-dependent attribute is damaged, one at a time, and the comparison
// on virtual ranks must notice. A damage that cannot matter is listed with the reason.
// The other half, damages of the sources, is in mutate.py.
//
//===----------------------------------------------------------------------===//
#include "Cases.h"
#include "Samples.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "passes/Reference/Evaluate.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/xxhash.h"

#include <catch2/catch.hpp>

#include <iostream>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

namespace {
/// A damage to one op; false where it does not apply.
struct Damage {
  const char *name;
  bool (*apply)(Operation *op);
};

bool drop(Operation *op) {
  bool droppable = isa<comm::CommOpInterface, comm::MaskOp, comm::LocalIndexOp>(op) &&
                   op->getOperand(0).getType() == op->getResult(0).getType();
  if (droppable)
    op->getResult(0).replaceAllUsesWith(op->getOperand(0));
  return droppable;
}

dist::LayoutAttr with(dist::LayoutAttr old, const Layout &layout) {
  return dist::LayoutAttr::get(old.getContext(), old.getMesh(), layout);
}

/// Each rank takes its own part of what should be reduced first.
bool sliceOnly(Operation *op) {
  auto scatter = dyn_cast<comm::ReduceScatterOp>(op);
  if (!scatter)
    return false;
  OpBuilder builder(op);
  Layout from = scatter.getFrom().getLayout();
  from.partial = scatter.getTo().getLayout().partial;
  auto slice = comm::SliceOp::create(builder, op->getLoc(), scatter.getResult().getType(),
                                     scatter.getInput(), /*out=*/Value(),
                                     with(scatter.getFrom(), from), scatter.getTo());
  scatter.getResult().replaceAllUsesWith(slice.getResult());
  return true;
}

/// Applies `change` to both layouts of a step; false if neither changes or the op is not
/// valid then.
bool changeLayouts(Operation *op, llvm::function_ref<void(Layout &)> change) {
  auto step = dyn_cast<comm::StepOpInterface>(op);
  if (!step)
    return false;
  Layout from = step.getFrom().getLayout(), to = step.getTo().getLayout();
  change(from);
  change(to);
  if (from == step.getFrom().getLayout() && to == step.getTo().getLayout())
    return false;
  if (!verifyStep(step.getDevices(), step.getStepKind(), from, to))
    return false;
  op->setAttr("from", with(step.getFrom(), from));
  op->setAttr("to", with(step.getTo(), to));
  return true;
}

bool reverseAxes(Operation *op) {
  return changeLayouts(op, [](Layout &layout) {
    for (DimLayout &dim : layout.dims)
      for (DimFactor &factor : dim.factors)
        std::reverse(factor.axes.begin(), factor.axes.end());
  });
}

bool firstAxisOnly(Operation *op) {
  if (!isa<comm::AllReduceOp>(op))
    return false;
  return changeLayouts(op, [](Layout &layout) {
    for (PartialAxes &entry : layout.partial)
      entry.axes.resize(1);
  });
}

/// The groups of another axis of equal size.
bool otherAxis(Operation *op) {
  auto step = dyn_cast<comm::StepOpInterface>(op);
  if (!step)
    return false;
  const auto &axes = step.getDevices().axes();
  if (axes.size() < 2 || axes[0].size != axes[1].size)
    return false;
  AxisList before = step.getAxes();
  bool changed = changeLayouts(op, [](Layout &layout) {
    auto swap = [](AxisList &list) {
      for (AxisRef &axis : list)
        axis.axis = axis.axis < 2 ? 1 - axis.axis : axis.axis;
    };
    for (DimLayout &dim : layout.dims)
      for (DimFactor &factor : dim.factors)
        swap(factor.axes);
    for (PartialAxes &entry : layout.partial) {
      swap(entry.axes);
      llvm::sort(entry.axes);
    }
  });
  // Where only other dims change their names, the step moves what it did.
  return changed && step.getAxes() != before;
}

bool otherKind(Operation *op) {
  if (auto mask = dyn_cast<comm::MaskOp>(op)) {
    bool isSum = mask.getKind().getValue() == ReduceKind::Sum;
    mask.setKindAttr(
        dist::KindAttr::get(op->getContext(), isSum ? ReduceKind::Max : ReduceKind::Sum));
    return true;
  }
  if (!isa<comm::AllReduceOp, comm::ReduceScatterOp, comm::ToPartialOp>(op))
    return false;
  return changeLayouts(op, [](Layout &layout) {
    if (layout.partial.size() == 1)
      layout.partial[0].kind =
          layout.partial[0].kind == ReduceKind::Sum ? ReduceKind::Max : ReduceKind::Sum;
  });
}

bool otherDim(Operation *op) {
  auto mask = dyn_cast<comm::MaskOp>(op);
  int64_t rank = mask ? mask.getLayout().getLayout().rank() : 0;
  if (rank < 2)
    return false;
  SmallVector<int64_t> dims;
  for (int64_t dim : mask.getDims())
    dims.push_back((dim + 1) % rank);
  llvm::sort(dims);
  mask.setDims(dims);
  return true;
}

/// An all-to-all that moves the axes the other way, where shapes allow it.
bool swapPlaces(Operation *op) {
  auto move = dyn_cast<comm::AllToAllOp>(op);
  if (!move || move.getInput().getType() != move.getResult().getType())
    return false;
  dist::LayoutAttr from = move.getFrom();
  move.setFromAttr(move.getTo());
  move.setToAttr(from);
  return true;
}

bool firstBlock(Operation *op) {
  auto slice = dyn_cast<graph::SliceOp>(op);
  if (!slice)
    return false;
  slice.setStarts(SmallVector<int64_t>(slice.getStarts().size(), 0));
  return true;
}

bool swapOperands(Operation *op) {
  if (!isa<graph::ConcatOp>(op))
    return false;
  Value first = op->getOperand(0);
  op->setOperand(0, op->getOperand(1));
  op->setOperand(1, first);
  return true;
}

/// Every rank pads its own block instead of fetching what lies next to it.
bool noHalo(Operation *op) {
  auto halo = dyn_cast<comm::HaloOp>(op);
  if (!halo)
    return false;
  auto from = cast<RankedTensorType>(halo.getInput().getType());
  auto to = cast<RankedTensorType>(halo.getResult().getType());
  SmallVector<int64_t> low(from.getRank(), 0), high(from.getRank(), 0);
  for (const HaloWindow &window : halo.getTo().getWindows()) {
    low[window.dim] = window.low;
    high[window.dim] =
        to.getDimSize(window.dim) - from.getDimSize(window.dim) - window.low;
  }
  OpBuilder builder(op);
  HostTensor fill = HostTensor::zeros(DType::F32, {});
  fillNeutral(fill, halo.getTo().getFill());
  Value value = graph::ConstantOp::create(builder, op->getLoc(),
                                          graph::toAttribute(op->getContext(), fill));
  auto pad = graph::createInferred(
      builder, op->getLoc(), "graph.pad", {halo.getInput(), value},
      {builder.getNamedAttr("low", builder.getDenseI64ArrayAttr(low)),
       builder.getNamedAttr("high", builder.getDenseI64ArrayAttr(high))});
  REQUIRE(pad);
  REQUIRE((*pad)->getResult(0).getType() == to);
  halo.getResult().replaceAllUsesWith((*pad)->getResult(0));
  return true;
}

void setWindows(comm::HaloOp halo, std::vector<HaloWindow> windows, ReduceKind fill) {
  dist::WindowsAttr old = halo.getTo();
  halo.setToAttr(dist::WindowsAttr::get(halo.getContext(), old.getPositions(),
                                        std::move(windows), fill));
}

bool otherFill(Operation *op) {
  auto halo = dyn_cast<comm::HaloOp>(op);
  if (halo)
    setWindows(halo, halo.getTo().getWindows(),
               halo.getTo().getFill() == ReduceKind::Sum ? ReduceKind::Max
                                                         : ReduceKind::Sum);
  return static_cast<bool>(halo);
}

/// Windows that begin one element early.
bool earlyWindow(Operation *op) {
  auto halo = dyn_cast<comm::HaloOp>(op);
  if (!halo)
    return false;
  std::vector<HaloWindow> windows = halo.getTo().getWindows();
  ++windows[0].low;
  setWindows(halo, windows, halo.getTo().getFill());
  return true;
}

bool otherStride(Operation *op) {
  auto halo = dyn_cast<comm::HaloOp>(op);
  if (!halo)
    return false;
  // The extent is kept, so that only where blocks begin is wrong.
  std::vector<HaloWindow> windows = halo.getTo().getWindows();
  HaloWindow &first = windows[0];
  int64_t extent = halo.getResult().getType().getDimSize(first.dim);
  ++first.stride;
  const Layout &positions = halo.getTo().getPositions().getLayout();
  first.kernelExtent = extent - (positions.dims[first.dim].local() - 1) * first.stride;
  if (first.kernelExtent <= 0)
    return false;
  setWindows(halo, windows, halo.getTo().getFill());
  return true;
}

/// An average divided as if its windows lay inside the image.
bool noScale(Operation *op) {
  auto mul = dyn_cast<graph::MulOp>(op);
  if (mul)
    mul.getResult().replaceAllUsesWith(mul.getOperand(0));
  return static_cast<bool>(mul);
}

bool globalGroups(Operation *op) {
  auto conv = dyn_cast<graph::ConvOp>(op);
  if (!conv)
    return false;
  conv.setGroup(conv.getGroup() * 2);
  return true;
}

/// A weight whose slices are those of another axis.
bool otherSlices(Operation *op) {
  dist::LayoutAttr layout = dist::sourceLayout(op);
  if (!isa<graph::WeightOp>(op) || !layout)
    return false;
  const Mesh &mesh = layout.devices();
  int32_t dp = mesh.find("dp"), tp = mesh.find("tp");
  AxisList axes = layout.getLayout().shardingAxes();
  if (dp < 0 || tp < 0 || axes != AxisList{mesh.whole(tp)} ||
      mesh.axes()[dp].size != mesh.axes()[tp].size)
    return false;
  Layout other = layout.getLayout();
  for (DimLayout &dim : other.dims)
    for (DimFactor &factor : dim.factors)
      for (AxisRef &axis : factor.axes)
        axis.axis = dp;
  op->setAttr(dist::layoutAttr, with(layout, other));
  return true;
}

/// Indices relative to the block of another coordinate.
bool otherBlock(Operation *op) {
  auto index = dyn_cast<comm::LocalIndexOp>(op);
  if (!index)
    return false;
  Layout other = index.getLayout().getLayout();
  AxisList &axes = other.dims[0].factors[0].axes;
  if (axes.size() > 1)
    std::swap(axes[0], axes[1]);
  else
    axes = {primes(axes)[0]};
  if (!other.verify(index.getLayout().devices()))
    return false;
  index.setLayoutAttr(with(index.getLayout(), other));
  return true;
}

/// A row of another rank's is taken for one of its own.
bool unmasked(Operation *op) {
  auto gather = dyn_cast<graph::GatherOp>(op);
  if (!gather || !gather.getMasked())
    return false;
  gather.setMasked(false);
  return true;
}

constexpr Damage damages[] = {
    {"dropped", drop},
    {"reduction left out", sliceOnly},
    {"axes in the other order", reverseAxes},
    {"only the first axis", firstAxisOnly},
    {"groups of the other axis", otherAxis},
    {"another reduction kind", otherKind},
    {"padding of another dim", otherDim},
    {"from and to exchanged", swapPlaces},
    {"the first block instead of its own", firstBlock},
    {"operands in the other order", swapOperands},
    {"groups counted globally", globalGroups},
    {"padded instead of fetched", noHalo},
    {"another fill", otherFill},
    {"windows one element early", earlyWindow},
    {"windows of another stride", otherStride},
    {"not scaled", noScale},
    {"slices of the other axis", otherSlices},
    {"relative to another block", otherBlock},
    {"rows of other ranks not masked", unmasked},
};

/// Damages that leave the result as it is.
struct Neutral {
  const char *op, *damage, *reason;
};
constexpr Neutral neutrals[] = {
    {"comm.all_reduce", "axes in the other order", "a reduction has no order"},
    {"comm.exchange", "groups of the other axis", "peers follow from the layouts"},
    {"comm.permute", "groups of the other axis", "peers follow from the layouts"},
    {"comm.permute", "axes in the other order", "peers follow from the layouts"},
};

bool isNeutral(Operation *op, const Damage &damage) {
  for (const Neutral &n : neutrals)
    if (op->getName().getStringRef() == n.op && StringRef(damage.name) == n.damage)
      return true;
  return false;
}

/// One source program with its expected result.
class Subject {
public:
  Subject(MLIRContext &context, const Sample &source) {
    global = parseSourceString<ModuleOp>(source.text, &context);
    INFO(source.name);
    REQUIRE(global);
    local = partitioned(context, source);
    REQUIRE(local);
    auto function = global->lookupSymbol<func::FuncOp>("main");
    for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
      inputs.push_back(random(type, i + 1));
    auto result = evaluate(function, inputs, loader());
    REQUIRE(result);
    expected = std::move(*result);
  }

  /// Whether the program runs and gives the expected result.
  bool isRight(ModuleOp module) {
    auto actual =
        evaluatePartitioned(module.lookupSymbol<func::FuncOp>("main"), inputs, loader());
    return actual && compareTensors((*actual)[0], expected[0], 1e-4, 1e-5).has_value();
  }

  OwningOpRef<ModuleOp> local;

private:
  static HostTensor random(Type type, uint64_t seed) {
    auto tensor = cast<RankedTensorType>(type);
    return randomTensor(*dtypeOf(tensor.getElementType()), tensor.getShape().vec(), seed);
  }
  WeightLoader loader() {
    return [this](StringRef name) -> Expected<HostTensor> {
      HostTensor tensor;
      global->walk([&](graph::WeightOp op) {
        if (op.getName() == name)
          tensor = random(op.getType(), llvm::xxh3_64bits(name));
      });
      return tensor;
    };
  }

  OwningOpRef<ModuleOp> global;
  Tensors inputs, expected;
};
} // namespace

TEST_CASE("every damage to a partitioned program is noticed") {
  MLIRContext context;
  loadDialects(context);
  size_t noticed = 0, neutral = 0;
  std::map<std::string, size_t> perKind;
  for (const Sample &source : samples()) {
    Subject subject(context, source);
    REQUIRE(subject.isRight(*subject.local));
    size_t count = 0;
    subject.local->walk([&](Operation *) { ++count; });
    for (const Damage &damage : damages)
      for (size_t at = 0; at < count; ++at) {
        OwningOpRef<ModuleOp> copy = subject.local->clone();
        SmallVector<Operation *> ops;
        copy->walk([&](Operation *op) { ops.push_back(op); });
        Operation *op = ops[at];
        std::string what = op->getName().getStringRef().str() + ": " + damage.name;
        bool expectedNeutral = isNeutral(op, damage);
        if (!damage.apply(op))
          continue;
        bool survived = subject.isRight(*copy);
        if (expectedNeutral) {
          CHECK(survived);
          ++neutral;
          continue;
        }
        if (survived)
          FAIL_CHECK(source.name << ": " << what << " is not noticed");
        else
          ++perKind[what];
        ++noticed;
      }
  }
  for (const auto &[what, times] : perKind)
    std::cout << "mutation: " << what << ": " << times << "\n";
  std::cout << "mutation: " << noticed << " damages of " << perKind.size()
            << " kinds noticed, " << neutral << " neutral\n";
  CHECK(perKind.size() >= 20);
}
