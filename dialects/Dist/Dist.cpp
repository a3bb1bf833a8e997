//===- Dist.cpp - Meshes, strategies and layouts in IR --------------------===//
#include "dialects/Dist/Dist.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace partita;
using namespace partita::dist;

#include "dialects/Dist/DistDialect.cpp.inc"

void DistDialect::initialize() {}

Expected<Mesh> dist::meshOf(Operation *op) {
  for (Operation *at = op; at; at = at->getParentOp())
    if (auto text = at->getAttrOfType<StringAttr>(meshAttr))
      return Mesh::parse(text.getValue().str());
  return makeError("no enclosing op has a dist.mesh attribute");
}

Expected<Strategy> dist::strategyOf(const Mesh &mesh, Operation *op,
                                    const ShardingRule &rule) {
  auto text = op->getAttrOfType<StringAttr>(strategyAttr);
  if (!text)
    return Strategy::replicated(rule);
  auto strategy = Strategy::parse(text.getValue().str(), mesh, rule);
  if (!strategy)
    return strategy;
  if (auto ok = verifyStrategy(mesh, rule, *strategy); !ok)
    return tl::unexpected(ok.error());
  return strategy;
}

void dist::setStrategy(const Mesh &mesh, Operation *op, const Strategy &strategy) {
  op->setAttr(strategyAttr, StringAttr::get(op->getContext(), strategy.str(mesh)));
}

/// On an op of a partitioned program: the layout its local result has.
static LogicalResult verifySourceLayout(Operation *op, StringAttr text) {
  auto mesh = meshOf(op);
  if (!mesh)
    return op->emitOpError("has a dist.layout, but ") << mesh.error().message;
  auto layout = Layout::parse(text.getValue().str(), *mesh);
  if (!layout)
    return op->emitOpError("has a bad dist.layout: ") << layout.error().message;
  if (layout->localShape() != shapeOf(op->getResult(0)))
    return op->emitOpError("has a dist.layout of local shape [")
           << ArrayRef(layout->localShape()) << "], but a result of type "
           << op->getResult(0).getType();
  return success();
}

LogicalResult DistDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  auto text = dyn_cast<StringAttr>(attr.getValue());
  if (!text)
    return op->emitOpError("expected ") << attr.getName() << " to be a string";
  if (attr.getName() == meshAttr) {
    auto mesh = Mesh::parse(text.getValue().str());
    if (!mesh)
      return op->emitOpError("has a bad dist.mesh: ") << mesh.error().message;
    return success();
  }
  if (attr.getName() == layoutAttr && op->getNumResults() == 1)
    return verifySourceLayout(op, text);
  if (attr.getName() != strategyAttr)
    return op->emitOpError("has an unknown attribute ") << attr.getName();
  auto shardable = dyn_cast<ShardingRuleOpInterface>(op);
  if (!shardable)
    return op->emitOpError("has a dist.strategy but no sharding rule");
  auto mesh = meshOf(op);
  if (!mesh)
    return op->emitOpError("has a dist.strategy, but ") << mesh.error().message;
  // Broken operand types are the op verifier's to report.
  auto rule = shardable.inferShardingRule();
  if (!rule)
    return success();
  auto strategy = strategyOf(*mesh, op, *rule);
  if (!strategy)
    return op->emitOpError("has a bad dist.strategy: ") << strategy.error().message;
  return success();
}

static LogicalResult verifyLayoutText(Operation *op, NamedAttribute attr, Type type,
                                      const Twine &what) {
  auto text = dyn_cast<StringAttr>(attr.getValue());
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (attr.getName() != layoutAttr || !text || !tensor)
    return op->emitOpError("has an unknown or misplaced attribute ")
           << attr.getName() << " on " << what;
  auto mesh = meshOf(op);
  if (!mesh)
    return op->emitOpError("has a dist.layout, but ") << mesh.error().message;
  auto layout = Layout::parse(text.getValue().str(), *mesh);
  if (!layout)
    return op->emitOpError("has a bad dist.layout on ")
           << what << ": " << layout.error().message;
  if (auto ok = layout->verify(*mesh); !ok)
    return op->emitOpError("has a bad dist.layout on ")
           << what << ": " << ok.error().message;
  return success();
}

LogicalResult DistDialect::verifyRegionArgAttribute(Operation *op, unsigned region,
                                                    unsigned argument,
                                                    NamedAttribute attr) {
  Type type = op->getRegion(region).getArgument(argument).getType();
  return verifyLayoutText(op, attr, type, "argument " + Twine(argument));
}

LogicalResult DistDialect::verifyRegionResultAttribute(Operation *op, unsigned,
                                                       unsigned result,
                                                       NamedAttribute attr) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitOpError("has a dist attribute on a result but is not a function");
  return verifyLayoutText(op, attr, function.getResultTypes()[result],
                          "result " + Twine(result));
}
