//===- Wrong.cpp - Attributes made wrong ----------------------------------===//
#include "Wrong.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "passes/Partition/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

//===-- Where data lies ---------------------------------------------------===//

namespace {
/// Every axis list of a layout or strategy.
template <typename Visit> void forAxes(Layout &layout, Visit visit) {
  for (DimLayout &dim : layout.dims)
    for (DimFactor &factor : dim.factors)
      visit(factor.axes);
  for (PartialAxes &entry : layout.partial)
    visit(entry.axes);
}

/// The first two axes of the mesh exchanged.
void swapAxes(AxisList &axes) {
  for (AxisRef &axis : axes)
    axis.axis = axis.axis < 2 ? 1 - axis.axis : axis.axis;
}

bool canSwap(const Mesh &mesh) {
  return mesh.axes().size() > 1 && mesh.axes()[0].size == mesh.axes()[1].size;
}

Variants wrongLayouts(dist::LayoutAttr attr) {
  Variants variants;
  const Mesh &mesh = attr.devices();
  auto add = [&](const std::string &what, Layout layout) {
    for (PartialAxes &entry : layout.partial)
      llvm::sort(entry.axes);
    llvm::erase_if(layout.partial, [](const PartialAxes &p) { return p.axes.empty(); });
    if (layout != attr.getLayout() && layout.verify(mesh))
      variants.emplace_back(
          what, dist::LayoutAttr::get(attr.getContext(), attr.getMesh(), layout));
  };
  Layout changed = attr.getLayout();
  if (canSwap(mesh)) {
    forAxes(changed, swapAxes);
    add("axes exchanged", changed);
  }
  changed = attr.getLayout();
  forAxes(changed, [](AxisList &axes) { std::reverse(axes.begin(), axes.end()); });
  add("axes reversed", changed);
  for (size_t d = 0; d < attr.getLayout().dims.size(); ++d) {
    changed = attr.getLayout();
    for (DimFactor &factor : changed.dims[d].factors)
      factor.axes.clear();
    add("dim whole", changed);
    changed = attr.getLayout();
    changed.dims[d].factors[0].size += 1;
    add("dim larger", changed);
    changed = attr.getLayout();
    changed.dims[d].factors[0].padded += changed.dims[d].factors[0].shards();
    add("more padding", changed);
    if (d + 1 < attr.getLayout().dims.size()) {
      changed = attr.getLayout();
      std::swap(changed.dims[d].factors.back().axes,
                changed.dims[d + 1].factors.back().axes);
      add("axes of the next dim", changed);
    }
  }
  changed = attr.getLayout();
  changed.partial.clear();
  add("not partial", changed);
  for (const AxisRef &axis : mesh.all()) {
    changed = attr.getLayout();
    changed.partial = {{ReduceKind::Sum, {axis}}};
    add("partial", changed);
  }
  for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Prod}) {
    changed = attr.getLayout();
    if (changed.partial.size() == 1)
      changed.partial[0].kind = kind;
    add("another kind", changed);
  }
  return variants;
}

Variants wrongStrategies(dist::StrategyAttr attr) {
  Variants variants;
  auto add = [&](const std::string &what, NamedStrategy strategy) {
    for (auto &pass : strategy.passes) // a set, whatever its order
      llvm::sort(pass.axes);
    if (!(strategy == attr.getStrategy()))
      variants.emplace_back(
          what, dist::StrategyAttr::get(attr.getContext(), attr.getMesh(), strategy));
  };
  const NamedStrategy &old = attr.getStrategy();
  for (size_t i = 0; i < old.loops.size(); ++i) {
    NamedStrategy changed = old;
    changed.loops.erase(changed.loops.begin() + static_cast<int64_t>(i));
    add("loop whole", changed);
    changed = old;
    changed.loops[i].name = "q";
    add("unknown loop", changed);
    changed = old;
    for (DimFactor &factor : changed.loops[i].split.factors)
      swapAxes(factor.axes);
    if (canSwap(attr.devices()))
      add("axes exchanged", changed);
    changed = old;
    std::reverse(changed.loops[i].split.factors.begin(),
                 changed.loops[i].split.factors.end());
    add("cuts reversed", changed);
  }
  for (size_t i = 0; i < old.passes.size(); ++i) {
    NamedStrategy changed = old;
    changed.passes.erase(changed.passes.begin() + static_cast<int64_t>(i));
    add("nothing passes", changed);
    changed = old;
    swapAxes(changed.passes[i].axes);
    if (canSwap(attr.devices()))
      add("axes exchanged", changed);
    changed = old;
    changed.passes[i].set.kind =
        changed.passes[i].set.kind == ReduceKind::Sum ? ReduceKind::Max : ReduceKind::Sum;
    add("another kind passes", changed);
  }
  return variants;
}

