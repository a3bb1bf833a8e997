//===- RankFiles.h - What one rank computes, as an ONNX model ---*- C++ -*-===//
//
// The way back from L3: a partitioned program and the number of a rank become an ONNX
// model with the rank's slices of the weights, in which collectives are nodes
// (docs/rank-files.md). Models of different ranks have the same nodes and differ in the
// values of initializers alone, so that import can make one program of them again.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_RANKFILES_RANKFILES_H
#define PARTITA_PASSES_RANKFILES_RANKFILES_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Base/Layout/Mesh.h"
#include "partita/Onnx/Model.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <map>
#include <set>

namespace partita {

/// The operators that stand for collectives.
enum class RankDialect : uint8_t {
  Partita,  ///< domain `partita`, as mode manual reads it (docs/manual.md)
  Ort,      ///< com.microsoft AllReduce, AllGather and AllToAll
  TensorRt, ///< DistCollective, which works along dim 0
};
/// "partita", "ort" or "tensorrt".
std::optional<RankDialect> rankDialectFromName(std::string_view name);

/// The model of a weight's name: its tensor, with its values.
using WeightTensor = std::function<Expected<const onnx_model::Tensor *>(llvm::StringRef)>;

/// An op that no program of L3 has when it is written, and why it has none.
struct WithoutRankForm {
  llvm::StringRef op, reason;
};
llvm::ArrayRef<WithoutRankForm> opsWithoutRankForm();
/// Tells whether the op of this name can be written as ONNX nodes. Attributes that have
/// no form are errors of rankModel.
bool hasRankForm(mlir::OperationName op);

/// Replaces ops that stand for several by these, in all functions of a partitioned
/// module, so that rankModel finds ops that ONNX has.
Expected<void> expandForRanks(mlir::ModuleOp module);

/// A stage of a pipeline, beside its function.
struct RankStage {
  int64_t stage = 0, stages = 1;
  /// Arguments that come from other stages and results that go to others, by name, with
  /// the ranks of the pipeline that send or receive them.
  std::map<std::string, std::vector<int64_t>> received, sent;
  /// Results that are outputs of the model, too.
  std::set<std::string> outputs;
  std::map<std::string, std::string> metadata;
};

/// The model of what `rank` computes: function @main of the partitioned module, which
/// expandForRanks has changed; `rank` is one of the function's mesh. An error names the
/// op that the dialect cannot say.
Expected<onnx_model::Model> rankModel(mlir::ModuleOp module, int64_t rank,
                                      RankDialect dialect, const WeightTensor &weights,
                                      const RankStage &stage = {});

/// An error if files per rank cannot have the step of several stages, of level L4: it has
/// too many micro-batches to write out, or the ranks of a program have schedules of their
/// own.
Expected<void> checkStep(mlir::ModuleOp module);

/// The model of what a rank does in one such step: `rank` is one of the mesh of the
/// module's program `group`. checkStep and expandForRanks have seen the module.
/// `metadata`: properties beside those of states and mesh. An error names the op that the
/// dialect cannot say.
Expected<onnx_model::Model>
rankStepModel(mlir::ModuleOp module, int64_t group, int64_t rank, RankDialect dialect,
              const WeightTensor &weights,
              const std::map<std::string, std::string> &metadata);

} // namespace partita

#endif // PARTITA_PASSES_RANKFILES_RANKFILES_H
