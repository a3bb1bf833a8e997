//===- Task.h - Who runs what when ------------------------------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_TASK_TASK_H
#define PARTITA_DIALECTS_TASK_TASK_H

#include "dialects/Dist/Dist.h"
#include "partita/Base/Bundle/Schedule.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Task/TaskDialect.h.inc"

#include "dialects/Task/TaskEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Task/TaskAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Task/TaskTypes.h.inc"

#define GET_OP_CLASSES
#include "dialects/Task/TaskOps.h.inc"

namespace partita::task_ir {

/// On the module: how often segments run in a request.
inline constexpr llvm::StringLiteral microBatchesAttr = "task.micro_batches";
int64_t microBatchesOf(mlir::ModuleOp module);
/// On the module, names: the inputs and outputs of which micro-batches are slices of the
/// first dim, and the outputs in the model's order. See BundleEntry.
inline constexpr llvm::StringLiteral slicedAttr = "task.sliced";
inline constexpr llvm::StringLiteral outputsAttr = "task.outputs";
/// On the module of a step in stages, names: the parameters that it trains, in the
/// model's order.
inline constexpr llvm::StringLiteral trainedAttr = "task.trained";

/// On arguments and results of a function that a segment is to run: the buffer, by a name
/// that those of one program share.
inline constexpr llvm::StringLiteral bufferAttr = "task.buffer";
/// On such a function, a level: it runs once in a request, behind those of lower levels.
inline constexpr llvm::StringLiteral onceAttr = "task.once";

/// The module's programs, transfers and schedules as plain structs, in their order in the
/// module; the module has been verified.
schedule::Pipeline pipelineOf(mlir::ModuleOp module);

/// Writes the schedules of `pipeline`, made by pipelineOf of this module, into it.
void setSchedules(mlir::ModuleOp module, const schedule::Pipeline &pipeline);

/// Makes the buffers of a function's arguments and results, in the program that the
/// builder stands in. Both ends of a state have one. They are called after the tensor
/// that the file has there, `graph.name`, or else as their symbol.
class FunctionBuffers {
public:
  /// Symbols begin with `prefix`: of a program with several functions.
  FunctionBuffers(mlir::func::FuncOp function, dist::MeshAttr mesh,
                  std::string prefix = "");
  /// `isBound`: it is a tensor of the request. A state is not.
  mlir::FlatSymbolRefAttr argument(mlir::OpBuilder &builder, unsigned i,
                                   int64_t slots = 1, bool isBound = true);
  mlir::FlatSymbolRefAttr result(mlir::OpBuilder &builder, unsigned i, int64_t slots = 1,
                                 bool isBound = true);

private:
  struct State {
    int64_t number = 0;
    dist::StateAttr attribute; ///< says what it begins as
    mlir::FlatSymbolRefAttr symbol;
  };
  mlir::FlatSymbolRefAttr state(mlir::OpBuilder &builder, dist::StateAttr end,
                                dist::LayoutAttr layout, mlir::Type type, int64_t slots);
  dist::LayoutAttr layoutOr(dist::LayoutAttr layout, mlir::Type type) const;

  mlir::func::FuncOp function;
  dist::MeshAttr mesh;
  std::string prefix;
  llvm::DenseMap<mlir::StringAttr, State> states;
};

/// The program that runs a function of level L3 once, on the ranks of its mesh: arguments
/// and results are buffers that are inputs and outputs, or states. The function is
/// copied.
mlir::OwningOpRef<mlir::ModuleOp> straightProgram(mlir::func::FuncOp function);
/// The same for whoever has no more use for the module that the function is in: it may be
/// taken out of it.
mlir::OwningOpRef<mlir::ModuleOp> takeStraightProgram(mlir::func::FuncOp function);

/// What an op states of layouts, by its attributes or the functions that it calls.
struct StatedLayouts {
  std::vector<Layout> operands, results;
};
/// Nothing for other ops. The op has been verified.
std::optional<StatedLayouts> statedLayouts(mlir::Operation *op);

/// The functions that the op runs.
llvm::SmallVector<mlir::func::FuncOp> calleesOf(mlir::Operation *op);

/// Functions of a program come after those that they run, so that no one runs itself.
llvm::LogicalResult verifyCalls(ProgramOp program);

/// Every handle is waited for once, behind its start in the same block.
llvm::LogicalResult verifyHandles(mlir::Operation *root);

/// Communications take place where they start, so that a function with handles is one of
/// level L3.
void inlineStarts(mlir::Operation *root);

} // namespace partita::task_ir

#endif // PARTITA_DIALECTS_TASK_TASK_H
