//===- GateTest.cpp - No wrong attribute or operand passes the gate -------===//
//
// Small programs are partitioned; then every attribute of every op that says where data
// lies is made wrong in every way listed here, and every operand is replaced by every
// other value of its type. The op's verifier or the gate of level L3 must refuse each
// wrong attribute, and each operand in another form; an operand in the same form is
// another tensor, so that the program is another one, which no layout can tell.
//
//===----------------------------------------------------------------------===//
#include "Cases.h"
#include "Samples.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "passes/Partition/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

#include <catch2/catch.hpp>

#include <cstdio>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

namespace {
using Variants = std::vector<std::pair<std::string, Attribute>>;

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
         {&HaloWindow::stride, &HaloWindow::reach, &HaloWindow::low}) {
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

/// Every attribute that says where data lies, changed; others say what is computed.
Variants wrongValues(Operation *op, NamedAttribute attr) {
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
    int64_t rank = mask.getType().getRank();
    SmallVector<int64_t> dims;
    for (int64_t dim : mask.getDims())
      dims.push_back((dim + 1) % rank);
    if (rank > 1)
      variants.emplace_back("other dims", DenseI64ArrayAttr::get(op->getContext(), dims));
  }
  return variants;
}

class Gate {
public:
  explicit Gate(MLIRContext &context) : manager(&context) {
    manager.addPass(createVerifyPartitionedPass());
  }
  bool refuses(ModuleOp module) {
    ScopedDiagnosticHandler quiet(module.getContext(),
                                  [](Diagnostic &) { return success(); });
    return failed(mlir::verify(module)) || failed(manager.run(module));
  }

private:
  PassManager manager;
};

struct Tally {
  size_t refused = 0, sameForm = 0;
};

void tryAttributes(Gate &gate, ModuleOp module, const char *program, Operation *op,
                   Tally &tally) {
  SmallVector<NamedAttribute> attributes(op->getAttrs());
  for (NamedAttribute attr : attributes)
    for (auto &[change, value] : wrongValues(op, attr)) {
      op->setAttr(attr.getName(), value);
      bool refused = gate.refuses(module);
      op->setAttr(attr.getName(), attr.getValue());
      tally.refused += refused;
      if (!refused) {
        std::string text;
        llvm::raw_string_ostream stream(text);
        stream << program << ": " << *op << ": " << attr.getName() << ": " << change
               << ", " << value;
        FAIL_CHECK(text);
      }
    }
}

/// Any other value of the type. Those in the same form are counted.
void tryOperands(Gate &gate, ModuleOp module, Operation *op, Tally &tally) {
  for (OpOperand &operand : op->getOpOperands()) {
    Value old = operand.get();
    for (Operation &other : *op->getBlock()) {
      if (&other == op)
        break;
      for (Value value : other.getResults()) {
        if (value == old || value.getType() != old.getType())
          continue;
        operand.set(value);
        ++(gate.refuses(module) ? tally.refused : tally.sameForm);
        operand.set(old);
      }
    }
  }
}
} // namespace

TEST_CASE("no wrong attribute of a partitioned program passes the gate") {
  MLIRContext context;
  loadDialects(context);
  Gate gate(context);
  Tally attributes, operands;
  for (const Sample &sample : samples()) {
    OwningOpRef<ModuleOp> local = partitioned(context, sample);
    REQUIRE(local);
    REQUIRE(!gate.refuses(*local));
    std::vector<Operation *> ops;
    local->walk([&](Operation *op) {
      if (!isa<ModuleOp, func::FuncOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      tryAttributes(gate, *local, sample.name, op, attributes);
      tryOperands(gate, *local, op, operands);
    }
    REQUIRE(!gate.refuses(*local));
  }
  std::printf(
      "gate: %zu wrong attributes refused; %zu exchanged operands refused, %zu are "
      "in the same form\n",
      attributes.refused, operands.refused, operands.sameForm);
  CHECK(operands.refused > 0);
  CHECK(attributes.refused > 1000);
}
