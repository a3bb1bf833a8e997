//===- Dist.cpp - The dist dialect ----------------------------------------===//
#include "dialects/Dist/Dist.h"

#include "dialects/Dist/PlanAttributes.h"

#include "dialects/Interfaces/Notes.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace partita;
using namespace partita::dist;

#include "dialects/Dist/DistDialect.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/Dist/DistOps.cpp.inc"

namespace {
/// Meshes and rules stand once at the top of a file.
struct AliasInterface : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute attr, raw_ostream &os) const override {
    if (!isa<MeshAttr, RuleAttr>(attr))
      return AliasResult::NoAlias;
    os << (isa<MeshAttr>(attr) ? "mesh" : "rule");
    return AliasResult::FinalAlias;
  }
};
} // namespace

void DistDialect::initialize() {
  registerAttributes();
  addOperations<
#define GET_OP_LIST
#include "dialects/Dist/DistOps.cpp.inc"
      >();
  addInterfaces<AliasInterface>();
}

//===-- Reading attributes ------------------------------------------------===//

MeshAttr dist::findMesh(Operation *op) {
  for (Operation *at = op; at; at = at->getParentOp())
    if (auto mesh = at->getAttrOfType<MeshAttr>(meshAttr))
      return mesh;
  return {};
}

InFlightDiagnostic dist::noteMesh(InFlightDiagnostic diagnostic, Operation *op) {
  for (Operation *at = op; at; at = at->getParentOp())
    if (auto mesh = at->getAttrOfType<MeshAttr>(meshAttr)) {
      diagnostic.attachNote(at->getLoc())
          << "the program's mesh \"" << mesh.getMesh().str() << "\" is given here";
      break;
    }
  return diagnostic;
}

Expected<Mesh> dist::meshOf(Operation *op) {
  if (MeshAttr mesh = findMesh(op))
    return mesh.getMesh();
  return makeError("no enclosing op has a dist.mesh attribute");
}

ReshardOptions dist::reshardOptionsOf(Operation *op) {
  for (Operation *at = op; at; at = at->getParentOp())
    if (at->hasAttr(noAllToAllAttr))
      return {.allToAll = false};
  return {};
}

StrategyAttr dist::strategyAttrOf(Operation *op) {
  return op->getAttrOfType<StrategyAttr>(strategyAttr);
}

Expected<Strategy> dist::strategyOf(Operation *op, const ShardingRule &rule) {
  StrategyAttr strategy = strategyAttrOf(op);
  return strategy ? strategy.resolve(rule) : Strategy::replicated(rule);
}

Expected<Strategy> dist::strategyOf(Operation *op, const Expected<ShardingRule> &rule) {
  return rule ? strategyOf(op, *rule) : tl::unexpected(rule.error());
}

void dist::setStrategy(MeshAttr mesh, Operation *op, const ShardingRule &rule,
                       const Strategy &strategy) {
  op->setAttr(strategyAttr, StrategyAttr::get(op->getContext(), mesh,
                                              NamedStrategy::of(rule, strategy)));
}

LayoutAttr dist::argumentLayout(Operation *function, unsigned argument) {
  return cast<FunctionOpInterface>(function).getArgAttrOfType<LayoutAttr>(argument,
                                                                          layoutAttr);
}

LayoutAttr dist::resultLayout(Operation *function, unsigned result) {
  return cast<FunctionOpInterface>(function).getResultAttrOfType<LayoutAttr>(result,
                                                                             layoutAttr);
}

LayoutAttr dist::sourceLayout(Operation *op) {
  return op->getAttrOfType<LayoutAttr>(layoutAttr);
}

//===-- Attributes on ops -------------------------------------------------===//

/// A layout or strategy is for the mesh of its program.
static LogicalResult verifyMesh(Operation *op, StringRef what, MeshAttr mesh) {
  MeshAttr around = findMesh(op);
  if (!around)
    return op->emitOpError("has a ")
           << what << ", but no enclosing op has a dist.mesh attribute";
  if (around != mesh)
    return noteMesh(op->emitOpError("has a ")
                        << what << " for mesh \"" << mesh.getMesh().str()
                        << "\", the program is for \"" << around.getMesh().str() << "\"",
                    op);
  return success();
}

template <typename Attr>
static FailureOr<Attr> expectAttr(Operation *op, NamedAttribute attr, StringRef form) {
  if (auto typed = dyn_cast<Attr>(attr.getValue()))
    return typed;
  return op->emitOpError("expected ") << attr.getName() << " to be a " << form
                                      << " attribute, got " << attr.getValue();
}

