//===- Import.h - From an ONNX model to the graph dialect -------*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_IMPORT_H
#define PARTITA_PASSES_IMPORT_IMPORT_H

#include "partita/Base/Layout/Mesh.h"
#include "partita/Onnx/Model.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace partita {

/// The bytes behind graph.weight names: the model's own tensors, mapped, and those that
/// folding made.
using WeightTable = std::map<std::string, onnx_model::Tensor, std::less<>>;

struct ImportedModel {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  WeightTable weights;
};

/// One line of what a model contains, for `partita inspect`.
struct UnsupportedNode {
  std::string opType, domain, node, reason;
  int version = 0;
};

/// What import does otherwise for a model that is to train (docs/training.md).
struct TrainingImport {
  /// Whether an initializer trains: it becomes a state, which nothing folds.
  std::function<bool(const onnx_model::Tensor &)> trains;
  /// BatchNormalization takes the moments of the batch; the running ones, initializers,
  /// become states.
  bool batchStatistics = true;
  /// Part of what random operators draw, beside their own seeds.
  uint64_t seed = 0;
};

/// Builds `func @main` of graph ops (level L0). Arguments and results carry their ONNX
/// names as `graph.name`, every op its node's name as a NameLoc, with the names of values
/// beside it (dialects/Interfaces/ValueNames.h). Shape arithmetic and
/// everything else that depends on constants only is folded away.
///
/// For training, states follow the inputs: parameters, which are only read, running
/// moments, and the number of steps done, "step".
///
/// If any node has no import, all of them are reported in `unsupported` and the error
/// lists them; nothing is built.
///
/// `mesh`: the ranks that nodes speak of which are written per rank (docs/manual.md).
Expected<ImportedModel> importModel(mlir::MLIRContext *context,
                                    const onnx_model::Model &model,
                                    std::vector<UnsupportedNode> *unsupported = nullptr,
                                    const TrainingImport *training = nullptr,
                                    const Mesh &mesh = {});

/// Replaces products and convolutions of what pairs of QuantizeLinear and
/// DequantizeLinear give, in an imported program that does not train, by products of
/// bytes. Their results are within ½ + 10⁻⁴ quanta of the real numbers, but their f32
/// sums are not those of the definition. Ops that nobody reads any more stay. Tells
/// whether anything has changed.
Expected<bool> formIntegers(mlir::ModuleOp module, WeightTable &weights);

/// Drops what import notes for that where nobody is to ask for it.
void dropNumbers(mlir::ModuleOp module);

} // namespace partita

#endif // PARTITA_PASSES_IMPORT_IMPORT_H
