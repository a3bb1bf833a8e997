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

/// The flow graph of a single-block function of shardable ops. Flow ops are, in order:
/// one source per argument, one per operation, one sink per returned value.
struct ProgramFlow {
  explicit ProgramFlow(const Mesh &mesh) : graph(mesh) {}

  FlowGraph graph;
  /// Per flow op; null for arguments and sinks.
  std::vector<mlir::Operation *> operations;
  llvm::DenseMap<mlir::Value, int32_t> valueOf;
  int32_t numArguments = 0;
  int32_t firstSink = 0;
};

/// Fails with a diagnostic at an op that has no sharding rule.
mlir::FailureOr<std::unique_ptr<ProgramFlow>>
buildFlow(mlir::FunctionOpInterface function, const Mesh &mesh);

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
/// The entries of one list of a `dist.served`.
std::vector<ServedEntry> servedEntriesIn(mlir::Attribute list);
void clearServed(mlir::FunctionOpInterface function);

/// What the conversions of a planned function cost one rank per run. `flops` and
/// `weightBytes` are not filled in.
Price priceOfConversions(mlir::FunctionOpInterface function);

/// The ONNX node name an op came from, or its op name with a number-free fallback.
std::string nodeName(mlir::Operation *op);

} // namespace partita::dist

#endif // PARTITA_DIALECTS_DIST_PROGRAMFLOW_H