Variants wrongRules(dist::RuleAttr attr) {
  Variants variants;
  auto add = [&](const std::string &what, const ShardingRule &rule) {
    if (rule.verify() && !(rule == attr.getRule()))
      variants.emplace_back(what, dist::RuleAttr::get(attr.getContext(), rule));
  };
  for (size_t f = 0; f < attr.getRule().factors.size(); ++f) {
    ShardingRule changed = attr.getRule();
    changed.factors[f].size += 1;
    add("loop longer", changed);
    changed = attr.getRule();
    Factor &factor = changed.factors[f];
    if (factor.kind() == FactorKind::Parallel)
      factor.what = loop::Replicate{};
    else
      factor.what = loop::Parallel{};
    add("another kind of loop", changed);
    changed = attr.getRule();
    auto other = [](ReduceKind &kind) {
      kind = kind == ReduceKind::Sum ? ReduceKind::Max : ReduceKind::Sum;
    };
    if (changed.factors[f].reduction()) {
      other(changed.factors[f].reduction()->reduce);
      add("another reduction", changed);
      changed = attr.getRule();
      changed.factors[f].reduction()->addends.clear();
      changed.factors[f].reduction()->index = -1;
      add("no addend or index", changed);
    }
    changed = attr.getRule();
    if (changed.factors[f].window()) {
      other(changed.factors[f].window()->outside);
      add("another padding", changed);
      changed = attr.getRule();
      changed.factors[f].window()->low += 1;
      add("windows earlier", changed);
    }
  }
  ShardingRule changed = attr.getRule();
  changed.linear.clear();
  add("not linear", changed);
  changed = attr.getRule();
  changed.fills.clear();
  add("no padding fill", changed);
  return variants;
}

Variants wrongWindows(dist::WindowsAttr attr) {
  Variants variants;
  auto add = [&](const std::string &what, dist::LayoutAttr positions,
                 std::vector<HaloWindow> windows, ReduceKind fill) {
    variants.emplace_back(
        what, dist::WindowsAttr::get(attr.getContext(), positions, windows, fill));
  };
  for (size_t i = 0; i < attr.getWindows().size(); ++i)
    for (int64_t HaloWindow::*field :
         {&HaloWindow::stride, &HaloWindow::kernelExtent, &HaloWindow::low}) {
      std::vector<HaloWindow> windows = attr.getWindows();
      windows[i].*field += 1;
      add("another window", attr.getPositions(), windows, attr.getFill());
    }
  add("another fill", attr.getPositions(), attr.getWindows(),
      attr.getFill() == ReduceKind::Sum ? ReduceKind::Max : ReduceKind::Sum);
  for (auto &[what, layout] : wrongLayouts(attr.getPositions()))
    add(what, cast<dist::LayoutAttr>(layout), attr.getWindows(), attr.getFill());
  return variants;
}

} // namespace

Variants spmd::wrongPlaces(Operation *op, NamedAttribute attr) {
  if (auto layout = dyn_cast<dist::LayoutAttr>(attr.getValue()))
    return wrongLayouts(layout);
  if (auto strategy = dyn_cast<dist::StrategyAttr>(attr.getValue()))
    return wrongStrategies(strategy);
  if (auto rule = dyn_cast<dist::RuleAttr>(attr.getValue()))
    return wrongRules(rule);
  if (auto windows = dyn_cast<dist::WindowsAttr>(attr.getValue()))
    return wrongWindows(windows);
  Variants variants;
  if (auto kind = dyn_cast<dist::KindAttr>(attr.getValue()))
    for (ReduceKind other :
         {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod})
      if (other != kind.getValue())
        variants.emplace_back("another kind",
                              dist::KindAttr::get(op->getContext(), other));
  if (auto mask = dyn_cast<comm::MaskOp>(op); mask && attr.getName() == "dims") {
    int64_t rank = mask.getLayout().getLayout().rank();
    SmallVector<int64_t> dims;
    for (int64_t dim : mask.getDims())
      dims.push_back((dim + 1) % rank);
    if (rank > 1)
      variants.emplace_back("other dims", DenseI64ArrayAttr::get(op->getContext(), dims));
  }
  return variants;
}

//===-- What is computed --------------------------------------------------===//

