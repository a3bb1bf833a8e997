//===- ValueNames.h - What the model's file calls a value -------*- C++ -*-===//
//
// An op is called by the ONNX node that it comes from: a NameLoc. The ONNX names of its
// result stand beside that, as the NameLoc's child: `loc("fc1"("hidden"))`, or several
// where the file has several names for what is one value here (an Identity, a product
// with 1), `loc("fc1"(fused["hidden", "hidden.copy"]))`. Without a child the value is
// called as the node, as nameless nodes are called by their output. Of an op with several
// results the child has one name for each, whose other names are its child:
// `loc("top"(fused["values", "indices"("indices.copy")]))`; one without a name of the
// file is the node's with its number, `top#1`. A constant that is one for several nodes
// says whose imports made it, `loc("fc1"(fused<"made for">["fc1", "fc2"]))`: these nodes
// do not have it as an input. Locations survive rewriting and printing, and no pass has
// to know of them.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_INTERFACES_VALUENAMES_H
#define PARTITA_DIALECTS_INTERFACES_VALUENAMES_H

#include "mlir/IR/Operation.h"

namespace partita {

/// Of a module: a dictionary from names of nodes to paths of the framework's modules that
/// they come from, {"node_linear_7" = "model.layers.0.q_proj"}. Gone once strategies are
/// decided: only who speaks of the model's parts needs it.
inline constexpr char modulePathsAttr[] = "graph.modules";
/// Likewise, a dictionary from names of nodes to the names of their inputs in the order
/// of the model's file, where the ops that a node has become read them in another order:
/// {"pick" = ["table", "ids"]}. Hints number a node's inputs by it.
inline constexpr char nodeInputsAttr[] = "graph.node_inputs";

/// The part of a training step that an op belongs to (dist.PhaseAttr); none: forward. The
/// attribute stays on the op at every level; conversions have theirs from L2 on.
inline constexpr char phaseAttr[] = "dist.phase";
/// The stage of a pipeline that an op of a training step belongs to, an integer, at L1
/// before the step is split; ops without one follow what they read.
inline constexpr char stageAttr[] = "dist.stage";
/// On a forward op that the backward pass computes again (dist.RecomputeAttr), at L1 and
/// L2.
inline constexpr char recomputeAttr[] = "dist.recompute";
/// Number of micro-batches that were chosen, an integer on a module that is to become a
/// training step and has the rows of one micro-batch. Gone once the module is a step.
inline constexpr char accumulationAttr[] = "graph.accumulation";
/// The parameter, by name, that something of a training step belongs to: on an argument
/// that is a state, or a sum of gradients of micro-batches; on an update op that reads or
/// makes a tensor of the parameter's shape.
inline constexpr char parameterAttr[] = "graph.parameter";
/// On inputs of a training step: their first dim is the batch.
inline constexpr char batchAttr[] = "graph.batch";

/// Gives `to` the marks that `from` has as a part of a training step, what is computed
/// again among them, and no others: an op that stands in the place of another belongs
/// where that did.
void copyStepMarks(mlir::Operation *from, mlir::Operation *to);

/// The names of an op's result, its own first; empty if it has the node's alone.
llvm::SmallVector<llvm::StringRef> valueNames(mlir::OpResult result);

/// Says that a result of an op, which has a node's name, is what the file calls `name`.
void setValueName(mlir::OpResult result, llvm::StringRef name);

/// Gives a value another name of the file; its own stays the first. An argument of a
/// function has its others in an attribute, `graph.other_names`.
void addValueName(mlir::Value value, llvm::StringRef name);

/// Says that the imports of these nodes made a constant.
void setMakers(mlir::Operation *constant, llvm::ArrayRef<llvm::StringRef> nodes);

/// The nodes whose imports made it, where that is said.
llvm::SmallVector<llvm::StringRef> makersOf(mlir::Operation *op);

/// The names of an argument of a function besides `graph.name`.
llvm::SmallVector<llvm::StringRef> otherNames(mlir::BlockArgument argument);

/// The value takes the place of the result of `gone`, which changes nothing, with all its
/// names: hints may name a node that is no op any more.
void takeValueNames(mlir::Value value, mlir::Operation *gone);

} // namespace partita

#endif // PARTITA_DIALECTS_INTERFACES_VALUENAMES_H