/// On a source of a partitioned program: the layout its local result has.
static LogicalResult verifySourceLayout(Operation *op, LayoutAttr layout) {
  if (failed(verifyMesh(op, layoutAttr, layout.getMesh())))
    return failure();
  if (op->getNumResults() != 1 || op->getNumOperands() != 0)
    return op->emitOpError("has a dist.layout, but is not a source of one tensor");
  if (layout.getLayout().localShape() != shapeOf(op->getResult(0)))
    return op->emitOpError("has a dist.layout of local shape [")
           << ArrayRef(layout.getLayout().localShape()) << "], but a result of type "
           << op->getResult(0).getType();
  return success();
}

/// `kept`: the rule lives as long as the context.
static LogicalResult verifyStrategyFor(Operation *op, StrategyAttr strategy,
                                       const ShardingRule &rule, bool kept) {
  auto &dialect = cast<DistDialect>(strategy.getDialect());
  if (kept && dialect.isKnownToFit(strategy, rule))
    return success();
  if (auto resolved = strategy.resolve(rule); !resolved)
    return op->emitOpError("has a bad dist.strategy: ") << resolved.error().message;
  if (kept)
    dialect.rememberToFit(strategy, rule);
  return success();
}

static LogicalResult verifyStrategyAttr(Operation *op, StrategyAttr strategy) {
  auto shardable = dyn_cast<ShardingRuleOpInterface>(op);
  if (!shardable)
    return op->emitOpError("has a dist.strategy but no sharding rule");
  if (failed(verifyMesh(op, strategyAttr, strategy.getMesh())))
    return failure();
  if (auto global = op->getAttrOfType<RuleAttr>(ruleAttr))
    return verifyStrategyFor(op, strategy, global.getRule(), true);
  // Broken operand types are the op verifier's to report.
  RuleRef facts = ruleOf(op);
  return facts->rule ? verifyStrategyFor(op, strategy, *facts->rule, facts->kept)
                     : success();
}

/// Lists of [layout or number, number], one per value.
static LogicalResult verifyServed(Operation *op, NamedAttribute attr, size_t values) {
  auto isEntry = [](Attribute entry) {
    auto parts = dyn_cast<ArrayAttr>(entry);
    return parts && (parts.size() == 2 || parts.size() == 4) &&
           isa<LayoutAttr, IntegerAttr>(parts[0]) && isa<IntegerAttr>(parts[1]) &&
           (parts.size() == 2 ||
            (isa<IntegerAttr>(parts[2]) && isa<DenseI32ArrayAttr>(parts[3])));
  };
  auto lists = dyn_cast<ArrayAttr>(attr.getValue());
  if (lists && lists.size() == values && llvm::all_of(lists, [&](Attribute list) {
        auto entries = dyn_cast<ArrayAttr>(list);
        return entries && llvm::all_of(entries, isEntry);
      }))
    return success();
  return op->emitOpError("expected ")
         << attr.getName() << " to be " << values << (values == 1 ? " list" : " lists")
         << " of [layout or number of a window buffer, number], got " << attr.getValue();
}

static LogicalResult verifyRecomputeAttr(Operation *op, NamedAttribute attr) {
  if (op->getNumOperands() == 0 || op->getNumRegions() != 0 ||
      isa<CallingOpInterface>(op) || !isa<ShardingRuleOpInterface>(op))
    return op->emitOpError("cannot be computed again: only an op that has operands and "
                           "no region, and runs no function, can");
  if (op->hasAttr(phaseAttr))
    return op->emitOpError("is of phase ")
           << name(dist::phaseOf(op)) << ": only a forward op is computed again";
  return expectAttr<RecomputeAttr>(op, attr, "#dist.recompute");
}

LogicalResult DistDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  StringRef name = attr.getName();
  if (name == meshAttr)
    return expectAttr<MeshAttr>(op, attr, "#dist.mesh");
  if (name == noAllToAllAttr || name == forSplitAttr)
    return expectAttr<UnitAttr>(op, attr, "unit");
  if (name == layoutAttr) {
    auto layout = expectAttr<LayoutAttr>(op, attr, "#dist.layout");
    return failed(layout) ? failure() : verifySourceLayout(op, *layout);
  }
  if (name == strategyAttr) {
    auto strategy = expectAttr<StrategyAttr>(op, attr, "#dist.strategy");
    return failed(strategy) ? failure() : verifyStrategyAttr(op, *strategy);
  }
  if (name == ruleAttr) {
    if (!strategyAttrOf(op))
      return op->emitOpError("has a dist.rule but no dist.strategy");
    return expectAttr<RuleAttr>(op, attr, "#dist.rule");
  }
  if (name == phaseAttr) {
    auto phase = expectAttr<PhaseAttr>(op, attr, "#dist.phase");
    if (succeeded(phase) && phase->getValue() == Phase::Forward)
      return op->emitOpError("says that it is forward, which an op without a phase is");
    return phase;
  }
  if (name == stageAttr || name == tripsAttr || name == keptMicroBatchesAttr)
    return expectAttr<IntegerAttr>(op, attr, "integer");
  if (name == recomputeAttr)
    return verifyRecomputeAttr(op, attr);
  if (name == servedAttr || name == servedAgainAttr)
    return verifyServed(op, attr, op->getNumResults());
  if (name == certificateAttr || name == planAttr)
    return expectAttr<DictionaryAttr>(op, attr, "dictionary");
  return op->emitOpError("has an unknown attribute ") << attr.getName();
}

