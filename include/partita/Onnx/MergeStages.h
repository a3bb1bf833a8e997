//===- MergeStages.h - The files of a pipeline's ranks ----------*- C++ -*-===//
//
// A rank of a pipeline has a file for each of its stages (docs/rank-files.md). Nodes
// `Send` and `Receive` say what goes from one stage to another.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_ONNX_MERGESTAGES_H
#define PARTITA_ONNX_MERGESTAGES_H

#include "partita/Base/Error.h"
#include "partita/Base/Layout/Mesh.h"
#include "partita/Onnx/Model.h"

#include <optional>
#include <string>
#include <vector>

namespace partita::onnx_model {

/// Properties of a file of a pipeline: the number of micro-batches, of one of which the
/// file is the program; names of inputs and outputs that have the batch, a line for each;
/// names of the model's inputs and outputs in its order, a line for each.
inline constexpr std::string_view microBatchesKey = "partita.micro_batches";
inline constexpr std::string_view slicedKey = "partita.sliced";
inline constexpr std::string_view inputsKey = "partita.inputs";
inline constexpr std::string_view outputsKey = "partita.outputs";
/// The mesh of a group's ranks in a training step of several stages: "dp=2".
inline constexpr std::string_view meshKey = "partita.mesh";

/// All properties that files of one stage must have in common.
inline constexpr std::string_view commonKeys[] = {statesKey, microBatchesKey, slicedKey,
                                                  inputsKey, outputsKey,      meshKey};

/// The place of a rank's file in a pipeline, which the name of its graph says.
struct StagePlace {
  int64_t rank = 0, ranks = 1, stage = 0, stages = 1;
  /// The file is what a rank does in a whole training step, and `stage` is a group of
  /// ranks, which may run several stages (MergeStep.h).
  bool isGroup = false;

  /// "rank 1 of 2 of stage 0 of 3"; of a step "rank 1 of 2 of group 0 of 3".
  std::string text() const;
  /// The place of which the text is `text`; none: it is another text.
  static std::optional<StagePlace> parse(const std::string &text);
};

/// Lines of a property; none if the model does not have it.
std::vector<std::string> linesOf(const Model &model, std::string_view key);

struct StagedModels {
  std::vector<Model> stages; ///< each for all ranks of its mesh
  /// A value that one stage sends: an output of that stage's model and an input of those
  /// that receive it, of this name.
  struct Crossing {
    std::string name;
    int32_t from = 0;
    std::vector<int32_t> to;
  };
  std::vector<Crossing> crossings;
};

/// Makes a program per stage of the files of all ranks; `meshes` by stage, and `ranks`,
/// the numbers that a stage's ranks have in the pipeline. Files whose
/// graph's name says stage and rank may come in any order, others come stage by stage.
/// Initializers of one name that are not equal get other names in later stages.
///
/// An error names the file that is missing or there twice, or the node whose value no
/// earlier stage sends or nobody receives, or which names other ranks than those.
Expected<StagedModels> mergeStages(std::vector<Model> files,
                                   const std::vector<Mesh> &meshes,
                                   const std::vector<std::vector<int64_t>> &ranks);

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_MERGESTAGES_H
