//===- ProgramFlow.h - A function as a flow graph ---------------*- C++ -*-===//
//
// The bridge between IR and the IR-free decisions of lib/Rule: which ops, values and
// rules a function has, and which strategies stand on it.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_DIST_PROGRAMFLOW_H
#define PARTITA_DIALECTS_DIST_PROGRAMFLOW_H

#include "dialects/Dist/Dist.h"
#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Price.h"
#include "partita/Rule/Sharding/Served.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/DenseMap.h"

#include <memory>

namespace partita::dist {

/// What a flow op is that is no operation: where a tensor comes into a function or leaves
/// it, or goes into an op that runs functions (graph.repeat, graph.if) or comes out of
/// it.
struct FlowEnd {
  enum Kind { None, Argument, Result, CallOperand, CallResult } kind = None;
  mlir::Operation *op = nullptr; ///< the function, or the CallingOpInterface op
  unsigned number = 0;

  /// The layout that attributes state: of an op that runs functions it is theirs. Null if
  /// there is none.
  LayoutAttr layout() const;
  /// States it for an end of a function; of others it follows.
  void setLayout(LayoutAttr layout) const;
  /// The use of a value that a sink is.
  mlir::OpOperand &use() const;
};

/// Suffix of the name of a copy, which computes an op again.
inline constexpr char copySuffix[] = "/recompute";

/// The flow graph of a single-block function of shardable ops. Flow ops are, in order:
/// one source per argument, one per operation, one sink per returned value. An op that
/// runs functions is a sink per operand, what its functions are if these are *inlined*,
/// and an op without operands per result. An op that is computed again (dist.recompute)
/// is there twice: its copy, which FlowOp::repeats it, stands before the first reader
/// that is not of the forward pass.
struct ProgramFlow {
  explicit ProgramFlow(const Mesh &mesh) : graph(mesh) {}

  FlowGraph graph;
  /// Per flow op; null for ends; of a copy the op that it repeats.
  std::vector<mlir::Operation *> operations;
  /// Per flow op.
  std::vector<FlowEnd> ends;
  llvm::DenseMap<mlir::Value, int32_t> valueOf;        ///< not those of copies
  llvm::DenseMap<int32_t, mlir::Operation *> readerOf; ///< of a copy, see above
  bool hasCalls = false;

  bool isCopy(int32_t op) const {
    return graph.ops[static_cast<size_t>(op)].repeats >= 0;
  }
  /// The op that a flow op is, before which a copy will stand, or at which its end
  /// stands: a terminator for results.
  mlir::Operation *where(int32_t op) const;
  /// The value of the program that a value of the graph is; of a copy that of the op.
  mlir::Value valueAt(int32_t number) const;
};

enum class Callees { Apart, Inlined };

/// Fails with a diagnostic at an op that has no sharding rule.
mlir::FailureOr<std::unique_ptr<ProgramFlow>>
buildFlow(mlir::FunctionOpInterface function, const Mesh &mesh,
          Callees callees = Callees::Apart);

/// Says of a planned op that runs functions where these do not have what is one variable
/// in one layout: what a loop carries, and all ends of a branch.
llvm::LogicalResult checkCallees(CallingOpInterface op);

/// How often a run of the program runs the function.
int64_t tripsOf(mlir::FunctionOpInterface function);

/// The strategies that attributes state (arguments and results by dist.layout), one per
/// flow op.
mlir::FailureOr<std::vector<Strategy>> readStrategies(mlir::FunctionOpInterface function,
                                                      const ProgramFlow &flow);
/// Writes them; sources have none, see dist.reshard.
void writeStrategies(mlir::FunctionOpInterface function, const ProgramFlow &flow,
                     const std::vector<Strategy> &strategies);

/// The services that `dist.served` attributes state; an error where one serves some user
/// not. Beside `dist.strategy`, before conversions are ops.
mlir::FailureOr<Servings> readServings(mlir::FunctionOpInterface function,
                                       const ProgramFlow &flow,
                                       const std::vector<Strategy> &strategies);
void writeServed(mlir::FunctionOpInterface function, const ProgramFlow &flow,
                 int32_t value, const std::vector<ServedEntry> &entries);
/// The entries that stand on a value; none where nothing does.
std::vector<ServedEntry> servedOn(const ProgramFlow &flow, int32_t value);
void clearServed(mlir::FunctionOpInterface function);

/// What the conversions of a planned function, and of those that it runs, cost one rank
/// per run. Of a branch both sides count. `flops` and `weightBytes` are not filled in.
Price priceOfConversions(mlir::FunctionOpInterface function);

/// The ONNX node name an op came from, or its op name with a number-free fallback.
std::string nodeName(mlir::Operation *op);

} // namespace partita::dist

#endif // PARTITA_DIALECTS_DIST_PROGRAMFLOW_H
