//===- ValueNames.cpp - What the model's file calls a value ---------------===//
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace partita;

void partita::copyStepMarks(Operation *from, Operation *to) {
  for (StringRef name : {phaseAttr, stageAttr, recomputeAttr, parameterAttr})
    if (Attribute mark = from->getAttr(name))
      to->setAttr(name, mark);
    else
      to->removeAttr(name);
}

/// The metadata of a location that lists nodes, not names of a value.
static constexpr char madeFor[] = "made for";

static bool listsMakers(FusedLoc location) {
  auto metadata = dyn_cast_or_null<StringAttr>(location.getMetadata());
  return metadata && metadata.getValue() == madeFor;
}

/// The part of a location that lists nodes, if it has one.
static FusedLoc makersIn(Location location) {
  if (auto named = dyn_cast<NameLoc>(location))
    return makersIn(named.getChildLoc());
  auto fused = dyn_cast<FusedLoc>(location);
  if (!fused || listsMakers(fused))
    return fused;
  for (Location part : fused.getLocations())
    if (FusedLoc found = makersIn(part))
      return found;
  return {};
}

/// The names in a location: itself and its child, or several that are one value's.
static void addNames(Location location, SmallVector<StringRef> &names) {
  if (auto fused = dyn_cast<FusedLoc>(location); fused && !listsMakers(fused))
    for (Location part : fused.getLocations())
      addNames(part, names);
  if (auto named = dyn_cast<NameLoc>(location)) {
    names.push_back(named.getName());
    addNames(named.getChildLoc(), names);
  }
}

/// The child of a node's location that is about one of several results.
static std::optional<NameLoc> partOf(NameLoc node, unsigned result, size_t numResults) {
  auto fused = dyn_cast<FusedLoc>(node.getChildLoc());
  if (!fused || fused.getLocations().size() != numResults)
    return std::nullopt;
  return dyn_cast<NameLoc>(fused.getLocations()[result]);
}

static std::string numbered(NameLoc node, unsigned result) {
  return node.getName().str() + "#" + std::to_string(result);
}

SmallVector<StringRef> partita::valueNames(OpResult result) {
  SmallVector<StringRef> names;
  Operation *op = result.getOwner();
  auto node = dyn_cast<NameLoc>(op->getLoc());
  if (!node)
    return names;
  if (op->getNumResults() == 1)
    addNames(node.getChildLoc(), names);
  else if (auto part = partOf(node, result.getResultNumber(), op->getNumResults()))
    addNames(*part, names);
  return names;
}

/// One location of the names and the list of makers, or nothing if there are none.
static Location locationOf(MLIRContext *context, ArrayRef<StringRef> names,
                           FusedLoc makers = {}) {
  Builder builder(context);
  SmallVector<Location> locations;
  for (StringRef name : names)
    locations.push_back(NameLoc::get(builder.getStringAttr(name)));
  if (makers)
    locations.push_back(makers);
  if (locations.empty())
    return builder.getUnknownLoc();
  return locations.size() == 1 ? locations[0] : builder.getFusedLoc(locations);
}

static void setNames(OpResult result, NameLoc node, ArrayRef<StringRef> names) {
  Operation *op = result.getOwner();
  MLIRContext *context = op->getContext();
  if (op->getNumResults() == 1)
    return op->setLoc(
        NameLoc::get(node.getName(), locationOf(context, names, makersIn(node))));
  SmallVector<Location> parts;
  for (OpResult other : op->getResults()) {
    SmallVector<StringRef> all =
        other == result ? SmallVector<StringRef>(names) : valueNames(other);
    std::string own =
        all.empty() ? numbered(node, other.getResultNumber()) : all.front().str();
    parts.push_back(
        NameLoc::get(StringAttr::get(context, own),
                     locationOf(context, ArrayRef(all).drop_front(all.empty() ? 0 : 1))));
  }
  op->setLoc(NameLoc::get(node.getName(), FusedLoc::get(context, parts)));
}

void partita::setValueName(OpResult result, StringRef name) {
  auto node = dyn_cast<NameLoc>(result.getOwner()->getLoc());
  if (node && (node.getName() != name || result.getOwner()->getNumResults() != 1))
    setNames(result, node, name);
}

void partita::setMakers(Operation *constant, ArrayRef<StringRef> nodes) {
  auto own = dyn_cast<NameLoc>(constant->getLoc());
  if (!own)
    return;
  MLIRContext *context = constant->getContext();
  SmallVector<Location> locations;
  for (StringRef node : nodes)
    locations.push_back(NameLoc::get(StringAttr::get(context, node)));
  FusedLoc makers = FusedLoc::get(context, locations, StringAttr::get(context, madeFor));
  SmallVector<StringRef> names = valueNames(constant->getOpResult(0));
  constant->setLoc(NameLoc::get(own.getName(), locationOf(context, names, makers)));
}

SmallVector<StringRef> partita::makersOf(Operation *op) {
  SmallVector<StringRef> nodes;
  if (FusedLoc makers = makersIn(op->getLoc()))
    for (Location node : makers.getLocations())
      nodes.push_back(cast<NameLoc>(node).getName());
  return nodes;
}

static constexpr char otherNamesAttr[] = "graph.other_names";

SmallVector<StringRef> partita::otherNames(BlockArgument argument) {
  SmallVector<StringRef> names;
  auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (auto known = function ? function.getArgAttrOfType<ArrayAttr>(
                                  argument.getArgNumber(), otherNamesAttr)
                            : ArrayAttr())
    for (Attribute name : known)
      names.push_back(cast<StringAttr>(name).getValue());
  return names;
}

static void addArgumentName(BlockArgument argument, StringRef name) {
  auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  SmallVector<StringRef> names = otherNames(argument);
  if (!function || llvm::is_contained(names, name))
    return;
  names.push_back(name);
  function.setArgAttr(argument.getArgNumber(), otherNamesAttr,
                      Builder(argument.getContext()).getStrArrayAttr(names));
}

void partita::addValueName(Value value, StringRef name) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return addArgumentName(argument, name);
  Operation *op = value.getDefiningOp();
  auto node = dyn_cast<NameLoc>(op->getLoc());
  if (!node)
    return;
  auto result = cast<OpResult>(value);
  SmallVector<StringRef> names = valueNames(result);
  if (names.empty() && op->getNumResults() == 1)
    names.push_back(node.getName());
  if (llvm::is_contained(names, name))
    return;
  names.push_back(name);
  setNames(result, node, names);
}

void partita::takeValueNames(Value value, Operation *gone) {
  SmallVector<StringRef> names = valueNames(gone->getOpResult(0));
  if (auto node = dyn_cast<NameLoc>(gone->getLoc()))
    names.push_back(node.getName());
  for (StringRef name : names)
    addValueName(value, name);
}