namespace {
template <typename Attr, typename... Values>
void otherOf(Variants &variants, Attribute old, Values... values) {
  if (isa<Attr>(old))
    for (auto value : {values...})
      if (auto other = Attr::get(old.getContext(), value); other != old)
        variants.emplace_back("another of its values", other);
}

/// The last two dims of an operand of an equation exchanged, or of the result.
Variants wrongEquations(graph::EquationAttr attr) {
  Variants variants;
  auto add = [&](auto tensorOf) {
    Equation equation = attr.getValue();
    Equation::Tensor &dims = tensorOf(equation);
    if (dims.size() > 1)
      std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    if (!(equation == attr.getValue()))
      variants.emplace_back("dims exchanged",
                            graph::EquationAttr::get(attr.getContext(), equation));
  };
  add([](Equation &e) -> auto & { return e.operands[0]; });
  add([](Equation &e) -> auto & { return e.operands[1]; });
  add([](Equation &e) -> auto & { return e.results[0]; });
  return variants;
}

Variants wrongLists(DenseI64ArrayAttr attr) {
  Variants variants;
  SmallVector<int64_t> old(attr.asArrayRef());
  auto add = [&](const char *what, ArrayRef<int64_t> changed) {
    if (changed != ArrayRef(old))
      variants.emplace_back(what, DenseI64ArrayAttr::get(attr.getContext(), changed));
  };
  for (size_t i = 0; i < old.size(); ++i) {
    SmallVector<int64_t> changed = old;
    changed[i] += 1;
    add("one more", changed);
    changed[i] -= 2;
    add("one less", changed);
    if (i + 1 < old.size()) {
      changed = old;
      std::swap(changed[i], changed[i + 1]);
      add("two exchanged", changed);
    }
  }
  if (!old.empty())
    add("shorter", ArrayRef(old).drop_back());
  return variants;
}
} // namespace

Variants spmd::wrongComputations(Operation *op, NamedAttribute attr) {
  Variants variants;
  Attribute old = attr.getValue();
  MLIRContext *context = op->getContext();
  if (auto equation = dyn_cast<graph::EquationAttr>(old))
    return wrongEquations(equation);
  if (auto list = dyn_cast<DenseI64ArrayAttr>(old))
    return wrongLists(list);
  if (auto flag = dyn_cast<BoolAttr>(old))
    variants.emplace_back("the other", BoolAttr::get(context, !flag.getValue()));
  else if (auto number = dyn_cast<IntegerAttr>(old))
    for (int64_t by : {1, -1})
      variants.emplace_back("another number",
                            IntegerAttr::get(number.getType(), number.getInt() + by));
  if (auto number = dyn_cast<FloatAttr>(old))
    variants.emplace_back(
        "another number",
        FloatAttr::get(number.getType(), number.getValueAsDouble() + 0.25));
  if (auto numbers = dyn_cast<DenseF64ArrayAttr>(old)) {
    SmallVector<double> changed(numbers.asArrayRef());
    for (double &value : changed)
      value *= 2;
    variants.emplace_back("twice", DenseF64ArrayAttr::get(context, changed));
  }
  if (auto type = dyn_cast<TypeAttr>(old))
    for (Type other : {Type(Float64Type::get(context)), Type(Float32Type::get(context)),
                       Type(IntegerType::get(context, 32))})
      if (other != type.getValue())
        variants.emplace_back("another type", TypeAttr::get(other));
  if (isa<UnitAttr>(old))
    variants.emplace_back("absent", Attribute());
  otherOf<graph::ReduceKindAttr>(variants, old, ReduceKind::Sum, ReduceKind::Max,
                                 ReduceKind::Min, ReduceKind::Prod);
  otherOf<graph::PoolKindAttr>(variants, old, graph::PoolKind::Max,
                               graph::PoolKind::Average);
  otherOf<graph::PadModeAttr>(variants, old, graph::PadMode::Constant,
                              graph::PadMode::Edge, graph::PadMode::Reflect);
  otherOf<graph::ResizeModeAttr>(variants, old, graph::ResizeMode::Nearest,
                                 graph::ResizeMode::Linear);
  otherOf<graph::CoordinatesAttr>(
      variants, old, graph::Coordinates::Asymmetric, graph::Coordinates::HalfPixel,
      graph::Coordinates::PytorchHalfPixel, graph::Coordinates::AlignCorners);
  otherOf<graph::RoundingAttr>(variants, old, graph::Rounding::PreferFloor,
                               graph::Rounding::PreferCeil, graph::Rounding::Floor,
                               graph::Rounding::Ceil);
  return variants;
}

//===-- The gate ----------------------------------------------------------===//

Gate::Gate(MLIRContext &context) : manager(&context) {
  manager.addPass(createVerifyPartitionedPass());
}

bool Gate::refuses(ModuleOp module) {
  ScopedDiagnosticHandler quiet(module.getContext(),
                                [](Diagnostic &) { return success(); });
  return failed(mlir::verify(module)) || failed(manager.run(module));
}