static LogicalResult verifyEndLayout(Operation *op, NamedAttribute attr, Type type,
                                     const Twine &what) {
  // A buffer, after bufferization, has the layout that its tensor had.
  auto tensor = dyn_cast<ShapedType>(type);
  if (attr.getName() != layoutAttr || !tensor || !tensor.hasStaticShape())
    return op->emitOpError("has an unknown or misplaced attribute ")
           << attr.getName() << " on " << what;
  auto layout = dyn_cast<LayoutAttr>(attr.getValue());
  if (!layout)
    return op->emitOpError("expected dist.layout on ")
           << what << " to be a #dist.layout attribute, got " << attr.getValue();
  if (failed(verifyMesh(op, layoutAttr, layout.getMesh())))
    return failure();
  // Global shapes before partitioning, local ones after it.
  std::vector<int64_t> shape = tensor.getShape().vec();
  if (layout.getLayout().globalShape() != shape &&
      layout.getLayout().localShape() != shape)
    return op->emitOpError("has a dist.layout on ")
           << what << ", " << layout.str() << ", that is not one of type " << type;
  return success();
}

/// All states are verified together, at the first end of one.
static LogicalResult verifyStateEnd(Operation *op, NamedAttribute attr, bool isArgument,
                                    unsigned number) {
  if (!isa<StateAttr>(attr.getValue()))
    return op->emitOpError("expected dist.state on ")
           << (isArgument ? "argument " : "result ") << number
           << " to be a #dist.state attribute, got " << attr.getValue();
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitOpError("has a dist.state but is not a function");
  for (unsigned i = 0; i < (isArgument ? number : function.getNumArguments()); ++i)
    if (argumentState(op, i))
      return success();
  for (unsigned i = 0; !isArgument && i < number; ++i)
    if (resultState(op, i))
      return success();
  return verifyStates(op);
}

LogicalResult DistDialect::verifyRegionArgAttribute(Operation *op, unsigned region,
                                                    unsigned argument,
                                                    NamedAttribute attr) {
  if (attr.getName() == servedAttr)
    return verifyServed(op, attr, 1);
  if (attr.getName() == stateAttr)
    return verifyStateEnd(op, attr, true, argument);
  Type type = op->getRegion(region).getArgument(argument).getType();
  return verifyEndLayout(op, attr, type, "argument " + Twine(argument));
}

LogicalResult DistDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                       unsigned result,
                                                       NamedAttribute attr) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitOpError("has a dist attribute on a result but is not a function");
  if (attr.getName() == stateAttr)
    return verifyStateEnd(op, attr, false, result);
  return verifyEndLayout(op, attr, function.getResultTypes()[result],
                         "result " + Twine(result));
}

//===-- Conversions -------------------------------------------------------===//

LogicalResult ReshardOp::verify() {
  if (failed(verifyMesh(*this, "layout", getLayout().getMesh())))
    return failure();
  if (getLayout().getLayout().globalShape() != shapeOf(getInput()))
    return noteOrigin(emitOpError("expected a layout of shape [")
                          << ArrayRef(shapeOf(getInput())) << "], got "
                          << getLayout().str(),
                      getInput());
  return success();
}

LogicalResult WindowOp::verify() {
  WindowsAttr windows = getWindows();
  if (failed(verifyMesh(*this, "window", windows.getPositions().getMesh())))
    return failure();
  Layout whole = Layout::replicated(shapeOf(getInput()));
  whole.partial = windows.getPositions().getLayout().partial;
  if (auto ok = windows.from(whole).verify(windows.devices()); !ok)
    return noteOrigin(emitOpError("is inconsistent: ") << ok.error().message, getInput());
  return success();
}

namespace {
/// A conversion of a conversion to the layout that this one leads to says nothing.
struct DropRepeated : OpRewritePattern<ReshardOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReshardOp op, PatternRewriter &rewriter) const override {
    auto before = op.getInput().getDefiningOp<ReshardOp>();
    if (!before || before.getLayout().canonical() != op.getLayout().canonical() ||
        op.getEpoch() != before.getEpoch())
      return failure();
    rewriter.replaceOp(op, before.getResult());
    return success();
  }
};
} // namespace

void ReshardOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                            MLIRContext *context) {
  patterns.add<DropRepeated>(context);
}
