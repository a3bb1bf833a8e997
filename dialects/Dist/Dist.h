//===- Dist.h - Meshes, strategies, layouts, conversions in IR --*- C++ -*-===//
#ifndef PARTITA_DIALECTS_DIST_DIST_H
#define PARTITA_DIALECTS_DIST_DIST_H

#include "dialects/Interfaces/OpInterfaces.h"
#include "partita/Base/Layout/Halo.h"
#include "partita/Base/Layout/Pieces.h"
#include "partita/Base/Layout/Reshard.h"
#include "partita/Base/Phase.h"
#include "partita/Rule/Sharding/NamedStrategy.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Dist/DistDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Dist/DistAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/Dist/DistOps.h.inc"

namespace partita::dist {

inline constexpr llvm::StringLiteral meshAttr = "dist.mesh";
inline constexpr llvm::StringLiteral strategyAttr = "dist.strategy";
inline constexpr llvm::StringLiteral ruleAttr = "dist.rule";
inline constexpr llvm::StringLiteral layoutAttr = "dist.layout";
/// How the users of an argument, or of each result of an op, are served, where a plan
/// says so: per value a list of [layout or number of a window buffer, entry it comes
/// from]. Gone when conversions are ops. See ServedEntry.
inline constexpr llvm::StringLiteral servedAttr = "dist.served";
/// Likewise of the copy of an op that is computed again, beside dist.recompute.
inline constexpr llvm::StringLiteral servedAgainAttr = "dist.served_again";
/// On arguments and results of a function, see StateAttr.
inline constexpr llvm::StringLiteral stateAttr = "dist.state";
/// On the module: what a search knows of its plan, numbers by name.
inline constexpr llvm::StringLiteral certificateAttr = "dist.certificate";
/// On a function that a schedule runs: how often in a request, an integer.
inline constexpr llvm::StringLiteral tripsAttr = "dist.trips";
/// On the function of a pipeline's stage that trains, an integer: the micro-batches of
/// which the stage keeps at once what its backward part reads.
inline constexpr llvm::StringLiteral keptMicroBatchesAttr = "dist.kept_micro_batches";
/// On the module: reshard by slices, gathers and reductions only.
inline constexpr llvm::StringLiteral noAllToAllAttr = "dist.no_all_to_all";

/// The mesh of the closest enclosing op that has one; null if there is none.
MeshAttr findMesh(mlir::Operation *op);
/// Where that mesh is said, for errors about another one.
mlir::InFlightDiagnostic noteMesh(mlir::InFlightDiagnostic diagnostic,
                                  mlir::Operation *op);
/// As findMesh, with an error in its place.
Expected<Mesh> meshOf(mlir::Operation *op);
/// How the conversions of a program are planned.
ReshardOptions reshardOptionsOf(mlir::Operation *op);

StrategyAttr strategyAttrOf(mlir::Operation *op);
/// The op's strategy for `rule`, checked against it; replicated if it has none.
Expected<Strategy> strategyOf(mlir::Operation *op, const ShardingRule &rule);
/// As above; an error of the rule passes through.
Expected<Strategy> strategyOf(mlir::Operation *op, const Expected<ShardingRule> &rule);
void setStrategy(MeshAttr mesh, mlir::Operation *op, const ShardingRule &rule,
                 const Strategy &strategy);

/// The part of a training step that an op belongs to; forward if it says nothing.
Phase phaseOf(mlir::Operation *op);
void setPhase(mlir::Operation *op, Phase phase);
/// The part that made a value: that of its op; of a result of an op that runs functions,
/// that of what they yield there, the latest of several. Nothing where no part made the
/// value (an argument, a weight, a constant), or an op of another dialect without a
/// phase.
std::optional<Phase> phaseOf(mlir::Value value);
/// Whether the op is a `dist.reshard` or `dist.window`.
bool isConversion(mlir::Operation *op);
/// The form that a conversion leads to, whatever its epoch: a layout, canonical, or
/// windows.
mlir::Attribute formOf(mlir::Operation *conversion);
/// The part that a `dist.reshard` or `dist.window` belongs to: that of what is converted
/// at first; if nothing made that, the earliest part that reads the conversion, directly
/// or through others, in functions that an op runs, too.
Phase phaseOfConversion(mlir::Operation *conversion);
/// Gives every conversion of the function its phase; those that have one keep it.
void markConversions(mlir::FunctionOpInterface function);
/// That no op reads what a later part made, in functions that it runs neither. As a
/// verifier, at the reader, with a note at the maker.
mlir::LogicalResult verifyPhases(mlir::FunctionOpInterface function);

/// The op's mark; null if it is not computed again.
RecomputeAttr recomputeOf(mlir::Operation *op);
/// The marked ops that an op of another part than forward reads, directly or by the copy
/// of another one.
llvm::SmallPtrSet<mlir::Operation *, 16> neededAgain(mlir::FunctionOpInterface function);
/// That all marked ops of the function are needed again, and that none gives a state. As
/// a verifier, with a note at a reader.
mlir::LogicalResult verifyRecompute(mlir::FunctionOpInterface function);

/// A state of a function: the argument it comes by, the result it goes by; −1: none.
struct StateEnds {
  StateAttr state; ///< the argument's, if there is one
  int32_t argument = -1, result = -1;
};
/// In the order of arguments, then those that only go out.
llvm::SmallVector<StateEnds> statesOf(mlir::Operation *function);
StateAttr argumentState(mlir::Operation *function, unsigned argument);
StateAttr resultState(mlir::Operation *function, unsigned result);
/// That no state has two arguments or results, and that both ends are of one type and,
/// where they have layouts, in one layout. As a verifier, at the function.
mlir::LogicalResult verifyStates(mlir::Operation *function);

/// The `dist.layout` of an argument or result of a function, or of a source op; null if
/// it has none.
LayoutAttr argumentLayout(mlir::Operation *function, unsigned argument);
LayoutAttr resultLayout(mlir::Operation *function, unsigned result);
LayoutAttr sourceLayout(mlir::Operation *op);

} // namespace partita::dist

#endif // PARTITA_DIALECTS_DIST_DIST_H
