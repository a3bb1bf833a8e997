//===- ValueNames.cpp - What the model's file calls a value ---------------===//
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace partita;

SmallVector<StringRef> partita::valueNames(Operation *op) {
  SmallVector<StringRef> names;
  auto add = [&](Location location) {
    if (auto named = dyn_cast<NameLoc>(location))
      names.push_back(named.getName());
  };
  auto node = dyn_cast<NameLoc>(op->getLoc());
  if (!node)
    return names;
  if (auto fused = dyn_cast<FusedLoc>(node.getChildLoc()))
    llvm::for_each(fused.getLocations(), add);
  else
    add(node.getChildLoc());
  return names;
}

static void setNames(Operation *op, NameLoc node, ArrayRef<StringRef> names) {
  Builder builder(op->getContext());
  SmallVector<Location> locations;
  for (StringRef name : names)
    locations.push_back(NameLoc::get(builder.getStringAttr(name)));
  Location child = locations.size() == 1 ? locations[0] : builder.getFusedLoc(locations);
  op->setLoc(NameLoc::get(node.getName(), child));
}

void partita::setValueName(Operation *op, StringRef name) {
  if (auto node = dyn_cast<NameLoc>(op->getLoc()); node && node.getName() != name)
    setNames(op, node, name);
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
  SmallVector<StringRef> names = valueNames(op);
  if (names.empty())
    names.push_back(node.getName());
  if (llvm::is_contained(names, name))
    return;
  names.push_back(name);
  setNames(op, node, names);
}

void partita::takeValueNames(Value value, Operation *gone) {
  SmallVector<StringRef> names = valueNames(gone);
  if (auto node = dyn_cast<NameLoc>(gone->getLoc()))
    names.push_back(node.getName());
  for (StringRef name : names)
    addValueName(value, name);
}
